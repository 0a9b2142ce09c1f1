"""The rules of `resample` on sorted numpy columns: rows of a token and bucket are adjacent, an aggregate is a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import NotTidyError
from marketdata.points.columns import Columns, Data, Floats, Ints, Series, ranges
from marketdata.points.schema import COUNT, value_columns
from marketdata.points.views import VIEWS, view_of
from marketdata.resolution import BucketWidth, Resolution

# Intermediate arrays of more rows would not stay in the processor's cache.
_BLOCK_ROWS = 1 << 17
# With fewer rows per search or per token than these, searches would cost more than a division of every row.
_ROWS_PER_SEARCH, _ROWS_PER_TOKEN = 50, 3_000


def group_starts(*keys: NDArray[np.generic]) -> Ints:
    """Positions where any key differs from the row before; the first row is one."""
    starts = [np.zeros(min(len(keys[0]), 1), np.int64)]
    for first in range(1, len(keys[0]), _BLOCK_ROWS):
        blocks = [key[first - 1 : first + _BLOCK_ROWS] for key in keys]
        # Most blocks have one token, and one comparison shows it.
        changed = [block[1:] != block[:-1] for block in blocks if not (block == block[0]).all()]
        if changed:
            starts.append(np.flatnonzero(np.logical_or.reduce(changed)) + first)
    return np.concatenate(starts)


def run_ends(starts: Ints, count: int) -> Ints:
    """The ends of the runs that begin at these positions of ``count`` rows."""
    return np.append(starts[1:], count)[: len(starts)]


def buckets(columns: Columns, width: BucketWidth) -> Ints:
    """The first entry of each bucket of each token, whose times rise, and at the end the number of entries.

    Entries ``edges[i]`` to ``edges[i + 1]`` belong to bucket i.
    """
    ts, micros = columns.ts - width.offset if width.offset else columns.ts, width.micros
    starts, ends = columns.bounds[:-1], columns.bounds[1:]
    first, last = ts[starts] // micros, ts[ends - 1] // micros
    if len(ts) < _ROWS_PER_TOKEN * len(starts) + _ROWS_PER_SEARCH * (last - first).sum():
        begins = np.diff(ts // micros, prepend=-1) != 0
        begins[starts] = True
        return np.append(np.flatnonzero(begins), len(ts))
    edges = []
    for a, b, low, high in zip(starts.tolist(), ends.tolist(), first.tolist(), last.tolist(), strict=True):
        places = _places(ts[a:b], np.arange(low, high + 1) * micros)
        # A bucket without rows begins where the next one does.
        edges.append(a + places[np.diff(places, prepend=-1) != 0])
    return np.concatenate([*edges, [len(ts)]])


def _places(ts: Ints, edges: Ints) -> Ints:
    """Positions of edges within times, both rising; of evenly spaced rows most are interpolated and not searched."""
    searched = np.append(edges[::64], edges[-1])
    places = np.ceil(np.interp(edges, searched, np.searchsorted(ts, searched)) - 1e-3).astype(np.int64)
    wrong = (ts[places] < edges) | ((ts[places - 1] >= edges) & (places > 0))
    places[wrong] = np.searchsorted(ts, edges[wrong])
    return places


def last_of(columns: Columns, width: BucketWidth) -> Ints:
    """Rule 2: the entries with the greatest time of each token and bucket."""
    edges = buckets(columns, width)
    # A binary search, in all buckets at once, for the first entry with the greatest time.
    low, last = edges[:-1], edges[1:] - 1
    high = last
    while (low < high).any():
        middle = (low + high) // 2
        is_less = columns.ts[middle] < columns.ts[last]
        low, high = np.where(is_less, middle + 1, low), np.where(is_less, high, middle)
    return ranges(low, last + 1 - low)


def means(values: Floats, weights: Floats | None, edges: Ints) -> tuple[Floats, Ints]:
    """Mean = sum / count over each bucket without NaN, and the count of base points (``weights``); else NaN and 0."""
    starts = edges[:-1]
    if len(starts) == 0:
        return np.empty(0), np.empty(0, np.int64)
    total, count = np.add.reduceat(values, starts), np.diff(edges)
    if weights is not None or np.isnan(total).any():  # a sum is NaN where a value is missing
        missing = np.isnan(values)
        weights = np.where(missing, 0.0, 1.0 if weights is None else weights)
        total = np.add.reduceat(np.where(missing, 0.0, values) * weights, starts)
        count = np.add.reduceat(weights, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count, np.nan), count.astype(np.int64)


def means_of(series: Series, values: Sequence[str], width: BucketWidth) -> Series:
    """Rules 3 and 4: the mean of each value in each bucket, by its counts if it has them, and the counts behind it."""
    edges = buckets(series, width)
    averaged = {name: means(series.values[name], _weights(series, name + COUNT), edges) for name in values}
    out = {name: mean for name, (mean, _) in averaged.items()}
    out |= {name + COUNT: count for name, (_, count) in averaged.items()}  # type: ignore[misc] # whole
    return in_buckets(series, edges, width, out)


def _weights(series: Series, name: str) -> Floats | None:
    """Counts of base points, 1 where one is null, None without them; a column that counts none has another meaning."""
    if name not in series.values:
        return None
    counts = np.nan_to_num(series.values[name], nan=1.0)
    wrong = (counts < 0) | (counts != np.floor(counts))
    if wrong.any():
        raise NotTidyError(
            f"{name} has {counts[wrong][0]:g}; it is the number of base points behind {name.removesuffix(COUNT)}, a "
            "whole number from 0. Rename or drop a column of another meaning."
        )
    return counts


def in_buckets(columns: Columns, edges: Ints, width: BucketWidth, values: Mapping[str, Floats]) -> Series:
    """Numbers of each of the `buckets` of columns, as its first entry and at its start."""
    return Series(columns.tokens, np.searchsorted(edges, columns.bounds), width.floor(columns.ts[edges[:-1]]), values)


def resample_columns(columns: Data, resolution: str | BucketWidth, *, counts: bool = False) -> Data:
    """Resample columns; a bucket without a point has no entry, and ``counts`` adds the counts of means.

    Of prints it takes the last of each bucket; `points.bars` makes more of them.
    """
    width = BucketWidth.of(resolution)
    columns = columns.sort()
    if not isinstance(columns, Series) or not VIEWS[view_of(columns)].is_mean:
        last = columns.take(last_of(columns, width))
        return replace(last, ts=width.floor(last.ts))
    out = means_of(columns, value_columns(columns.values), width)
    return out if counts else replace(out, values={name: out.values[name] for name in columns.values})


def aggregate(columns: Data, resolution: Resolution | BucketWidth, rule: str) -> Data:
    """`resample_columns` under another interpretation of the interface.

    ``rule`` "points" (and "last" for books) is `resample_columns`. "means" averages the means of the finer
    resolutions. "first" and "last" take one point of each bucket.
    """
    if rule in ("first", "last"):
        width, columns = BucketWidth.of(str(resolution)), columns.sort()
        out = columns.take(buckets(columns, width)[:-1] if rule == "first" else last_of(columns, width))
        return replace(out, ts=width.floor(out.ts))
    for step in Resolution if rule == "means" else ():
        if step.micros < resolution.micros:
            columns = resample_columns(columns, str(step))
    return resample_columns(columns, str(resolution))
