"""Joins as of a time: the last of known things before each moment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Ints
from marketdata.points.resample import group_starts, run_ends

_ROWS_WORTH_A_SEARCH = 50


class Keyed:
    """Times of things with keys, sorted by key and time: ``order`` says which thing each is."""

    def __init__(self, key: NDArray[np.integer], at: Ints, order: Ints) -> None:
        self.key, self.at, self.order = key[order], at[order], order


def latest(moments: Keyed, candidates: Keyed, *, exact: bool) -> Ints:
    """The thing of each moment's key that was known last before it (``exact``: or at it); -1 for none."""
    starts, begins = group_starts(moments.key), group_starts(candidates.key)
    if _ROWS_WORTH_A_SEARCH * (len(starts) + len(begins)) > len(moments.order) + len(candidates.order):
        places = _merged(moments, candidates, exact=exact)
    else:
        places = np.full(len(moments.order), -1)
        ends = run_ends(begins, len(candidates.key)).tolist()
        runs = {int(candidates.key[a]): (a, b) for a, b in zip(begins.tolist(), ends, strict=True)}
        for a, b in zip(starts.tolist(), run_ends(starts, len(moments.key)).tolist(), strict=True):
            first, last = runs.get(int(moments.key[a]), (0, 0))
            place = np.searchsorted(candidates.at[first:last], moments.at[a:b], side="right" if exact else "left")
            places[a:b] = np.where(place > 0, place - 1 + first, -1)
    out = np.empty(len(moments.order), np.int64)
    out[moments.order] = np.append(candidates.order, -1)[places]
    return out


def _merged(moments: Keyed, candidates: Keyed, *, exact: bool) -> Ints:
    """The same positions by one sort of both."""
    count = len(candidates.order)
    is_moment = np.repeat(np.array([0, 1]), [count, len(moments.order)])
    both = (
        is_moment if exact else 1 - is_moment,
        np.append(candidates.at, moments.at),
        np.append(candidates.key, moments.key),
    )
    order = np.lexsort(both)
    last = np.maximum.accumulate(np.where(order < count, np.arange(len(order)), -1))
    before = np.where(last >= 0, order[last], -1)
    out = np.full(len(moments.order), -1)
    at = order >= count
    place, of = before[at], order[at] - count
    same = (place >= 0) & (candidates.key[np.maximum(place, 0)] == moments.key[of]) if count else place >= 0
    out[of] = np.where(same, place, -1)
    return out
