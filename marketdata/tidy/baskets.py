"""Baskets of an event: all Yes or all No of its markets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, run
from marketdata.adapters.frame import Frame, Native
from marketdata.errors import NotTidyError
from marketdata.points import baskets
from marketdata.points.arguments import number
from marketdata.points.baskets import Event, Legs
from marketdata.points.columns import Books, Floats, Ints
from marketdata.points.fees import schedule
from marketdata.points.schema import refuse_cents, require
from marketdata.tidy.measures import KINDS
from marketdata.tidy.records import columns_of
from marketdata.tidy.returns import probability_of

_EXCLUSIVE_FIELDS = ("exclusive", "negRisk", "neg_risk")
_OPEN_LIST_FIELDS = ("open_list", "negRiskAugmented", "neg_risk_augmented")
_EVENT_ID_FIELDS = ("event_id", "event_slug")


def event_overround(frame: F, markets: Any) -> F:
    """The price of the Yes of all markets of an event, beyond the 1 that exactly one of them pays.

    An event is a basket if its markets exclude each other and its list is closed: in an open list an outcome without a
    market may win.

    Parameters
    ----------
    markets : frame of market records
        One row per market of the event, those without a book too: ``market_id``, ``token_ids`` (two, Yes first),
        ``event_id`` (or ``event_slug``), and of its event ``exclusive`` and ``open_list`` (the venue's own fields
        ``negRisk`` and ``negRiskAugmented`` are read too). NotTidyError where records lack them or contradict.

    Returns
    -------
    frame
        One row per (event, ts) of books or bbo:

        - ``ts event_id``.
        - ``markets``: number of markets with a book of Yes at that ``ts``.
        - ``bid_sum mid_sum ask_sum``: sums of best bids, mids and best asks [probability].
        - ``overround``: ask_sum - 1.

        Sums are null where a market lacks the value or the book, and where the event is no basket.

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
    sums = partial(_rows_of_events, events=_events(markets), rule=baskets.prices)
    return run(frame, sums, KINDS, partition_by="all")


def event_arbitrage(frame: F, markets: Any, *, fees: Any, size: float | None = None) -> F:
    """The cost and the certain payoff of all Yes, and of all No, of an event, net of fees and depth.

    A market that pays something else than 0 or 1 breaks the sum.

    Parameters
    ----------
    markets : frame of market records
        As for `event_overround`.
    fees : Fees, float or function
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

        Null where a market lacks the book or the shares, and where the event is no basket.

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
    rule = partial(baskets.costs, fees=schedule(fees), size=None if size is None else number("size", size))
    costs = partial(_rows_of_events, events=_events(markets), rule=rule)
    return run(frame, costs, KINDS, partition_by="all")


def event_probabilities(frame: F, markets: Any) -> F:
    """Prices of Yes (of books or bbo: mids) scaled so that the markets of an event sum to 1.

    One row per Yes and time: ts, ids and ``probability`` [0 to 1]. Null where `event_overround` is, which also says
    what ``markets`` need.

    Examples
    --------
    >>> prices = md.testing.prices("polars", markets=2, buckets=1)
    >>> records = md.testing.markets("polars", markets=2).with_columns(
    ...     exclusive=True, open_list=False
    ... )
    >>> md.event_probabilities(prices, records)["probability"].round(3).to_list()
    [0.444, 0.556]
    """
    scaled = partial(_probabilities, events=_events(markets))
    return run(frame, scaled, ("prices", *KINDS), partition_by="all")


def _events(markets: Any) -> list[Event]:
    """The events of market records, by id; NotTidyError where the records do not say what is needed."""
    data = columns_of(markets, ("market_id", "token_ids", *_EVENT_ID_FIELDS, *_EXCLUSIVE_FIELDS, *_OPEN_LIST_FIELDS))
    names = ["market_id", "token_ids"]
    names += [
        next((name for name in fields if name in data), fields[0])
        for fields in (_EVENT_ID_FIELDS, _EXCLUSIVE_FIELDS, _OPEN_LIST_FIELDS)
    ]
    require("markets, a frame of market records,", names, data)
    event_of: dict[str, tuple[dict[str, tuple[str, str]], set[bool]]] = {}
    for market, ids, event, exclusive, open_list in zip(*(data[name] for name in names), strict=True):
        if event is None:
            continue
        is_basket = exclusive is not None and open_list is not None and bool(exclusive) and not open_list
        pairs, said = event_of.setdefault(str(event), ({}, set()))
        tokens = tuple(str(one) for one in (ids if ids is not None else ()))
        if is_basket and len(tokens) != 2:
            raise NotTidyError(
                f"Market {market!r} of the exclusive event {event!r} has {len(tokens)} tokens; a basket is of markets "
                "with two, Yes first."
            )
        said.add(is_basket)
        pair = (tokens[0], tokens[1]) if len(tokens) == 2 else ("", "")
        if pairs.setdefault(str(market), pair) != pair:
            raise NotTidyError(f"Market {market!r} has two records that differ; keep the right one.")
    for event, (_, said) in event_of.items():
        if len(said) > 1:
            raise NotTidyError(f"Records of event {event!r} differ in {names[3]} or {names[4]}; they are of the event.")
    return [Event(event, pairs, said == {True}) for event, (pairs, said) in sorted(event_of.items())]


def _rows_of_events(
    frame: Frame, events: Sequence[Event], rule: Callable[[Legs, Books], Mapping[str, Floats | Ints]]
) -> Native:
    """One row per event and time: the columns of a rule on the books of its markets."""
    books = frames.books(frame)
    refuse_cents(best_bid=books.bids.best, best_ask=books.asks.best)
    legs = Legs.of(events, books.tokens, books.token, books.ts)
    event, ts, _ = legs.groups()
    names = [legs.events[i].event_id for i in event.tolist()]
    return frame.build({"ts": frames.times(ts), "event_id": names, **rule(legs, books)}, len(names))


def _probabilities(frame: Frame, events: Sequence[Event]) -> Native:
    """The share of each Yes in the sum of the Yes of its event."""
    series, value = probability_of(frame)
    legs = Legs.of(events, series.tokens, series.token, series.ts)
    rows = np.flatnonzero(legs.side == baskets.YES)
    values = baskets.probabilities(legs, series.values[value])[rows]
    return frames.to_frame(frame, series.take(rows), {"probability": values})
