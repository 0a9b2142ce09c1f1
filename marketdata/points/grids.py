"""The grid of the times of rows: whether they are starts of buckets of the width that rows are said to have.

The width is known, never guessed: an argument says it, or the frame carries it. Times off its grid are refused. So are
times that all lie on a coarser grid by more than chance, because such rows are known later than the width says.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from marketdata.errors import CoarseGridWarning, ConfigError, GridError, warn
from marketdata.points.columns import Ints
from marketdata.resolution import UNITS, WEEK, BucketWidth, Resolution, Width
from marketdata.times import to_text

# The service aggregates to no finer width, so means on this grid must be its own.
COARSE = Resolution.M10.micros
# By chance, one frame of random times in this many is on a coarser grid.
_LIKELY, _LIKELY_OF_TWO, _CERTAIN = 4**3, 60**2, 10**5


class Grid(NamedTuple):
    """A grid that all times are on, and the number of distinct times; chance does this once in ``odds`` frames."""

    width: BucketWidth
    times: int
    odds: float


@dataclass(frozen=True)
class RowWidth:
    """The bucket width of rows, the argument that says it, and what the rows are, for messages.

    ``carried`` is the width that the frame carries, if any; ``is_carried`` says that no argument was given.
    ``otherwise`` is a further hint, for rows that were chosen from a frame of this width.
    """

    width: BucketWidth
    argument: str = "width"
    what: str = "the frame"
    carried: BucketWidth | None = None
    is_carried: bool = False
    otherwise: str = ""

    @classmethod
    def of(
        cls,
        width: Width | BucketWidth | None,
        carried: BucketWidth | None,
        argument: str = "width",
        what: str = "the frame",
        otherwise: str = "",
    ) -> Self:
        """What the argument says, else what the frame carries, else a ConfigError."""
        if width is not None:
            return cls(BucketWidth.of(width, argument), argument, what, carried, otherwise=otherwise)
        if carried is None:
            raise ConfigError(
                f"is missing: it says how wide the buckets of {what} are, and so when a row is known. Frames of a "
                "client, an archive and md.resample carry their width, but not through the functions of polars, and "
                "not in an engine.",
                argument=argument,
                hint=(
                    f"Give {argument}='1m' for rows of minutes. Rows that are no buckets, such as polls, have the time "
                    "at which they were known as available_at instead of ts."
                ),
            )
        return cls(carried, argument, what, carried, is_carried=True, otherwise=otherwise)

    @classmethod
    def optional(cls, width: Width | None, carried: BucketWidth | None) -> Self | None:
        """The same where no width is needed: None if neither says it."""
        return None if width is None and carried is None else cls.of(width, carried)

    @property
    def micros(self) -> int:
        """The width [microseconds]."""
        return self.width.micros

    def __str__(self) -> str:
        return str(self.width)

    def known(self, ts: Ints) -> Ints:
        """When rows of buckets with these starts are known, at the earliest [microseconds]."""
        return ts + self.micros

    def steps(self, micros: int, argument: str, value: object) -> int:
        """A duration, if it is a whole number of buckets; else a ConfigError, as no book has a time between them."""
        if micros % self.micros:
            raise ConfigError(
                f"is refused: it is no whole number of buckets of {self}, which {self.what} have. Give a multiple of "
                f"{self}.",
                argument=argument,
                value=value,
            )
        return micros

    def decided(self, known: Ints) -> Ints:
        """The last bucket that has ended when something is known, which decisions are made in [microseconds]."""
        start: Ints = self.width.floor(known)
        return np.where(start == known, start - self.micros, start)

    def check(self, ts: Ints) -> None:
        """GridError if these times do not fit the width.

        That is so if a time is no start of a bucket, or if all times are on a coarser grid: certainly, or because the
        frame carries it. CoarseGridWarning if chance may explain the grid.
        """
        self.check_starts(ts)
        self.check_coarser(ts)

    def check_starts(self, ts: Ints) -> None:
        """GridError if a time is no start of a bucket."""
        off = off_grid(ts, self.width)
        if len(off):
            raise self._refused(
                f"{len(off):,} of {len(ts):,} rows of {self.what} are off the grid of {self.width}, the first at "
                f"{to_text(int(off[0]))}",
                f"Give the bucket width of the rows, such as {self.argument}='1s', or put them on the grid with "
                f"md.resample(frame, '{self.width}'). {self.otherwise}".rstrip(),
            )

    def check_coarser(self, ts: Ints) -> None:
        """GridError if all times are certainly on a coarser grid, CoarseGridWarning if they may be by chance."""
        grid = coarser_grid(ts, self.width, known=None if self.is_carried else self.carried)
        if grid is None:
            return
        seen = f"all {grid.times:,} distinct times of {self.what} are on a grid of {grid.width}"
        hint = f"Give {self.argument}='{grid.width}' if the buckets are {grid.width} wide. {self.otherwise}".rstrip()
        if grid.odds < _CERTAIN:
            warn(f"A{seen[1:]}, but are read as of buckets of {self.width}.", CoarseGridWarning, hint=hint)
            return
        raise self._refused(f"{seen}, so they look known at the end of {grid.width}, not of {self.width}", hint)

    def _refused(self, seen: str, hint: str) -> GridError:
        if self.is_carried:
            return GridError(
                f"is missing: the frame carries the width {self.width}, but {seen}.", argument=self.argument, hint=hint
            )
        return GridError(f"does not fit: {seen}.", argument=self.argument, value=str(self.width), hint=hint)


class Widths(NamedTuple):
    """The widths of an aggregation: `target` of the result, `rows` of the rows given (None if not known)."""

    target: BucketWidth
    rows: BucketWidth | None
    later: int
    """Time from the ``ts`` of a row of wider buckets until it is known [microseconds]; 0 for rows not wider."""

    on_times: Callable[[Ints], object]
    """Checks the times of the rows."""


def widths(resolution: Width, rows: RowWidth | None, *, fill: bool = False) -> Widths:
    """The widths of an aggregation; ConfigError if finer buckets are wanted without a fill, or would be cut."""
    target = BucketWidth.of(resolution)
    if rows is None:
        return Widths(target, None, 0, partial(check_target, target=target))
    on_times = partial(_check_aggregated, rows=rows, target=target)
    if rows.width.divides(target):
        return Widths(target, rows.width, 0, on_times)
    if not target.divides(rows.width):
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
    return Widths(target, rows.width, rows.micros, on_times)


def _check_aggregated(ts: Ints, rows: RowWidth, target: BucketWidth) -> None:
    """GridError for rows off their grid, and for a carried width where all times are on a grid that would be cut."""
    rows.check_starts(ts)
    if rows.is_carried and coarser_grid(ts, target) is not None:
        rows.check_coarser(ts)


def coarser_grid(ts: Ints, width: BucketWidth, *, known: BucketWidth | None = None) -> Grid | None:
    """The widest grid that all times are on, if not by chance and if it does not divide a width.

    A grid that is known to be coarser is not by chance.
    """
    if known is not None and not known.divides(width) and width.divides(known) and not len(off_grid(ts, known)):
        return Grid(known, len(np.unique(ts)), math.inf)
    grid = None
    for times in (ts[:64], ts[:: len(ts) // 1000 + 1], ts):  # a few times tell most grids
        grid = _widest_grid(times)
        # Further times only make it finer.
        if grid is None or grid.divides(width):
            return None
    count = len(np.unique(ts))
    if grid is None or count < 2:
        return None
    # Times are on a grid by chance once in ratio ** count. Many grids fit two times, so of two only wide ones count.
    odds = float(grid.micros // math.gcd(grid.micros, width.micros)) ** min(count, 100)
    return None if odds < (_LIKELY if count > 2 else _LIKELY_OF_TWO) else Grid(grid, count, odds)


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
    warn(
        f"{seen}, so its buckets look {grid.width} wide, but are read as known at the end of buckets of {target}.",
        CoarseGridWarning,
        hint=f"Give width='{grid.width}' if they are, and width='{target}' if not.",
    )


def off_grid(ts: Ints, width: BucketWidth) -> Ints:
    """The times that are no start of a bucket."""
    return np.asarray(ts[width.floor(ts) != ts])
