"""The width of the buckets of a frame: an argument says it, and what looks wider is a warning, never a shift."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from marketdata.errors import CoarseGridWarning, ConfigError, warn
from marketdata.points.columns import Ints
from marketdata.resolution import UNITS, WEEK, BucketWidth, Resolution, Width
from marketdata.times import to_datetime

# Times are on a grid by chance once in ratio ** n; three rows are enough between resolutions of the interface.
_ENOUGH, _CHANCES = 3, 4**3
# Six minutes drawn at random are all on a grid of 10m once in a million cases.
_SURE = 6
# Times that are looked at first, which tell most grids, and rows at a time of a look at all.
_SAMPLE, _BLOCK = 64, 1 << 17
# The finest width that the service aggregates to.
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
    step, micros, first, is_week = 0, 0, int(ts[0]) if len(ts) else 0, False
    for a, b in pairwise([0, *range(_SAMPLE, len(ts), _BLOCK), len(ts)]):
        apart = ts[a:b] - first
        if step and not (apart % step).any():
            continue
        step = math.gcd(step, int(np.gcd.reduce(apart)))
        # The widest buckets that begin at the first time and at all steps from it.
        is_week = step % WEEK.micros == 0 and WEEK.floor(first) == first
        micros = WEEK.micros if is_week else math.gcd(first, step)
        micros = micros if micros % UNITS["d"] == 0 else math.gcd(micros, UNITS["d"])
        is_cut = width.micros % micros or (width.offset - WEEK.offset * is_week) % micros if micros else False
        # Further times only make it finer.
        if not is_cut or micros % UNITS["s"]:
            return None
    # Tokens rise, and runs that rise are merged: np.unique, which looks each time up, takes ten times as long.
    count = 1 + int(np.count_nonzero(np.diff(np.sort(ts, kind="stable"))))
    if count < _ENOUGH or (micros // math.gcd(micros, width.micros)) ** count < _CHANCES:
        return None
    return Grid(WEEK if is_week else BucketWidth.of_micros(micros), count)


def check_target(ts: Ints, target: BucketWidth) -> None:
    """Warn of times that look like buckets which the target would cut; ConfigError where that is certain."""
    grid = coarser_grid(ts, target)
    if grid is None:
        return
    seen = f"All {grid.times:,} distinct times of the frame are on a grid of {grid.width}"
    if COARSE <= grid.width.micros < target.micros and grid.times >= _SURE:
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
    off: Ints = ts[width.floor(ts) != ts]
    return off


def refuse_off_grid(ts: Ints, width: BucketWidth, advice: str) -> None:
    """ConfigError if a time is no start of a bucket."""
    off = off_grid(ts, width)
    if len(off):
        first = to_datetime(int(off[0])).isoformat()
        raise ConfigError(f"Some rows are off the grid of {width}; {advice}. One is at {first}.")
