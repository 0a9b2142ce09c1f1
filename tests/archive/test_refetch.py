"""What to ask for and what an answer establishes, against a dict of single minutes."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from marketdata.archive.coverage.intervals import STATES, CoverageRecord, CoverageState, overlay
from marketdata.archive.coverage.policy import (
    ServerTime,
    answered,
    coverage_after,
    gaps_to_fetch,
    recorded_beside,
    whole_buckets,
)
from marketdata.times import Range

MINUTE = 60_000_000
HOUR = 60 * MINUTE
DAY = 24 * HOUR
# Answers without points are asked for again after an hour, a day and a week.
WAITS = (HOUR, DAY, 7 * DAY)
BEGIN = 20_000 * DAY
SPAN = 200


def at(minute: int) -> int:
    return BEGIN + minute * MINUTE


@st.composite
def spans(draw: st.DrawFn) -> Range:
    first = draw(st.integers(0, SPAN))
    return Range(at(first), at(draw(st.integers(first, SPAN))))


@st.composite
def records(draw: st.DrawFn) -> list[CoverageRecord]:
    """Disjoint records of all states, asked for at some time before."""
    out = []
    for one in draw(st.lists(spans(), max_size=6)):
        fetched = at(SPAN) + draw(st.sampled_from([0, HOUR, DAY]))
        state = draw(st.sampled_from(list(CoverageState)))
        out.append(CoverageRecord(*one, state, 0, fetched, draw(st.integers(0, 4))))
    return overlay(out)


@st.composite
def clocks(draw: st.DrawFn) -> ServerTime:
    """A clock within the span, or as far behind it as a wait is, to the microsecond."""
    minute = draw(st.integers(0, 2 * SPAN))
    wait = draw(st.sampled_from([0, *WAITS]))
    return ServerTime(at(minute) + wait + draw(st.sampled_from([-1, 0, 1, 30_000_000])), is_known=draw(st.booleans()))


def asked(record: CoverageRecord) -> int:
    """How many answers had no points there, or none beside those that were added."""
    return record.tries if record.state in (CoverageState.RECORDED, CoverageState.PROVISIONAL) else 0


def test_points_that_were_added_are_asked_for_as_the_silence_beside_them() -> None:
    """Where an answer had none beside points that were added, these are asked for when silence would be."""
    provisional, wanted = CoverageState.PROVISIONAL, Range(at(0), at(9))
    final, unverified = (CoverageState.FINAL, 0, None), (CoverageState.UNVERIFIED, 2, 0)
    silent = [(provisional, tries, after) for tries, after in enumerate((0, HOUR, DAY, 7 * DAY, None))]
    for state, tries, after in (final, unverified, *silent):
        claim = CoverageRecord(*wanted, state, 5, at(20), tries)
        record = recorded_beside(claim)
        assert record == claim._replace(state=CoverageState.RECORDED, rows=None, tries=record.tries)
        for wait in (0, HOUR, DAY, 7 * DAY, 30 * DAY):
            now = ServerTime(at(20) + wait)
            gaps = gaps_to_fetch([record], wanted, now)
            assert bool(gaps) == (after is not None and wait >= after), wait
            assert not (wait and after) or gaps == gaps_to_fetch([claim], wanted, now)


@given(records(), spans(), clocks(), st.booleans())
def test_everything_is_asked_for_that_is_not_known(
    stored: list[CoverageRecord], wanted: Range, clock: ServerTime, refresh: bool
) -> None:
    """A minute up to the one that is open now is asked for, but where it is final, or was empty not long enough ago."""
    waiting = [p for p in stored if 0 < asked(p) <= len(WAITS)]
    assume(not any(a.end == b.start for a, b in itertools.pairwise(waiting)))  # those are asked for together
    want: dict[int, int] = {}
    for minute in range(wanted.start, wanted.end, MINUTE):
        if minute > clock.now:
            continue
        record = next((p for p in stored if p.start <= minute < p.end), None)
        times = 0 if record is None else asked(record)
        if refresh or record is None or (STATES[record.state].asked != "never" and not times):
            want[minute] = 0
        elif 0 < times <= len(WAITS) and clock.now - record.fetched_at >= WAITS[times - 1]:
            want[minute] = times
    gaps = gaps_to_fetch(stored, wanted, clock, refresh=refresh)
    assert all(a.end <= b.start for a, b in itertools.pairwise(gaps))
    assert all(gap.start < gap.end for gap in gaps)
    assert {minute: gap.tries for gap in gaps for minute in range(gap.start, gap.end, MINUTE)} == want
    assert sum(gap.end - gap.start for gap in gaps) == MINUTE * len(want)
    assert all(gap.range == Range(gap.start, gap.end) for gap in gaps)


@given(st.integers(-5, 5), st.integers(-5, 5), st.integers(0, 5), st.integers(-5, 5))
def test_the_buckets_of_a_range_are_those_that_start_in_it(a: int, more: int, b: int, less: int) -> None:
    """A range of any microseconds becomes that of the minutes whose start lies in it."""
    wanted = Range(at(a) + more, at(a + b) + less)
    starts = range(*whole_buckets(wanted), MINUTE)
    assert [t for t in range(at(-10), at(20), MINUTE) if wanted.start <= t < wanted.end] == list(starts)


@given(
    st.integers(0, SPAN), st.integers(0, 60), st.sets(st.integers(0, SPAN), max_size=6), clocks(), st.booleans(),
    st.integers(0, 4),
)  # fmt: skip
@example(0, 60, set(), ServerTime(at(60) + 7 * DAY), True, 0)
@example(0, 60, set(), ServerTime(at(60) + 7 * DAY - 1), True, 0)
@example(0, 60, set(), ServerTime(at(300)), True, 3)
@example(0, 60, set(), ServerTime(at(300)), True, 2)
@example(0, 60, set(), ServerTime(at(300)), False, 2)
@example(0, 60, {50}, ServerTime(at(40)), True, 1)
@example(0, 60, {50}, ServerTime(at(40)), False, 1)
@example(0, 60, {0, 59}, ServerTime(at(300)), True, 1)
@example(0, 60, {30}, ServerTime(at(40)), True, 0)
def test_what_an_answer_of_up_to_an_hour_establishes(
    first: int, length: int, points: set[int], clock: ServerTime, complete: bool, tries: int
) -> None:
    """Settled minutes of a proven answer are final; an answer without points is only observed, until it is believed.

    What has not settled is provisional, and nothing of an answer without a proven end is more than unverified. Silence
    is
    believed once three answers had it before, or when a week has passed.
    """
    done = Range(at(first), at(first + length))
    settled = clock.final_before
    cut = max(done.start, min(settled, done.end))
    inside = [p for p in points if done.start <= at(p) < cut]
    want: dict[int, tuple[CoverageState, int]] = {}
    for minute in range(done.start, done.end, MINUTE):
        if minute >= settled:
            want[minute] = CoverageState.PROVISIONAL if complete else CoverageState.UNVERIFIED, 0
        elif not complete:
            want[minute] = CoverageState.UNVERIFIED, tries
        elif inside or tries >= 3 or clock.now - cut >= 7 * DAY:
            want[minute] = CoverageState.FINAL, 0
        else:
            want[minute] = CoverageState.PROVISIONAL, tries + 1
    times = np.array(sorted(map(at, points)), np.int64)
    # Of an hour in which a point ends the silence, before it and behind it.
    both = (at(-9), at(first)), (cut, at(999))
    beside = [CoverageRecord(a, b, CoverageState.FINAL, 1, 0) for a, b in both if inside]
    records = coverage_after(done, times, clock, complete=complete, tries=tries, beside=beside)
    assert {m: (r.state, r.tries) for r in records for m in range(r.start, r.end, MINUTE)} == want
    assert all(a.end == b.start for a, b in itertools.pairwise(records))
    assert all(r.start < r.end for r in records)
    said = {(r.rows, r.fetched_at) for r in records}
    assert said <= {(None, clock.now)}


@st.composite
def late_hours(draw: st.DrawFn) -> tuple[int, int, int, list[int], int]:
    """An hour or more that comes late, when, the times of pulls meanwhile, and how many minutes lie between points."""
    first = draw(st.integers(60, 300))
    length = draw(st.integers(60, 200))
    arrival = first + length + draw(st.integers(0, 5 * 24 * 60))
    steps = draw(st.lists(st.integers(1, 90), min_size=10, max_size=30))
    return first, length, arrival, steps, draw(st.integers(1, 20))


@settings(max_examples=10)
@given(late_hours())
@example((150, 90, 400, [60] * 20, 1))
def test_an_hour_that_comes_late_is_fetched_however_the_pulls_fall(late: tuple[int, int, int, list[int], int]) -> None:
    """Where all points of an hour come within five days, pulls over nine days have them.

    The model is a set of minutes; a range that has no rows has no point.
    """
    first, length, arrival, steps, every = late
    missing = set(range(first, first + length))
    records: list[CoverageRecord] = []
    stored: set[int] = set()
    now, pulls = 100, itertools.chain(steps, itertools.repeat(60))
    while now < 9 * 24 * 60 + arrival:
        now += next(pulls) if now < 600 else 720
        clock = ServerTime(at(now) + 30_000_000)
        there = {n for n in range(0, min(now, 600), every) if n not in missing or now >= arrival}
        asked = gaps_to_fetch(records, Range(at(0), at(600)), clock)
        times = np.array(sorted(map(at, there)), np.int64)
        beside = [r for r in records if not any(g.start < r.end and r.start < g.end for g in asked)]
        beside += [r for gap in asked for r in answered(gap.range, times, MINUTE)]
        for gap in asked:
            stored = {n for n in stored if not gap.start <= at(n) < gap.end}
            stored |= {n for n in there if gap.start <= at(n) < gap.end}
            after = coverage_after(gap.range, times, clock, complete=True, tries=gap.tries, beside=beside)
            counted = [r._replace(rows=sum(r.start <= at(n) < r.end for n in stored)) for r in after]
            records = overlay([*records, *counted])
        for r in records:
            assert r.rows != 0 or not any(r.start <= at(n) < r.end for n in stored)
    assert stored == set(range(0, 600, every))
