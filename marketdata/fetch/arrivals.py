"""Points of a page against those that arrived before: what is new, what came twice, what may still change."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from marketdata.errors import ContractError
from marketdata.fetch.position import Position, digests
from marketdata.times import SECOND, to_text
from marketdata.wire.columns import AnyColumns, Page, concat

Key = tuple[str, int]


class Fresh(NamedTuple):
    """Points that were not there before, and the (label, t) and digest of each."""

    columns: AnyColumns
    keys: list[Key]
    digests: list[bytes]


def sift(at: Position, page: Page, date: float | None, notes: Counter[str]) -> Fresh:
    """The points of a page that are new, or newer in a bucket that was still open when they came.

    Raises
    ------
    ContractError
        If a point of a closed bucket comes twice with different values.
    """
    request = at.request
    columns = page.columns.between(request.first_bucket, request.rng.end)
    if len(columns) < page.points:
        notes["outside_range"] += page.points - len(columns)
    if any(np.any(np.diff(columns.ts[columns.token == code]) < 0) for code in range(len(columns.tokens))):
        notes["points_sorted"] += 1
        at.falls = True
        columns = columns.sort()
    held = set() if at.held is None else set(keys_of(at.held))
    keys, marks = keys_of(columns), digests(columns)
    kept: dict[Key, int] = {}
    for index, (key, mark) in enumerate(zip(keys, marks, strict=True)):
        label, t = key
        before = marks[kept[key]] if key in kept else at.seen.get(label, {}).get(t)
        if before == mark:
            notes["duplicate_points"] += 1
            continue
        if before is not None:
            if not (key in held or (key in kept and _is_open(at, t, date))):
                who = f"{request}: {label or 'the market'} at {to_text(t)}"
                raise ContractError(f"{who} came twice with different values.")
            notes["open_bucket_changed"] += 1
        kept[key] = index
    rows = sorted(kept.values())
    if len(rows) == len(keys):
        return Fresh(columns, keys, marks)
    fresh = columns.take(np.array(rows, dtype=np.int64))
    return Fresh(fresh, [keys[i] for i in rows], [marks[i] for i in rows])


def keep(at: Position, fresh: Fresh) -> list[Key]:
    """Remember what arrived; the points that were not there in any version."""
    new: list[Key] = []
    for key, mark in zip(fresh.keys, fresh.digests, strict=True):
        points = at.seen.setdefault(key[0], {})
        if key[1] not in points:
            new.append(key)
        points[key[1]] = mark
    if new:
        least, most = min(t for _, t in new), max(t for _, t in new)
        if at.last is None:
            at.late = least - at.request.rng.start > at.request.rng.end - most
        else:
            at.in_time_order &= least >= at.last
            # Behind a restart all points are later, whatever their order.
            at.risen |= at.cursor is not None and least >= at.last
        at.last = most if at.last is None else max(most, at.last)
    return new


def hold(at: Position, fresh: Fresh, date: float | None) -> AnyColumns:
    """Hold back the points of open buckets, for a later version may come; the points that are settled."""
    changed = set() if at.held is None else set(keys_of(at.held)) & set(fresh.keys)
    wait = np.array([key in changed or _is_open(at, key[1], date) for key in fresh.keys], dtype=bool)
    if not wait.any():
        return fresh.columns
    waiting = fresh.columns.take(np.flatnonzero(wait))
    if at.held is not None:
        stay = np.array([key not in changed for key in keys_of(at.held)], dtype=bool)
        waiting = join(at.held.take(np.flatnonzero(stay)), waiting)
    at.held = waiting
    return fresh.columns.take(np.flatnonzero(~wait))


def join(first: AnyColumns, second: AnyColumns) -> AnyColumns:
    """Entries of both, one kind of columns."""
    return concat([first, second])  # type: ignore[type-var]


def keys_of(columns: AnyColumns) -> list[Key]:
    """(label, t) of each entry; the label of a metric is an empty text."""
    names = [t.token_label or "" for t in columns.tokens]
    return [(names[c], t) for c, t in zip(columns.token.tolist(), columns.ts.tolist(), strict=True)]


def _is_open(at: Position, t: int, date: float | None) -> bool:
    """Whether a bucket had not ended by the server's own clock; an answer without a date is taken as settled."""
    return date is not None and t + at.request.resolution.micros > date * SECOND
