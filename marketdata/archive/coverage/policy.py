"""Refetch policy: what to fetch, and the coverage after an answer. Pure: the clock is an argument.

`intervals.STATES` says which states a pull asks for. The rules here say when, and each keeps a promise. Simpler ones
were tried: they lost late data without a word, or asked 75 times as much.

=====================================  =========================================================================
rule                                   promise
=====================================  =========================================================================
a bucket is settled ten minutes after  what is final does not change: `ServerTime.final_before`
its end, by the earlier clock
an answer without points is asked for  late data arrives: `_due`, after the times of `REFETCH_AFTER`
again after an hour, a day and a week
ranges that touch are asked together   a followed market costs no request for each empty minute: `_due`
an hour without points is a hole,      a source that is late for an hour is not believed: `_holes`
judged as an answer without points
a hole at an end of a range is judged  the cut between two pulls changes nothing: `_silence`, `answered`
with what is adjacent
an old hole between points is asked    data that arrived within a week is found, and old markets are not asked
for once more                          for ever: `_holes`
between points of a sparse source      the coverage of a quiet market stays a few records: `_holes`
nothing is a hole
an old range without points is final   an inactive time costs one request; a market that was traded is not
at once, unless the market was traded  believed to be empty: `coverage_after`
added points are asked for as the      own points never hide what the service has: `recorded_beside`
silence around them
=====================================  =========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from marketdata.archive.coverage.intervals import STATES, CoverageRecord, CoverageState, gaps
from marketdata.points.columns import Ints
from marketdata.resolution import Resolution
from marketdata.times import DAY, SECOND, Range

MINUTE = Resolution.M1.micros
# An hour without points is a gap; points that are an hour apart have only 59 empty buckets between them.
SHORTEST_GAP = 60 * MINUTE
# Gaps nearer to each other are fetched as one, because a page of two tokens has 100 buckets.
SAME_GAP = 100 * MINUTE
# A bucket may still change for so long after its end, or for two buckets if that is longer.
FINALIZE_AFTER = 600 * SECOND
# Without the server's clock nothing younger than this counts as final.
FINALIZE_AFTER_WITHOUT_CLOCK = DAY
# A range without points is fetched again after these times; then it is final.
REFETCH_AFTER = (60 * MINUTE, DAY, 7 * DAY)

_MOST_TRIES = len(REFETCH_AFTER)
# A range that is due waits for touching ones, at most until this multiple of its time.
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
    """The time, how far the server is ahead of it, and the width of a bucket [microseconds].

    ``is_known``: whether the service told its time.
    """

    now: int
    ahead: int = 0
    width: int = MINUTE
    is_known: bool = True

    @property
    def final_before(self) -> int:
        """Buckets that start before this will not change."""
        settle = max(FINALIZE_AFTER if self.is_known else FINALIZE_AFTER_WITHOUT_CLOCK, 2 * self.width)
        return (self.now - settle) // self.width * self.width

    @property
    def edge(self) -> int:
        """End of the bucket that is open by the server's clock: nothing later can be known."""
        return (self.now + self.ahead) // self.width * self.width + self.width


