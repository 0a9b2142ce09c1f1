"""Buckets without data: rows for them only on request, and marked."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl
from narwhals.stable.v2.dependencies import is_dask_dataframe
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.points.columns import Ints, ranges
from marketdata.points.resample import run_ends
from marketdata.points.schema import ID_COLUMNS, is_count
from marketdata.resolution import BucketWidth
from marketdata.tidy.backends import Result, Taken, is_batches, is_lazy, kind_name, run, source_of
from marketdata.tidy.grids import is_upsampled, known_width, refuse_off_grid, warn_if_coarser
from marketdata.tidy.normalization import from_codes
from marketdata.tidy.table import EagerTable
from marketdata.times import TimeLike, to_micros, to_range

F = TypeVar("F")
Fill = Literal["null", "forward"] | None
_FILLS = ("null", "forward")


def check_fill(frame: Any, fill: Fill) -> None:
    """ConfigError if a fill does not exist, or is not supported for the frame."""
    if fill not in (None, *_FILLS):
        raise ConfigError(f"fill={fill!r} does not exist; allowed are None (no row), 'null' and 'forward'.")
    if is_dask_dataframe(frame) or (source_of(frame) is None and not is_lazy(frame) and not is_batches(frame)):
        raise ConfigError(
            f"A regular grid needs a pandas, polars or Arrow frame, not a {kind_name(frame)}; resample without fill, "
            "bring the result into memory, and fill it with md.resample(frame, resolution, fill=...)."
        )


def filled(table: EagerTable, width: BucketWidth, fill: Fill) -> Result:
    """Resampled rows, and marked ones for the buckets between the first and the last row that have none."""
    table = table.book() if table.kind == "books" else table.in_order()
    ts = table.array("ts")
    grid = np.arange(ts.min(), ts.max() + 1, width.micros) if len(ts) else ts
    return _books(table, grid, fill) if table.kind == "books" else _on_grid(table, grid, fill)


def align(
    frame: F,
    resolution: str,
    *,
    start: TimeLike | None = None,
    end: TimeLike | None = None,
    fill: Fill = None,
    resolution_of: str | None = None,
) -> F:
    """Put every token on one common grid of buckets.

    One row per token (market) and bucket: the columns of the frame, and ``observed``, false where the row was filled
    in; also for a token without a row in the grid. Takes one row per (token, ts), already on the grid (of books `bbo`
    or `to_wide`), of pandas, polars or Arrow. ConfigError if a row is off the grid, or ``start`` is not before ``end``.

    Parameters
    ----------
    resolution : str
        Bucket width; see `resample`.
    start, end
        Half-open range; see `Client.books`. By default from the first to the last row of the frame.
    fill : {None, "null", "forward"}
        For a bucket without a row: nulls, or all values of the row before, however far back; an observed null stays
        null.
    resolution_of : str, optional
        Bucket width of the rows; see `resample`.

    Examples
    --------
    >>> md.align(md.testing.prices("polars")[[0, 2]], "1m").select("price", "observed").rows()
    [(0.4, True), (None, False), (0.43, True)]
    """
    width, own = BucketWidth.of(resolution), known_width(resolution_of)
    check_fill(frame, fill)
    first = None if start is None else to_micros(start, "start")
    last = None if end is None else to_micros(end, "end")
    if start is not None and end is not None:
        first, last = to_range(start, end)
    later = own.micros if own is not None and is_upsampled(own, width, fill=fill is not None) else 0
    aligned = partial(_aligned, width=width, start=first, end=last, fill=fill, later=later)
    watch = warn_if_coarser(width, "resolution_of") if own is None else None
    return run(frame, aligned, ["series"], together="all", further=True, watch=watch)


def _aligned(
    table: EagerTable, width: BucketWidth, start: int | None, end: int | None, fill: Fill, later: int
) -> Result:
    table.check()
    table = table.in_order([c for c in table.names if c not in ("ts", *ID_COLUMNS)])
    table = table.moved(later) if later else table
    ts = table.array("ts")
    refuse_off_grid(ts, width, f"use md.resample(frame, '{width}') first")
    start = (int(ts.min()) if len(ts) else 0) if start is None else start
    end = (int(ts.max()) + 1 if len(ts) else 0) if end is None else end
    begin = width.floor(start + width.micros - 1)
    return _on_grid(table, np.arange(begin, max(begin, end), width.micros, dtype=np.int64), fill)


def _places(ts: Ints, groups: Ints, grid: Ints, fill: Fill) -> tuple[Ints, NDArray[np.bool_]]:
    """Of each token and bucket its row or (forward) the last one before, -1 for none; and whether it is its own."""
    places, observed = [np.empty(0, np.int64)], [np.empty(0, bool)]
    for a, b in zip(groups, run_ends(groups, len(ts)), strict=True):
        at = np.searchsorted(ts[a:b], grid, side="right") - 1
        there = (at >= 0) & (ts[a:b][at] == grid)
        places.append(np.where(there | (fill == "forward") & (at >= 0), at + a, -1))
        observed.append(there)
    return np.concatenate(places), np.concatenate(observed)


def _on_grid(table: EagerTable, grid: Ints, fill: Fill) -> Result:
    rows, observed = _places(table.array("ts"), table.groups, grid, fill)
    heads = np.repeat(table.groups, len(grid))
    data = {"ts": pl.Series(np.tile(grid, len(table.groups))).cast(pl.Datetime("us", "UTC"))}
    data |= {c: table.column(c).gather(heads) for c in table.keys}
    counts = [c for c in table.names if is_count(c, table.names)]
    # What was not observed has no weight when means are taken again.
    for c in counts:
        count = np.append(np.nan_to_num(table.array(c)), 0)[np.where(observed, rows, -1)]
        data[c] = pl.Series(count.astype(np.int64))
    rest = [c for c in table.names if c not in data]
    native = np.append(table.rows, -1)[rows]
    data["observed"] = pl.Series(observed)
    return Result(pl.DataFrame(data), [Taken(table.source, {c: c for c in rest}, native)], [*table.names, "observed"])


def _books(table: EagerTable, grid: Ints, fill: Fill) -> Result:
    """A snapshot of each token at each time of the grid; one that is missing is a marker row for each side."""
    starts, _, ends = table.sides
    groups = np.searchsorted(starts, table.groups)
    places, observed = _places(table.array("ts")[starts], groups, grid, fill)
    there = places >= 0
    lengths = np.where(there, np.append(ends - starts, 0)[places], 2)
    rows = ranges(np.append(starts, 0)[places], lengths)
    made = np.repeat(~there, lengths)
    sides = np.zeros(len(rows), np.uint8)
    sides[made] = np.tile(np.array([0, 1], np.uint8), int((~there).sum()))
    rows[made] = -1
    at = pl.Series(rows)
    at = at.set(pl.Series(made), None) if made.any() else at
    heads = np.repeat(np.repeat(table.groups, len(grid)), lengths)
    data = {"ts": pl.Series(np.repeat(np.tile(grid, len(groups)), lengths)).cast(pl.Datetime("us", "UTC"))}
    data |= {c: table.column(c).gather(heads) for c in table.keys}
    side = table.column("side")
    data["side"] = side.gather(at).fill_null(from_codes(sides, side.dtype)) if made.any() else side.gather(at)
    data |= {c: table.column(c).gather(at) for c in ("level", "price", "size")}
    rest = [c for c in table.names if c not in data]
    data["observed"] = pl.Series(np.repeat(observed, lengths))
    native = np.append(table.rows, -1)[rows]
    frame = pl.DataFrame(data).with_columns(pl.col("price", "size").fill_nan(None))
    return Result(frame, [Taken(table.source, {c: c for c in rest}, native)], [*table.names, "observed"])
