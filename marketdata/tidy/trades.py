"""Measures of trades, and of trades with books."""

from __future__ import annotations

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, names_of, run
from marketdata.adapters.frame import Frame, Native
from marketdata.adapters.polars import typed
from marketdata.adapters.widths import with_width
from marketdata.points.bars import signs, taker_sides
from marketdata.points.columns import ratio
from marketdata.points.resample import buckets, in_buckets
from marketdata.points.schema import require
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.asof import asof_join
from marketdata.tidy.book_measures import mid
from marketdata.tidy.frames import check_sides


def effective_spread(trades: F, books: F, width: Width | None = None) -> F:
    """Twice the distance of each trade's price from the mid known before it, which is what takers paid.

    The sign rests on what the taker did. A venue's fills tell it by both accounts. Public feeds give a side that their
    venue derived in its own way, and none of them shows how; in a row with ``role`` "maker" the side is what that
    account did, so that the taker did the opposite. The column ``side_by`` says which it was.

    A book of a bucket is known at its end, so trades within a bucket have the mid of the bucket before. Books of
    seconds tell more than books of minutes. Frames of Dask are refused as by `asof_join`.

    Parameters
    ----------
    trades
        A frame as `read_trades` gives it: ``ts``, ids, ``side`` ("buy" or "sell", of the taker) and ``price``.
    books
        Tidy books of the same kind of frame.
    width : str or timedelta, optional
        Bucket width of the books; by default the one that they carry.

    Returns
    -------
    frame
        The trades by ids and time, with these further columns.

        - ``mid``, and its ``ts_right`` and ``available_at``: of the last book that was known before the trade.
        - ``effective_spread``: 2 * (price - mid) for a buy, 2 * (mid - price) for a sale [probability]. It is null
          where there is no mid, or the side of the trade is not known.
        - ``side_by``: how the side is known. "accounts": the trade names its ``maker`` and its ``taker``. "source": the
          source says a side. Null where the side is not known.

    References
    ----------
    Huang and Stoll (1996), "Dealer versus auction markets", Journal of Financial Economics 41.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=2)
    >>> token = books["token_id"][0]
    >>> trades = books.head(1).select(
    ...     "market_id", "token_id", price=0.42, size=5.0, side=pl.lit("buy"),
    ...     ts=pl.col("ts") + pl.duration(seconds=90),
    ... )
    >>> md.effective_spread(trades, books)["effective_spread"].round(9).to_list()
    [0.04]
    """
    require("A frame of trades", ("ts", "token_id", "side", "price"), names_of(trades))
    joined = asof_join(trades, mid(books), width=width)
    return run(joined, _with_spread, ("trades",), partition_by="row", keep_extra=True)


def _with_spread(joined: Frame) -> Native:
    sides = np.array(joined.texts("side"), object)
    check_sides(sides)
    maker, taker, roles = (
        np.array(joined.texts(name) if name in joined.names else [None] * len(joined), object)
        for name in ("maker", "taker", "role")
    )
    spread = 2 * signs(taker_sides(sides, roles)) * (joined.numbers("price") - joined.numbers("mid"))
    side_by = [
        None if side is None else "source" if None in accounts else "accounts"
        for side, *accounts in zip(sides, maker, taker, strict=True)
    ]
    return frames.with_columns(joined, {"effective_spread": spread, "side_by": typed("text", side_by)})


def vwap(trades: F, resolution: Width) -> F:
    """Average price of the trades of each token and bucket, weighted with their sizes.

    One row per token and bucket with a trade: ``ts market_id token_id token_label vwap size trades``. ``vwap`` is
    sum(price * size) / sum(size) [probability], ``size`` is sum(size) [shares], and ``trades`` their number. A trade
    without a price or a size counts in none of them.

    Parameters
    ----------
    trades
        A frame as `read_trades` gives it, of any kind.
    resolution : str or timedelta
        Width of a bucket, such as "1m".

    Raises
    ------
    NotTidyError
        The frame lacks a column of trades, or holds levels of books.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=2)
    >>> trades = prices.with_columns(size=pl.lit(5.0))
    >>> md.vwap(trades, "1h")["vwap"].round(9).to_list()
    [0.405, 0.595]
    """
    width = BucketWidth.of(resolution)
    require("A frame of trades", ("ts", "token_id", "price", "size"), names_of(trades))

    def averages(part: Frame) -> Native:
        part, every = frames.sorted_rows(part)
        price, size = part.numbers("price"), part.numbers("size")
        # A trade counts only with both numbers, because its size would else weigh a price that is not there.
        has_both = np.flatnonzero(~np.isnan(price) & ~np.isnan(size))
        rows, price, size = every.take(has_both), price[has_both], size[has_both]
        edges = buckets(rows, width)
        both = (size, size * price)
        shares, notional = (np.add.reduceat(values, edges[:-1]) if len(rows) else values for values in both)
        values = {"vwap": ratio(notional, shares), "size": shares, "trades": np.diff(edges)}
        return frames.to_frame(part, in_buckets(rows, edges, width, values), values, ["ts", *part.ids, *values])

    return with_width(run(trades, averages, ("trades",), keep_extra=True), width)  # type: ignore[no-any-return]
