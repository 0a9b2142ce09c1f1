"""The grid that the times of a frame are on."""

from __future__ import annotations

import numpy as np

from marketdata.errors import ConfigError
from marketdata.resolution import GRIDS, BucketWidth
from marketdata.tidy.runs import run_ends
from marketdata.wire.columns import Ints

# Fewer times are on a coarse grid by chance: of n random times 1 in ratio ** n. Three are enough between resolutions of
# the interface, each of which is four times the one before, or more.
_ENOUGH, _CHANCES = 3, 4**3
_SAMPLE = 64


def coarser_grid(ts: Ints, groups: Ints, width: BucketWidth) -> BucketWidth | None:
    """The widest grid above a width that all times of a token are on, not by chance; ``ts`` rises within ``groups``."""
    if not len(ts):
        return None
    ends = run_ends(groups, len(ts))
    # A sample of the times shows that most tokens are on no coarser grid.
    some = ts[groups[:, None] + (ends - groups)[:, None] * np.arange(_SAMPLE) // _SAMPLE]
    found = None
    for grid in GRIDS:
        if grid.micros <= width.micros:
            continue
        for token in np.flatnonzero((grid.floor(some) == some).all(axis=1)).tolist():
            own = ts[groups[token] : ends[token]]
            count = min(1 + int(np.count_nonzero(own[1:] != own[:-1])), _SAMPLE)
            likely = count >= _ENOUGH and (grid.micros / width.micros) ** count >= _CHANCES
            if likely and bool((grid.floor(own) == own).all()):
                found = grid
                break
    return found


def refuse_finer(ts: Ints, groups: Ints, width: BucketWidth) -> None:
    """ConfigError if a width is finer than the grid of a token (`coarser_grid`): rows would be known too early."""
    own = coarser_grid(ts, groups, width)
    if own is not None:
        raise ConfigError(
            f"resolution={str(width)!r} is finer than the frame: all times of a token are on a grid of {own}. Give "
            f"{str(own)!r}, for a row covers what happened until the end of its bucket; "
            f"md.resample(frame, {str(width)!r}, fill='forward') makes finer rows of it."
        )
