"""Outcomes of markets: the payoff of each token, and when it was known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, as_kind_of, distinct_rows, in_memory, is_in_memory, names_of, run
from marketdata.adapters.frame import Column, Frame, Native, Texts
from marketdata.adapters.normalization import is_missing
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.columns import Floats, Token
from marketdata.points.life import TIMES, Life, over
from marketdata.points.mirrors import are_opposite
from marketdata.points.order import NO_TIME
from marketdata.points.records import refuse_payoffs
from marketdata.points.schema import ID_COLUMNS, require
from marketdata.tidy.records import columns_of
from marketdata.tidy.venue_records import EVENTS, venue_columns
from marketdata.times import SECOND, to_micros, to_text

T = TypeVar("T")
Outcomes = Native | Mapping[str, object]
Key = tuple[str, str | None]
Tokens = Iterable[tuple[str, str | None, str | None]]
_RECORD_COLUMNS = ("market_id", "token_ids", "token_labels")
_OUTCOME_COLUMNS = ("resolved_token_id", "resolved_token_label", "payoffs")
_ALLOWED_OUTCOMES = "what md.outcomes(markets) gives, frames of market records"
_ALLOWED_PAYOFFS = f"{_ALLOWED_OUTCOMES}, and a mapping of market id to the token that won"
_COLUMNS_READ = (*ID_COLUMNS, *_RECORD_COLUMNS[1:], *_OUTCOME_COLUMNS, "payoff", *TIMES, "end_date", *EVENTS)


def outcomes(markets: F) -> F:
    """The payoff of each token of resolved markets, and when its market ended.

    Functions that need the time of resolution use ``resolved_at``. If it is null, they use ``closed_at`` of a market
    with payoffs.

    Parameters
    ----------
    markets
        Market records of any frame kind, as from `Archive.markets` or `Client.markets`: ``market_id token_ids
        token_labels``. They also have one of ``resolved_token_id``, ``resolved_token_label`` and ``payoffs``, a list as
        long as ``token_ids`` (0.5 each for a tie, any share for a scalar market). Records as venues give them are read
        too: of Polymarket (Gamma, CLOB, with ``payouts`` of a resolution) and of Kalshi. There a market has resolved
        only if the venue says so: prices alone prove nothing.

    Returns
    -------
    frame
        One row per token, by market, with tokens in the order of the record:

        - ``market_id token_id token_label``.
        - ``payoff`` [USD per share, 0 to 1]: of ``payoffs``, or 1 for the token that the market resolved to and 0 for
          its others. It is null while the market is open.
        - ``ends_at``: the scheduled end, or ``end_date`` of the record [UTC].
        - ``closed_at``, ``resolved_at``: the end of trading, and when the outcome was known [UTC].
        - ``event_slug``: the event of the market (or ``event_id``), only where the records say it.

        Times are null where the record lacks them, and ``ends_at`` where a venue may have moved it to the close.

    Raises
    ------
    NotTidyError
        A market resolved to a token that it does not have, a payoff is outside of 0 to 1, the payoffs of a market do
        not sum to 1, or records contradict themselves.

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
    data = _of_records(_read(markets))
    columns: dict[str, Column] = {c: data[c] for c in ID_COLUMNS}
    columns["payoff"] = np.array(data["payoff"], float)
    for c in TIMES:
        columns[c] = frames.times(np.array([NO_TIME if t is None else t for t in data[c]], np.int64))
    columns |= {c: Texts.of(data[c]) for c in EVENTS if c in data}
    return as_kind_of(markets, columns, len(data["market_id"]))  # type: ignore[no-any-return]


def time_to_resolution(frame: F, outcomes: Any) -> F:
    """Add the time from each row to the resolution of its market.

    Returns the tidy frame, rows as they were, with ``time_to_resolution`` [s]. It counts from ``ts``, the start of the
    bucket, to ``resolved_at`` of ``outcomes`` (the result of `outcomes`, or market records), or to ``closed_at`` where
    that is null. It is negative after the resolution and null while the market is open. It was not known at
    the time, so group or filter a study by it, but do not trade on it.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=1)
    >>> markets = md.testing.markets("polars")
    >>> md.time_to_resolution(prices, markets)["time_to_resolution"].to_list()
    [86400.0, 86400.0]
    """
    data = _read(outcomes, _ALLOWED_OUTCOMES)
    if "token_ids" in data or not {"resolved_at", "closed_at"} & data.keys():
        data = _of_records(data)
    require("A frame of outcomes", ["market_id"], data)
    ends = _paid(data, _lives(data))

    def with_time_left(part: Frame) -> Native:
        require("A tidy frame", ["market_id"], part.names)
        markets, market = frames.distinct_ids(part, ["market_id"])
        at = np.array([ends.get(str(name), np.nan) for (name,) in markets], float)
        left = (at[market] - part.times("ts")) / SECOND
        return frames.with_columns(part, {"time_to_resolution": left})

    return run(frame, with_time_left, ("books", "series"), partition_by="row", keep_extra=True)


