"""The grid that the times of a frame are on."""

from __future__ import annotations

import numpy as np

from marketdata.errors import ConfigError
from marketdata.resolution import GRIDS, BucketWidth
from marketdata.tidy.runs import run_ends
from marketdata.wire.columns import Ints, ranges

# Fewer times are on a coarse grid by chance: of n random times 1 in ratio ** n.
_ENOUGH, _CHANCES = 3, 200
_SAMPLE = 64


def coarser_grid(ts: Ints, groups: Ints, width: BucketWidth) -> BucketWidth | None:
    """The widest grid above a width that all times of some token are on, and not by chance; else None.

    ``ts`` rises within the groups of a token that begin at ``groups``.
    """
    lengths = run_ends(groups, len(ts)) - groups
    some = np.minimum(lengths, _SAMPLE)
    heads = ts[ranges(groups, some)]
    begins = np.cumsum(some) - some
    found = None
    for grid in GRIDS:
        if grid.micros <= width.micros or not len(ts):
            continue
        # Few times tell that most tokens are on no coarser grid.
        for token in np.flatnonzero(np.logical_and.reduceat(grid.floor(heads) == heads, begins)).tolist():
            own = ts[groups[token] : groups[token] + lengths[token]]
            count = min(len(np.unique(own)), _SAMPLE)
            likely = count >= _ENOUGH and (grid.micros / width.micros) ** count >= _CHANCES
            if likely and bool((grid.floor(own) == own).all()):
                found = grid
                break
    return found


def refuse_finer(ts: Ints, groups: Ints, width: BucketWidth) -> None:
    """Refuse a bucket width that is finer than the grid of a token; times and groups as in `coarser_grid`.

    Raises
    ------
    ConfigError
        Naming both: what is called finer than it is would be known before its time.
    """
    own = coarser_grid(ts, groups, width)
    if own is not None:
        raise ConfigError(
            f"resolution={str(width)!r} is finer than the frame: all times of a token are on a grid of {own}. Give "
            f"{str(own)!r}, for a row holds what happened until the end of its bucket; "
            f"md.resample(frame, {str(width)!r}, fill='forward') makes finer rows of it."
        )
