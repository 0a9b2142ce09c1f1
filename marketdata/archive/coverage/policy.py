"""Refetch policy: what to ask for, and what an answer establishes. Pure: the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from marketdata.archive.coverage.intervals import CoverageRecord, gaps, union
from marketdata.archive.coverage.state import CoverageState
from marketdata.resolution import Resolution
from marketdata.times import SECOND, Range
from marketdata.wire.columns import Ints

MINUTE = Resolution.M1.micros
# So much silence between two points is a hole: the distance of points that are an hour apart has 59 empty buckets.
HOLE = 60 * MINUTE
# A bucket that has closed may still change for so long: two buckets, at least ten minutes.
SETTLE = 600 * SECOND
# Without the server's clock nothing younger than this is believed to be settled.
SETTLE_WITHOUT_CLOCK = 86_400 * SECOND
# An answer without points is asked again after these times; then it is believed.
ASK_AGAIN = (3_600 * SECOND, 86_400 * SECOND, 7 * 86_400 * SECOND)


class Gap(NamedTuple):
    """A range to ask for; ``tries`` counts the answers without points that it already had."""

    start: int
    end: int
    tries: int = 0

    @property
    def range(self) -> Range:
        """The range of the gap."""
        return Range(self.start, self.end)


class ServerTime(NamedTuple):
    """The server's time, and how long its buckets take to settle [microseconds]."""

    now: int
    settle: int = SETTLE

    @property
    def settled(self) -> int:
        """Buckets that start before this will not change."""
        return (self.now - self.settle) // MINUTE * MINUTE

    @property
    def edge(self) -> int:
        """End of the bucket that is open now: nothing later can be known."""
        return self.now // MINUTE * MINUTE + MINUTE


def whole_minutes(wanted: Range) -> Range:
    """The range of the 1m buckets that start inside of a range."""
    return Range(-(-wanted.start // MINUTE) * MINUTE, -(-wanted.end // MINUTE) * MINUTE)


def to_ask(pieces: Iterable[CoverageRecord], wanted: Range, clock: ServerTime, *, refresh: bool = False) -> list[Gap]:
    """Ranges of ``wanted`` to fetch: what is not final, up to the live edge."""
    wanted = Range(wanted.start, min(wanted.end, clock.edge))
    if wanted.start >= wanted.end:
        return []
    if refresh:
        return [Gap(*wanted)]
    known: list[Range] = []
    again: list[Gap] = []
    for piece in pieces:
        start, end = max(piece.start, wanted.start), min(piece.end, wanted.end)
        if start >= end:
            continue
        if piece.state == CoverageState.EMPTY:
            known.append(Range(start, end))
            if clock.now >= piece.fetched_at + ASK_AGAIN[min(piece.tries, len(ASK_AGAIN) - 1)]:
                again.append(Gap(start, end, piece.tries + 1))
        elif piece.state == CoverageState.FINAL:
            known.append(Range(start, end))
    return sorted([*(Gap(*gap) for gap in gaps(known, wanted)), *again])


def established(done: Range, times: Ints, clock: ServerTime, *, proven: bool, tries: int = 0) -> list[CoverageRecord]:
    """What an answer for the range ``done`` establishes; rows and hashes are filled in when it is stored.

    A gap of an hour or more between two points (``times``) is observed empty, as an answer without points is: near now
    a source may only be late. Long ago it is fetched again once, after a week. ``proven``: whether the end of the
    pagination was; ``tries``: answers without points that the range had before.
    """
    cut = min(max(clock.settled, done.start), done.end)
    out = _settled(Range(done.start, cut), times, clock, proven=proven, tries=tries) if done.start < cut else []
    if cut < done.end:
        state = CoverageState.PROVISIONAL if proven else CoverageState.UNPROVEN
        out.append(_record(cut, done.end, state, clock, 0))
    return out


def _settled(done: Range, times: Ints, clock: ServerTime, *, proven: bool, tries: int) -> list[CoverageRecord]:
    """What is established of a range whose buckets will not change."""
    if not proven:
        return [_record(*done, CoverageState.UNPROVEN, clock, tries)]
    inside = np.unique(times[(times >= done.start) & (times < done.end)])
    old = clock.now - ASK_AGAIN[-1]
    if not len(inside):
        # Long ago nothing more will come.
        believed = done.end <= old or tries >= len(ASK_AGAIN)
        return [_record(*done, CoverageState.FINAL if believed else CoverageState.EMPTY, clock, tries)]
    out: list[CoverageRecord] = []
    at = done.start
    for i in np.flatnonzero(np.diff(inside) > HOLE).tolist():
        first, last = int(inside[i]) + MINUTE, int(inside[i + 1])
        if tries < len(ASK_AGAIN):
            out.append(_record(at, first, CoverageState.FINAL, clock, 0))
            once = len(ASK_AGAIN) - 1 if last <= old else 0
            out.append(_record(first, last, CoverageState.EMPTY, clock, max(tries, once)))
            at = last
    out.append(_record(at, done.end, CoverageState.FINAL, clock, 0))
    return out


def _record(start: int, end: int, state: CoverageState, clock: ServerTime, tries: int) -> CoverageRecord:
    return CoverageRecord(start, end, state, None, None, clock.now, 0, tries)


def minutes(some: Iterable[Gap]) -> int:
    """How many buckets the gaps have."""
    return sum((r.end - r.start) // MINUTE for r in union(g.range for g in some))
