"""Checks on decoded columns, vectorised, for both decoders: what is repaired, and what is only noted."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Data
from marketdata.points.views import view_of
from marketdata.resolution import Resolution

# Widths of the buckets of the interface, by name [microseconds].
_WIDTHS = {str(r): r.micros for r in Resolution}
# Notes that say that a value was changed.
REPAIRS = frozenset({"levels_sorted", "number_as_text", "null_side", "time_as_number", "points_sorted"})


def check(columns: Data, resolution: str, notes: Counter[str]) -> Data:
    """The columns with levels best first; every oddity counted in ``notes``."""
    if resolution in _WIDTHS and len(columns.ts):
        _note(notes, "time_not_on_a_bucket", columns.ts % _WIDTHS[resolution] != 0)
    if not isinstance(columns, Books):
        for name, values in columns.values.items():
            if view_of(columns) == "prices" and name == "price":
                _note(notes, "price_outside_0_1", (values < 0) | (values > 1))
            _note(notes, "null_value", np.isnan(values))
        return columns
    books = columns
    (price, size), counts = books.levels(), books.counts
    is_ask = np.repeat((np.arange(len(counts)) & 1).astype(bool), counts)
    equal, wrong = price[1:] == price[:-1], (price[1:] > price[:-1]) != is_ask[1:]
    borders = np.cumsum(counts[counts > 0])[:-1] - 1
    equal[borders] = wrong[borders] = False
    _note(notes, "same_price_twice", equal)
    wrong &= ~equal
    if wrong.any():
        side = np.repeat(np.arange(len(counts)), counts)
        notes["levels_sorted"] += len(np.unique(side[1:][wrong]))
        order = np.lexsort((np.where(is_ask, price, -price), side))
        books = Books.of_levels(books.tokens, books.bounds, books.ts, counts, price[order], size[order])
    if len(price) and not (price.min() >= 0 and price.max() <= 1 and size.min() > 0):
        _note(notes, "price_outside_0_1", (price < 0) | (price > 1))
        _note(notes, "size_not_positive", size <= 0)
    (bid, _), (ask, _) = books.bids.top, books.asks.top
    _note(notes, "crossed_book", bid > ask)
    _note(notes, "locked_book", bid == ask)
    return books


def _note(notes: Counter[str], name: str, hits: NDArray[np.generic]) -> None:
    found = int(np.count_nonzero(hits))
    if found:
        notes[name] += found
