"""Duplicate points: equal ones become one, different ones are refused."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ContractError
from marketdata.points.columns import Books, Data, Ints, ranges
from marketdata.times import to_text


class Deduplicated(NamedTuple):
    """Columns with each (token, ts) once; how many equal points were dropped, and how many had changed."""

    columns: Data
    dropped: int
    changed: int


def deduplicate(columns: Data, open_from: int | None = None, hint: str = "") -> Deduplicated:
    """Each (token, ts) of columns in tidy order once, the last of several.

    ContractError, with ``hint`` appended, if they differ before ``open_from`` [microseconds UTC], where buckets were
    still open.
    """
    again, is_equal = repeated(columns)
    if not len(again):
        return Deduplicated(columns, 0, 0)
    differ = again[~is_equal]
    closed = differ if open_from is None else differ[columns.ts[differ] < open_from]
    if len(closed):
        token = columns.token_at(closed[0])
        name = token.token_label or token.token_id or token.market_id
        raise ContractError(f"{name} at {to_text(int(columns.ts[closed[0]]))} came twice with different values{hint}.")
    kept = columns.take(np.setdiff1d(np.arange(len(columns)), again))
    return Deduplicated(kept, len(again) - len(differ), len(differ))


def repeated(columns: Data) -> tuple[Ints, NDArray[np.bool_]]:
    """Positions whose next entry has the same (token, ts), and whether it has equal values; -0.0 equals 0.0."""
    at = np.flatnonzero(columns.steps() == 0)
    same = np.ones(len(at), dtype=bool)
    if not isinstance(columns, Books):
        for values in columns.values.values():
            first, second = values[at], values[at + 1]
            same &= (first == second) | (np.isnan(first) & np.isnan(second))
        return at, same
    for side in (columns.bids, columns.asks) if len(at) else ():
        same &= side.counts[at] == side.counts[at + 1]
        length = np.where(same, side.counts[at], 0)
        a, b = ranges(side.begins[at], length), ranges(side.begins[at + 1], length)
        differ = (side.price[a] != side.price[b]) | (side.size[a] != side.size[b])
        same[np.repeat(np.arange(len(at)), length)[differ]] = False
    return at, same