def lives_of(markets: Native) -> dict[str, Life]:
    """The life of each market, from market records or the result of `outcomes`."""
    data = _read(markets, _ALLOWED_OUTCOMES)
    require("A frame of outcomes", ["market_id"], data)
    return _lives(data)


def events_of(records: Native | Mapping[str, object] | None) -> tuple[str, dict[str, Any]]:
    """The column that says the event of a market, and the event of each that has one; from records or outcomes."""
    if records is None or isinstance(records, Mapping):
        return "", {}
    data = _read(records, _ALLOWED_PAYOFFS)
    name = next((c for c in EVENTS if any(one is not None for one in data.get(c, ()))), None)
    if name is None or "market_id" not in data:
        return "", {}
    return name, {str(m): event for m, event in _rows(data, ("market_id", name)) if event is not None}


def records_of(markets: Native) -> dict[str, list[str]]:
    """By market the ids of its tokens in the order of its record; nothing for rows of tokens, which have no order."""
    data = _read(markets, _ALLOWED_OUTCOMES)
    return _orders(data) if "token_ids" in data else {}


def orders_of(records: Native) -> dict[str, list[str]]:
    """By market the ids of its tokens in the order of its record."""
    data = columns_of(records, _RECORD_COLUMNS[:2])
    require("markets, a frame of market records,", _RECORD_COLUMNS[:2], data)
    return _orders(data)


def _orders(data: Mapping[str, list[Any]]) -> dict[str, list[str]]:
    return {str(m): [*map(str, ids if ids is not None else ())] for m, ids in _rows(data, _RECORD_COLUMNS[:2])}


def _read(given: Native, allowed: str = "a frame of market records") -> dict[str, list[Any]]:
    """The columns of outcomes or market records that count, their times in microseconds."""
    data = venue_columns(given, columns_of(given, _COLUMNS_READ, allowed))
    for c in data.keys() & {*TIMES, "end_date"}:
        data[c] = [None if t is None else to_micros(t, c, is_data=True) for t in data[c]]
    return data


def _lives(data: Mapping[str, list[Any]]) -> dict[str, Life]:
    """The life of each market; NotTidyError if two rows of it say different times."""
    lives: dict[str, Life] = {}
    for market, end_date, ends_at, *actual in _rows(data, ("market_id", "end_date", *TIMES)):
        life = Life(None, end_date if ends_at is None else ends_at, *actual)
        first = lives.setdefault(str(market), life)
        if first != life:
            for name, a, b in zip(Life._fields, first, life, strict=True):
                if a is not None and b is not None and a != b:
                    raise NotTidyError(
                        f"Market {market!r} has two records whose {name} differ, {to_text(a)} and {to_text(b)}; keep "
                        "the right one."
                    )
            lives[str(market)] = Life(*(b if a is None else a for a, b in zip(first, life, strict=True)))
    return lives


def _paid(data: Mapping[str, list[Any]], lives: Mapping[str, Life]) -> dict[str, int]:
    """When it was known what each market pays: ``resolved_at``, or ``closed_at`` where it has a payoff."""
    rows = ((str(market), payoff) for market, payoff in _rows(data, ("market_id", "payoff")))
    known = {m: lives[m].paid_at for m, paid in rows if paid is not None or lives[m].resolved_at is not None}
    return {market: at for market, at in known.items() if at is not None}


