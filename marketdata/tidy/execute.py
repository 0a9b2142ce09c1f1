"""Fills of market orders from books, positions, profit and loss."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory, series_of
from marketdata.adapters.frame import Column, Native, Texts
from marketdata.errors import NoBookWarning, NotTidyError, warn
from marketdata.points.arguments import whole
from marketdata.points.columns import Floats, Ints
from marketdata.points.fees import schedule
from marketdata.points.fills import RESULT, Fill, Ladders, Ledger, Order, Token
from marketdata.points.schema import ID_COLUMNS, NOT_0_1, outside_0_1, refuse_cents
from marketdata.points.scores import sums
from marketdata.renamed import renamed
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.grids import off_grid
from marketdata.tidy.outcomes import Payoffs
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
    refuse_cents(price=snapshots.bids.price)
    refuse_cents(price=snapshots.asks.price)
    ladders = Ladders(snapshots)
    given = _orders(orders, delay)
    # An order is filled from the book of exactly its bucket.
    for name, times in (("books", snapshots.ts), ("orders", np.array([order.signal_ts for order in given], np.int64))):
        off = off_grid(times, bucket)
        if len(off):
            raise NotTidyError(
                f"ts of the {name} is {to_text(int(off[0]))} ({len(off)} rows are so), which is not the start of a "
                f"bucket of {bucket}. md.resample(books, '{bucket}') puts books on it; orders have the ts of a book."
            )
    tokens = [(*token, label) for token, label in ladders.labels.items()]
    resolved = Payoffs({} if outcomes is None else outcomes, tokens)
    orders_of_token = defaultdict(list)
    for order in given:
        orders_of_token[order.token].append(order)
    ledgers = []
    for token, of_token in sorted(orders_of_token.items()):
        ends = resolved.resolved_at.get(token[0])
        ledger = Ledger(token, ladders, fee_schedule.of_market(token[0]), hold, patience, ends)
        ledger.trade(of_token)
        ledgers.append(ledger)
    if given and all(fill.status == "no book" for ledger in ledgers for fill in ledger.fills):
        _warn_of_no_book(given, ladders, bucket)
    fills, results = _fills(ledgers, ladders.labels), _results(ledgers, resolved.payoff)
    markets, market = np.unique([ledger.token[0] for ledger in ledgers], return_inverse=True)
    ids = _ids(ledgers, ladders.labels, np.arange(len(ledgers)))
    totals: dict[str, Column] = {column: sums(market, results[column], len(markets)) for column in _SUMMED}
    is_open = (results["position"] > 0) & np.isnan(results["payoff"])
    totals["open_positions"] = np.bincount(market[is_open], minlength=len(markets)).astype(np.int64)
    # The side of an order has other values than the side of a level.
    like = table.without("side")
    return Execution(
        like.build(fills, len(fills["side"])),
        like.build({**ids, **results}, len(ledgers)),
        like.build({"market_id": markets.tolist(), **totals}, len(markets)),
    )


def _warn_of_no_book(orders: Sequence[Order], ladders: Ladders, width: BucketWidth) -> None:
    """NoBookWarning that says why no order met a book."""
    first = min(orders)
    times = ladders.times(first.token)
    if len(times) == 0:
        why = f"the books have no token {first.token[1]!r} of market {first.token[0]!r}"
    else:
        apart = f", at least {dt.timedelta(microseconds=int(np.diff(times).min()))} apart" if len(times) > 1 else ""
        last = to_text(int(times[-1]))
        why = f"its {len(times)} books begin from {to_text(int(times[0]))} to {last}{apart}, and none at that time"
    warn(
        f"None of the {len(orders)} orders met a book at width='{width}'. The first wants one of "
        f"{to_text(first.at)}; {why}.",
        NoBookWarning,
        hint=f"Pass the width of the books, or carry them on with md.resample(books, '{width}', fill='forward').",
    )


def _orders(given: Native, delay: int) -> list[Order]:
    table = series_of(given, "A frame of orders", ("ts", "market_id", "token_id", "side", "size"))
    markets, tokens = (table.texts(column) for column in ID_COLUMNS[:2])
    limits = table.numbers("limit") if "limit" in table.names else np.full(len(table), np.nan)
    if len(wrong := np.flatnonzero(outside_0_1(limits))):
        raise NotTidyError(f"limit of row {wrong[0]} of the orders is {limits[wrong[0]]:g}, {NOT_0_1}")
    columns = (table.times("ts").tolist(), markets, tokens, table.raw("side"), table.numbers("size").tolist(), limits)
    orders = []
    for row, (ts, market, token, side, size, limit) in enumerate(zip(*columns, strict=True)):
        if side not in ("buy", "sell"):
            raise NotTidyError(f"side is 'buy' or 'sell' in a frame of orders; row {row} has {side!r}.")
        if not 0 < size < np.inf:
            raise NotTidyError(f"size is a number of shares above 0 in a frame of orders; row {row} has {size!r}.")
        buys = side == "buy"
        no_limit = np.inf if buys else 0.0
        worst = no_limit if np.isnan(limit) else float(limit)
        orders.append(Order(ts + delay, row, ts, (str(market), str(token)), buys, size, worst))
    return orders


def _fills(ledgers: Sequence[Ledger], labels: Mapping[Token, str | None]) -> dict[str, list[str] | Column]:
    """A row per fill, of the token of each ledger."""
    fills = [fill for ledger in ledgers for fill in ledger.fills]
    at, signal_ts, side, *numbers, status = zip(*fills, strict=True) if fills else [()] * len(Fill._fields)
    names = Fill._fields[3:-1]
    return {
        "ts": frames.times(np.array(at, np.int64)),
        "signal_ts": frames.times(np.array(signal_ts, np.int64)),
        **_ids(ledgers, labels, np.repeat(np.arange(len(ledgers)), [len(ledger.fills) for ledger in ledgers])),
        "side": list(side),
        **{name: np.array(values, float) for name, values in zip(names, numbers, strict=True)},
        "status": list(status),
    }


def _ids(ledgers: Sequence[Ledger], labels: Mapping[Token, str | None], rows: Ints) -> dict[str, Column]:
    """The columns of ids of these ledgers, by their numbers."""
    tokens = [(*ledger.token, labels.get(ledger.token)) for ledger in ledgers]
    return {name: Texts(rows, [token[i] for token in tokens]) for i, name in enumerate(ID_COLUMNS)}


def _results(ledgers: Sequence[Ledger], payoff: Mapping[Token, float]) -> dict[str, Floats]:
    rows = [ledger.result(payoff.get(ledger.token, np.nan)) for ledger in ledgers]
    return dict(zip(RESULT, np.array(rows).reshape(-1, len(RESULT)).T, strict=True))
