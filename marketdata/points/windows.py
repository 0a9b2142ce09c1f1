"""Windows of time around moments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from marketdata.points.columns import Columns, Ints, ranges


def around(
    columns: Columns,
    moments: Ints,
    owners: Sequence[tuple[str | None, ...]],
    keys: Sequence[str],
    reach: tuple[int, int],
) -> tuple[Ints, Ints]:
    """Moments and the entries in the window of each, by moment and then entry.

    ``owners``: the ids of each moment, ``keys`` their names; without names a moment is one of every token.
    """
    wanted, (before, after) = defaultdict(list), reach
    for i, key in enumerate(owners):
        wanted[key].append(i)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for token, a, b in zip(columns.tokens, columns.bounds[:-1].tolist(), columns.bounds[1:].tolist(), strict=True):
        some = np.array(wanted.get(tuple(getattr(token, key) for key in keys), ()), np.int64)
        if len(some):
            first = a + np.searchsorted(columns.ts[a:b], moments[some] - before)
            lengths = a + np.searchsorted(columns.ts[a:b], moments[some] + after) - first
            found.append((np.repeat(some, lengths), ranges(first, lengths)))
    at, rows = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((rows, at))
    return at[order], rows[order]
