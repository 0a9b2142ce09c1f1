"""The top of the book: best bid, best ask, mid and spread of every snapshot."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl

from marketdata.tidy import nested
from marketdata.tidy.backends import Result, Taken, beside, run
from marketdata.tidy.schema import BBO, ID_COLUMNS, Kind
from marketdata.tidy.table import EagerTable

F = TypeVar("F")
KINDS: tuple[Kind, ...] = ("nested", "books", "bbo")


def bbo(frame: F) -> F:
    """Best bid and offer of every book; a bbo frame is sorted.

    One row per (token, ts): ``ts market_id token_id token_label best_bid best_bid_size best_ask best_ask_size mid
    spread`` [probability 0 to 1, shares]. A missing side is null, also in ``mid`` = (best_bid + best_ask) / 2 and
    ``spread`` = best_ask - best_bid, never 0 or 0.5. The metric ``spread`` of a market is another number.

    Examples
    --------
    >>> md.bbo(md.testing.books("polars", buckets=1)).select("best_bid", "best_ask", "mid").rows()
    [(0.39, 0.41, 0.4), (0.59, 0.61, 0.6)]
    """
    return run(frame, _bbo, KINDS, together="snapshot", reduce=reduced)


def mid(frame: F) -> F:
    """Mid price of every book, one row per (token, ts): ts, ids and the column ``mid`` of `bbo`; see `bbo`."""
    return run(frame, partial(_one, name="mid"), KINDS, together="snapshot", reduce=reduced)


def spread(frame: F) -> F:
    """Spread of every book, one row per (token, ts): ts, ids and the column ``spread`` of `bbo`; see `bbo`.

    Negative where the book is crossed. NotTidyError for metrics, whose ``spread`` is another number.
    """
    return run(frame, partial(_one, name="spread"), KINDS, together="snapshot", reduce=reduced)


def _bbo(table: EagerTable) -> Any:
    if table.kind != "books":
        return top(table)
    book = table.book(whole=False)
    return beside(book.take(book.sides.starts), ["ts", *ID_COLUMNS], _spread(_best(book)))


def _one(table: EagerTable, name: str) -> pl.DataFrame:
    return top(table).select("ts", *ID_COLUMNS, name)


def top(table: EagerTable) -> pl.DataFrame:
    """The columns of bbo of a table of books or bbo."""
    if table.kind == "bbo":
        return table.in_order(BBO[4:]).frame()
    if table.kind == "nested":
        return _spread(nested.best(table))
    book = table.book(whole=False)
    heads = book.take(book.sides.starts).columns("ts", *ID_COLUMNS)
    return _spread(pl.DataFrame(heads).hstack(_best(book)))


def _best(book: EagerTable) -> pl.DataFrame:
    # A missing side is looked for first, for most books have both, and nulls cost another pass.
    return pl.DataFrame(
        [pl.Series(name, v, nan_to_null=bool(np.isnan(v).any())) for name, v in zip(BBO[4:8], book.best(), strict=True)]
    )


def _spread(data: pl.DataFrame) -> pl.DataFrame:
    bid, ask = pl.col("best_bid"), pl.col("best_ask")
    return data.with_columns(((bid + ask) / 2).alias("mid"), (ask - bid).alias("spread"))


def reduced(table: EagerTable) -> Any:
    """The best two levels of each side, which `top` looks at, and every marker row."""
    rows = np.arange(len(table))
    if table.kind == "books":
        rows = np.flatnonzero((table.array("level") <= 1) | np.isnan(table.array("price")))
    return Result(pl.DataFrame(), [Taken(table.source, {c: c for c in table.names}, rows)])
