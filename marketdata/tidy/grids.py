"""The width of the buckets of a frame: an argument says it, and what looks wider is a warning, never a shift."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from marketdata.errors import CoarseGridWarning, ConfigError, warn
from marketdata.points.columns import Ints
from marketdata.resolution import UNITS, WEEK, BucketWidth, Resolution, Width
from marketdata.times import to_datetime

# The service aggregates to no finer width, so means on this grid must be its own.
COARSE = Resolution.M10.micros


class Widths(NamedTuple):
    """The widths of a call: `target` of the result, `rows` of the rows given (None if not known)."""

    target: BucketWidth
    rows: BucketWidth | None
    later: int
    """Time from the ``ts`` of a row of wider buckets until it is known [microseconds]; 0 for rows not wider."""

    on_times: Callable[[Ints], object] | None
    """Checks the times of rows whose width is not known."""


class Grid(NamedTuple):
    """A grid that all times of a frame are on, and the number of distinct times."""

    width: BucketWidth
    times: int


def widths(resolution: Width, width: Width | None, *, fill: bool = False) -> Widths:
    """The widths of a call; ConfigError if finer buckets are wanted without a fill, or buckets would be cut."""
    target = BucketWidth.of(resolution)
    if width is None:
        return Widths(target, None, 0, partial(check_target, target=target))
    rows = BucketWidth.of(width, "width")
    if rows.divides(target):
        return Widths(target, rows, 0, None)
    if not target.divides(rows):
        raise ConfigError(
            f"is refused for rows of {rows}, as {rows} does not divide {target}: a row would be in a bucket that ends "
            "before the row was known. Give a multiple of the width, or start from finer rows.",
            argument="resolution",
            value=str(target),
        )
    if not fill:
        raise ConfigError(
            f"is finer than the rows, which are of {rows}; fill='forward' makes finer rows of them, each value from "
            "the end of its own bucket on.",
            argument="resolution",
            value=str(target),
        )
    return Widths(target, rows, rows.micros, None)


def coarser_grid(ts: Ints, width: BucketWidth) -> Grid | None:
    """The widest grid that all times are on, if not by chance and if it does not divide a width."""
    grid = None
    for times in (ts[:64], ts[:: len(ts) // 1000 + 1], ts):  # a few times tell most grids
        grid = _widest_grid(times)
        # Further times only make it finer.
        if grid is None or grid.divides(width):
            return None
    count = len(np.unique(ts))
    # Times are on a grid by chance once in ratio ** count; three rows are enough between resolutions of the interface.
    if grid is None or count < 3 or (grid.micros // math.gcd(grid.micros, width.micros)) ** count < 4**3:
        return None
    return Grid(grid, count)


def _widest_grid(ts: Ints) -> BucketWidth | None:
    """The widest buckets, of whole seconds, that begin at each of the times."""
    if not len(ts):
        return None
    first = int(ts[0])
    step = int(np.gcd.reduce(ts - first))
    if step % WEEK.micros == 0 and WEEK.floor(first) == first:
        return WEEK
    micros = math.gcd(first, step)
    micros = micros if micros % UNITS["d"] == 0 else math.gcd(micros, UNITS["d"])
    return BucketWidth.of_micros(micros) if micros and micros % UNITS["s"] == 0 else None


def check_target(ts: Ints, target: BucketWidth) -> None:
    """Warn of times that look like buckets which the target would cut; ConfigError where that is certain."""
    grid = coarser_grid(ts, target)
    if grid is None:
        return
    seen = f"All {grid.times:,} distinct times of the frame are on a grid of {grid.width}"
    # Six minutes drawn at random are all on a grid of 10m once in a million cases.
    if COARSE <= grid.width.micros < target.micros and grid.times >= 6:
        raise ConfigError(
            f"is refused: {seen}, which does not divide {target}, so rows would be in a bucket that ends before they "
            f"were known. Give a multiple of {grid.width}, or width= with the width of the rows if they are finer.",
            argument="resolution",
            value=str(target),
        )
    _warn(seen, grid, target, f", and width={str(target)!r} if not")


def check_width(ts: Ints, width: BucketWidth) -> None:
    """Warn of times that look like wider buckets than those that ``width`` says."""
    grid = coarser_grid(ts, width)
    if grid is not None:
        _warn(f"All {grid.times:,} distinct times of the frame are on a grid of {grid.width}", grid, width)


def _warn(seen: str, grid: Grid, width: BucketWidth, otherwise: str = "") -> None:
    warn(
        f"{seen}, so its buckets look {grid.width} wide, but are read as known at the end of buckets of {width}.",
        CoarseGridWarning,
        hint=f"Give width={str(grid.width)!r} if they are{otherwise}.",
    )


def check_starts(ts: Ints, width: BucketWidth) -> None:
    """Refuse times that are no starts of buckets of the width given, and warn if they look like wider ones."""
    refuse_off_grid(ts, width, "give the bucket width of the rows, such as width='1s'")
    check_width(ts, width)


def off_grid(ts: Ints, width: BucketWidth) -> Ints:
    """The times that are no start of a bucket."""
    return np.asarray(ts[width.floor(ts) != ts])


def refuse_off_grid(ts: Ints, width: BucketWidth, advice: str) -> None:
    """ConfigError if a time is no start of a bucket."""
    off = off_grid(ts, width)
    if len(off):
        first = to_datetime(int(off[0])).isoformat()
        raise ConfigError(f"Some rows are off the grid of {width}; {advice}. One is at {first}.")
