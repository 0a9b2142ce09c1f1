"""Checks on decoded columns, vectorised, for both decoders: what is repaired, and what is only noted."""

from __future__ import annotations

from collections import Counter

import numpy as np

from marketdata.points.columns import AnyColumns, BookColumns, PriceColumns
from marketdata.resolution import Resolution

_NAMES = frozenset(str(r) for r in Resolution)
REPAIRS = frozenset({"levels_sorted", "number_as_text", "null_side", "time_as_number", "points_sorted"})


def check(columns: AnyColumns, resolution: str, notes: Counter[str]) -> AnyColumns:
    """The columns with levels best first; every oddity counted in ``notes``."""
    if resolution in _NAMES and len(columns):
        _note(notes, "time_not_on_a_bucket", columns.ts % Resolution(resolution).micros != 0)
    if isinstance(columns, BookColumns):
        return _check_books(columns, notes)
    if isinstance(columns, PriceColumns):
        _note(notes, "price_outside_0_1", (columns.price < 0) | (columns.price > 1))
    for values in columns.values.values():
        _note(notes, "null_value", np.isnan(values))
    return columns


def _check_books(books: BookColumns, notes: Counter[str]) -> BookColumns:
    if len(books.levels) == 0:
        return books
    books = _best_first(books, notes)
    price, size = books.levels[:, 0], books.levels[:, 1]
    ends = np.cumsum(books.counts)
    starts = ends - books.counts
    held = books.counts > 0
    # Levels are best first, so the extremes of a side are its first and its last.
    edges = price[np.concatenate((starts[held], ends[held] - 1))]
    if edges.min() < 0 or edges.max() > 1:
        _note(notes, "price_outside_0_1", (price < 0) | (price > 1))
    if books.levels.min() <= 0:
        _note(notes, "size_not_positive", size <= 0)
    both = held.reshape(-1, 2).all(axis=1)
    best = starts.reshape(-1, 2)[both]
    bid, ask = price[best[:, 0]], price[best[:, 1]]
    _note(notes, "crossed_book", bid > ask)
    _note(notes, "locked_book", bid == ask)
    return books


def _best_first(books: BookColumns, notes: Counter[str]) -> BookColumns:
    price, counts = books.levels[:, 0], books.counts
    is_ask = np.repeat((np.arange(len(counts)) & 1).astype(bool), counts)
    step = np.diff(price)
    borders = np.cumsum(counts)[:-1] - 1
    borders = borders[(borders >= 0) & (borders < len(step))]
    equal, wrong = step == 0, (step > 0) != is_ask[1:]
    equal[borders] = wrong[borders] = False
    wrong &= ~equal
    _note(notes, "same_price_twice", equal)
    if not wrong.any():
        return books
    side = np.repeat(np.arange(len(counts)), counts)
    notes["levels_sorted"] += len(np.unique(side[1:][wrong]))
    order = np.lexsort((np.where(is_ask, price, -price), side))
    return BookColumns(books.tokens, books.token, books.ts, counts, books.levels[order])


def _note(notes: Counter[str], name: str, hits: np.ndarray) -> None:
    found = int(np.count_nonzero(hits))
    if found:
        notes[name] += found
