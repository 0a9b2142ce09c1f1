"""The order of rows: seen in one pass over the columns, and made where it is missing."""

from __future__ import annotations

from collections.abc import Callable
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


class LevelRows(NamedTuple):
    """Rows of levels, those of a side beside each other; asks are 1 in ``side``; the level of a marker row is 0."""

    ts: Ints
    side: NDArray[np.integer]
    level: Codes
    price: Floats
    size: Floats


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
        if falls * _RUN < len(found) or found.dtype.itemsize <= _DIGIT // 8:  # merged, or counted
            at: Ints = np.argsort(found, kind="stable")
            order = at if order is None else order[at]
            continue
        found = found.astype(np.int64) - found.min()
        step = int(np.gcd.reduce(found[:: max(1, len(found) // 1000)]))
        if step > 1:
            steps = found // step
            found = steps if (steps * step == found).all() else found
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


def snapshots(rows: LevelRows, groups: Ints) -> tuple[Ints, Side, Side] | None:
    """Time, bids and asks of each snapshot of tokens that begin at ``groups``; None where rows are in no tidy order.

    The marker row of an empty side is a level. Snapshots begin with their bids, be there any or none.
    """
    found = _tops(rows)
    # Each row at level 0 opens a side, so tokens begin with one.
    if found is None or rows.level[groups].any():
        return None
    tops, times, is_ask = found
    owner = np.searchsorted(tops, groups)
    step = np.diff(times, prepend=0)
    step[owner] = 1
    # A side follows that opens a snapshot, or is the asks behind the bids.
    if (step < 0).any() or not (step[1:].astype(bool) | (is_ask[1:] & ~is_ask[:-1])).all():
        return None
    opens = np.flatnonzero(step)
    starts = tops[opens]
    # The next side is the asks, or the next snapshot; or the first one was.
    after = np.append(tops, len(rows.ts))[1:][opens]
    asks = np.where(is_ask[opens], starts, after) if is_ask[opens].any() else after
    ends = run_ends(starts, len(rows.ts))
    levels = rows.price, rows.size
    return times[opens], Side(starts, asks - starts, *levels), Side(asks, ends - asks, *levels)


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
        f"{' first' if new[at] else f' after {rows.level[at - 1]}'}. Number the levels of each (token, ts, side) again."
    )


def wrong_levels(rows: LevelRows, half: Ints, worse: Ints, shown: Callable[[int], str]) -> NotTidyError:
    """NotTidyError about what `wrong_rows` found."""
    if len(half):
        return NotTidyError(
            f"A level has a price and no size, or a size and no price, first {shown(int(half.min()))}; give "
            "both, or neither for the marker row of an empty side."
        )
    first = int(worse.min())
    return NotTidyError(
        f"Level {rows.level[first]} of {shown(first)} has a better price than the one before, or one of them "
        "is missing or infinite; level 0 is the best price of its side: number the levels again."
    )


def wrong_tops(bids: Side, asks: Side) -> tuple[Ints, Ints]:
    """`wrong_rows` of the best two levels of each side alone."""
    half, worse = [], []
    for side, sign in ((bids, -1), (asks, 1)):
        half.append(side.begins[np.isnan(side.best) != np.isnan(side.best_size)])
        two = side.counts > 1
        rows, best = (side.begins, side.best) if two.all() else (side.begins[two], side.best[two])
        with np.errstate(invalid="ignore"):
            step = (side.price[rows + 1] - best) * sign
        worse.append(rows[~(step >= 0)] + 1)
    return np.concatenate(half), np.concatenate(worse)


def wrong_rows(rows: LevelRows) -> tuple[Ints, Ints]:
    """Rows with a price or a size alone, and rows whose price is better than that of the level before, or no number."""
    price, size, level, side = rows.price, rows.size, rows.level, rows.side
    half, worse = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for first in range(0, len(price), _BLOCK):
        block = slice(first, first + _BLOCK)
        # A sum is NaN where a number is: most blocks need no second look.
        if np.isnan(price[block].sum() + size[block].sum()):
            half.append(np.flatnonzero(np.isnan(price[block]) != np.isnan(size[block])) + first)
        start, last = max(first, 1), min(first + _BLOCK, len(price))
        here = slice(start, last)
        with np.errstate(invalid="ignore"):
            step = price[here] - price[start - 1 : last - 1]
        # The price of an ask rises from level to level, that of a bid falls.
        is_ask = side[here] != 0
        fine = (step >= 0) & is_ask
        fine |= (step <= 0) & ~is_ask
        fine |= level[here] == 0
        worse.append(np.flatnonzero(~fine) + start)
    return np.concatenate(half), np.concatenate(worse)


def newest(codes: NDArray[np.integer], groups: Ints) -> Ints:
    """Of each group the last position whose code is not missing (-1), or its first."""
    last = np.maximum.reduceat(np.where(codes >= 0, np.arange(len(codes)), -1), groups)
    return np.where(last >= 0, last, groups)
