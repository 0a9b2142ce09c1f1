"""Which ranges of a market are stored: half-open intervals with a state [microseconds UTC]."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from marketdata.times import SECOND, Range

# Provisional ranges stay apart if they were fetched further apart than this, because they are due at other times.
_SAME_FETCH = 1800 * SECOND


class CoverageState(StrEnum):
    """The state of a range of a market's view, see `STATES`; its rows tell whether it has points.

    ``missing`` is never stored; reports use it for what is to be fetched.
    """

    FINAL = "final"
    PROVISIONAL = "provisional"
    RECORDED = "recorded"
    UNVERIFIED = "unverified"
    NOT_ALLOWED = "not_allowed"
    EXPIRED = "expired"
    MISSING = "missing"


class StateRule(NamedTuple):
    """The meaning of a state, and its consequences for reads and pulls.

    - ``asked``: whether a pull asks for the range: never, always, or once its time has come (`policy`)
    - ``has_points``: whether all points that were ever received are stored; else there are none
    - ``is_certain``: whether a read is silent about it
    """

    meaning: str
    asked: str
    has_points: bool = True
    is_certain: bool = True


# Reads, pulls and the page on archives follow this table.
STATES: dict[CoverageState, StateRule] = {
    CoverageState.FINAL: StateRule("complete; will not change", "never"),
    CoverageState.PROVISIONAL: StateRule(
        "complete when it was requested, but young, empty or with long gaps", "when its time has come", is_certain=False
    ),
    CoverageState.RECORDED: StateRule(
        "points that were added; not stated to be complete", "until the service has answered with no others"
    ),
    CoverageState.UNVERIFIED: StateRule("perhaps incomplete, or not as written", "always", is_certain=False),
    CoverageState.NOT_ALLOWED: StateRule(
        "the plan of the service refused it", "always", has_points=False, is_certain=False
    ),
    CoverageState.EXPIRED: StateRule(
        "the venue no longer keeps points as fine as these", "never", has_points=False, is_certain=False
    ),
    CoverageState.MISSING: StateRule("not requested yet, or damaged", "always", has_points=False, is_certain=False),
}


class CoverageRecord(NamedTuple):
    """The state of [start, end) and its number of rows; None only until they are counted.

    ``tries`` counts the answers without points.
    """

    start: int
    end: int
    state: CoverageState
    rows: int | None
    fetched_at: int
    tries: int = 0

    @property
    def range(self) -> Range:
        """The range of the record."""
        return Range(self.start, self.end)


def overlay(newer: Iterable[CoverageRecord], onto: Iterable[CoverageRecord] = ()) -> list[CoverageRecord]:
    """Disjoint records in time order. Where records overlap, ``newer`` wins over ``onto``, and later over earlier.

    >>> old = CoverageRecord(0, 10, CoverageState.FINAL, 5, 0)
    >>> new = CoverageRecord(4, 6, CoverageState.FINAL, 2, 0)
    >>> [(r.start, r.end, r.rows) for r in overlay([old, new])]
    [(0, 4, None), (4, 6, 2), (6, 10, None)]
    """
    records = list(onto)
    for record in newer:
        if record.start < record.end:
            first = bisect_right(records, record.start, key=lambda r: r.end)
            last = bisect_left(records, record.end, lo=first, key=lambda r: r.start)
            parts = [_part(old, part) for old in records[first:last] for part in gaps([record.range], old.range)]
            records[first:last] = sorted([*parts, record])
    return records


def without(records: Iterable[CoverageRecord], ranges: Iterable[tuple[int, int]]) -> list[CoverageRecord]:
    """The records cut to what lies outside of some ranges."""
    ranges = union(ranges)
    return [_part(record, part) for record in records for part in gaps(ranges, record.range)]


def _part(record: CoverageRecord, part: Range) -> CoverageRecord:
    """A part of a record. It has no points if the record has none; otherwise they are to be counted."""
    rows = record.rows if part == record.range or record.rows == 0 else None
    return record._replace(start=part.start, end=part.end, rows=rows)


def within(records: Iterable[CoverageRecord], wanted: Range) -> list[CoverageRecord]:
    """The records inside a range, cut at its ends."""
    first, last = wanted
    near = (r for r in records if r.start < last and r.end > first)
    return [_part(r, Range(max(r.start, first), min(r.end, last))) for r in near]


def merged(records: Iterable[CoverageRecord]) -> list[CoverageRecord]:
    """Touching counted records that are fetched again at the same time, or never, as one."""

    def kind(record: CoverageRecord) -> tuple[object, ...]:
        # An empty range tells for how long there was no point, so it stays apart from one with points.
        again = (record.fetched_at // _SAME_FETCH, record.rows == 0)
        return record.state, record.tries, again if record.state == CoverageState.PROVISIONAL else None

    out: list[CoverageRecord] = []
    for record in records:
        if out and out[-1].end == record.start and kind(out[-1]) == kind(record):
            rows = (out[-1].rows or 0) + (record.rows or 0)
            fetched_at = min(out[-1].fetched_at, record.fetched_at)
            out[-1] = out[-1]._replace(end=record.end, rows=rows, fetched_at=fetched_at)
        else:
            out.append(record)
    return out


def union(ranges: Iterable[tuple[int, int]]) -> list[Range]:
    """Disjoint sorted ranges that do not touch."""
    out: list[Range] = []
    for start, end in sorted(ranges):
        if out and start <= out[-1].end:
            out[-1] = Range(out[-1].start, max(out[-1].end, end))
        elif start < end:
            out.append(Range(start, end))
    return out


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
    return union(r.range for r in records if STATES[r.state].has_points)


def subtract(wanted: Iterable[Range], others: Iterable[Range]) -> list[Range]:
    """The parts of some ranges that none of the others covers."""
    others = union(others)
    return [part for one in union(wanted) for part in gaps(others, one)]
