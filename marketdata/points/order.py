"""The order of rows: seen in one pass over the columns, and made where it is missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import NotTidyError
from marketdata.points.columns import Codes, Floats, Ints, Side
from marketdata.points.resample import group_starts, run_ends

# Rows that are compared at a time, so that what is made in between stays in the processor's cache.
_BLOCK = 1 << 17
NO_TIME = int(np.iinfo(np.int64).min)
"""What a missing time is."""
# numpy sorts numbers of 16 bits by counting them; runs of so many rows and more that rise are merged faster.
_DIGIT, _RUN = 16, 100


class Sides(NamedTuple):
    """Where snapshots begin (with their bids, if any), where their asks begin, and where they end."""

    starts: Ints
    asks: Ints
    ends: Ints


class LevelRows(NamedTuple):
    """Rows of levels, those of a side beside each other; asks are 1 in ``side``; the level of a marker row is 0."""

    ts: Ints
    side: NDArray[np.integer]
    level: Codes
    price: Floats
    size: Floats


Both = tuple[Side, Side]


def both(rows: LevelRows, sides: Sides) -> Both:
    """Bids and asks of each snapshot, in which the marker row of an empty side is a level."""
    starts, asks, ends = sides
    return Side(starts, asks - starts, rows.price, rows.size), Side(asks, ends - asks, rows.price, rows.size)


def within(some: Ints, every: Ints) -> bool:
    """Whether each of these positions is one of the others; both rise."""
    at = np.searchsorted(every, some)
    return bool(len(some) == 0 or (at[-1] < len(every) and (every[at] == some).all()))


def rises(ts: Ints, groups: Ints, *, strictly: bool) -> bool:
    """Whether times rise within groups, which begin at these positions."""
    for first in range(1, len(ts), _BLOCK):
        a, b = ts[first - 1 : first + _BLOCK - 1], ts[first : first + _BLOCK]
        falls = np.flatnonzero(b <= a[: len(b)] if strictly else b < a[: len(b)])
        if len(falls) and not within(falls + first, groups):
            return False
    return True


def distinct(codes: NDArray[np.integer]) -> tuple[Ints, Ints]:
    """A position of each value, and for each entry the number of its value."""
    starts = group_starts(codes)
    if 8 * len(starts) < len(codes):
        first, which = distinct(codes[starts])
        return starts[first], np.repeat(which, run_ends(starts, len(codes)) - starts)
    least, most = (int(codes.min()), int(codes.max())) if len(codes) else (0, 0)
    if most - least > 4 * len(codes) + 1000:
        return np.unique(codes, return_index=True, return_inverse=True)[1:]
    shifted = codes.astype(np.int64) - least
    place = np.full(most - least + 1, -1)
    place[shifted[::-1]] = np.arange(len(codes))[::-1]
    return place[place >= 0], (np.cumsum(place >= 0) - 1)[shifted]


def is_sorted(*keys: NDArray[np.integer]) -> bool:
    """Whether entries are in the order of the first key, then of the second, and so on."""
    equal = np.ones(max(len(keys[0]) - 1, 0), bool)
    for key in keys:
        if (equal & (key[1:] < key[:-1])).any():
            return False
        equal &= key[1:] == key[:-1]
    return True


def sorted_by(*keys: NDArray[np.integer]) -> Ints:
    """Positions in the order of the first key, then of the second, and so on; stable."""
    order: Ints | None = None
    if is_sorted(*keys):
        return np.arange(len(keys[0]), dtype=np.int64)
    for key in reversed(keys):
        found = key if order is None else key[order]
        falls = np.count_nonzero(found[1:] < found[:-1])
        if not falls:
            continue
        if falls * _RUN < len(found):  # runs that rise are merged
            at: Ints = np.argsort(found, kind="stable")
            order = at if order is None else order[at]
            continue
        found = found.astype(np.int64) - found.min()
        step = int(np.gcd.reduce(found[:: max(1, len(found) // 1000)]))
        if step > 1 and not (found % step).any():
            found //= step
        bits = int(found.max()).bit_length()
        if bits > 3 * _DIGIT:
            at = np.argsort(found, kind="stable")
            order = at if order is None else order[at]
            continue
        for shift in range(0, bits, _DIGIT):
            now = found if shift == 0 else found[at]
            digit = np.argsort((now >> shift).astype(np.uint16), kind="stable")
            at = digit if shift == 0 else at[digit]
        order = at if order is None else order[at]
    return np.arange(len(keys[0]), dtype=np.int64) if order is None else order


def same_as_before(*keys: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which entries equal the one before in all keys; NaN equals NaN."""
    same = np.ones(len(keys[0]), bool)
    same[:1] = False
    for key in keys:
        equal = key[1:] == key[:-1]
        if key.dtype.kind == "f":
            equal |= np.isnan(key[1:]) & np.isnan(key[:-1])
        same[1:] &= equal
    return same


def snapshots(rows: LevelRows, groups: Ints) -> Sides | None:
    """Where snapshots of level rows are, whose tokens begin at ``groups``; None where rows are in no tidy order."""
    found = _tops(rows)
    if found is None or not within(groups, found[0]):
        return None
    tops, times, is_ask = found
    new = np.append(True, times[1:] != times[:-1])[: len(tops)]
    owner = np.searchsorted(tops, groups)
    falls = np.flatnonzero(times[1:] < times[:-1]) + 1
    new[owner] = True
    # A side follows that opens a snapshot, or is the asks behind the bids.
    if not within(falls, owner) or not (new[1:] | (is_ask[1:] & ~is_ask[:-1])).all():
        return None
    opens = np.flatnonzero(new)
    starts = tops[opens]
    # The next side is the asks, or the next snapshot; or the first one was.
    after = np.append(tops, len(rows.ts))[1:][opens]
    asks = np.where(is_ask[opens], starts, after) if is_ask[opens].any() else after
    return Sides(starts, asks, run_ends(starts, len(rows.ts)))


