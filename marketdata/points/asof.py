"""Searches by key and time: the last row known before a moment, the first one from it on, those around it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Columns, Ints, ranges
from marketdata.points.order import ascending

Keys = NDArray[np.integer]


def insertion(key: Keys, at: Ints, known_key: Keys, known_at: Ints, side: Literal["left", "right"] = "left") -> Ints:
    """The number of known rows, sorted by key and time, before each key and time.

    With the side "right" it counts rows of an equal time too.
    """
    times = ascending(known_at)
    # Key and rank of the time are one number, so that a single search finds both.
    known_rows = known_key.astype(np.int64) * (len(times) + 1) + np.searchsorted(times, known_at)
    wanted = key.astype(np.int64) * (len(times) + 1) + np.searchsorted(times, at, side)
    return np.searchsorted(known_rows, wanted)


def latest(key: Keys, at: Ints, known_key: Keys, known_at: Ints, *, exact: bool) -> Ints:
    """The last known row of the same key before each time, or at it if ``exact``; -1 for none."""
    row = insertion(key, at, known_key, known_at, "right" if exact else "left") - 1
    return np.where((row >= 0) & (np.append(known_key, -1)[row] == key), row, -1)


def first_from(key: Keys, at: Ints, known_key: Keys, known_at: Ints, tolerance: int = 0) -> Ints:
    """The first known row of the same key from each time until ``tolerance`` later; -1 for none."""
    row = insertion(key, at, known_key, known_at)
    is_near = np.append(known_at, 0)[row] - at <= tolerance
    return np.where(is_near & (np.append(known_key, -1)[row] == key) & (row < len(known_key)), row, -1)


def around(
    columns: Columns,
    moments: Ints,
    owners: Sequence[tuple[str | None, ...]],
    keys: Sequence[str],
    reach: tuple[int, int],
) -> tuple[Ints, Ints]:
    """Moments and the entries in the window of each, by moment and then entry.

    ``owners`` has the ids of each moment and ``keys`` their names. Without names a moment belongs to every token.
    """
    wanted, (before, after) = defaultdict(list), reach
    for i, key in enumerate(owners):
        wanted[key].append(i)
    pairs = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for token, a, b in zip(columns.tokens, columns.bounds[:-1].tolist(), columns.bounds[1:].tolist(), strict=True):
        of_token = np.array(wanted.get(tuple(getattr(token, key) for key in keys), ()), np.int64)
        if len(of_token):
            first = a + np.searchsorted(columns.ts[a:b], moments[of_token] - before)
            lengths = a + np.searchsorted(columns.ts[a:b], moments[of_token] + after) - first
            pairs.append((np.repeat(of_token, lengths), ranges(first, lengths)))
    at, rows = (np.concatenate(part) for part in zip(*pairs, strict=True))
    order = np.lexsort((rows, at))
    return at[order], rows[order]
