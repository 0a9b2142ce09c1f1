"""Measures of books as verbs: the books of a frame, one function of `book` or several, and a frame of the same kind."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl

from marketdata.points.book import Measure, bbo
from marketdata.points.columns import Books, Side, Token
from marketdata.points.resample import group_starts
from marketdata.points.schema import BBO, ID_COLUMNS, Kind
from marketdata.tidy import nested
from marketdata.tidy.backends import PolarsSource, Result, Taken, beside, run
from marketdata.tidy.table import EagerTable

F = TypeVar("F")
KINDS: tuple[Kind, ...] = ("nested", "books", "bbo")


def of_top(frame: F, *measures: Measure) -> F:
    """One row per (token, ts): ts, ids and the columns of measures of best prices and sizes, of bbo frames too."""
    measured = partial(_measured, measures=measures, whole=False)
    return run(frame, measured, KINDS, together="snapshot", reduce=_best_rows)


def of_levels(frame: F, *measures: Measure) -> F:
    """One row per (token, ts): ts, ids and the columns of measures of any kind."""
    return run(frame, partial(_measured, measures=measures, whole=True), KINDS[:2], together="snapshot")


def _measured(table: EagerTable, measures: tuple[Measure, ...], *, whole: bool) -> Result:
    heads, books = books_of(table, whole=whole)
    if whole:
        books = with_tokens(heads, books)
    values = {name: column for measure in measures for name, column in measure(books).items()}
    return beside(heads, ["ts", *ID_COLUMNS], [series(name, column) for name, column in values.items()])


def top(table: EagerTable) -> EagerTable:
    """A table of bbo: the best prices of each snapshot."""
    if table.kind == "bbo":
        return table.in_order(BBO[4:])
    heads, books = books_of(table, whole=False)
    best = [series(name, values) for name, values in bbo(books).items()]
    return EagerTable(_Made(pl.DataFrame([*(heads.column(c) for c in ("ts", *ID_COLUMNS)), *best])), "bbo")


class _Made(PolarsSource):
    """Columns that are none of the native frame's, so that none is passed on to a result of its library."""

    def is_tidy(self, name: str) -> bool:  # noqa: ARG002 see above
        """See `Source`."""
        return False


def series(name: str, values: Any) -> pl.Series:
    """A column of numbers in which NaN is null, or of truth values."""
    # Most columns have no NaN, and to look costs less than the pass that makes nulls.
    return pl.Series(name, values, nan_to_null=values.dtype.kind == "f" and bool(np.isnan(values).any()))


def books_of(table: EagerTable, *, whole: bool = True) -> tuple[EagerTable, Books]:
    """The snapshots of a table, a row each in tidy order, and their books; all levels checked, or the best two."""
    if table.kind == "books":
        book = table.book(whole=whole)
        return book.take(book.sides.starts), book.books
    if table.kind == "nested":
        table = nested.in_order(table, whole=whole)
        return table, nested.books(table)
    table = table.in_order(BBO[4:])
    rows = np.arange(len(table))
    bid, bid_size, ask, ask_size = (table.array(c) for c in BBO[4:8])
    sides = (Side(rows, (~np.isnan(p)).astype(np.int64), p, s) for p, s in ((bid, bid_size), (ask, ask_size)))
    return table, Books((), rows[:1], rows, *sides)


def with_tokens(heads: EagerTable, books: Books) -> Books:
    """The same books with their tokens, which fees may differ by."""
    starts = group_starts(heads.array("market_id"), heads.array("token_id"))
    ids = zip(heads.texts("market_id", starts), heads.texts("token_id", starts), strict=True)
    tokens = tuple(Token(str(market), token) for market, token in ids)
    return replace(books, tokens=tokens, bounds=np.append(starts, len(heads)))


def _best_rows(table: EagerTable) -> Result:
    """The best two levels of each side, which measures of the top look at, and every marker row."""
    rows = np.arange(len(table))
    if table.kind == "books":
        rows = np.flatnonzero((table.array("level") <= 1) | np.isnan(table.array("price")))
    return Result(pl.DataFrame(), [Taken(table.source, {c: c for c in table.names}, rows)])
