"""The coarse answer that a rule makes of a fine one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Data, Ints, Series, Token
from marketdata.points.resample import aggregate
from marketdata.resolution import Resolution
from marketdata.times import Range

# Sorted times, and their values: numbers, or a digest per book.
TimedValues = tuple[Ints, NDArray[np.object_]]
ValuesOfTokens = Mapping[str, TimedValues]
Value = float | bytes | None


def series_of(columns: Data, value: str | None = None) -> dict[str, TimedValues]:
    """The points of each token (market) in time order; books as digests."""
    columns = columns.sort()
    if isinstance(columns, Books):
        points = np.array([*_texts(columns), None], dtype=object)[:-1]
    else:
        points = columns.values[value or next(iter(columns.values))].astype(object)
    names = [token.token_label or token.token_id or token.market_id for token in columns.tokens]
    edges = pairwise(columns.bounds.tolist())
    return {name: (columns.ts[a:b], points[a:b]) for name, (a, b) in zip(names, edges, strict=True)}


def _texts(books: Books) -> Iterator[bytes]:
    """Each book as bytes, equal where books are equal; -0.0 equals 0.0."""
    data, sides = (np.stack(books.levels(), axis=1) + 0.0).tobytes(), books.counts.reshape(-1, 2)
    begin = 0
    for end, bids in zip((np.cumsum(sides.sum(axis=1)) * 16).tolist(), sides[:, 0].tolist(), strict=True):
        yield data[begin:end] + bids.to_bytes(8, "little")
        begin = end


def closed_buckets(rng: Range, label: str, coarse: Resolution) -> range:
    """Labels of the buckets whose fine points are all in an answer about a range."""
    width = coarse.micros
    first, end = -(-rng.start // width) * width, rng.end // width * width
    # The fine label at the very end of the range may or may not be in the answer.
    return range(first, end, width) if label == "start" else range(first + width, end, width)


def predict(
    ts: Ints, values: NDArray[np.object_], rule: str, label: str, fine: Resolution, coarse: Resolution
) -> dict[int, Value]:
    """Coarse label to the value that the rule makes of the fine points of its bucket, in time order; None: no value."""
    shift, coarser = (fine.micros, coarse.micros) if label == "end" else (0, 0)
    is_book = len(values) > 0 and isinstance(values[0], bytes)
    # A rule selects one book, so the positions of books are compared.
    numbers = np.arange(len(values), dtype=float) if is_book else values.astype(float)
    columns = Series((Token(""),), np.array([0, len(ts)]), ts - shift, {"price": numbers})
    out = aggregate(columns, coarse, rule)
    assert isinstance(out, Series)
    means = out.price.tolist()
    found: list[Value] = [None if math.isnan(x) else values[int(x)] if is_book else x for x in means]
    return dict(zip((out.ts + coarser).tolist(), found, strict=True))
