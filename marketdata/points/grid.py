"""Series on a grid of buckets: which entry is in a bucket, or was the last one before."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Columns, Ints
from marketdata.points.resample import run_ends


class OnGrid(NamedTuple):
    """The entry shown at each token and time of the grid (-1 for none), and whether it was observed at that time."""

    entries: Columns
    shown: Ints
    observed: NDArray[np.bool_]


def on_grid(columns: Columns, grid: Ints, *, forward: bool) -> OnGrid:
    """Each token at all times of a grid."""
    shown, observed = [np.empty(0, np.int64)], [np.empty(0, bool)]
    for a, b in zip(columns.starts, run_ends(columns.starts, len(columns)), strict=True):
        at = np.searchsorted(columns.ts[a:b], grid, side="right") - 1
        there = (at >= 0) & (columns.ts[a:b][at] == grid)
        shown.append(np.where(there | (forward & (at >= 0)), at + a, -1))
        observed.append(there)
    count = len(columns.tokens)
    entries = Columns(columns.tokens, np.arange(count + 1) * len(grid), np.tile(grid, count))
    return OnGrid(entries, np.concatenate(shown), np.concatenate(observed))
