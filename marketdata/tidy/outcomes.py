"""Outcomes of markets: the payoff of each token, and when it was known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_kind_of, distinct_rows, in_memory, is_in_memory, names_of
from marketdata.adapters.frame import Column, Native
from marketdata.adapters.frames import times
from marketdata.adapters.normalization import is_missing
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.order import NO_TIME
from marketdata.points.schema import ID_COLUMNS, require
from marketdata.tidy.records import columns_of
from marketdata.times import to_datetime, to_micros

T = TypeVar("T")
Outcomes = Native | Mapping[str, object]
Tokens = Iterable[tuple[str, str, str | None]]
_RECORD_COLUMNS = ("market_id", "token_ids", "token_labels")
_OUTCOME_COLUMNS = ("resolved_token_id", "resolved_token_label", "payoffs")
_END_TIMES = ("ends_at", "closed_at", "resolved_at")
_ALLOWED_OUTCOMES = "what md.outcomes(markets) gives, frames of market records"
_COLUMNS_READ = (*ID_COLUMNS, *_RECORD_COLUMNS[1:], *_OUTCOME_COLUMNS, "payoff", *_END_TIMES, "end_date")


def outcomes(markets: F) -> F:
    """The payoff of each token of resolved markets, and when its market ended.

    Functions that need the time of resolution use ``resolved_at``. Where it is null they use ``closed_at`` of a market
    with payoffs.

    Parameters
    ----------
    markets
        Market records of any frame kind, as from `Archive.markets` or `Client.markets`: ``market_id token_ids
        token_labels``. They also have one of ``resolved_token_id``, ``resolved_token_label`` and ``payoffs``, a list as
        long as ``token_ids`` (0.5 each for a tie, any share for a scalar market).

    Returns
    -------
    frame
        One row per token, by market, with tokens in the order of the record:

        - ``market_id token_id token_label``.
        - ``payoff`` [USD per share, 0 to 1]: of ``payoffs``, or 1 for the token that the market resolved to and 0 for
          its others. It is null while the market is open.
        - ``ends_at``: the scheduled end, or ``end_date`` of the record [UTC].
        - ``closed_at``, ``resolved_at``: the end of trading, and when the outcome was known [UTC].

        Times are null where the record lacks them.

    Raises
    ------
    NotTidyError
        A market resolved to a token that it does not have, a payoff is outside of 0 to 1, or records contradict
        themselves.

    Examples
    --------
    >>> markets = md.testing.markets("polars")
    >>> md.outcomes(markets).select("token_label", "payoff").rows()
    [('Yes', 1.0), ('No', 0.0)]
    >>> tied = md.testing.markets("polars").with_columns(
    ...     resolved_token_id=None, resolved_token_label=None, payoffs=[0.5, 0.5]
    ... )
    >>> md.outcomes(tied)["payoff"].to_list()
    [0.5, 0.5]
    """
    data = _of_records(columns_of(markets, _COLUMNS_READ))
    columns: dict[str, Column] = {c: data[c] for c in ID_COLUMNS}
    columns["payoff"] = np.array(data["payoff"], float)
    for c in _END_TIMES:
        columns[c] = times(np.array([NO_TIME if t is None else to_micros(t, c) for t in data[c]], np.int64))
    return as_kind_of(markets, columns, len(data["market_id"]))  # type: ignore[no-any-return]


def resolution_times(given: Native) -> dict[str, int]:
    """When markets resolved [microseconds], from outcomes or market records; ConfigError if it is not a frame."""
    data = columns_of(given, _COLUMNS_READ, _ALLOWED_OUTCOMES)
    if "token_ids" in data or not {"resolved_at", "closed_at"} & data.keys():
        data = _of_records(data)
    require("A frame of outcomes", ["market_id"], data)
    return _resolved(data)


def _resolved(data: Mapping[str, list[Any]]) -> dict[str, int]:
    """``resolved_at`` of outcomes by market, or ``closed_at`` where it has a payoff and no time of resolution."""
    none = [None] * len(data["market_id"])
    resolved = {}
    columns = (data.get(c, none) for c in ("resolved_at", "closed_at", "payoff"))
    for market, resolved_at, closed_at, payoff in zip(data["market_id"], *columns, strict=True):
        if resolved_at is not None:
            resolved[market] = to_micros(resolved_at, "resolved_at")
        elif closed_at is not None and payoff is not None:
            resolved[market] = to_micros(closed_at, "closed_at")
    return resolved


class Payoffs:
    """Payoffs of ``tokens``, (market_id, token_id, token_label) tuples, from any form of ``outcomes=`` (see `brier`).

    ``first`` is the first token of each market, where the outcomes have an order, ``named`` all that they name of it,
    and ``open`` the markets that they say have not resolved. NotTidyError if a frame contradicts itself, ConfigError
    for other keys and values.
    """

    def __init__(self, given: Outcomes, tokens: Tokens) -> None:
        labels: dict[str, dict[str, str | None]] = defaultdict(dict)
        for market, token, label in tokens:
            labels[market][token] = label
        self.labels: Mapping[str, Mapping[str, str | None]] = labels
        self.resolved_at: dict[str, int] = {}
        self.first: dict[str, str] = {}
        self.named: dict[str, set[str]] = defaultdict(set)
        self.open: set[str] = set()
        if isinstance(given, Mapping):
            if given and labels and not any(str(market) in labels for market in given):
                raise ConfigError(
                    f"None of the keys of outcomes is a market_id of the frame, such as {next(iter(labels))!r}; the "
                    f"first is {next(iter(given))!r}. Allowed are market ids; a slug is none."
                )
            self.payoff = self._from_mapping(given)
        else:
            self.payoff = self._from_frame(given)

    def _from_mapping(self, given: Mapping[str, object]) -> dict[tuple[str, str], float]:
        paid: dict[tuple[str, str], float] = {}
        for market, value in ((str(market), value) for market, value in given.items()):
            if isinstance(value, Mapping):
                self.named[market] = {str(name) for name in value}
                named = ((self._winner(market, name), payoff) for name, payoff in value.items())
                paid |= {(market, token): _in_range(payoff, market) for token, payoff in named if token is not None}
            elif (winner := self._winner(market, value)) is None:
                self.open.add(market)
            else:
                paid |= {(market, token): float(token == winner) for token in self.labels.get(market, ())}
        return paid

    def _winner(self, market: str, value: object) -> str | None:
        if value is None:
            return None
        tokens = self.labels.get(market, {})
        if isinstance(value, str):
            if value in tokens or not tokens:
                return str(value)
            labelled = [token for token, label in tokens.items() if label == value]
            if len(labelled) == 1:
                return labelled[0]
            # A frame may have only the losing tokens, so a value written like their ids is the token that won. It is
            # not if another market without a common id has it, because short ids repeat.
            others = (other for other in self.labels.values() if tokens.keys().isdisjoint(other))
            if not labelled and all(_alike(value, one) for one in tokens) and not any(value in o for o in others):
                return str(value)
        allowed = ", ".join(f"{token!r} ({label})" for token, label in sorted(tokens.items())) or "a token id"
        raise ConfigError(
            f"outcomes[{market!r}] = {value!r} is refused; allowed are the token that won, by id or label ({allowed}), "
            "and None where the market has not resolved."
        )

    def _from_frame(self, given: Native) -> dict[tuple[str, str], float]:
        allowed = f"{_ALLOWED_OUTCOMES}, and a mapping of market id to the token that won"
        data = columns_of(given, _COLUMNS_READ, allowed)
        if "token_ids" in data:
            data = _of_records(data)
        if "payoff" in data:
            require("A frame of outcomes", ID_COLUMNS[:2], data)
            for market, token in zip(data["market_id"], data["token_id"], strict=True):
                self.first.setdefault(market, token)
                self.named[market].add(token)
            self.resolved_at = _resolved(data)
            paid = _paid(data)
            self.open |= {*data["market_id"]} - {market for market, _ in paid}
            return paid
        require("A frame of outcomes", ("market_id", "resolved_token_id"), data)
        return self._from_mapping(dict(zip(data["market_id"], data["resolved_token_id"], strict=True)))


def _alike(a: str, b: str) -> bool:
    """Whether both are written as ids: digits or hexadecimal, of similar length."""
    same = (a.isdigit() and b.isdigit()) or (a.startswith("0x") and b.startswith("0x"))
    return same and 2 * len(a) >= len(b)


def _paid(data: Mapping[str, list[Any]]) -> dict[tuple[str, str], float]:
    out: dict[tuple[str, str], float] = {}
    for market, token, payoff in zip(data["market_id"], data["token_id"], data["payoff"], strict=True):
        if payoff is None:
            continue
        if isinstance(payoff, str):
            raise NotTidyError(f"payoff contains texts, such as {payoff!r}, not numbers; make it a column of floats.")
        if out.setdefault((market, token), _in_range(payoff, market)) != payoff:
            raise NotTidyError(f"The frame of outcomes has two payoffs of token {token!r} of market {market!r}.")
    return out


def _in_range(payoff: Any, market: str) -> float:
    """The payoff of a share, a number from 0 to 1; NotTidyError for another, such as one in cents."""
    good = hasattr(payoff, "__float__") and not isinstance(payoff, str)
    if not good or not 0 <= float(payoff) <= 1:
        raise NotTidyError(
            f"A payoff of market {market!r} is {payoff!r}; allowed are numbers from 0 to 1 [USD per share], and null "
            "while it is open."
        )
    return float(payoff)


def _of_records(data: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns of `outcomes`; NotTidyError if a frame with rows has no column that says the outcome."""
    has_outcome = any(c in data for c in _OUTCOME_COLUMNS) or data.get("market_id") == []
    missing = () if has_outcome else _OUTCOME_COLUMNS[:1]
    require("A frame of market records", (*_RECORD_COLUMNS, *missing), data)
    none = [None] * len(data["market_id"])
    times = {c: data.get(c, none) for c in _END_TIMES}
    if "end_date" in data:
        ends = zip(times["ends_at"], data["end_date"], strict=True)
        times["ends_at"] = [end if end is not None else date for end, date in ends]
    rows: dict[tuple[str, str], tuple[Any, ...]] = {}
    optional = (data.get(c, none) for c in _OUTCOME_COLUMNS)
    for record in zip(*(data[c] for c in _RECORD_COLUMNS), *optional, *times.values(), strict=True):
        market, ids, labels, won, won_label, shares, *at = record
        tokens = [str(token) for token in (ids if ids is not None else ())]
        names = [None if is_missing(label) else str(label) for label in (labels if labels is not None else ())]
        names = names or [None] * len(tokens)
        if len(names) != len(tokens):
            raise NotTidyError(f"Market {market!r} has {len(tokens)} token_ids and {len(names)} token_labels.")
        if won is None and won_label is not None:
            won = tokens[names.index(won_label)] if names.count(won_label) == 1 else won_label
        payoffs = _payoffs(str(market), tokens, won, shares)
        when = [None if t is None else to_datetime(to_micros(t, c)) for c, t in zip(_END_TIMES, at, strict=True)]
        for token, label, payoff in zip(tokens, names, payoffs, strict=True):
            row = (str(market), token, label, payoff, *when)
            if rows.setdefault((str(market), token), row) != row:
                raise NotTidyError(f"Market {market!r} has two records that differ; keep the right one.")
    ordered = sorted(rows.values(), key=lambda row: row[0])  # by market: the first token of a record stays first
    return {name: [row[i] for row in ordered] for i, name in enumerate((*ID_COLUMNS, "payoff", *_END_TIMES))}


