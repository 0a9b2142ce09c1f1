"""Duplicate points: equal ones become one, different ones are refused."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ContractError
from marketdata.points.columns import AnyColumns, BookColumns, Ints, ranges
from marketdata.times import to_text


class Deduplicated(NamedTuple):
    """Columns with each (token, ts) once; how many equal points were dropped, and how many had changed."""

    columns: AnyColumns
    dropped: int
    changed: int


def deduplicate(columns: AnyColumns, open_from: int | None = None, hint: str = "") -> Deduplicated:
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
        token = columns.tokens[columns.token[closed[0]]]
        name = token.token_label or token.token_id or token.market_id
        raise ContractError(f"{name} at {to_text(int(columns.ts[closed[0]]))} came twice with different values{hint}.")
    kept = columns.take(np.setdiff1d(np.arange(len(columns)), again))
    return Deduplicated(kept, len(again) - len(differ), len(differ))


def repeated(columns: AnyColumns) -> tuple[Ints, NDArray[np.bool_]]:
    """Positions whose next entry has the same (token, ts), and whether it has equal values; -0.0 equals 0.0."""
    at = np.flatnonzero((np.diff(columns.token) == 0) & (np.diff(columns.ts) == 0))
    if not len(at):
        return at, np.ones(0, dtype=bool)
    if not isinstance(columns, BookColumns):
        pairs = ((values[at], values[at + 1]) for values in columns.values.values())
        return at, np.all([(a == b) | (np.isnan(a) & np.isnan(b)) for a, b in pairs], axis=0)
    sides = columns.counts.reshape(-1, 2)
    lengths = sides.sum(axis=1)
    starts = np.concatenate(([0], np.cumsum(lengths)))[:-1]
    same = (sides[at] == sides[at + 1]).all(axis=1)
    length = np.where(same, lengths[at], 0)
    first, second = (columns.levels[ranges(starts[k], length)] for k in (at, at + 1))
    wrong = np.concatenate(([0], np.cumsum((first != second).any(axis=1))))
    ends = np.cumsum(length)
    return at, same & (wrong[ends] == wrong[ends - length])
