"""Forward returns: the result of a trade at each snapshot, net of costs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, distinct_rows, in_memory, is_in_memory, is_lazy, read, run
from marketdata.adapters.frame import Column, Frame, Native, Texts
from marketdata.adapters.normalization import is_missing
from marketdata.adapters.widths import width_of
from marketdata.points import forward as rules
from marketdata.points.arguments import choice, number
from marketdata.points.columns import Columns
from marketdata.points.fees import schedule
from marketdata.points.order import NO_TIME
from marketdata.resolution import Width
from marketdata.tidy.measures import TOP_KINDS
from marketdata.tidy.outcomes import Payoffs, for_tokens
from marketdata.times import Duration, to_duration, to_durations

STATUSES = {
    "buy": ["no_entry", "exit", "settled", "no_exit_book", "no_exit_bid"],
    "sell": ["no_entry", "exit", "settled", "no_exit_book", "no_exit_ask"],
}


def forward_returns(
    books: F,
    horizons: Duration | Iterable[Duration] = ("1m", "5m"),
    width: Width | None = None,
    *,
    side: Literal["buy", "sell"] = "buy",
    size: float | None = None,
    latency: Duration | None = None,
    fees: Any,
    outcomes: Any = None,
    tolerance: Duration | None = None,
) -> F:
    """The return of a taker who buys (or sells) after each snapshot and trades back one horizon later.

    A missing exit is not missing at random: a token that falls has no bid. So a mean of ``net`` needs the mean of
    ``net_low`` beside it. No row after ts + latency + horizon + tolerance changes a row, but ``at_end``. No trade meets
    a book that was filled in (``observed`` is false), or one that begins after the close.

    Parameters
    ----------
    books
        Tidy or nested books of any kind of frame and engine; also bbo, if there is no ``size``.
    horizons : str, timedelta or list of them
        From the entry to the exit: "30s", "5m", "1h". The column ``horizon`` has them as texts.
    side : {"buy", "sell"}
        The side of the entry.
    size : float, optional
        Shares of each trade; without it one share at the best price.
    latency : str or timedelta, optional
        From ts to the book of the entry; by default one ``width``. "0s" trades with the book that gave the signal,
        which no real order reaches.
    fees : Fees, 0 or function
        What a taker pays, see `Fees`; 0 says that there are none.
    outcomes : frame or mapping, optional
        What tokens pay, and when, as for `brier`. Without it nothing is settled; a mapping does not say when.
    tolerance : str or timedelta, optional
        How much later than the horizon the book of an exit may be; by default not at all.
    width : str or timedelta, optional
        Bucket width of the books; by default the one that they carry.

    Returns
    -------
    frame
        One row per (token, ts, horizon), of the kind of ``books``. Prices and returns are probabilities per share.

        - ``ts market_id token_id token_label horizon``.
        - ``entry``: the best ask at ts + latency, or with ``size`` the average price of its levels.
        - ``exit``: the same of the bids one horizon later, or the payoff of a market that ended first.
        - ``move``: the mid at the exit less the mid at the entry.
        - ``net``: exit - entry - fees. A seller enters at bids, and earns entry - exit - fees.
        - ``net_low``: as ``net``, but a missing exit counts. Shares that nobody buys are worth 0, and a seller buys
          missing shares back at 1.
        - ``status``: how the trade ended, one of these texts.

          - "exit": both trades met a book with enough shares.
          - "settled": the market closed or resolved before the exit, and its payoff counts.
          - "no_entry": no book at ts + latency has enough shares, or the market had closed. All values are null.
          - "no_exit_book": there is no book within ``tolerance``. ``exit`` and ``net`` are null.
          - "no_exit_bid" (of a seller "no_exit_ask"): the book has too few shares. ``exit`` and ``net`` are null.

        - ``at_end``: the exit is missing because it would be after the last of all books; no bias by itself.

    Raises
    ------
    GridError
        The times of the books are of no buckets of ``width``.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=4)
    >>> rows = md.forward_returns(books, "1m", fees=0).filter(token_label="Yes")
    >>> rows.select("entry", "exit", "net", "status").row(0)
    (0.42, 0.42, 0.0, 'exit')
    """
    books = read(books)
    buckets = width_of(books, width, what="the books")
    micros = to_durations(horizons, "horizons", "['1m', '5m']", least="1s")
    choice("side", side, STATUSES)
    shares = None if size is None else number("size", size)
    delay = buckets.micros if latency is None else buckets.steps(to_duration(latency, "latency"), "latency", latency)
    for text, length in micros.items():
        buckets.steps(length, "horizons", text)
    patience = 0 if tolerance is None else to_duration(tolerance, "tolerance")
    fee_schedule = schedule(fees)
    payoffs = partial(Payoffs, {}) if outcomes is None else for_tokens(books, partial(Payoffs, outcomes))
    is_whole = is_in_memory(books) or is_lazy(books)
    last = None if is_whole else int(in_memory(distinct_rows(books, ["ts"])).times("ts").max(initial=NO_TIME))

    def trades(part: Frame) -> Native:
        part, rows = frames.sorted_books(part, all_levels=shares is not None)
        charge = fee_schedule.charge_for(rows)
        resolved = payoffs(rows.tokens)
        payoff = resolved.of(rows.tokens)
        last_book = int(rows.ts.max(initial=NO_TIME)) if last is None else last
        is_book = frames.observed(part, rows)
        over = resolved.over(rows.tokens)
        trade = rules.Trade(side == "buy", shares, delay, patience, charge, over, payoff, is_book, last_book)
        results = rules.forward(rows, micros.values(), trade)
        count = len(micros)
        entries = Columns(rows.tokens, rows.bounds * count, np.repeat(rows.ts, count))
        values: dict[str, Column] = {"horizon": Texts(np.tile(np.arange(count), len(rows)), [*micros])}
        for name, columns in zip(rules.Forward._fields, zip(*results, strict=True), strict=True):
            values[name] = np.stack(columns, axis=1).ravel()
        values["status"] = Texts(np.asarray(values["status"]), [*STATUSES[side]])
        return frames.to_frame(part, entries, values, ["ts", *part.ids, *values])

    return run(books, trades, TOP_KINDS if shares is None else TOP_KINDS[:2], partition_by="token", width=buckets)


def is_settled(returns: Frame) -> NDArray[np.bool_]:
    """Which rows of forward returns a payoff ended."""
    statuses, which = frames.distinct_ids(returns, ["status"])
    return np.array([status == ("settled",) for status in statuses], bool)[which]


def flags_of(table: Frame, name: str) -> NDArray[np.bool_]:
    """A column of truth values, False without it."""
    if name not in table.names:
        return np.zeros(len(table), bool)
    return np.array([not is_missing(one) and bool(one) for one in table.raw(name)], bool)
