"""Tokens of a market or an event together: complements, overround, arbitrage, probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, PartitionBy, run
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.adapters.polars import nullable
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points import cross_token as rules
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Columns, Ints, Token
from marketdata.points.cross_token import Counts, Event, Sets
from marketdata.points.fees import Schedule, schedule
from marketdata.points.life import Life, over
from marketdata.points.records import truth
from marketdata.points.schema import BOOKS
from marketdata.tidy.measures import TOP_KINDS
from marketdata.tidy.outcomes import lives_of
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of
from marketdata.wire.claims import EVENT_IDS, EXCLUSIVE, OPEN_LIST

# The names that records give to an event's id, to whether its markets exclude each other, and whether more may come.
_EVENT_FIELDS = (EVENT_IDS, EXCLUSIVE, OPEN_LIST)


def complement(frame: F, *, tokens: Any = None) -> F:
    """The book of each token of a two-token market as the other token's book implies it.

    Selling Yes at p is in effect bidding 1 - p for No: ask = 1 - bid and bid = 1 - ask of the other token. Returns tidy
    books with the same sizes and levels; applied twice it gives the frame back (to 1e-15). ConfigError if a market
    does not have two tokens. For ``tokens`` see `overround`.

    Examples
    --------
    >>> books = md.testing.books("polars")
    >>> md.complement(books).select("token_label", "side", "price", "size").row(0)
    ('Yes', 'bid', 0.39, 100.0)
    """
    counts = _token_counts(tokens)

    def mirrored(part: Frame) -> Native:
        part, rows = frames.sorted_level_rows(part)
        entries, levels = rules.complement(*rows, counts)
        return frames.to_frame(part, entries, frames.level_values(levels), BOOKS)

    return run(frame, mirrored, ("books",), partition_by="market")


def overround(frame: F, markets: Any = None, *, tokens: Any = None) -> F:
    """The price of all tokens of a market, or of all Yes of an event, beyond the 1 that exactly one of them pays.

    Without ``markets`` the tokens of each market are summed. With it the markets of each event are. An event is a
    basket if its markets exclude each other and its list is closed: in an open list an outcome without a market may
    win.

    Parameters
    ----------
    markets : frame of market records, optional
        One row per market of the event, those without a book too: ``market_id``, ``token_ids`` (two, Yes first),
        ``event_id`` (or ``event_slug``), and of its event ``exclusive`` and ``open_list`` (the venue's own fields
        ``negRisk`` and ``negRiskAugmented`` are read too), as truth values, 1 and 0, or texts. NotTidyError where
        records lack them or contradict. Kalshi says ``exclusive`` alone: add ``open_list`` yourself.
    tokens : int or frame, optional
        Number of tokens of a market, without ``markets``: one number for all (from 2), market records
        (``market_id token_ids``) or the result of `outcomes`. By default the number of tokens that the frame has
        anywhere. Two tokens of a market of three then look complete, unless their labels are no pair: Yes without No,
        Home beside Draw. So pass records where markets may have more than two.

    Returns
    -------
    frame
        One row per (market, ts) of books or bbo, by market and ts; with ``markets`` one per (event, ts):

        - ``ts``, and ``market_id`` or ``event_id``.
        - ``tokens`` or ``markets``: the number of tokens with a row at that ``ts``, or of markets with one of Yes.
        - ``bid_sum mid_sum ask_sum``: sums of their best bids, mids and best asks [probability].
        - ``overround``: ask_sum - 1.

        Sums are null where a token (market) lacks the value or the book at ``ts``. Those of a market are null too where
        only one token is known, or the frame has more than ``tokens``. Those of an event are null where it is no
        basket, and where the frame has a market without a record, as it may be of the event.

    Warns
    -----
    MissingRecordsWarning
        The frame has a market without a record.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> md.overround(books).select("bid_sum", "ask_sum").row(0)
    (0.98, 1.02)
    >>> records = md.testing.markets("polars", markets=3).with_columns(
    ...     exclusive=True, open_list=False
    ... )
    >>> sums = md.overround(books, records)
    >>> sums.select("event_id", "markets", pl.col("ask_sum").round(9)).rows()
    [('weather-tomorrow', 3, 1.53)]
    """
    together = _together(tokens, markets)

    def sums(part: Frame) -> Native:
        part, books = frames.sorted_books(part, all_levels=False)
        sets, is_member = together.sets(books)
        count = sets.count(is_member)
        return together.table(part, sets, {together.members: count, **rules.sums(sets, books, is_member)})

    return run(frame, sums, TOP_KINDS, partition_by=together.partition_by)


def probabilities(frame: F, markets: Any = None, *, tokens: Any = None) -> F:
    """Prices (of books or bbo: mids) scaled so that the tokens of a market, or the Yes of an event, sum to 1.

    One row per (token, ts): ts, ids and ``probability``, the price over the sum of the prices of the market at that
    ``ts`` [0 to 1]. With ``markets`` there is a row per Yes alone, and the sum is over the markets of its event. It is
    null where the sum is null (see `overround`, also for the parameters), and where all prices are 0.

    Examples
    --------
    >>> prices = md.testing.prices("polars", markets=2, buckets=1)
    >>> md.probabilities(prices)["probability"].round(3).to_list()
    [0.4, 0.6, 0.5, 0.5]
    >>> records = md.testing.markets("polars", markets=2).with_columns(
    ...     exclusive=True, open_list=False
    ... )
    >>> md.probabilities(prices, records)["probability"].round(3).to_list()
    [0.444, 0.556]
    """
    together = _together(tokens, markets)

    def shares(part: Frame) -> Native:
        part, series, value = probability_of(part)
        sets, is_member = together.sets(series)
        probability = rules.shares(sets, np.where(is_member, series.values[value], np.nan))
        if is_member.all():
            return frames.to_frame(part, series, {"probability": probability})
        return frames.to_frame(part, series.take(np.flatnonzero(is_member)), {"probability": probability[is_member]})

    return run(frame, shares, ("prices", *TOP_KINDS), partition_by=together.partition_by)


def arbitrage(frame: F, markets: Any = None, *, tokens: Any = None, fees: Any = None, size: float | None = None) -> F:
    """Where all tokens of a market, or all markets of an event, cost less or bring more than what they surely pay.

    Without ``markets`` the tokens of each market are bought below, or sold above, the 1 that one of them pays. With it
    all Yes, or all No, of an event are bought level by level, net of fees.

    A frame that lacks the third token of a market looks like free money: pass ``tokens=`` where markets may have more
    than two. So does an event with an open list (see `overround`): its columns are null. A market that pays something
    else than 0 or 1 breaks the sum. Snapshots of one ``ts`` may be of different moments of the bucket.

    Parameters
    ----------
    markets, tokens : frame, int, optional
        As for `overround`.
    fees : Fees, 0 or function
        What a taker pays, see `Fees`; 0 says that there are none. Needed with ``markets``; without it, gains of a
        market are before fees.
    size : float, optional
        With ``markets``, sets to buy [shares of each leg]; by default the smallest size at the best ask of the legs.

    Returns
    -------
    frame
        One row per (market, ts) of books or bbo:

        - ``ts market_id``.
        - ``buy_all``: ask_sum < 1 - 1e-9, false where a token has no ask. An ask costs the fee of one share more.
        - ``sell_all``: bid_sum > 1 + 1e-9, false where a token has no bid. A bid brings the fee of one share less.
        - ``size``: the smallest best size on the side of the flag [shares], null without a flag.
        - ``gain``: 1 - ask_sum or bid_sum - 1 [USD per set], null without a flag.

        If both flags are set, size and gain are for buying. All are null where a token has no book at ``ts``, or one
        that was filled in (``observed`` is false), and where the tokens of the market are not all known (see
        `overround`).

        With ``markets`` one row per (event, ts):

        - ``ts event_id``, and ``legs``: the number n of markets.
        - ``yes_size no_size``: sets of shares.
        - ``yes_cost no_cost``: what the sets cost, best asks first, with fees [USD].
        - ``yes_payoff no_payoff``: their certain payoff [USD], as one Yes pays 1 and n - 1 No pay 1 each.
        - ``yes_edge no_edge``: payoff - cost [USD].

        Null where a market lacks the book or the shares, where its book was filled in, from its close on, and where
        `overround` is.

    Warns
    -----
    MissingRecordsWarning
        The frame has a market without a record.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> cheap = books.with_columns(price=pl.col("price") - 0.05)
    >>> gains = md.arbitrage(cheap).select("buy_all", "size", pl.col("gain").round(2))
    >>> gains.row(0)
    (True, 100.0, 0.08)
    >>> records = md.testing.markets("polars", markets=3).with_columns(
    ...     exclusive=True, open_list=False
    ... )
    >>> fees = md.Fees.quadratic(0.05)
    >>> sets = md.arbitrage(books, records, fees=fees, size=200)
    >>> sets.select("legs", pl.col("no_cost", "no_payoff", "no_edge").round(2)).row(0)
    (3, 316.29, 400.0, 83.71)
    """
    together = _together(tokens, markets)
    shares = None if size is None else number("size", size)
    rule: Callable[[Frame], Native]
    if isinstance(together, _Events):
        rule = partial(_costs, together=together, fees=schedule(fees), shares=shares)
    elif size is None:
        rule = partial(_gains, together=together, fees=None if fees is None else schedule(fees))
    else:
        raise ConfigError(
            "is of sets of the markets of an event; without markets= the gain is of one share of each token.",
            argument="size",
            value=size,
            hint="Pass the records of the event as markets=, or leave size out.",
        )
    return run(frame, rule, TOP_KINDS, partition_by=together.partition_by)


def _gains(part: Frame, *, together: _Markets, fees: Schedule | None) -> Native:
    """Where one share of each token of a market gains."""
    part, books = frames.sorted_books(part, all_levels=False)
    sets, _ = together.sets(books)
    known, found = rules.free_money(sets, books, fees, frames.observed(part, books))
    flags = {name: nullable(found[name], known) for name in ("buy_all", "sell_all")}
    return together.table(part, sets, {**found, **flags})


def _costs(part: Frame, *, together: _Events, fees: Schedule, shares: float | None) -> Native:
    """What all Yes, and all No, of an event cost and pay."""
    part, books = frames.sorted_books(part)
    sets, side = together.by_side(books)
    legs = np.array([len(event.markets) for event in together.events], np.int64)[sets.group]
    is_over = books.ts >= over(together.lives, [token.market_id for token in books.tokens])[books.token]
    found = rules.costs(sets, books, side, fees, shares, frames.observed(part, books) & ~is_over)
    return together.table(part, sets, {"legs": legs, **found})


@dataclass(frozen=True)
class _Markets:
    """The tokens of a market belong together."""

    counts: Counts
    members: ClassVar = "tokens"
    partition_by: ClassVar[PartitionBy] = "market"

    def sets(self, columns: Columns) -> tuple[Sets, NDArray[np.bool_]]:
        """The entries by market and time, of which all count."""
        return rules.by_market(columns, self.counts), np.ones(len(columns), bool)

    def table(self, frame: Frame, sets: Sets, values: Mapping[str, Column]) -> Native:
        """One row per market and time."""
        markets = dict.fromkeys(token.market_id for token in sets.columns.tokens)
        bounds = np.searchsorted(sets.group, np.arange(len(markets) + 1))
        entries = Columns(tuple(map(Token, markets)), bounds, sets.ts)
        return frames.to_frame(frame, entries, values, ["ts", "market_id", *values])


@dataclass(frozen=True)
class _Events:
    """The markets of an event belong together; ``recorded`` and ``lives`` are of all markets that have a record."""

    events: Sequence[Event]
    recorded: set[str]
    lives: Mapping[str, Life]
    members: ClassVar = "markets"
    partition_by: ClassVar[PartitionBy] = "all"

    def by_side(self, columns: Columns) -> tuple[Sets, Ints]:
        """The entries by event and time, and the outcome of each."""
        return rules.by_event(columns, self.events, self.recorded)

    def sets(self, columns: Columns) -> tuple[Sets, NDArray[np.bool_]]:
        """The entries by event and time, of which those of Yes count."""
        sets, side = self.by_side(columns)
        return sets, side == rules.YES

    def table(self, frame: Frame, sets: Sets, values: Mapping[str, Column]) -> Native:
        """One row per event and time."""
        names = [self.events[i].event_id for i in sets.group.tolist()]
        return frame.build({"ts": frames.times(sets.ts), "event_id": names, **values}, len(names))


def _together(tokens: Any, markets: Any) -> _Markets | _Events:
    """What belongs together: the tokens of each market, or the markets of each event; ConfigError if both are given."""
    if markets is None:
        return _Markets(_token_counts(tokens))
    if tokens is not None:
        raise ConfigError(
            "and markets= exclude each other: tokens= says how many tokens each market has, to sum these, and markets= "
            "which markets are an event, to sum the Yes of these.",
            argument="tokens=",
            hint="Give one of them.",
        )
    return _events(markets)


def _token_counts(tokens: Any) -> Counts:
    """Number of tokens of a market, from ``tokens=``: one number (from 2), by market of a frame, or None."""
    if tokens is None:
        return None
    if isinstance(tokens, int | float | str):
        if whole("tokens", tokens) < 2:
            raise ConfigError(f"tokens={tokens!r} is refused; a market has two tokens or more.")
        return int(tokens)
    data = columns_of(
        tokens, ("market_id", "token_ids", "token_id"), "whole numbers from 2 and frames of market records"
    )
    if "market_id" in data and "token_ids" in data:
        lists = zip(data["market_id"], data["token_ids"], strict=True)
        return {str(market): len(ids) for market, ids in lists if ids is not None}
    if "market_id" in data and "token_id" in data:
        return Counter(market for market, _ in {*zip(data["market_id"], data["token_id"], strict=True)})
    raise NotTidyError.from_missing("tokens, a frame of market records,", ["market_id", "token_ids"], list(data))


def _events(markets: Any) -> _Events:
    """The events of market records, by id; NotTidyError where records do not say what is needed."""
    data = columns_of(markets, ("market_id", "token_ids", *chain(*_EVENT_FIELDS)))
    names = ["market_id", "token_ids"]
    names += [next((name for name in fields if name in data), fields[0]) for fields in _EVENT_FIELDS]
    if names[3] in data and names[4] not in data:
        error = NotTidyError(
            f"markets, a frame of market records, lacks the column {names[4]!r}. It says whether an outcome without a "
            f"market may win, which {names[3]} does not say; records of kalshi do not tell it.",
            hint=f"Where you know that the markets of an event are all of its outcomes, add {names[4]}=False.",
        )
        error.missing = (names[4],)
        raise error
    if missing := [name for name in names if name not in data]:
        error = NotTidyError(
            f"markets, a frame of market records, lacks the columns {missing}, which say which markets are an event of "
            f"which exactly one pays; it has {list(data)}.",
            hint="Add them, or pass the records as tokens= to take the tokens of each market together.",
        )
        error.missing = tuple(missing)
        raise error
    event_of: dict[str, tuple[dict[str, tuple[str, ...]], set[bool]]] = {}
    recorded: set[str] = set()
    for market, ids, event, exclusive, open_list in zip(*(data[name] for name in names), strict=True):
        recorded.add(str(market))
        if event is None:
            continue
        is_basket = truth(names[3], exclusive) is True and truth(names[4], open_list) is False
        pairs, said = event_of.setdefault(str(event), ({}, set()))
        tokens = tuple(str(one) for one in (ids if ids is not None else ()))
        if is_basket and len(tokens) != 2:
            raise NotTidyError(
                f"Market {market!r} of the exclusive event {event!r} has {len(tokens)} tokens; a basket is of markets "
                "with two, Yes first."
            )
        said.add(is_basket)
        pair = tokens if len(tokens) == 2 else ()
        if pairs.setdefault(str(market), pair) != pair:
            raise NotTidyError(f"Market {market!r} has two records that differ; keep the right one.")
    for event, (_, said) in event_of.items():
        if len(said) > 1:
            raise NotTidyError(f"Records of event {event!r} differ in {names[3]} or {names[4]}; they are of the event.")
    events = [Event(event, pairs, said == {True}) for event, (pairs, said) in sorted(event_of.items())]
    return _Events(events, recorded, lives_of(markets))
