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
from marketdata.resolution import UNITS, WEEK, BucketWidth, Resolution
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
    """The widths of the buckets that are wanted and of those that there are, None if not known."""

    width: BucketWidth
    own: BucketWidth | None
    later: int
    """Time from the ``ts`` of a row of wider buckets until it is known [microseconds]; 0 for rows not wider."""

    watch: Callable[[Ints], object] | None
    """`coarser_grid` for times of buckets of a width that is not known."""


def widths(resolution: str, resolution_of: str | None, *, fill: bool = False) -> Widths:
    """The arguments of these names; ConfigError if finer buckets are wanted without a fill, or buckets would be cut."""
    width = BucketWidth.of(resolution)
    own = None if resolution_of is None else BucketWidth.of(resolution_of, "resolution_of")
    if own is None:
        return Widths(width, own, 0, partial(coarser_grid, width=width, argument="resolution_of"))
    if own.divides(width):
        return Widths(width, own, 0, None)
    if not width.divides(own):
        raise ConfigError(
            f"resolution={str(width)!r} is refused for rows of {own}, as {own} does not divide {width}: a row would be "
            "in a bucket that ends before the row was known. Give a multiple of the width, or start from finer rows."
        )
    if not fill:
        raise ConfigError(
            f"resolution={str(width)!r} is finer than the rows, which are of {own}; fill='forward' makes finer rows of "
            "them, each value from the end of its own bucket on."
        )
    return Widths(width, own, own.micros, None)


def coarser_grid(ts: Ints, width: BucketWidth, argument: str | None = None) -> BucketWidth | None:
    """The widest grid that all times are on, if not by chance and if it does not divide a width.

    With the name of the argument that says the width of the buckets, a grid that is found is told: CoarseGridWarning,
    or ConfigError where buckets would be cut.
    """
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
    unit = next(u for u in "dhms" if micros % UNITS[u] == 0)
    grid = WEEK if is_week else BucketWidth(f"{micros // UNITS[unit]}{unit}", micros)
    if argument is not None:
        _tell(grid, count, width, argument)
    return grid


def _tell(grid: BucketWidth, count: int, width: BucketWidth, argument: str) -> None:
    seen = f"All {count:,} distinct times of the frame are on a grid of {grid}"
    if argument == "resolution_of" and COARSE <= grid.micros < width.micros and count >= _SURE:
        raise ConfigError(
            f"resolution={str(width)!r} is refused: {seen}, which does not divide {width}, so rows would be in a "
            f"bucket that ends before they were known. Give a multiple of {grid}, or resolution_of= with the width of "
            "the rows if they are finer."
        )
    other = f", and {argument}={str(width)!r} if not" if argument == "resolution_of" else ""
    warn(
        f"{seen}, so its buckets look {grid} wide, but are read as known at the end of buckets of {width}.",
        CoarseGridWarning,
        hint=f"Give {argument}={str(grid)!r} if they are{other}.",
    )


def own_times(ts: Ints, width: BucketWidth) -> None:
    """Refuse times that are no starts of buckets of the width that was given, and warn if they look like wider ones."""
    refuse_off_grid(ts, width, "give the bucket width of the rows, such as resolution='1s'")
    coarser_grid(ts, width, "resolution")


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
