"""Fills of market orders from books, positions, profit and loss."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory, series_of
from marketdata.adapters.frame import Column, Frame, Native, Texts
from marketdata.errors import NoBookWarning, NotTidyError, warn
from marketdata.points.arguments import whole
from marketdata.points.columns import Ints, Token
from marketdata.points.fees import schedule
from marketdata.points.fills import RESULT, Fill, Ledger, Order
from marketdata.points.schema import ID_COLUMNS, NOT_0_1, outside_0_1, refuse_cents
from marketdata.renamed import renamed
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.grids import off_grid
from marketdata.tidy.outcomes import Key, Payoffs
from marketdata.times import to_text

# Longer durations would not fit in 64 bits as microseconds.
_MOST_BUCKETS = 10_000_000
_SUMMED = ("paid", "received", "fees", "settled", "profit", "open_at_last_bid")


class Execution(NamedTuple):
    """Result of `execute`: three frames of the kind of the books."""

    fills: Any
    positions: Any
    markets: Any


@renamed
def execute(
    orders: Any,
    books: Any,
    width: Width,
    *,
    fees: Any,
    outcomes: Any = None,
    latency: int = 1,
    exit_after: int | None = None,
    exit_tolerance: int = 0,
) -> Execution:
    """Fill market orders from books, hold what was bought until it is sold or resolves, and compute profit and loss.

    This is the last step of a study, not a backtester. Orders take shares of one snapshot, best level first, in the
    order of ``orders``. They do not move later books. Only shares that were bought before are sold. A bucket without a
    book fills no order, so carry books on with ``md.resample(books, "1m", fill="forward")``. A bucket that begins at or
    after ``resolved_at`` fills no order.

    Parameters
    ----------
    orders
        A frame of any kind with one row per order:

        - ``ts``: the bucket at whose end the order was decided [UTC].
        - ``market_id token_id``.
        - ``side``: "buy" or "sell".
        - ``size`` [shares].
        - ``limit``, optional: the worst price [probability]. It is compared up to 1e-9, so that 0.06 + 0.01 reaches
          0.07.
    books
        Tidy books of any kind of frame; lazy ones are computed.
    width : str or timedelta
        Bucket width of orders and books, such as "1m".
    fees : Fees, float or function
        What a taker pays, see `Fees`; 0 says that there are none.
    outcomes : frame or mapping, optional
        What open positions pay in the end, as for `brier`.
    latency : int
        Buckets from signal to book. 1 is the next snapshot; 0 is that of the signal, too early for a real order.
    exit_after : int, optional
        Sell what an order bought this many buckets after its fill. Without it a position is held until the market ends.
        Shares that cannot be sold stay a position.
    exit_tolerance : int
        How many buckets an exit waits for a book if its own bucket has none.

    Returns
    -------
    Execution
        Three frames of the kind of ``books``: in memory for a lazy one, of polars for an engine's.

        ``fills`` has one row per order, exits included, by token and time:

        - ``ts``, ``signal_ts``: the buckets of the book and of the signal [UTC].
        - ``market_id token_id token_label side``.
        - ``requested``, ``shares``: shares wanted, and shares filled.
        - ``average_price`` [probability], ``notional`` and ``fee`` [USD].
        - ``status``: "filled", "partial", "no book", "no liquidity", "no position" or "resolved".

        ``positions`` has one row per token:

        - ``market_id token_id token_label``.
        - ``bought sold position`` [shares], ``paid received fees`` [USD], ``payoff`` [USD per share].
        - ``settled``: position * payoff [USD].
        - ``profit``: received - paid - fees + settled [USD], null while an open position has no payoff.
        - ``open_at_last_bid``: an open position without a payoff at the best bid of the last book [USD], 0 without a
          bid. The profit does not contain it.

        ``markets`` has one row per market: ``market_id paid received fees settled profit open_at_last_bid
        open_positions``.

    Raises
    ------
    NotTidyError
        A ``ts`` is off the grid, or a limit is outside of 0 to 1.
    ConfigError
        The fee of a market is not known.

    Warns
    -----
    NoBookWarning
        No order met a book.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=2)
    >>> signals = (
    ...     books.md.mid()
    ...     .head(1)
    ...     .select("ts", "market_id", "token_id", side=pl.lit("buy"), size=150.0)
    ... )
    >>> markets = md.testing.markets("polars")
    >>> done = md.execute(signals, books, "1m", fees=0.01, outcomes=markets)
    >>> done.markets["profit"].to_list()
    [86.37]
    """
    bucket = BucketWidth.of(width, "width")
    delay = whole("latency", latency, 0, _MOST_BUCKETS) * bucket.micros
    patience = whole("exit_tolerance", exit_tolerance, 0, _MOST_BUCKETS) * bucket.micros
    hold = None if exit_after is None else whole("exit_after", exit_after, 1, _MOST_BUCKETS) * bucket.micros
    fee_schedule = schedule(fees)
    table = in_memory(books, ("books",))
    snapshots = frames.books(table)
    refuse_cents(price=snapshots.levels()[0])
    given = _orders(orders, delay)
    # An order is filled from the book of exactly its bucket.
    signals = np.array([order.signal_ts for of_token in given.values() for order in of_token], np.int64)
    for name, times in (("books", snapshots.ts), ("orders", signals)):
        off = off_grid(times, bucket)
        if len(off):
            raise NotTidyError(
                f"ts of the {name} is {to_text(int(off[0]))} ({len(off)} rows are so), which is not the start of a "
                f"bucket of {bucket}. md.resample(books, '{bucket}') puts books on it; orders have the ts of a book."
            )
    resolved = Payoffs({} if outcomes is None else outcomes, snapshots.tokens)
    number = {token[:2]: i for i, token in enumerate(snapshots.tokens)}
    ledgers = []
    for key, of_token in sorted(given.items()):
        first = number.get(key, 0)
        books_of_token = snapshots.part(first, first + (key in number))
        token = books_of_token.tokens[0] if key in number else Token(*key)
        ends = resolved.resolved_at.get(token.market_id)
        fees_of_token = fee_schedule.of_market(token.market_id)
        ledger = Ledger(token, books_of_token, fees_of_token, hold, patience, ends)
        ledger.trade(of_token)
        ledgers.append(ledger)
    fills = [fill for ledger in ledgers for fill in ledger.fills]
    if fills and all(fill.status == "no book" for fill in fills):
        _warn_of_no_book(ledgers, bucket)
    # The side of an order has other values than the side of a level.
    return _frames(ledgers, fills, resolved, table.without("side"))


def _warn_of_no_book(ledgers: Sequence[Ledger], width: BucketWidth) -> None:
    """NoBookWarning that says why no order met a book."""
    first = min(ledgers, key=lambda ledger: ledger.fills[0].ts)
    times = first.books.ts
    if len(times) == 0:
        why = f"the books have no token {first.token.token_id!r} of market {first.token.market_id!r}"
    else:
        apart = f", at least {dt.timedelta(microseconds=int(np.diff(times).min()))} apart" if len(times) > 1 else ""
        last = to_text(int(times[-1]))
        why = f"its {len(times)} books begin from {to_text(int(times[0]))} to {last}{apart}, and none at that time"
    warn(
        f"None of the {sum(len(ledger.fills) for ledger in ledgers)} orders met a book at width='{width}'. The first "
        f"wants one of {to_text(first.fills[0].ts)}; {why}.",
        NoBookWarning,
        hint=f"Pass the width of the books, or carry them on with md.resample(books, '{width}', fill='forward').",
    )


def _orders(given: Native, delay: int) -> dict[Key, list[Order]]:
    """The orders of each token."""
    table = series_of(given, "A frame of orders", ("ts", "market_id", "token_id", "side", "size"))
    limits = table.numbers("limit") if "limit" in table.names else np.full(len(table), np.nan)
    if len(wrong := np.flatnonzero(outside_0_1(limits))):
        raise NotTidyError(f"limit of row {wrong[0]} of the orders is {limits[wrong[0]]:g}, {NOT_0_1}")
    buys, sizes = sides_of(table, "orders") == "buy", table.numbers("size")
    refuse_rows("orders", "size", sizes.tolist(), (sizes > 0) & np.isfinite(sizes), "a number of shares above 0")
    limits = np.where(np.isnan(limits), np.where(buys, np.inf, 0.0), limits)
    orders = defaultdict(list)
    columns = (table.times("ts").tolist(), buys.tolist(), sizes.tolist(), limits.tolist())
    keys = zip(*(map(str, table.texts(column)) for column in ID_COLUMNS[:2]), strict=True)
    for row, (key, ts, *order) in enumerate(zip(keys, *columns, strict=True)):
        orders[key].append(Order(ts + delay, row, ts, *order))
    return orders


def sides_of(table: Frame, what: str) -> NDArray[np.object_]:
    """The sides of a frame of orders or fills; NotTidyError for another than "buy" and "sell"."""
    sides = np.array([str(side) for side in table.raw("side")], object)
    refuse_rows(what, "side", sides.tolist(), np.isin(sides, ("buy", "sell")), "'buy' or 'sell'")
    return sides


def refuse_rows(what: str, name: str, values: Sequence[object], good: NDArray[np.bool_], allowed: str) -> None:
    """NotTidyError for the first row that is not good, with its value."""
    if not good.all():
        row = int(np.argmin(good))
        raise NotTidyError(f"{name} is {allowed} in a frame of {what}; row {row} has {values[row]!r}.")


def _frames(ledgers: Sequence[Ledger], fills: Sequence[Fill], resolved: Payoffs, like: Frame) -> Execution:
    """A row per fill, per token and per market."""

    def ids(rows: Ints) -> dict[str, Column]:
        return {c: Texts(rows, [getattr(ledger.token, c) for ledger in ledgers]) for c in ID_COLUMNS}

    tokens = ids(np.repeat(np.arange(len(ledgers)), [len(ledger.fills) for ledger in ledgers]))
    columns: dict[str, Column] = {}
    for name, values in zip(Fill._fields, zip(*fills, strict=True) if fills else [()] * 9, strict=True):
        if name in ("ts", "signal_ts"):
            columns |= {name: frames.times(np.array(values, np.int64)), **(tokens if name == "signal_ts" else {})}
        else:
            columns[name] = [*values] if name in ("side", "status") else np.array(values, float)
    payoffs = resolved.of([ledger.token for ledger in ledgers]).tolist()
    results = [ledger.result(payoff) for ledger, payoff in zip(ledgers, payoffs, strict=True)]
    positions = dict(zip(RESULT, np.array(results, float).reshape(-1, len(RESULT)).T, strict=True))
    markets, market = np.unique([ledger.token.market_id for ledger in ledgers], return_inverse=True)
    is_open = (positions["position"] > 0) & np.isnan(positions["payoff"])
    totals: dict[str, Column] = {name: np.bincount(market, positions[name], len(markets)) for name in _SUMMED}
    totals["open_positions"] = np.bincount(market[is_open], minlength=len(markets)).astype(np.int64)
    return Execution(
        like.build(columns, len(fills)),
        like.build({**ids(np.arange(len(ledgers))), **positions}, len(ledgers)),
        like.build({"market_id": markets.tolist(), **totals}, len(markets)),
    )
