"""The top of the book: best bid, best ask, mid and spread of every snapshot."""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import narwhals as nw
import numpy as np
import polars as pl

from marketdata.tidy import nested
from marketdata.tidy.backends import Result, Taken, beside, run
from marketdata.tidy.engines import EngineTable
from marketdata.tidy.schema import ASK, BBO, BID, ID_COLUMNS, Kind
from marketdata.tidy.table import EagerTable

F = TypeVar("F")
_KEYS = (*ID_COLUMNS, "ts")
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


def _bbo(table: Any) -> Any:
    if not table.is_eager or table.kind != "books":
        return top(table)
    book = table.book(whole=False)
    numbers = _spread(nw.from_native(_best(book))).to_native()
    return beside(book.take(book.sides.starts), ["ts", *ID_COLUMNS], numbers)


def _one(table: Any, name: str) -> Any:
    return top(table).select("ts", *ID_COLUMNS, name)


def top(table: Any) -> Any:
    """The columns of bbo of a `Table` of books or bbo, behind narwhals."""
    if table.kind == "bbo":
        return table.in_order(BBO[4:]).frame() if table.is_eager else table.frame().sort(*_KEYS, nulls_last=True)
    nest = table.kind == "nested"
    if not table.is_eager:
        data = _spread(nested.best_rows(table) if nest else _best_rows(table))
        return data.select(*BBO).sort(*_KEYS, nulls_last=True)
    if nest:
        return _spread(nw.from_native(nested.best(table)))
    book = table.book(whole=False)
    heads = book.take(book.sides.starts).columns("ts", *ID_COLUMNS)
    return _spread(nw.from_native(pl.DataFrame(heads).hstack(_best(book))))


def _best(book: EagerTable) -> pl.DataFrame:
    # A missing side is looked for first, for most books have both, and nulls cost another pass.
    return pl.DataFrame(
        [pl.Series(name, v, nan_to_null=bool(np.isnan(v).any())) for name, v in zip(BBO[4:8], book.best(), strict=True)]
    )


def _spread(data: Any) -> Any:
    bid, ask = nw.col("best_bid"), nw.col("best_ask")
    return data.with_columns(((bid + ask) / 2).alias("mid"), (ask - bid).alias("spread"))


def reduced(table: EagerTable) -> Any:
    """The best two levels of each side, which `top` looks at, and every marker row."""
    rows = np.arange(len(table))
    if table.kind == "books":
        rows = np.flatnonzero((table.array("level") <= 1) | np.isnan(table.array("price")))
    return Result(pl.DataFrame(), [Taken(table.source, {c: c for c in table.names}, rows)])


def _best_rows(table: EngineTable) -> Any:
    """The measure as expressions: one group per snapshot, the level 0 of each side."""
    parts = []
    first = (nw.col("level") == 0).fill_null(value=False)
    for side in (BID, ASK):
        best = first & (nw.col("side") == side)
        parts += [
            nw.when(best).then(nw.col("price")).alias(f"best_{side}"),
            nw.when(best).then(nw.col("size")).alias(f"best_{side}_size"),
        ]
    names = BBO[4:8]
    return table.frame().select(*_KEYS, *parts).group_by(*_KEYS).agg(nw.col(*names).max())
