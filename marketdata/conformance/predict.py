"""What a coarse answer would be, if a rule made it of a fine one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from marketdata.resolution import Resolution
from marketdata.times import Range
from marketdata.wire.columns import AnyColumns, BookColumns, Ints

# Times, rising, and what each has: numbers, or a digest per book.
TimedValues = tuple[Ints, NDArray[np.object_]]
ValuesOfTokens = Mapping[str, TimedValues]
Value = float | bytes | None
# What a mean of means is taken over.
_BETWEEN = {
    Resolution.H1: (Resolution.M10,),
    Resolution.H6: (Resolution.M10, Resolution.H1),
    Resolution.D1: (Resolution.M10, Resolution.H1, Resolution.H6),
}


def series_of(columns: AnyColumns, value: str | None = None) -> dict[str, TimedValues]:
    """The points of each token (market) in time order; books as digests."""
    columns = columns.sort()
    if isinstance(columns, BookColumns):
        points = np.array([*_texts(columns), None], dtype=object)[:-1]
    else:
        points = columns.values[value or next(iter(columns.values))].astype(object)
    out = {}
    for code, token in enumerate(columns.tokens):
        here = columns.token == code
        out[token.token_label or token.token_id or token.market_id] = columns.ts[here], points[here]
    return out


def _texts(books: BookColumns) -> Iterator[bytes]:
    """Each book as bytes, equal where books are equal; -0.0 equals 0.0."""
    data, sides = (books.levels + 0.0).tobytes(), books.counts.reshape(-1, 2)
    begin = 0
    for end, bids in zip((np.cumsum(sides.sum(axis=1)) * 16).tolist(), sides[:, 0].tolist(), strict=True):
        yield data[begin:end] + bids.to_bytes(8, "little")
        begin = end


def bucket_labels(ts: Ints, label: str, fine: Resolution, coarse: Resolution) -> Ints:
    """The coarse label of each fine one, if both name the start of their bucket, or both its end."""
    if label == "start":
        return ts // coarse.micros * coarse.micros
    return (ts - fine.micros) // coarse.micros * coarse.micros + coarse.micros


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
    points: list[tuple[int, Value]] = list(zip(ts.tolist(), values.tolist(), strict=True))
    steps = [coarse]
    if rule == "means":
        steps = [*(r for r in _BETWEEN.get(coarse, ()) if r.micros > fine.micros), coarse]
    below = fine
    for step in steps:
        places = bucket_labels(np.array([t for t, _ in points], np.int64), label, below, step).tolist()
        groups: dict[int, list[Value]] = {}
        for place, (_, value) in zip(places, points, strict=True):
            groups.setdefault(place, []).append(value)
        points = [(t, _RULES[rule](group)) for t, group in groups.items()]
        below = step
    return dict(points)


def _mean(values: list[Value]) -> Value:
    given = _given(values)
    return sum(given) / len(given) if given else None


def _last(values: list[Value]) -> Value:
    last = values[-1]
    return None if isinstance(last, float) and math.isnan(last) else last


def _first(values: list[Value]) -> Value:
    return _last(values[::-1])


def _given(values: list[Value]) -> list[float]:
    return [v for v in values if isinstance(v, float) and not math.isnan(v)]


_RULES: dict[str, Callable[[list[Value]], Value]] = {"points": _mean, "means": _mean, "last": _last, "first": _first}
