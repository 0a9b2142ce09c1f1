"""The order of rows: seen in one pass over the columns, and made where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import NotTidyError
from marketdata.points.columns import Codes, Floats, Ints, Side

NO_TIME = int(np.iinfo(np.int64).min)
"""The value of a missing time."""


class LevelRows(NamedTuple):
    """Rows of levels, adjacent by side. ``side`` is 1 for asks. The sentinel row of an empty side has level 0."""

    ts: Ints
    side: NDArray[np.integer]
    level: Codes
    price: Floats
    size: Floats


def rises(ts: Ints, groups: Ints, *, strictly: bool) -> bool:
    """Whether times rise within groups, which begin at these positions."""
    falls = ts[1:] <= ts[:-1] if strictly else ts[1:] < ts[:-1]
    falls[groups[1:] - 1] = False
    return not falls.any()


def distinct(codes: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """A position of each value, and for each entry the number of its value."""
    least, most = (int(codes.min()), int(codes.max())) if len(codes) else (0, 0)
    if most - least > 4 * len(codes) + 1000:
        return np.unique(codes, return_index=True, return_inverse=True)[1:]
    shifted = codes.astype(np.int64) - least
    place = np.full(most - least + 1, -1)
    place[shifted[::-1]] = np.arange(len(codes))[::-1]
    return place[place >= 0], (np.cumsum(place >= 0) - 1)[shifted]


def ascending(values: Ints) -> Ints:
    """The distinct values, least first; `numpy.unique` hashes whole numbers, which takes far longer than a sort."""
    values = np.sort(values)
    distinct_values: Ints = values[np.append(True, values[1:] != values[:-1])[: len(values)]]
    return distinct_values


def sorted_by(*keys: NDArray[np.integer]) -> Ints:
    """Positions in the order of the first key, then of the second, and so on; stable."""
    equal, falls = np.ones(max(len(keys[0]) - 1, 0), bool), np.zeros(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        falls |= equal & (key[1:] < key[:-1])
        equal &= key[1:] == key[:-1]
    if not falls.any():
        return np.arange(len(keys[0]))
    return np.lexsort([_narrowed(key) for key in reversed(keys)])


def _narrowed(key: NDArray[np.integer]) -> NDArray[np.integer]:
    """A key in the smallest type that has its order: numpy counts 16 bits, which is faster than comparing."""
    if not len(key):
        return key
    least = int(key.min())
    return (key - least).astype(np.min_scalar_type(int(key.max()) - least))


def same_as_before(*keys: NDArray[np.generic]) -> NDArray[np.bool_]:
    """True for entries that equal the previous one in all keys; NaN equals NaN."""
    same = np.ones(len(keys[0]), bool)
    same[:1] = False
    for key in keys:
        equal = key[1:] == key[:-1]
        if key.dtype.kind == "f":
            equal |= np.isnan(key[1:]) & np.isnan(key[:-1])
        same[1:] &= equal
    return same


class Snapshots(NamedTuple):
    """Times and sides of the snapshots of level rows, and the wrong rows; a sentinel row counts as a level.

    The wrong rows are first those with only a price or only a size. Then come those with a price that is NaN or better
    than the price of the level before.
    """

    ts: Ints
    bids: Side
    asks: Side
    wrong: Ints


def snapshots(rows: LevelRows, groups: Ints, *, all_levels: bool = True) -> Snapshots | None:
    """The snapshots of tokens that begin at ``groups``; None where rows are in no tidy order.

    All prices and sizes are checked, or only the best two levels of each side. Snapshots begin with their bids,
    be there any or none.
    """
    ts, side, level, price, size = rows
    inner = (level[1:] - level[:-1] == 1) & (side[1:] == side[:-1]) & (ts[1:] == ts[:-1])
    starts = np.flatnonzero(np.append(np.ones(min(len(ts), 1), bool), ~inner))
    # Levels count up from a 0 to the next row where something else changes, so there it must be 0 again.
    if level[starts].any() or level[groups].any():
        return None
    times, is_ask = ts[starts], side[starts] != 0
    step = np.diff(times, prepend=0)
    step[np.searchsorted(starts, groups)] = 1
    # A side opens a snapshot, or it is the asks behind the bids.
    if (step < 0).any() or not (step[1:].astype(bool) | (is_ask[1:] & ~is_ask[:-1])).all():
        return None
    opens = np.flatnonzero(step)
    begins, next_sides = starts[opens], np.append(starts, len(ts))[opens + 1]
    middle = np.where(is_ask[opens], begins, next_sides)  # where bids end: at once if there are none
    bids = Side(begins, middle - begins, price, size)
    asks = Side(middle, np.append(begins, len(ts))[1:] - middle, price, size)
    if all_levels:
        # From level to level the price of an ask rises and the price of a bid falls.
        half, of_asks = starts[:0], side[1:] != 0
        right = (price[1:] >= price[:-1]) & of_asks
        right |= (price[1:] <= price[:-1]) & ~of_asks
        # A sum is not finite where a term is not: most rows need no second look.
        if not np.isfinite(price.sum() + size.sum()):
            half = np.flatnonzero(np.isnan(price) != np.isnan(size))
            right &= np.isfinite(price[1:])
        worse = np.flatnonzero(inner & ~right) + 1
    else:
        half, worse = map(np.concatenate, zip(_wrong_tops(bids, -1), _wrong_tops(asks, 1), strict=True))
    return Snapshots(times[opens], bids, asks, np.concatenate((np.sort(half), np.sort(worse))))


def _wrong_tops(side: Side, sign: int) -> tuple[Ints, Ints]:
    """Best rows of half a level, and second rows of a price that is not worse; ``sign`` is 1 for asks, -1 for bids."""
    best, shares = side.top
    half = side.begins[np.isnan(best) != np.isnan(shares)]
    has_second = side.counts > 1
    first, best = (side.begins, best) if has_second.all() else (side.begins[has_second], best[has_second])
    with np.errstate(invalid="ignore"):
        is_worse = (side.price[first + 1] - best) * sign >= 0
    return half, first[~is_worse] + 1


def wrong_numbers(
    rows: LevelRows, new: NDArray[np.bool_], null: NDArray[np.bool_], shown: Callable[[int], str]
) -> NotTidyError:
    """NotTidyError about rows that `snapshots` could not use; ``new`` marks where a side begins, ``null`` no level."""
    wrong = ~np.isnan(rows.price) & null
    if wrong.any():
        return NotTidyError(f"level is null where price is not, first {shown(int(np.argmax(wrong)))}.")
    step = np.diff(rows.level, prepend=-1)
    wrong = np.where(new, rows.level != 0, step != 1)
    at = int(np.argmax(wrong))
    return NotTidyError(
        f"Levels of a side are 0, 1, 2, ... from the best price, each once; {shown(at)} has level {rows.level[at]}"
        f"{' first' if new[at] else f' after {rows.level[at - 1]}'}. Number the levels of each (token, ts, side) again."
    )


def wrong_level(rows: LevelRows, at: int, shown: Callable[[int], str]) -> NotTidyError:
    """NotTidyError about a row that `snapshots` calls wrong."""
    if np.isnan(rows.price[at]) != np.isnan(rows.size[at]):
        return NotTidyError(
            f"A level has a price and no size, or a size and no price, first {shown(at)}; give "
            "both, or neither for the sentinel row of an empty side."
        )
    return NotTidyError(
        f"Level {rows.level[at]} of {shown(at)} has a better price than the one before, or one of them "
        "is missing or infinite; level 0 is the best price of its side: number the levels again."
    )


def newest(codes: NDArray[np.integer], groups: Ints) -> Ints:
    """For each group the last position whose code is not missing (-1), or its first position."""
    last = np.maximum.reduceat(np.where(codes >= 0, np.arange(len(codes)), -1), groups)
    return np.where(last >= 0, last, groups)