def _payoffs(market: str, tokens: list[str], won: str | None, shares: Iterable[object] | None) -> list[float | None]:
    """The payoff of each token of a record, from its payoffs or the token that won."""
    if won is not None and won not in tokens:
        raise NotTidyError(f"Market {market!r} resolved to {won!r}, which is none of its tokens: {tokens}.")
    if shares is None:
        return [None if won is None else float(token == won) for token in tokens]
    out = [None if is_missing(one) else _in_range(one, market) for one in shares]
    if len(out) != len(tokens):
        raise NotTidyError(f"Market {market!r} has {len(tokens)} token_ids and {len(out)} payoffs.")
    if won is not None and out[tokens.index(won)] != max((one for one in out if one is not None), default=None):
        raise NotTidyError(f"Market {market!r} resolved to {won!r}, but its payoffs are {out}; keep the right ones.")
    return out


def for_tokens(frame: Native, lookup: Callable[[Tokens], T]) -> Callable[[Tokens], T]:
    """The function ``lookup`` of tokens; of a frame that is not in memory its result for all tokens, looked up here."""
    if is_in_memory(frame):
        return lookup
    result = lookup(tokens_of(frame))
    return lambda _: result


def tokens_of(frame: Native) -> list[tuple[str, str, str | None]]:
    """(market_id, token_id, token_label) of each token of a frame of any kind; a lazy frame is queried for them."""
    names = names_of(frame)
    ids = [c for c in ID_COLUMNS if c in names]
    require("A tidy frame", ID_COLUMNS[:2], names)
    table = in_memory(frame if is_in_memory(frame) else distinct_rows(frame, ids))
    each = frames.distinct_ids(table, ids)[0]
    tokens = {(str(market), str(token), label[0] if label else None) for market, token, *label in each}
    return sorted(tokens, key=lambda one: (one[:2], one[2] is not None, one[2] or ""))
