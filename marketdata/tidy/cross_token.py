"""Tokens of a market or an event together: complements, overround, arbitrage, probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, run
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.adapters.polars import nullable
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points import cross_token as rules
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Columns, Token
from marketdata.points.cross_token import Counts, Event, Sets
from marketdata.points.fees import schedule
from marketdata.points.records import truth
from marketdata.points.schema import BOOKS, require
from marketdata.tidy.measures import TOP_KINDS
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of

# The names that records give to an event's id, to whether its markets exclude each other, and whether more may come.
_EVENT_FIELDS = (
    ("event_id", "event_slug"),
    ("exclusive", "negRisk", "neg_risk"),
    ("open_list", "negRiskAugmented", "neg_risk_augmented"),
)


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


def overround(frame: F, *, tokens: Any = None) -> F:
    """The price of all tokens of a market together, beyond the 1 that exactly one of them pays.

    Parameters
    ----------
    tokens : int or frame, optional
        Number of tokens of a market: one number for all (from 2), market records (``market_id token_ids``) or the
        result of `outcomes`. By default the number of tokens that the frame has anywhere. Two tokens of a market of
        three then look complete, unless their labels are no pair: Yes without No, Home beside Draw. So pass records
        where markets may have more than two.

    Returns
    -------
    frame
        One row per (market, ts) of books or bbo, by market and ts:

        - ``ts market_id``.
        - ``tokens``: the number of tokens with a row at that ``ts``.
        - ``bid_sum mid_sum ask_sum``: sums of their best bids, mids and best asks [probability].
        - ``overround``: ask_sum - 1.

        Sums are null where a token lacks the value or the book at ``ts``, and where only one token is known. They are
        null too where the frame has more than ``tokens``.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> md.overround(books).select("bid_sum", "ask_sum").row(0)
    (0.98, 1.02)
    """
    counts = _token_counts(tokens)

    def sums(part: Frame) -> Native:
        part, books = frames.sorted_books(part, all_levels=False)
        sets, every = rules.by_market(books, counts), np.ones(len(books), bool)
        return _by_market(part, sets, {"tokens": sets.count(every), **rules.sums(sets, books, every)})

    return run(frame, sums, TOP_KINDS, partition_by="market")


def arbitrage(frame: F, *, tokens: Any = None, fees: Any = None) -> F:
    """Flags where all tokens of a market could be bought below, or sold above, the 1 that one of them pays.

    Snapshots of one ``ts`` may be of different moments of the bucket. A frame that lacks the third token of a market
    looks like free money: pass ``tokens=`` where markets may have more than two.

    Parameters
    ----------
    tokens : int or frame, optional
        As for `overround`.
    fees : Fees, 0 or function, optional
        What a taker pays, see `Fees`: asks cost the fee of one share more, and bids bring it less. Without it the gain
        is before fees.

    Returns
    -------
    frame
        One row per (market, ts) of books or bbo:

        - ``ts market_id``.
        - ``buy_all``: ask_sum < 1 - 1e-9, false where a token has no ask.
        - ``sell_all``: bid_sum > 1 + 1e-9, false where a token has no bid.
        - ``size``: the smallest best size on the side of the flag [shares], null without a flag.
        - ``gain``: 1 - ask_sum or bid_sum - 1 [USD per set], null without a flag.

        If both flags are set, size and gain are for buying. All are null where a token has no book at ``ts``, and where
        the tokens of the market are not all known (see `overround`).

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> cheap = books.with_columns(price=pl.col("price") - 0.05)
    >>> gains = md.arbitrage(cheap).select("buy_all", "size", pl.col("gain").round(2))
    >>> gains.row(0)
    (True, 100.0, 0.08)
    >>> after = md.arbitrage(cheap, fees=md.Fees.flat(0.05))
    >>> after["gain"].round(3).to_list()
    [0.034, 0.034, 0.034]
    """
    counts, fee_schedule = _token_counts(tokens), None if fees is None else schedule(fees)

    def gains(part: Frame) -> Native:
        part, books = frames.sorted_books(part, all_levels=False)
        sets = rules.by_market(books, counts)
        known, found = rules.free_money(sets, books, fee_schedule)
        flags = {name: nullable(found[name], known) for name in ("buy_all", "sell_all")}
        return _by_market(part, sets, {**found, **flags})

    return run(frame, gains, TOP_KINDS, partition_by="market")


def _by_market(frame: Frame, sets: Sets, values: Mapping[str, Column]) -> Native:
    """One row per market and time."""
    markets = dict.fromkeys(token.market_id for token in sets.columns.tokens)
    bounds = np.searchsorted(sets.group, np.arange(len(markets) + 1))
    entries = Columns(tuple(map(Token, markets)), bounds, sets.ts)
    return frames.to_frame(frame, entries, values, ["ts", "market_id", *values])


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


def probabilities(frame: F, *, tokens: Any = None) -> F:
    """Prices (of books or bbo: mids) scaled so that the tokens of a market sum to 1.

    One row per (token, ts): ts, ids and ``probability``, the price over the sum of the prices of the market at that
    ``ts`` [0 to 1]. It is null where a token of the market lacks its value or its row, and where all are 0. It is null
    too where only one token is known, or the frame has more than ``tokens`` (see `overround`).

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=1)
    >>> md.probabilities(prices)["probability"].to_list()
    [0.4, 0.6]
    """
    counts = _token_counts(tokens)

    def shares(part: Frame) -> Native:
        part, series, value = probability_of(part)
        probability = rules.shares(rules.by_market(series, counts), series.values[value])
        return frames.to_frame(part, series, {"probability": probability})

    return run(frame, shares, ("prices", *TOP_KINDS), partition_by="market")


def event_overround(frame: F, markets: Any) -> F:
    """The price of the Yes of all markets of an event, beyond the 1 that exactly one of them pays.

    An event is a basket if its markets exclude each other and its list is closed: in an open list an outcome without a
    market may win.

    Parameters
    ----------
    markets : frame of market records
        One row per market of the event, those without a book too: ``market_id``, ``token_ids`` (two, Yes first),
        ``event_id`` (or ``event_slug``), and of its event ``exclusive`` and ``open_list`` (the venue's own fields
        ``negRisk`` and ``negRiskAugmented`` are read too), as truth values, 1 and 0, or texts. NotTidyError where
        records lack them or contradict. Kalshi says ``exclusive`` alone: add ``open_list`` yourself.

    Returns
    -------
    frame
        One row per (event, ts) of books or bbo:

        - ``ts event_id``.
        - ``markets``: number of markets with a book of Yes at that ``ts``.
        - ``bid_sum mid_sum ask_sum``: sums of best bids, mids and best asks [probability].
        - ``overround``: ask_sum - 1.

        Sums are null where a market lacks the value or the book, and where the event is no basket. All are null where
        the frame has a market without a record, as it may be of the event.

    Warns
    -----
    MissingRecordsWarning
        The frame has a market without a record.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> records = md.testing.markets("polars", markets=3).with_columns(
    ...     exclusive=True, open_list=False
    ... )
    >>> sums = md.event_overround(books, records)
    >>> sums.select("event_id", "markets", pl.col("ask_sum").round(9)).rows()
    [('weather-tomorrow', 3, 1.53)]
    """
    events, recorded = _events(markets)

    def sums(part: Frame) -> Native:
        part, books = frames.sorted_books(part, all_levels=False)
        sets, side = rules.by_event(books, events, recorded)
        yes = side == rules.YES
        return _by_event(part, sets, events, {"markets": sets.count(yes), **rules.sums(sets, books, yes)})

    return run(frame, sums, TOP_KINDS, partition_by="all")


def event_arbitrage(frame: F, markets: Any, *, fees: Any, size: float | None = None) -> F:
    """The cost and the certain payoff of all Yes, and of all No, of an event, net of fees and depth.

    A market that pays something else than 0 or 1 breaks the sum. So does an event with an open list (``open_list``, or
    ``negRiskAugmented`` of the venue): where an outcome without a market may win, a sum below 1 is the price of that
    and no gain, so all columns are null.

    Parameters
    ----------
    markets : frame of market records
        As for `event_overround`.
    fees : Fees, 0 or function
        What a taker pays, see `Fees`; 0 says that there are none.
    size : float, optional
        Sets to buy [shares of each leg]; by default the smallest size at the best ask of the legs.

    Returns
    -------
    frame
        One row per (event, ts) of books or bbo:

        - ``ts event_id``, and ``legs``: the number n of markets.
        - ``yes_size no_size``: sets of shares.
        - ``yes_cost no_cost``: what the sets cost, best asks first, with fees [USD].
        - ``yes_payoff no_payoff``: their certain payoff [USD], as one Yes pays 1 and n - 1 No pay 1 each.
        - ``yes_edge no_edge``: payoff - cost [USD].

        Null where a market lacks the book or the shares, and where `event_overround` is.

    Warns
    -----
    MissingRecordsWarning
        The frame has a market without a record.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=3, buckets=1)
    >>> records = md.testing.markets("polars", markets=3).with_columns(
    ...     exclusive=True, open_list=False
    ... )
    >>> fees = md.Fees.quadratic(0.05)
    >>> sets = md.event_arbitrage(books, records, fees=fees, size=200)
    >>> sets.select("legs", pl.col("no_cost", "no_payoff", "no_edge").round(2)).row(0)
    (3, 316.29, 400.0, 83.71)
    """
    fee_schedule, shares = schedule(fees), None if size is None else number("size", size)
    events, recorded = _events(markets)

    def costs(part: Frame) -> Native:
        part, books = frames.sorted_books(part)
        sets, side = rules.by_event(books, events, recorded)
        legs = np.array([len(event.markets) for event in events], np.int64)[sets.group]
        return _by_event(part, sets, events, {"legs": legs, **rules.costs(sets, books, side, fee_schedule, shares)})

    return run(frame, costs, TOP_KINDS, partition_by="all")


def event_probabilities(frame: F, markets: Any) -> F:
    """Prices of Yes (of books or bbo: mids) scaled so that the markets of an event sum to 1.

    One row per Yes and time: ts, ids and ``probability`` [0 to 1]. It is null where `event_overround` is null; for
    ``markets`` see there.

    Examples
    --------
    >>> prices = md.testing.prices("polars", markets=2, buckets=1)
    >>> records = md.testing.markets("polars", markets=2).with_columns(
    ...     exclusive=True, open_list=False
    ... )
    >>> md.event_probabilities(prices, records)["probability"].round(3).to_list()
    [0.444, 0.556]
    """
    events, recorded = _events(markets)

    def scaled(part: Frame) -> Native:
        part, series, value = probability_of(part)
        sets, side = rules.by_event(series, events, recorded)
        rows = np.flatnonzero(side == rules.YES)
        probability = rules.shares(sets, np.where(side == rules.YES, series.values[value], np.nan))[rows]
        return frames.to_frame(part, series.take(rows), {"probability": probability})

    return run(frame, scaled, ("prices", *TOP_KINDS), partition_by="all")


def _by_event(frame: Frame, sets: Sets, events: Sequence[Event], values: Mapping[str, Column]) -> Native:
    """One row per event and time."""
    names = [events[i].event_id for i in sets.group.tolist()]
    return frame.build({"ts": frames.times(sets.ts), "event_id": names, **values}, len(names))


def _events(markets: Any) -> tuple[list[Event], set[str]]:
    """The events of market records, by id, and all markets; NotTidyError where records do not say what is needed."""
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
    require("markets, a frame of market records,", names, data)
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
    return events, recorded
