"""Half-open interval arithmetic of coverage [microseconds UTC]: later records overlay earlier ones."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from marketdata.archive.coverage.state import CoverageState
from marketdata.times import Range


class CoverageRecord(NamedTuple):
    """The state of [start, end), and its rows, None if not counted; ordered by ``seq``, then coverage ``commit``.

    ``tries`` counts the answers without points.
    """

    start: int
    end: int
    state: CoverageState
    rows: int | None
    fetched_at: int
    seq: int = 0
    tries: int = 0
    commit: int = 0

    @property
    def range(self) -> Range:
        """The range of the record."""
        return Range(self.start, self.end)


def overlay(records: Iterable[CoverageRecord], onto: Iterable[CoverageRecord] = ()) -> list[CoverageRecord]:
    """Disjoint records in time order, the latest of overlapping ones; all are later than those ``onto`` which they go.

    >>> old = CoverageRecord(0, 10, CoverageState.FINAL, 5, 0, 1)
    >>> new = CoverageRecord(4, 6, CoverageState.FINAL, 2, 0, 2)
    >>> [(r.start, r.end, r.rows) for r in overlay([old, new])]
    [(0, 4, None), (4, 6, 2), (6, 10, None)]
    """
    out = list(onto)
    for record in sorted(records, key=lambda r: (r.seq, r.commit)):
        _put_over(out, record)
    return out


def _put_over(records: list[CoverageRecord], record: CoverageRecord) -> None:
    """Overlay disjoint sorted records with another one, in place."""
    if record.start < record.end:
        first = bisect_right(records, record.start, key=lambda r: r.end)
        last = bisect_left(records, record.end, lo=first, key=lambda r: r.start)
        kept = [part for old in records[first:last] for part in cut(old, record.start, record.end)]
        records[first:last] = sorted([*kept, record], key=lambda r: r.start)


def cut(record: CoverageRecord, start: int, end: int) -> list[CoverageRecord]:
    """The parts of a record outside [start, end)."""
    if end <= record.start or record.end <= start:
        return [record]
    return [_part(record, a, b) for a, b in ((record.start, start), (end, record.end)) if a < b]


def _part(record: CoverageRecord, start: int, end: int) -> CoverageRecord:
    """A part of a record: of one without points it has none, of others nobody has counted them."""
    return record._replace(start=start, end=end, rows=0 if record.rows == 0 else None)


def within(records: Iterable[CoverageRecord], wanted: Range) -> list[CoverageRecord]:
    """The records inside a range, cut at its ends."""
    first, last = wanted
    out = []
    for record in records:
        start, end = record[:2]
        if start < last and end > first:
            whole = first <= start and end <= last
            out.append(record if whole else _part(record, max(start, first), min(end, last)))
    return out


def union(ranges: Iterable[tuple[int, int]]) -> list[Range]:
    """Disjoint, sorted, with gaps between."""
    # A followed market has a record for each round, so few steps are taken for each.
    starts, ends = list[int](), list[int]()
    for start, end in sorted(ranges):
        if start >= end:
            continue
        if ends and start <= ends[-1]:
            ends[-1] = max(ends[-1], end)
        else:
            starts.append(start)
            ends.append(end)
    return list(map(Range, starts, ends))


def gaps(others: Iterable[tuple[int, int]], wanted: Range) -> list[Range]:
    """The parts of a range that none of the others covers."""
    out, at = [], wanted.start
    for start, end in union(others):
        if at < min(start, wanted.end):
            out.append(Range(at, min(start, wanted.end)))
        at = max(at, end)
    return [*out, Range(at, wanted.end)] if at < wanted.end else out


def covered(records: Iterable[CoverageRecord]) -> list[Range]:
    """Ranges that were added, or fetched, with or without points."""
    return union(p.range for p in records if p.state != CoverageState.MISSING)


def subtract(wanted: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """The parts of some ranges that none of the others covers."""
    others = union(others)
    return [part for one in union(wanted) for part in gaps(others, one)]