def whole_buckets(wanted: Range, width: int = MINUTE) -> Range:
    """The range of the buckets that start inside a range."""
    return Range(-(-wanted.start // width) * width, -(-wanted.end // width) * width)


def gaps_to_fetch(
    records: Iterable[CoverageRecord], wanted: Range, clock: ServerTime, *, refresh: bool = False
) -> list[Gap]:
    """Ranges of ``wanted`` to fetch: what is not final, up to the live edge."""
    wanted = Range(wanted.start, min(wanted.end, clock.edge))
    if wanted.start >= wanted.end:
        return []
    if refresh:
        return [Gap(*wanted)]
    records = list(records)
    settled = [p[:2] for p in records if STATES[p.state].asked == "never" or _empty_answers(p)]
    again = [Gap(max(g.start, wanted.start), min(g.end, wanted.end), g.tries) for g in _due(records, clock)]
    return sorted([*(Gap(*gap) for gap in gaps(settled, wanted)), *(gap for gap in again if gap.start < gap.end)])


def _empty_answers(record: CoverageRecord) -> int:
    """The number of times that the service answered with no points there, or none beside those that are stored."""
    return record.tries if record.state in (CoverageState.RECORDED, CoverageState.PROVISIONAL) else 0


def recorded_beside(entry: CoverageRecord) -> CoverageRecord:
    """The record of points in the range of ``entry`` that were added, and that the service does not have."""
    times = _MOST_TRIES + 1 if entry.state == CoverageState.FINAL else _empty_answers(entry)
    return entry._replace(state=CoverageState.RECORDED, tries=times, rows=None)


def _due(records: Sequence[CoverageRecord], clock: ServerTime) -> Iterator[Gap]:
    """Ranges to fetch again: all that touch, once all are due or one is overdue by half of its time."""
    # The empty minutes of a followed market are fetched together, and not one each minute.
    runs: list[list[CoverageRecord]] = []
    for record in records:
        # Most records count no empty answers, and are passed over quickly.
        if record.tries and 0 < _empty_answers(record) <= _MOST_TRIES:
            if not (runs and runs[-1][-1].end == record.start):
                runs.append([])
            runs[-1].append(record)
    for run in runs:
        waited = [(clock.now - r.fetched_at) / REFETCH_AFTER[_empty_answers(r) - 1] for r in run]
        if min(waited) >= 1 or max(waited) >= _LATEST:
            due = (Gap(r.start, r.end, _empty_answers(r)) for r, share in zip(run, waited, strict=True) if share >= 1)
            yield from _joined(due, 1)


def _joined(gaps: Iterable[Gap], distance: int) -> list[Gap]:
    """Gaps with equal tries that are nearer to each other than a distance, as one."""
    out: list[Gap] = []
    for gap in gaps:
        if out and out[-1].tries == gap.tries and gap.start - out[-1].end < distance:
            out[-1] = out[-1]._replace(end=gap.end)
        else:
            out.append(gap)
    return out


def answered(done: Range, times: Ints, width: int) -> Iterator[CoverageRecord]:
    """An answer as what lies beside another one: empty, final from its first point to its last one, empty."""
    inside = times[(times >= done.start) & (times < done.end)]
    first, last = (int(inside.min()), int(inside.max()) + width) if len(inside) else (done.end, done.end)
    for start, end in ((done.start, first), (last, done.end)):
        if start < end:
            yield CoverageRecord(start, end, CoverageState.PROVISIONAL, 0, 0, tries=1)
    if first < last:
        yield CoverageRecord(first, last, CoverageState.FINAL, None, 0)


def coverage_after(
    done: Range,
    times: Ints,
    clock: ServerTime,
    *,
    complete: bool,
    tries: int = 0,
    beside: Iterable[CoverageRecord] = (),
    is_traded: bool = False,
    is_sparse: bool = False,
) -> list[CoverageRecord]:
    """The coverage of a fetched range; rows are filled in when it is stored.

    An hour or more without a point is observed empty, as an answer without points is: near now a source may only be
    late. Long ago such a hole between two points is fetched again once, after a week. A hole that reaches an end of the
    range is judged with what lies ``beside`` it, and without that is observed empty, however short. Holes with few
    points between are one record, provisional as it has points. ``complete`` says whether the pages are known to be
    complete, ``tries`` how many answers were empty before. ``is_traded``: an answer without any point is asked for
    again, however old it is. ``is_sparse``: the service has no point of a bucket in which nothing changed, so between
    points nothing is lacking.
    """
    cut = min(max(clock.final_before, done.start), done.end)
    state = CoverageState.PROVISIONAL if complete else CoverageState.UNVERIFIED
    young = [_record(cut, done.end, state, clock, 0)] if cut < done.end else []
    if done.start == cut:
        return young
    if not complete:
        return [_record(done.start, cut, state, clock, tries), *young]
    # Points behind the settle time are not settled yet, but they end a hole.
    beside, done = [*beside, *answered(Range(cut, done.end), times, clock.width)], Range(done.start, cut)
    inside = np.unique(times[(times >= done.start) & (times < done.end)])
    before = _silence({p.end: p for p in beside}, done.start)
    after = _silence({p.start: p for p in beside}, done.end)
    # Nothing arrives that late.
    old = clock.now - REFETCH_AFTER[-1]
    # An empty range is fetched before the next point shows its length, and a point may be late. So less than an hour
    # between points is final once it was fetched twice.
    is_pause = tries > 0 and before + done.end - done.start + after < SHORTEST_GAP
    if tries >= _MOST_TRIES or (not len(inside) and ((done.end <= old and not is_traded) or is_pause)):
        return [_record(*done, CoverageState.FINAL, clock, 0), *young]
    holes = _holes(done, inside, old, before, after, clock.width, is_sparse=is_sparse)
    waiting = [_record(*hole[:2], CoverageState.PROVISIONAL, clock, max(tries, hole.tries) + 1) for hole in holes]
    final = gaps((hole[:2] for hole in holes), done)
    return sorted([*waiting, *(_record(*one, CoverageState.FINAL, clock, 0) for one in final), *young])


def _silence(touching: Mapping[int, CoverageRecord], at: int) -> int:
    """How long nothing is stored from ``at`` to the next final range; if that is unknown an hour, which is a hole."""
    length = 0
    # A range younger than the settle time, without an answer that counts, neither ends a hole nor adds to it.
    waiting = CoverageState.PROVISIONAL
    while (record := touching.get(at)) is not None and record.state == waiting and record.tries and record.rows == 0:
        length += record.end - record.start
        at = record.start if record.end == at else record.end
    return length if record is not None and record.state == CoverageState.FINAL else SHORTEST_GAP


def _holes(done: Range, inside: Ints, old: int, before: int, after: int, width: int, *, is_sparse: bool) -> list[Gap]:
    """Ranges of an hour or more without points, and their tries: all near now, long ago those between points.

    ``before`` and ``after``: how long it is empty on both sides of the range.
    """
    # Holes of equal age that are less than a page apart are one, because they take one request together.
    once = _MOST_TRIES - 1
    if not len(inside):
        return [Gap(*done, once if done.end <= old else 0)]
    # A market may not be active before its first point or after its last one. Long ago, such silence is final.
    recent = max(done.start, -(-old // width) * width)
    first, last = int(inside[0]), int(inside[-1]) + width
    holes = [Gap(recent, first)] if recent < first and before + first - done.start >= SHORTEST_GAP else []
    for i in () if is_sparse else np.flatnonzero(np.diff(inside) > SHORTEST_GAP).tolist():
        start, end = int(inside[i]) + width, int(inside[i + 1])
        holes.append(Gap(start, end, once if end <= old else 0))
    if max(last, recent) < done.end and done.end - last + after >= SHORTEST_GAP:
        holes.append(Gap(max(last, recent), done.end))
    return _joined(holes, SAME_GAP)


def _record(start: int, end: int, state: CoverageState, clock: ServerTime, tries: int) -> CoverageRecord:
    return CoverageRecord(start, end, state, None, clock.now, tries)
