"""The top of the book: best bid, best ask, mid and spread of every snapshot."""

from __future__ import annotations

from typing import Any, TypeVar

import narwhals as nw

from marketdata.tidy.kinds import check_sides, floats, new_series, wrapped
from marketdata.tidy.partitions import by_partition, token_by_token
from marketdata.tidy.schema import ASK, BBO, BID, WHO, kind_of
from marketdata.tidy.snapshots import Starts

F = TypeVar("F")
_KEYS = (*WHO, "ts")


def bbo(frame: F) -> F:
    """Best bid and offer of every book.

    Parameters
    ----------
    frame
        Tidy books of any frame kind; a bbo frame is given back as it is.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label best_bid best_bid_size best_ask best_ask_size mid
        spread``. Prices are probabilities 0 to 1, sizes shares. A missing side gives null, in ``mid`` and ``spread``
        too, never 0 or 0.5. ``ts`` as in the frame. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.

    Notes
    -----
    mid = (best_bid + best_ask) / 2, spread = best_ask - best_bid. The market-level metric ``spread`` of the
    service is another number (interface 2.6).

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> book = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"] * 2, "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "side": ["bid", "ask"], "level": [0, 0], "price": [0.25, 0.75], "size": [10.0, 20.0],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.bbo(book).select("mid", "spread").row(0)
    (0.5, 0.5)
    """
    data = wrapped(frame)
    if kind_of(data.collect_schema().names(), ("books", "bbo")) == "bbo":
        return frame
    if data.implementation.is_dask():
        return by_partition(data.to_native(), WHO, bbo)  # type: ignore[no-any-return]
    fast = _bbo_runs(data) if isinstance(data, nw.DataFrame) else None
    out = bbo_rows(data) if fast is None else fast
    return nw.maybe_reset_index(out).to_native()  # type: ignore[no-any-return]


def mid(frame: F) -> F:
    """Mid price of every book: (best_bid + best_ask) / 2.

    Parameters
    ----------
    frame
        Tidy books or bbo of any frame kind.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label mid`` [probability 0 to 1], null where a side is
        missing.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books or bbo.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> list(archive.books(archive.records("markets")[0]["id"]).md.mid().columns)
    ['ts', 'market_id', 'token_id', 'token_label', 'mid']
    """
    return _one(frame, "mid")  # type: ignore[no-any-return]


def spread(frame: F) -> F:
    """Spread of every book: best_ask - best_bid.

    Parameters
    ----------
    frame
        Tidy books or bbo of any frame kind. A metrics frame is refused: its ``spread`` is another number.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label spread`` [probability], null where a side is
        missing, negative where the book is crossed.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books or bbo.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> list(archive.books(archive.records("markets")[0]["id"]).md.spread().columns)
    ['ts', 'market_id', 'token_id', 'token_label', 'spread']
    """
    return _one(frame, "spread")  # type: ignore[no-any-return]


@token_by_token
def _one(frame: Any, name: str) -> Any:
    return wrapped(bbo(frame)).select("ts", *WHO, name).to_native()


def bbo_rows(data: Any) -> Any:
    """The measure as expressions: one group per snapshot, the level 0 of each side."""
    parts = []
    top = (nw.col("level") == 0).fill_null(value=False)
    for side in (BID, ASK):
        best = top & (nw.col("side").cast(nw.String) == side)
        parts += [
            nw.when(best).then(nw.col("price")).alias(f"best_{side}"),
            nw.when(best).then(nw.col("size")).alias(f"best_{side}_size"),
        ]
    names = BBO[4:8]
    data = data.select(*_KEYS, *parts).group_by(*_KEYS).agg(nw.col(*names).max())
    bid, ask = nw.col("best_bid"), nw.col("best_ask")
    data = data.with_columns(((bid + ask) / 2).alias("mid"), (ask - bid).alias("spread"))
    return data.select(*BBO).sort(*_KEYS, nulls_last=True)


def _bbo_runs(data: nw.DataFrame[Any]) -> nw.DataFrame[Any] | None:
    """The measure by runs, or None where the frame is not tidy: each side begins with level 0 or its marker row."""
    starts = Starts.of(data)
    if starts is None:
        check_sides(data)
        return None
    bids, asks = starts
    out = data.select(*_KEYS)[bids]
    price, size = floats(data["price"]), floats(data["size"])
    bid, ask = price[bids], price[asks]
    values = (bid, size[bids], ask, size[asks], (bid + ask) / 2, ask - bid)
    return out.with_columns(*(new_series(out, c, v) for c, v in zip(BBO[4:], values, strict=True))).select(*BBO)