def _rows(data: Mapping[str, list[Any]], names: Iterable[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of some columns; None stands for a column that is not there."""
    none = [None] * len(data["market_id"])
    return zip(*(data.get(name, none) for name in names), strict=True)


class Payoffs:
    """Payoffs of ``tokens``, (market_id, token_id, token_label) tuples, from any form of ``outcomes=`` (see `brier`).

    ``records`` has the tokens of each market, a list of them in the order of its record. ``open`` has the markets that
    have not resolved by these outcomes. NotTidyError if a frame contradicts itself, ConfigError for other keys and
    values.
    """

    def __init__(self, given: Outcomes, tokens: Tokens) -> None:
        self._labels: dict[str, dict[str | None, str | None]] = defaultdict(dict)
        for market, token, label in tokens:
            self._labels[market][token] = label
        self.lives: dict[str, Life] = {}
        self.resolved_at: dict[str, int] = {}
        self.records: dict[str, list[str] | set[str]] = {}
        self.open: set[str] = set()
        self.payoff: dict[Key, float] = {}
        if not isinstance(given, Mapping):
            self._take_frame(given)
            return
        if given and self._labels and not any(str(market) in self._labels for market in given):
            raise ConfigError(
                f"None of the keys of outcomes is a market_id of the frame, such as {next(iter(self._labels))!r}; the "
                f"first is {next(iter(given))!r}. Allowed are market ids; a slug is none."
            )
        self._take_mapping(given)

    def of(self, tokens: Sequence[Token]) -> Floats:
        """The payoff of each token, NaN where it is not known."""
        return np.array([self.payoff.get(token[:2], np.nan) for token in tokens], float)

    def over(self, tokens: Sequence[Token]) -> Floats:
        """When the market of each token was over [microseconds], infinity where that is not known."""
        return over(self.lives, [token.market_id for token in tokens])

    def _take_mapping(self, given: Mapping[str, object]) -> None:
        for market, value in ((str(market), value) for market, value in given.items()):
            if isinstance(value, Mapping):
                self.records[market] = {*map(str, value)}
                tokens = self._labels.get(market, {})
                # The frame may lack one token of a market whose payoffs are told by token.
                is_known = any(name in tokens or name in tokens.values() for name in value)
                named = (
                    (str(name) if is_known and name not in tokens.values() else self._winner(market, name), payoff)
                    for name, payoff in value.items()
                )
                self.payoff |= {(market, token): _in_range(payoff, market) for token, payoff in named if token}
                refuse_payoffs(market, [float(payoff) for payoff in value.values()])
            elif (winner := self._winner(market, value)) is None:
                self.open.add(market)
            else:
                self.payoff |= {(market, token): float(token == winner) for token in self._labels.get(market, ())}

    def _winner(self, market: str, value: object) -> str | None:
        if value is None:
            return None
        tokens = self._labels.get(market, {})
        if isinstance(value, str):
            if value in tokens or not tokens:
                return str(value)
            labelled = [token for token, label in tokens.items() if label == value]
            if len(labelled) == 1:
                return labelled[0]
            # A frame may have only Yes of a market that resolved to No.
            if len(tokens) == 1 and are_opposite(value, *tokens.values()):
                return str(value)
            # A frame may have only the losing tokens, so a value written like their ids is the token that won. It is
            # not if another market without a common id has it, because short ids repeat.
            others = (other for other in self._labels.values() if tokens.keys().isdisjoint(other))
            if not labelled and all(_alike(value, str(one)) for one in tokens) and not any(value in o for o in others):
                return str(value)
        allowed = ", ".join(f"{token!r} ({label})" for token, label in sorted(tokens.items())) or "a token id"
        raise ConfigError(
            f"outcomes[{market!r}] = {value!r} is refused; allowed are the token that won, by id or label ({allowed}), "
            "and None where the market has not resolved."
        )

    def _take_frame(self, given: Native) -> None:
        data = _read(given, _ALLOWED_PAYOFFS)
        if "market_id" in data:
            self.lives = _lives(data)
        ordered = {}
        if "token_ids" in data:
            ordered, data = _orders(data), _of_records(data)
        if "payoff" not in data:
            if "resolved_token_id" not in data:
                raise _no_outcomes(names_of(given))
            require("A frame of outcomes", ("market_id", "resolved_token_id"), data)
            self._take_mapping(dict(zip(data["market_id"], data["resolved_token_id"], strict=True)))
            self.resolved_at = _paid({**data, "payoff": data["resolved_token_id"]}, self.lives)
            return
        require("A frame of outcomes", ID_COLUMNS[:2], data)
        # Rows of tokens are in any order; the first may be the one that won.
        tokens_of_market: dict[str, set[str]] = defaultdict(set)
        for market, token, payoff in _rows(data, (*ID_COLUMNS[:2], "payoff")):
            tokens_of_market[market].add(token)
            if payoff is None:
                continue
            if isinstance(payoff, str):
                raise NotTidyError(
                    f"payoff contains texts, such as {payoff!r}, not numbers; make it a column of floats."
                )
            if self.payoff.setdefault((market, token), _in_range(payoff, market)) != payoff:
                raise NotTidyError(f"The frame of outcomes has two payoffs of token {token!r} of market {market!r}.")
        for market, named in tokens_of_market.items():
            refuse_payoffs(market, [self.payoff.get((market, token)) for token in sorted(named)])
        self.records = {**tokens_of_market, **ordered}
        self.resolved_at = _paid(data, self.lives)
        self.open = self.records.keys() - {market for market, _ in self.payoff}


def _alike(a: str, b: str) -> bool:
    """Whether both are written as ids: digits or hexadecimal, of similar length."""
    same = (a.isdigit() and b.isdigit()) or (a.startswith("0x") and b.startswith("0x"))
    return same and 2 * len(a) >= len(b)


def _in_range(payoff: Any, market: str) -> float:
    """The payoff of a share, a number from 0 to 1; NotTidyError for another, such as one in cents."""
    good = hasattr(payoff, "__float__") and not isinstance(payoff, str)
    if not good or not 0 <= float(payoff) <= 1:
        raise NotTidyError(
            f"A payoff of market {market!r} is {payoff!r}; allowed are numbers from 0 to 1 [USD per share], and null "
            "while it is open."
        )
    return float(payoff)


def _no_outcomes(names: list[str]) -> NotTidyError:
    """The error for a frame that does not say who won in any known way."""
    error = NotTidyError(
        f"outcomes has the columns {names}, which do not say who won. Allowed are market records (market_id, "
        "token_ids, token_labels, resolved_token_id), the result of md.outcomes (market_id, token_id, payoff from 0 "
        "to 1), the columns market_id and resolved_token_id, and a dict such as {market_id: 'Yes'}. Of 0 and 1 "
        "make such a dict: they do not say which token they are for."
    )
    error.missing = ("resolved_token_id",)
    return error


def _of_records(data: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """The columns of `outcomes`; NotTidyError if a frame with rows has no column that says the outcome."""
    has_outcome = any(c in data for c in _OUTCOME_COLUMNS) or data.get("market_id") == []
    missing = () if has_outcome else _OUTCOME_COLUMNS[:1]
    require("A frame of market records", (*_RECORD_COLUMNS, *missing), data)
    rows: dict[Key, tuple[Any, ...]] = {}
    events = [c for c in EVENTS if any(one is not None for one in data.get(c, ()))][:1]
    for record in _rows(data, (*_RECORD_COLUMNS, *_OUTCOME_COLUMNS, *TIMES, "end_date", *events)):
        market, ids, labels, won, won_label, shares, ends_at, closed_at, resolved_at, end_date, *event = record
        tokens = [str(token) for token in (ids if ids is not None else ())]
        names = [None if is_missing(label) else str(label) for label in (labels if labels is not None else ())]
        names = names or [None] * len(tokens)
        if len(names) != len(tokens):
            raise NotTidyError(f"Market {market!r} has {len(tokens)} token_ids and {len(names)} token_labels.")
        if won is None and won_label is not None:
            won = tokens[names.index(won_label)] if names.count(won_label) == 1 else won_label
        times = (end_date if ends_at is None else ends_at, closed_at, resolved_at, *event)
        payoffs = _payoffs(str(market), tokens, won, shares)
        for token, label, payoff in zip(tokens, names, payoffs, strict=True):
            row = (str(market), token, label, payoff, *times)
            if rows.setdefault(row[:2], row) != row:
                raise NotTidyError(f"Market {market!r} has two records that differ; keep the right one.")
    ordered = sorted(rows.values(), key=lambda row: row[0])  # by market: the first token of a record stays first
    return {name: [row[i] for row in ordered] for i, name in enumerate((*ID_COLUMNS, "payoff", *TIMES, *events))}


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
    refuse_payoffs(market, out)
    return out


def for_tokens(frame: Native, lookup: Callable[[Tokens], T]) -> Callable[[Tokens], T]:
    """The function ``lookup`` of tokens; for a frame that is not in memory, its result for all tokens."""
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