def _tops(rows: LevelRows) -> tuple[Ints, Ints, NDArray[np.bool_]] | None:
    """Where sides begin, their times, and whether they are asks; None where a row does not follow the one before."""
    ts, side, level = rows.ts, rows.side, rows.level
    found = [(np.arange(0), ts[:0], side[:0] != 0)]
    for a in range(0, len(level), _BLOCK):
        b = min(a + _BLOCK, len(level))
        here, before = slice(max(a, 1), b), slice(max(a, 1) - 1, b - 1)
        begins = np.ones(b - a, bool)
        inner = begins[here.start - a :]
        np.not_equal(level[here] - level[before], 1, out=inner)
        inner |= side[here] != side[before]
        inner |= ts[here] != ts[before]
        at = np.flatnonzero(begins) + a
        # Levels count up from a 0 to the next row where something else changes, so there it must be 0 again.
        if level[at].any():
            return None
        found.append((at, ts[at], side[at] != 0))
    tops, times, is_ask = (np.concatenate(part) for part in zip(*found, strict=True))
    return tops, times, is_ask


def wrong_numbers(
    rows: LevelRows, new: NDArray[np.bool_], null: NDArray[np.bool_], shown: Callable[[int], str]
) -> NotTidyError:
    """NotTidyError about rows of which `snapshots` made nothing; ``new``: a side begins, ``null``: without a level."""
    wrong = ~np.isnan(rows.price) & null
    if wrong.any():
        return NotTidyError(f"level is null where price is not, first {shown(int(np.argmax(wrong)))}.")
    step = np.diff(rows.level, prepend=-1)
    wrong = np.where(new, rows.level != 0, step != 1)
    at = int(np.argmax(wrong))
    return NotTidyError(
        f"Levels of a side are 0, 1, 2, ... from the best price, each once; {shown(at)} has level {rows.level[at]}"
        f"{' first' if new[at] else f' after {rows.level[at - 1]}'}. Number the levels of each (token, ts, side) anew."
    )


def check_levels(rows: LevelRows, sides: Both, shown: Callable[[int], str], *, whole: bool = True) -> None:
    """NotTidyError unless prices of a side get worse from level to level, each with a size; or of the best two."""
    half, deeper = _wrong_rows(rows) if whole else _wrong_tops(sides)
    if len(half):
        raise NotTidyError(
            f"A level has a price and no size, or a size and no price, first {shown(int(half.min()))}; give "
            "both, or neither for the marker row of an empty side."
        )
    with np.errstate(invalid="ignore"):
        rise = rows.price[deeper] - rows.price[deeper - 1]
    wrong = np.isnan(rise) | np.where(rows.side[deeper] != 0, rise < 0, rise > 0)
    if wrong.any():
        first = int(deeper[np.argmax(wrong)])
        raise NotTidyError(
            f"Level {rows.level[first]} of {shown(first)} has a better price than the one before, or one of them "
            "is missing or infinite; level 0 is the best price of its side: number the levels anew."
        )


def _wrong_tops(sides: Both) -> tuple[Ints, Ints]:
    """`_wrong_rows` of the best two levels of each side alone."""
    half, deeper = [], []
    for side, sign in zip(sides, (-1, 1), strict=True):
        half.append(side.begins[np.isnan(side.best) != np.isnan(side.best_size)])
        two = side.counts > 1
        rows, best = (side.begins, side.best) if two.all() else (side.begins[two], side.best[two])
        with np.errstate(invalid="ignore"):
            worse = (side.price[rows + 1] - best) * sign
        deeper.append(rows[~(worse >= 0)] + 1)
    return np.concatenate(half), np.concatenate(deeper)


def _wrong_rows(rows: LevelRows) -> tuple[Ints, Ints]:
    """Rows with half a level, and rows below the best price that are not worse than the one before, or may not be."""
    price, size, level, side = rows.price, rows.size, rows.level, rows.side
    half, deeper = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first in range(0, len(price), _BLOCK):
        block = slice(first, first + _BLOCK)
        half.append(np.flatnonzero(np.isnan(price[block]) != np.isnan(size[block])) + first)
        start, last = max(first, 1), min(first + _BLOCK, len(price))
        here = slice(start, last)
        worse = price[here] - price[start - 1 : last - 1]
        # The price of an ask rises from level to level, that of a bid falls.
        worse *= side[here] * 2.0 - 1.0
        fine = worse >= 0
        fine |= level[here] == 0
        deeper.append(np.flatnonzero(~fine) + start)
    return np.concatenate(half), np.concatenate(deeper)


def newest(codes: NDArray[np.integer], groups: Ints) -> tuple[Ints, bool]:
    """Of each group the last position whose code is not missing (-1), or its first; whether codes differ in a group."""
    rows: Sequence[int] | Ints = groups
    if within(group_starts(codes), groups):
        return groups, False
    last = np.maximum.reduceat(np.where(codes >= 0, np.arange(len(codes)), -1), groups)
    rows = np.where(last >= 0, last, groups)
    differs = codes[np.repeat(rows, run_ends(groups, len(codes)) - groups)] != codes
    return rows, bool(differs.any())
