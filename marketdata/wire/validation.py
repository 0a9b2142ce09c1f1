"""Checks on decoded columns: what is repaired, and what is only counted."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.points.columns import Books, Data
from marketdata.points.views import view_of
from marketdata.resolution import BucketWidth

REPAIRS = frozenset({"levels_sorted", "null_side", "points_sorted"})


def check(columns: Data, resolution: str, notes: Counter[str]) -> Data:
    """The columns with levels best first; diagnostics are counted in ``notes``."""
    odd: list[tuple[str, NDArray[np.bool_]]] = []
    with suppress(ConfigError):  # a resolution that is none is refused where pages are compared with the request
        odd.append(("time_not_on_a_bucket", columns.ts != BucketWidth.of(resolution).floor(columns.ts)))
    if isinstance(columns, Books):
        (price, size), counts = columns.levels(), columns.counts
        is_ask = np.repeat((np.arange(len(counts)) & 1).astype(bool), counts)
        equal, wrong = price[1:] == price[:-1], (price[1:] > price[:-1]) != is_ask[1:]
        borders = np.cumsum(counts[counts > 0])[:-1] - 1
        equal[borders] = wrong[borders] = False
        wrong &= ~equal
        if wrong.any():
            side = np.repeat(np.arange(len(counts)), counts)
            notes["levels_sorted"] += len(np.unique(side[1:][wrong]))
            order = np.lexsort((np.where(is_ask, price, -price), side))
            head = columns.tokens, columns.bounds, columns.ts
            columns = Books.of_levels(*head, counts, price[order], size[order], columns.values)
        odd.append(("same_price_twice", equal))
        if len(price) and not (price.min() >= 0 and price.max() <= 1 and size.min() > 0):
            odd += [("price_outside_0_1", (price < 0) | (price > 1)), ("size_not_positive", size <= 0)]
        (bid, _), (ask, _) = columns.bids.top, columns.asks.top
        odd += [("crossed_book", bid > ask), ("locked_book", bid == ask)]
    else:
        odd += [("null_value", np.isnan(values)) for values in columns.values.values()]
        if view_of(columns) == "prices":
            price = columns.values["price"]
            odd.append(("price_outside_0_1", (price < 0) | (price > 1)))
    for name, hits in odd:
        if count := np.count_nonzero(hits):
            notes[name] += int(count)
    return columns
