"""Measures of books as verbs: the books of a frame, one function of `points.book` or several, and a frame like it."""

from __future__ import annotations

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, run
from marketdata.adapters.frame import Frame, Native
from marketdata.points.book import Measure, bbo
from marketdata.points.columns import Series
from marketdata.points.schema import BBO, Kind

# Frames that have best prices.
KINDS: tuple[Kind, ...] = ("nested", "books", "bbo")


def of_books(frame: F, *measures: Measure, all_levels: bool = True) -> F:
    """One row per (token, ts): ts, ids and the columns of measures.

    ``all_levels``: they look at all levels; else at best prices and sizes alone, and take bbo frames too.
    """

    def measured(own: Frame) -> Native:
        books = frames.books(own, all_levels=all_levels)
        values = {name: column for measure in measures for name, column in measure(books).items()}
        return frames.to_frame(own, books, values)

    kinds, reduce = (KINDS[:2], None) if all_levels else (KINDS, _best_rows)
    return run(frame, measured, kinds, partition_by="snapshot", reduce=reduce)


def top(frame: Frame) -> Series:
    """The best prices and sizes of each snapshot of books, nested books or bbo."""
    if frame.kind == "bbo":
        return frames.series(frame, BBO[4:])
    books = frames.books(frame, all_levels=False)
    return books.series(bbo(books))


def _best_rows(frame: Frame) -> Native:
    """The best two levels of each side, which measures of the top look at, and every marker row."""
    rows = np.arange(len(frame))
    if frame.kind == "books":
        level, price = frame.read("level", "price")
        rows = np.flatnonzero((level <= 1) | np.isnan(price))
    return frames.rows_to_frame(frame, rows)
