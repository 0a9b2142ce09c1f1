"""Joins as of a time: the last row that was known before each moment."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Ints

Keys = NDArray[np.integer]


def latest(key: Keys, at: Ints, known_key: Keys, known_at: Ints, *, exact: bool) -> Ints:
    """The position of the last known row before each time ``at`` of the same key (``exact``: or at it); -1 for none.

    Known rows are sorted by key and time.
    """
    times = np.unique(known_at)
    # Key and rank of the time as one number, so that a single search finds both.
    known = known_key * (len(times) + 1) + np.searchsorted(times, known_at) + 1
    rank = np.searchsorted(times, at, side="right" if exact else "left")
    place = np.searchsorted(known, key * (len(times) + 1) + rank, side="right") - 1
    return np.where((place >= 0) & (np.append(known_key, -1)[place] == key), place, -1)
