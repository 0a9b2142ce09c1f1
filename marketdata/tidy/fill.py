"""Buckets without data: rows for them only where somebody asks, and marked."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeVar

import numpy as np
import polars as pl
from narwhals.dependencies import is_dask_dataframe
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.resolution import BucketWidth
from marketdata.tidy.backends import Result, Taken, is_lazy, kind_name, run, source_of
from marketdata.tidy.grids import coarser_grid, refuse_finer
from marketdata.tidy.runs import run_ends
from marketdata.tidy.schema import ID_COLUMNS, is_count
from marketdata.tidy.table import EagerTable, from_codes
from marketdata.times import Range, to_datetime, to_micros
from marketdata.wire.columns import Ints, ranges

F = TypeVar("F")
Fill = Literal["null", "forward"] | None
_FILLS = ("null", "forward")


def check_fill(frame: Any, fill: Fill) -> None:
    """Refuse a fill that does not exist, or a frame that it cannot be done for.

    Raises
    ------
    ConfigError
        Naming what is allowed.
    """
    if fill not in (None, *_FILLS):
        raise ConfigError(f"fill={fill!r} does not exist; allowed are None (no row), 'null' and 'forward'.")
    if is_dask_dataframe(frame) or (source_of(frame) is None and not is_lazy(frame)):
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


def upsampled(table: EagerTable, width: BucketWidth, fill: Fill) -> EagerTable:
    """A table in order; the rows of one on a coarser grid stand where their own buckets end.

    Raises
    ------
    ConfigError
        If the frame is on a coarser grid and no fill is asked for.
    """
    if fill is None:
        refuse_finer(table.array("ts"), table.groups, width)
        return table
    own = coarser_grid(table.array("ts"), table.groups, width)
    return table if own is None else table.moved(own.micros)


def align(frame: F, resolution: str, *, start: Any = None, end: Any = None, fill: Fill = None) -> F:
    """Put every token on one common grid of buckets.

    Parameters
    ----------
    frame
        Tidy frame with one row per (token, ts) or (market, ts), on the grid already (see `resample`); of books give
        `bbo` or `to_wide`. pandas, polars (eager and lazy) or Arrow.
    resolution : str
        Step of the grid: "1m", "15m", "1h", "1d", "1w" or another of `resample`.
    start, end
        Half-open range of the grid, as `client.books` takes it; without them from the first to the last
        row of the frame.
    fill : {None, "null", "forward"}
        What stands where a bucket has no row: nulls, or with "forward" the whole row before, as far back as it may be.
        A null that was observed stays null: only missing rows are filled. A frame on a coarser grid is refused without
        ``fill``; with it each row stands where its own bucket ends, when it was known.

    Returns
    -------
    frame of the same kind
        One row per token (market) and bucket: the columns of the frame and ``observed`` [true or false], false where
        the row was filled. A token without a row in the grid still has its rows. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids, or several rows of one (token, ts).
    ConfigError
        If an argument is not one of those allowed, or a row is not on the grid.

    Notes
    -----
    "forward" looks back only, so it is safe in a backtest; it is not what the service says: no point, no row.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00", "2026-01-01T02:00"], "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "price": [0.25, 0.5]}).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.align(prices, "1h").select("price", "observed").rows()
    [(0.25, True), (None, False), (0.5, True)]
    >>> md.align(prices, "1h", fill="forward")["price"].to_list()
    [0.25, 0.25, 0.5]
    """
    width = BucketWidth.of(resolution)
    check_fill(frame, fill)
    first = None if start is None else to_micros(start, "start")
    last = None if end is None else to_micros(end, "end")
    aligned = partial(_aligned, width=width, start=first, end=last, fill=fill)
    return run(frame, aligned, ["series"], together="all", further=True)


def _aligned(table: EagerTable, width: BucketWidth, start: int | None, end: int | None, fill: Fill) -> Result:
    table.check()
    table = upsampled(table.in_order([c for c in table.names if c not in ("ts", *ID_COLUMNS)]), width, fill)
    ts = table.array("ts")
    off = np.flatnonzero(width.floor(ts) != ts)
    if len(off):
        raise ConfigError(
            f"Some rows are off the grid of {width}; use md.resample(frame, '{width}') first. One is at "
            f"{to_datetime(int(ts[off[0]])).isoformat()}."
        )
    rng = Range(
        (int(ts.min()) if len(ts) else 0) if start is None else start,
        (int(ts.max()) + 1 if len(ts) else 0) if end is None else end,
    )
    begin = width.floor(rng.start + width.micros - 1)
    return _on_grid(table, np.arange(begin, max(begin, rng.end), width.micros, dtype=np.int64), fill)


def _places(ts: Ints, groups: Ints, grid: Ints, fill: Fill) -> tuple[Ints, NDArray[np.bool_]]:
    """Of each token and bucket the row that is there or (forward) the last one before, -1 for none; and which are."""
    places, observed = [np.empty(0, np.int64)], [np.empty(0, bool)]
    for a, b in zip(groups, run_ends(groups, len(ts)), strict=True):
        at = np.searchsorted(ts[a:b], grid, side="right") - 1
        there = (at >= 0) & (ts[a:b][at] == grid)
        places.append(np.where(there | (fill == "forward") & (at >= 0), at + a, -1))
        observed.append(there)
    return np.concatenate(places), np.concatenate(observed)


def _on_grid(table: EagerTable, grid: Ints, fill: Fill) -> Result:
    """A row of each token at each time of the grid."""
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
