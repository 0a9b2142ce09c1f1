"""The rules of `resample` on sorted numpy columns: rows of a token and bucket are adjacent, an aggregate is a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import NotTidyError
from marketdata.points.columns import Books, Columns, Data, Floats, Ints, Series, ranges
from marketdata.points.schema import COUNT, uncounted
from marketdata.resolution import BucketWidth, Resolution

# Rows that are compared at a time, so that what is made in between stays in the processor's cache.
_BLOCK = 1 << 17
# With at least this many rows per token, a search in each token is cheaper than a division of every row.
_ROWS_WORTH_A_SEARCH = 2_000
# One edge in this many is searched, those between are interpolated.
_EDGES_PER_SEARCH = 64
# An interpolated row may miss a whole number by up to this [rows].
_ROUNDING = 1e-3


def group_starts(*keys: NDArray[np.generic]) -> Ints:
    """Positions where any key differs from the row before; the first row is one."""
    count = len(keys[0])
    found = [np.zeros(min(count, 1), np.int64)]
    for first in range(1, count, _BLOCK):
        blocks = [key[first - 1 : first + _BLOCK] for key in keys]
        # Most blocks are of one token, which is cheaper to see.
        changed = [rows[1:] != rows[:-1] for rows in blocks if rows[0] != rows[-1] or not (rows == rows[0]).all()]
        if changed:
            found.append(np.flatnonzero(np.logical_or.reduce(changed)) + first)
    return np.concatenate(found)


def run_ends(starts: Ints, count: int) -> Ints:
    """The ends of the runs that begin at these positions of ``count`` rows."""
    return np.append(starts[1:], count)[: len(starts)]


def buckets(columns: Columns, width: BucketWidth) -> Ints:
    """The first entry of each bucket of each token, whose times rise, and at the end the number of entries.

    Entries ``edges[i]`` to ``edges[i + 1]`` are those of bucket i.
    """
    ts, micros = columns.ts - width.offset if width.offset else columns.ts, width.micros
    if len(ts) < max(1, len(columns.tokens) * _ROWS_WORTH_A_SEARCH):
        changed = np.diff(ts // micros, prepend=-1) != 0
        changed[columns.bounds[:-1]] = True
        return np.append(np.flatnonzero(changed), len(ts))
    out = []
    for a, b in pairwise(columns.bounds.tolist()):
        first, last = int(ts[a]) // micros, int(ts[b - 1]) // micros
        if last - first > b - a:
            found = np.flatnonzero(np.diff(ts[a:b] // micros)) + 1
        else:
            edges = np.arange(first + 1, last + 1, dtype=np.int64) * micros
            found = _places(ts[a:b], edges)
            found = found[np.diff(found, prepend=0) != 0]  # a bucket without rows begins where the next one does
        out += [[a], found + a]
    return np.concatenate([*out, [len(ts)]])


def _places(ts: Ints, edges: Ints) -> Ints:
    """Positions of edges within times, both rising; interpolated where rows are evenly spaced, to search less."""
    if len(edges) < 2 * _EDGES_PER_SEARCH:
        return np.searchsorted(ts, edges, side="left")
    known = np.append(np.arange(0, len(edges), _EDGES_PER_SEARCH), len(edges) - 1)
    line = np.interp(edges, edges[known], np.searchsorted(ts, edges[known], side="left"))
    out: Ints = np.ceil(line - _ROUNDING).astype(np.int64)
    wrong = (ts[out] < edges) | (ts[out - 1] >= edges)
    out[wrong] = np.searchsorted(ts, edges[wrong], side="left")
    return out


def last_of(columns: Columns, width: BucketWidth) -> Ints:
    """Rule 2: the entries with the greatest time of each token and bucket."""
    ts, edges = columns.ts, buckets(columns, width)
    begins, ends = edges[:-1].copy(), edges[1:]
    # A binary search, in all buckets at once, for the first entry with the greatest time.
    last, at = ends - 1, np.flatnonzero(ends - begins > 1)
    while len(at):
        middle = (begins[at] + last[at]) // 2
        is_less = ts[middle] < ts[last[at]]
        begins[at[is_less]] = middle[is_less] + 1
        last[at[~is_less]] = middle[~is_less]
        at = at[begins[at] < last[at]]
    return ranges(begins, ends - begins)


def means(values: Floats, weights: Floats | None, edges: Ints) -> tuple[Floats, Ints]:
    """Mean = sum / count over each bucket without NaN, and the count of base points (``weights``); else NaN and 0."""
    starts = edges[:-1]
    if len(starts) == 0:
        return np.empty(0), np.empty(0, np.int64)
    if weights is None:
        count = np.diff(edges)
        total = np.add.reduceat(values, starts)
        # A sum is NaN where a value is missing: most runs need no second pass.
        if np.isnan(total).any():
            missing = np.isnan(values)
            count = count - np.add.reduceat(missing.astype(np.int64), starts)
            total = np.add.reduceat(np.where(missing, 0.0, values), starts)
    else:
        missing = np.isnan(values)
        weights = np.where(missing | np.isnan(weights), 0.0, weights)
        count = np.add.reduceat(weights, starts)
        total = np.add.reduceat(np.where(missing, 0.0, values) * weights, starts)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count, np.nan), count.astype(np.int64)


def means_of(series: Series, values: Sequence[str], width: BucketWidth) -> Series:
    """Rules 3 and 4: the mean of each value in each bucket, by its counts if it has them, and the counts behind it."""
    edges = buckets(series, width)
    found = {}
    for name in values:
        weights = _weights(series, name + COUNT)
        found[name], found[name + COUNT] = means(series.values[name], weights, edges)  # type: ignore[assignment] # whole
    return of_buckets(series, edges, width, {c: found[c] for c in sorted(found, key=lambda c: c not in values)})


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


def of_buckets(columns: Columns, edges: Ints, width: BucketWidth, values: Mapping[str, Floats]) -> Series:
    """Numbers of each of the `buckets` of columns, as its first entry and at its start."""
    return Series(columns.tokens, np.searchsorted(edges, columns.bounds), width.floor(columns.ts[edges[:-1]]), values)


def resample_columns(columns: Data, resolution: str | BucketWidth, *, counts: bool = False) -> Data:
    """The rule of `resample`; a bucket without a point has no entry; ``counts`` of means."""
    width = BucketWidth.of(resolution)
    columns = columns.sort()
    if isinstance(columns, Books):
        last = columns.take(last_of(columns, width))
        return replace(last, ts=width.floor(last.ts))
    edges = buckets(columns, width)
    found = {name: means(column, None, edges) for name, column in columns.values.items()}
    values = {name: mean for name, (mean, _) in found.items()}
    if counts:
        values |= {name + COUNT: found[name][1] for name in uncounted(found)}  # type: ignore[misc]  # whole numbers
    return of_buckets(columns, edges, width, values)


def aggregate(columns: Data, resolution: Resolution | BucketWidth, rule: str) -> Data:
    """`resample_columns` under another reading of what the interface leaves open.

    ``rule``: "points" (and "last" for books) is `resample_columns`; "means" averages the means of the finer
    resolutions; "first" and "last" take one point of each bucket.
    """
    if rule in ("first", "last"):
        width, columns = BucketWidth.of(str(resolution)), columns.sort()
        out = columns.take(buckets(columns, width)[:-1] if rule == "first" else last_of(columns, width))
        return replace(out, ts=width.floor(out.ts))
    for step in Resolution if rule == "means" else ():
        if step.micros < resolution.micros:
            columns = resample_columns(columns, str(step))
    return resample_columns(columns, str(resolution))
