"""Refetch policy: what to fetch, and what is known after an answer. Pure: the clock is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
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
# Holes that are nearer to each other are one: a page of a market of two tokens holds so many buckets.
FEW = 100 * MINUTE
# A bucket that has closed may still change for so long: two buckets, at least ten minutes.
SETTLE = 600 * SECOND
# Without the server's clock nothing younger than this is taken as final.
SETTLE_WITHOUT_CLOCK = 86_400 * SECOND
# An answer without points is asked again after these times; then it is final.
ASK_AGAIN = (3_600 * SECOND, 86_400 * SECOND, 7 * 86_400 * SECOND)

# After so many answers without points there are none.
_BELIEVED = len(ASK_AGAIN)
# A range that is due waits for others that touch it until it has waited so many times as long.
_LATEST = 1.5


class Gap(NamedTuple):
    """A range to fetch; ``tries`` counts the answers without points so far."""

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


def to_ask(records: Iterable[CoverageRecord], wanted: Range, clock: ServerTime, *, refresh: bool = False) -> list[Gap]:
    """Ranges of ``wanted`` to fetch: what is not final, up to the live edge."""
    wanted = Range(wanted.start, min(wanted.end, clock.edge))
    if wanted.start >= wanted.end:
        return []
    if refresh:
        return [Gap(*wanted)]
    records = list(records)
    known = [p.range for p in records if p.state == CoverageState.FINAL or _asked(p)]
    again = [Gap(max(g.start, wanted.start), min(g.end, wanted.end), g.tries) for g in _due(records, clock)]
    return sorted([*(Gap(*gap) for gap in gaps(known, wanted)), *(gap for gap in again if gap.start < gap.end)])


def _asked(record: CoverageRecord) -> int:
    """How often the service answered that it has no points there, or none beside those that were added."""
    if record.state == CoverageState.EMPTY:
        return record.tries + 1
    return record.tries if record.state == CoverageState.RECORDED else 0


def recorded_beside(entry: CoverageRecord) -> CoverageRecord:
    """The record of points that were added and that the service has none for, in the range of an entry."""
    times = {CoverageState.FINAL: _BELIEVED + 1, CoverageState.EMPTY: _asked(entry)}.get(entry.state, 0)
    return entry._replace(state=CoverageState.RECORDED, tries=times, rows=None, digest=None)


def _due(records: Sequence[CoverageRecord], clock: ServerTime) -> Iterator[Gap]:
    """Ranges to fetch again: of those that touch all, once all are due or one is by half of its time.

    So the silent minutes of a market that is followed are fetched together, and not each a minute after the other.
    """
    i = 0
    while i < len(records):
        j = i
        while (
            j < len(records)
            and 0 < _asked(records[j]) <= _BELIEVED
            and (j == i or records[j - 1].end == records[j].start)
        ):
            j += 1
        run = records[i:j]
        waited = [(clock.now - p.fetched_at) / ASK_AGAIN[_asked(p) - 1] for p in run]
        if run and (min(waited) >= 1 or max(waited) >= _LATEST):
            last: Gap | None = None
            for record, share in zip(run, waited, strict=True):
                if share < 1:
                    continue
                if last is not None and (last.end, last.tries) == (record.start, _asked(record)):
                    last = last._replace(end=record.end)
                else:
                    if last is not None:
                        yield last
                    last = Gap(record.start, record.end, _asked(record))
            if last is not None:
                yield last
        i = max(j, i + 1)


def with_pauses(entries: Iterable[CoverageRecord], held: Iterable[CoverageRecord]) -> Iterator[CoverageRecord]:
    """Records where silences of less than an hour between recorded and final ranges are final too.

    The silent minutes of a market that is followed are fetched one by one, before the next point shows how long they
    last. They have to be fetched twice: just after its time a point may only be late.
    """
    final = [p for p in held if p.state == CoverageState.FINAL]
    ends, starts = {p.end for p in final}, {p.start for p in final}
    for entry in entries:
        is_pause = entry.state == CoverageState.EMPTY and entry.tries and entry.end - entry.start < HOLE
        if is_pause and entry.start in ends and entry.end in starts:
            yield entry._replace(state=CoverageState.FINAL, tries=0)
        else:
            yield entry


def established(done: Range, times: Ints, clock: ServerTime, *, proven: bool, tries: int = 0) -> list[CoverageRecord]:
    """What is known of the range ``done`` after an answer; rows and hashes are filled in when it is stored.

    An hour or more without a point is observed empty, as an answer without points is: near now a source may only be
    late. Long ago such a hole between two points is fetched again once, after a week. Holes with few points between are
    one record. ``proven``: whether the end of the pagination was; ``tries``: answers without points before.
    """
    cut = min(max(clock.settled, done.start), done.end)
    out = _settled(Range(done.start, cut), times, clock, proven=proven, tries=tries) if done.start < cut else []
    if cut < done.end:
        state = CoverageState.PROVISIONAL if proven else CoverageState.UNPROVEN
        out.append(_record(cut, done.end, state, clock, 0))
    return out


def _settled(done: Range, times: Ints, clock: ServerTime, *, proven: bool, tries: int) -> list[CoverageRecord]:
    """What is known of a range whose buckets will not change."""
    if not proven:
        return [_record(*done, CoverageState.UNPROVEN, clock, tries)]
    inside = np.unique(times[(times >= done.start) & (times < done.end)])
    # Long ago nothing more will come.
    old = clock.now - ASK_AGAIN[-1]
    if tries >= _BELIEVED or (not len(inside) and done.end <= old):
        return [_record(*done, CoverageState.FINAL, clock, 0)]
    out: list[CoverageRecord] = []
    at = done.start
    for start, end, asked in _holes(done, inside, old):
        if start > at:
            out.append(_record(at, start, CoverageState.FINAL, clock, 0))
        out.append(_record(start, end, CoverageState.EMPTY, clock, max(tries, asked)))
        at = end
    if at < done.end:
        out.append(_record(at, done.end, CoverageState.FINAL, clock, 0))
    return out


def _holes(done: Range, inside: Ints, old: int) -> list[Gap]:
    """Silences of an hour or more with their tries: all near now, long ago those between points.

    Those of equal age with fewer points between than a page are one: fetching them together takes no more requests.
    """
    if not len(inside):
        return [Gap(*done)]
    once = _BELIEVED - 1
    # Before the first point and behind the last one a market may just not be active: long ago that is final.
    recent = max(done.start, -(-old // MINUTE) * MINUTE)
    first, last = int(inside[0]), int(inside[-1]) + MINUTE
    found = [Gap(recent, first)] if first - recent >= HOLE else []
    for i in np.flatnonzero(np.diff(inside) > HOLE).tolist():
        start, end = int(inside[i]) + MINUTE, int(inside[i + 1])
        found.append(Gap(start, end, once if end <= old else 0))
    if done.end - max(last, recent) >= HOLE:
        found.append(Gap(max(last, recent), done.end))
    out: list[Gap] = []
    for hole in found:
        before = out[-1] if out else None
        if before is not None and before.tries == hole.tries and hole.start - before.end < FEW:
            out[-1] = before._replace(end=hole.end)
        else:
            out.append(hole)
    return out


def _record(start: int, end: int, state: CoverageState, clock: ServerTime, tries: int) -> CoverageRecord:
    return CoverageRecord(start, end, state, None, None, clock.now, 0, tries)


def minutes(some: Iterable[Gap]) -> int:
    """How many buckets the gaps have."""
    return sum((r.end - r.start) // MINUTE for r in union(g.range for g in some))
