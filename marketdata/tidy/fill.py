"""Buckets without data: rows for them only on request, and marked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Literal

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, in_memory, is_in_memory, is_lazy, kind_name, run
from marketdata.adapters.frame import Frame, Native
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice
from marketdata.points.columns import Columns, Ints
from marketdata.points.schema import ID_COLUMNS, is_count
from marketdata.renamed import renamed
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.grids import refuse_off_grid, widths
from marketdata.tidy.shapes import exploded, nested
from marketdata.times import TimeLike, to_micros, to_range

Fill = Literal["null", "forward"] | None


def check_fill(frame: object, fill: Fill) -> None:
    """ConfigError if a fill does not exist, or is not supported for the frame."""
    choice("fill", fill, (None, "null", "forward"), "None (no row), 'null' and 'forward'")
    if not (is_in_memory(frame) or is_lazy(frame)):
        raise ConfigError(
            f"A regular grid needs a pandas, polars or Arrow frame, not a {kind_name(frame)}; resample without fill, "
            "bring the result into memory, and fill it with md.resample(frame, resolution, fill=...)."
        )


def filled(frame: Frame, width: BucketWidth, fill: Fill) -> Native:
    """Resampled rows, and marked ones for the buckets between the first and the last row that have none."""
    if frame.kind == "books":  # a nested book is one row, and a null list explodes to a sentinel row
        snapshots = in_memory(nested(frame), ["nested"])
        return exploded(in_memory(filled(snapshots, width, fill), ["nested"]))
    columns = frames.series(frame)
    ts = columns.ts
    grid = np.arange(ts.min(), ts.max() + 1, width.micros) if len(ts) else ts
    return _on_grid(frame, columns, grid, fill)


@renamed
def align(
    frame: F,
    resolution: Width,
    *,
    start: TimeLike | None = None,
    end: TimeLike | None = None,
    fill: Fill = None,
    width: Width | None = None,
) -> F:
    """Put every token on one common grid of buckets.

    One row per token (market) and bucket, also for a token without a row in the grid: the columns of the frame, and
    ``observed``, false if the row was filled in. Takes one row per (token, ts), already on the grid (of books `bbo`
    or `to_wide`), of pandas, polars or Arrow. ConfigError if a row is off the grid, or ``start`` is not before ``end``.

    Parameters
    ----------
    resolution : str or timedelta
        Bucket width; see `resample`.
    start, end
        Half-open range; see `Client.books`. By default from the first to the last row of the frame.
    fill : {None, "null", "forward"}
        For a bucket without a row: nulls, or all values of the row before, however far back; an observed null stays
        null.
    width : str or timedelta, optional
        Bucket width of the rows; see `resample`.

    Examples
    --------
    >>> grid = md.align(md.testing.prices("polars")[[0, 2]], "1m")
    >>> grid.select("price", "observed").rows()
    [(0.4, True), (None, False), (0.43, True)]
    """
    check_fill(frame, fill)
    grid = widths(resolution, width, fill=fill is not None)
    first = None if start is None else to_micros(start, "start")
    last = None if end is None else to_micros(end, "end")
    if start is not None and end is not None:
        first, last = to_range(start, end)
    aligned = partial(_aligned, width=grid.target, start=first, end=last, fill=fill, later=grid.later)
    return run(frame, aligned, ["series"], partition_by="all", keep_extra=True, on_times=grid.on_times)


def _aligned(frame: Frame, width: BucketWidth, start: int | None, end: int | None, fill: Fill, later: int) -> Native:
    frame.check_numbers()
    columns = frames.series(frame, same=[c for c in frame.names if c not in ("ts", *ID_COLUMNS)])
    ts = columns.ts + later
    refuse_off_grid(ts, width, f"use md.resample(frame, '{width}') first")
    first, last = (int(ts.min()), int(ts.max())) if len(ts) else (0, -1)
    start, end = first if start is None else start, last + 1 if end is None else end
    begin = width.floor(start + width.micros - 1)
    grid = np.arange(begin, max(begin, end), width.micros, dtype=np.int64)
    return _on_grid(frame, replace(columns, ts=ts), grid, fill)


def _on_grid(frame: Frame, columns: Columns, grid: Ints, fill: Fill) -> Native:
    latest = [np.zeros(0, np.int64)]
    for a, b in pairwise(columns.bounds.tolist()):
        before = np.searchsorted(columns.ts[a:b], grid, side="right") - 1
        latest.append(np.where(before >= 0, before + a, -1))
    count, shown = len(columns.tokens), np.concatenate(latest)
    entries = Columns(columns.tokens, np.arange(count + 1) * len(grid), np.tile(grid, count))
    observed = (shown >= 0) & (np.append(columns.ts, 0)[shown] == entries.ts)
    if fill != "forward":
        shown = np.where(observed, shown, -1)
    values = frames.entry_columns(entries, frame.names)
    # A filled value has a count of 0, so that it has no weight when means are averaged again.
    for name in (c for c in frame.names if is_count(c, frame.names)):
        values[name] = np.where(observed, np.nan_to_num(np.append(frame.numbers(name), 0))[shown], 0).astype(np.int64)
    return frames.rows_to_frame(frame, shown, {**values, "observed": observed})
