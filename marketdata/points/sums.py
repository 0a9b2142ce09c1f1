"""Sums of values by group whose error does not grow with the number of values."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Floats


def group_sums(group: NDArray[np.integer], values: Floats, count: int) -> Floats:
    """The sum of the values of each group, 0 for one without any; groups are numbered from 0.

    `np.bincount` adds one value after the other: the sum of a million equal ones is off by 1e-11. Here they are added
    in pairs, which has the error of a few additions only.
    """
    out = np.zeros(count)
    if not len(values):
        return out
    if count == 1:
        out[0] = values.sum()
        return out
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    out[group[order[starts]]] = np.add.reduceat(values[order], starts)
    return out
