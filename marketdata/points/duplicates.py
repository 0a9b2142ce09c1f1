"""Duplicate points: equal ones become one, different ones are refused."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ContractError
from marketdata.points.columns import Books, Data, Ints, ranges, values_of
from marketdata.times import to_text


class Deduplicated(NamedTuple):
    """Columns with each (token, ts) once, the number of dropped equal points, and the number of changed points."""

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
    kept = columns.take(np.delete(np.arange(len(columns)), again))
    return Deduplicated(kept, len(again) - len(differ), len(differ))


def repeated(columns: Data) -> tuple[Ints, NDArray[np.bool_]]:
    """Positions whose next entry has the same (token, ts), and whether it has equal values; -0.0 equals 0.0."""
    at = np.flatnonzero(columns.steps() == 0)
    return at, equal_values(columns.take(at), columns.take(at + 1))


def equal_values(first: Data, second: Data) -> NDArray[np.bool_]:
    """Whether each entry has the values of the one at its place in the other columns; -0.0 equals 0.0, NaN NaN."""
    same = np.ones(len(first), dtype=bool)
    if isinstance(first, Books) and isinstance(second, Books):
        for a, b in ((first.bids, second.bids), (first.asks, second.asks)):
            same &= a.counts == b.counts
            length = np.where(same, a.counts, 0)
            one, other = ranges(a.begins, length), ranges(b.begins, length)
            differ = (a.price[one] != b.price[other]) | (a.size[one] != b.size[other])
            same[np.repeat(np.arange(len(first)), length)[differ]] = False
    for name in first.values.keys() | second.values.keys():
        dtype = (first.values if name in first.values else second.values)[name].dtype
        one_value, other_value = values_of(first, name, dtype), values_of(second, name, dtype)
        both_missing = np.zeros(len(first), bool) if dtype.hasobject else np.isnan(one_value) & np.isnan(other_value)
        same &= (one_value == other_value) | both_missing
    return same
