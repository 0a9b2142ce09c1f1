"""What the ordered markets of an event imply: ladders of thresholds, nested deadlines, ranges."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, run
from marketdata.adapters.frame import Column, Frame, Native, Texts
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points import claims as rules
from marketdata.points.arguments import number
from marketdata.points.claims import Event
from marketdata.points.columns import Ints
from marketdata.points.cross_token import has_unrecorded
from marketdata.points.fees import schedule
from marketdata.points.life import over
from marketdata.points.order import NO_TIME
from marketdata.tidy.measures import TOP_KINDS
from marketdata.tidy.outcomes import lives_of
from marketdata.tidy.returns import probability_of
from marketdata.tidy.venue_records import read_records
from marketdata.wire.claims import EVENT_IDS, by_event, event_of, name_of


def event_distribution(frame: F, markets: Any) -> F:
    """The probability of each interval of a ladder of thresholds, or between deadlines, as prices imply it.

    Of books or bbo the mids count.
    A ladder of thresholds (above 100, above 110) and nested deadlines (by March, by June) say how likely each interval
    between two of them is. Markets of ranges that exclude each other say it themselves; their prices are scaled to 1,
    as `probabilities` does.

    Parameters
    ----------
    markets : frame of market records
        One row per market in any form, with ``event_id`` (or ``event_slug``); an event of one market has no order. What
        a market claims is read from these, in this order:

        - your columns ``strike`` and ``comparison`` (">", ">=", "<", "<="), or ``deadline``, the end of the time in
          which it must happen.
        - ``strike_type floor_strike cap_strike``, as records of Kalshi have them.
        - the questions of the event, if they are equal but for one number, or for a day after "by" or "before".

    Returns
    -------
    frame
        One row per event, time and interval, by event, ``ts`` and interval:

        - ``ts event_id``.
        - ``lower upper``: numbers that the interval is between, null where it has no end, and of deadlines.
        - ``after until``: the same of deadlines [UTC]. The last interval has no end: later, or never.
        - ``probability`` [0 to 1]: of a ladder the difference of two prices. It is negative where these contradict
          the order, see `event_contradictions`, and null where a market of the interval has no price at ``ts``. Of
          ranges it is null where one of the event has none, where an outcome without a market may win, and where the
          frame has a market without a record.
        - ``hazard`` [0 to 1]: of deadlines, how likely it is in the interval if it did not happen before,
          (F(until) - F(after)) / (1 - F(after)); null where that is 0 / 0, and in the last interval.

        Whether a border belongs to the interval below or above it is as the comparison says.

    Raises
    ------
    NotTidyError
        Nothing says the order of the markets of an event, or its records contradict themselves.

    Warns
    -----
    MissingRecordsWarning
        The frame has a market without a record.

    Examples
    --------
    >>> prices = md.testing.prices("polars", markets=2, buckets=1)
    >>> records = md.testing.markets("polars", markets=2).with_columns(
    ...     strike=pl.Series([10.0, 20.0]), comparison=pl.Series(["<=", "<="])
    ... )
    >>> implied = md.event_distribution(prices, records)
    >>> implied.select("lower", "upper", pl.col("probability").round(2)).rows()
    [(None, 10.0, 0.4), (10.0, 20.0, 0.1), (20.0, None, 0.5)]
    """
    events, recorded = _events(markets)

    def intervals(part: Frame) -> Native:
        part, series, value = probability_of(part)
        has_others = not all(event.is_nested for event in events) and has_unrecorded(series.tokens, recorded)
        known = [event._replace(is_whole=event.is_whole and not has_others) for event in events]
        found = [rules.distribution(event, series, series.values[value]) for event in known]
        times = [np.repeat(one.ts, one.probability.shape[1]) for one in found]
        out: dict[str, Column] = {"ts": frames.times(_joined(times)), "event_id": _names(known, times)}
        out |= _borders([(event, len(one.ts)) for event, one in zip(known, found, strict=True)])
        for name, values in (
            ("probability", [one.probability for one in found]),
            ("hazard", [one.hazard for one in found]),
        ):
            out[name] = _joined([each.ravel() for each in values])
        return part.build(out, sum(map(len, times)))

    return run(frame, intervals, ("prices", *TOP_KINDS), partition_by="all")


def event_contradictions(frame: F, markets: Any, *, fees: Any = None, size: float | None = None) -> F:
    """Where two tokens of an event cost less than the 1 that one of them surely pays, by the order of its markets.

    Above 110 cannot cost more than above 100, nor by March more than by June: Yes of the one that follows and No of the
    other pay 1 or 2 together. So do No and No of two ranges that exclude each other. Snapshots of one ``ts`` may be of
    different moments of the bucket.

    Parameters
    ----------
    markets : frame of market records
        As for `event_distribution`.
    fees : Fees, 0 or function, optional
        What a taker pays, see `Fees`; 0 says that there are none. With it the frame is of books or bbo, of both tokens
        of each market, and the result has ``size cost profit``.
    size : float, optional
        Shares to buy of each token; by default the smaller size at the best asks.

    Returns
    -------
    frame
        One row per contradiction, by event, ``ts`` and markets in their order; a frame without one has no rows.

        - ``ts event_id``.
        - ``market_a token_a market_b token_b``: the two tokens.
        - ``amount``: 1 - the prices (or mids) of both, No at 1 - the price of Yes [probability]. Null where a price of
          Yes is missing, and negative where only the books of both tokens contradict the order.
        - ``size``: shares bought of each token, only with ``fees``.
        - ``cost``: what these cost, best asks first, with the fees of both [USD].
        - ``profit``: ``size`` - ``cost``, what is certain [USD]. Size, cost and profit are null where a token has no
          book or fewer shares, where a book was filled in (``observed`` is false), and from the close of a market on.

    Raises
    ------
    ConfigError
        ``size`` is given without ``fees``.
    NotTidyError
        As for `event_distribution`.

    Examples
    --------
    >>> books = md.testing.books("polars", markets=2, buckets=1)
    >>> records = md.testing.markets("polars", markets=2).with_columns(
    ...     strike=pl.Series([10.0, 20.0]), comparison=pl.Series([">", ">"])
    ... )
    >>> wrong = md.event_contradictions(books, records, fees=0)
    >>> wrong.select("market_a", "token_a", "market_b", "token_b").rows()
    [('rain', '11', 'snow', '22')]
    >>> wrong.select(pl.col("amount", "size", "profit").round(2)).rows()
    [(0.1, 100.0, 8.0)]
    """
    if fees is None and size is not None:
        raise ConfigError("is the size of a trade, which needs fees; 0 says that there are none.", argument="size")
    fee_schedule, shares = None if fees is None else schedule(fees), None if size is None else number("size", size)
    events, _ = _events(markets)
    lives = lives_of(markets) if fees is not None else {}

    def broken(part: Frame) -> Native:
        if fee_schedule is None:
            part, series, value = probability_of(part)
            traded, found = None, [rules.contradictions(event, series, series.values[value], None) for event in events]
        else:
            part, books = frames.sorted_books(part)
            is_over = books.ts >= over(lives, [token.market_id for token in books.tokens])[books.token]
            is_open = frames.observed(part, books) & ~is_over
            traded = rules.Traded(books, is_open, fee_schedule.charge_for(books), shares)
            found = [rules.contradictions(event, books, books.mid, traded) for event in events]
        times = [one.ts for one in found]
        out: dict[str, Column] = {"ts": frames.times(_joined(times)), "event_id": _names(events, times)}
        rows = [_ids(event)[pair] for event, one in zip(events, found, strict=True) for pair in one.pair.tolist()]
        for place, name in enumerate(("market_a", "token_a", "market_b", "token_b")):
            out[name] = Texts.of([row[place] for row in rows])
        out["amount"] = _joined([one.amount for one in found])
        if traded is not None:
            size, cost = (_joined(values) for values in ([one.size for one in found], [one.cost for one in found]))
            out |= {"size": size, "cost": cost, "profit": size - cost}
        return part.build(out, len(rows))

    return run(frame, broken, TOP_KINDS if fees is not None else ("prices", *TOP_KINDS), partition_by="all")


def _events(markets: Any) -> tuple[list[Event], set[str]]:
    """The events of two markets or more, by id, and all markets of the records."""
    records = read_records(markets)
    if not any(record.get(name) is not None for record in records for name in EVENT_IDS):
        raise NotTidyError.from_missing("markets, a frame of market records,", ["event_id"], sorted({*chain(*records)}))
    return [event_of(name, listed) for name, listed in by_event(records)], {name_of(record) for record in records}


def _ids(event: Event) -> list[tuple[str, str, str, str]]:
    """The ids of the tokens of each pair."""
    claims = event.claims
    return [
        (claims[i].market, claims[i].tokens[token], claims[j].market, claims[j].tokens[of_other])
        for i, token, j, of_other in event.sure
    ]


def _names(events: Sequence[Event], times: Sequence[Ints]) -> Column:
    return Texts.of([event.event_id for event, of_event in zip(events, times, strict=True) for _ in of_event])


def _borders(events: Sequence[tuple[Event, int]]) -> dict[str, Column]:
    """The ends of the intervals of each event, repeated for so many times."""
    ends = [(event.of, *ends) for event, count in events for ends in event.borders * count]
    out: dict[str, Column] = {}
    for name, place in (("lower", 1), ("upper", 2)):
        values = np.array([row[place][0] if row[0] == "strike" else np.nan for row in ends], float)
        out[name] = np.where(np.isinf(values), np.nan, values)
    for name, place in (("after", 1), ("until", 2)):
        is_time = [row[0] == "deadline" and np.isfinite(row[place][0]) for row in ends]
        times = [int(row[place][0]) if known else NO_TIME for row, known in zip(ends, is_time, strict=True)]
        out[name] = frames.times(np.array(times, np.int64))
    return out


def _joined(values: Sequence[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([*values]) if values else np.zeros(0, np.int64)
