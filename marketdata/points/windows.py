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
