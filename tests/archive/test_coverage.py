"""Coverage: ranges against a dict of single instants, and what an answer establishes of a range."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.archive.coverage.intervals import (
    CoverageRecord,
    CoverageState,
    gaps,
    overlay,
    subtract,
    union,
)
from marketdata.archive.coverage.policy import (
    FINALIZE_AFTER,
    MINUTE,
    REFETCH_AFTER,
    SHORTEST_GAP,
    Gap,
    ServerTime,
    coverage_after,
    gaps_to_fetch,
)
from marketdata.times import Range

END = 24
FINAL, PROVISIONAL = CoverageState.FINAL, CoverageState.PROVISIONAL
# What was answered without points, once: provisional, with no rows.
EMPTY = "empty"
RECORDED, EXPIRED = CoverageState.RECORDED, CoverageState.EXPIRED
HOUR, DAY = 60, 1440
NOW = 1_000 * DAY


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    """Any range, reversed and empty ones included."""
    return Range(draw(st.integers(0, END)), draw(st.integers(0, END)))


@st.composite
def coverage_records(draw: st.DrawFn) -> list[CoverageRecord]:
    """Records in the order in which they were written; each has a row per instant."""
    return [
        CoverageRecord(one.start, one.end, draw(st.sampled_from(CoverageState)), max(0, one.end - one.start), written)
        for written, one in enumerate(draw(st.lists(ranges(), max_size=12)))
    ]


def instants(some: list[Range]) -> set[int]:
    return {t for r in some for t in range(r.start, r.end)}


@given(coverage_records(), st.integers(0, 12))
def test_the_latest_record_shows_at_every_instant(records: list[CoverageRecord], at: int) -> None:
    """Records laid over earlier ones are disjoint, show the latest at every instant, and have rows where whole."""
    latest: dict[int, CoverageRecord] = {}
    for record in records:
        latest.update(dict.fromkeys(range(record.start, record.end), record))
    before = overlay(records[:at])
    shown = overlay(records[at:], before)
    assert all(a.end <= b.start for a, b in itertools.pairwise(shown))
    assert {t: r.fetched_at for r in shown for t in range(r.start, r.end)} == {
        t: r.fetched_at for t, r in latest.items()
    }
    rows = {(r.start, r.end, r.fetched_at): r.rows for r in records}
    assert all(r.rows == rows.get((r.start, r.end, r.fetched_at)) for r in shown)


@given(st.lists(ranges(), max_size=8), st.lists(ranges(), max_size=6), ranges())
def test_gaps_and_unions_are_those_of_single_instants(some: list[Range], taken: list[Range], wanted: Range) -> None:
    """Unions, gaps and differences are the same sets of instants, in the fewest ranges."""
    assert instants(union(some)) == instants(some)
    assert instants(gaps(some, wanted)) == instants([wanted]) - instants(some)
    assert instants(subtract(some, taken)) == instants(some) - instants(taken)
    for out in (union(some), gaps(some, wanted), subtract(some, taken)):
        assert all(a.end < b.start for a, b in itertools.pairwise(out))


def at(now: int) -> ServerTime:
    return ServerTime(now * MINUTE)


def span(start: int, end: int) -> Range:
    return Range(start * MINUTE, end * MINUTE)


def known(start: int, end: int, state: CoverageState | str = FINAL) -> CoverageRecord:
    if state == EMPTY:
        return silent(start, end, 0)
    return CoverageRecord(*span(start, end), CoverageState(state), None, 0)


def answered(
    start: int, end: int, points: list[int], now: int = NOW, tries: int = 0
) -> list[tuple[int, int, str, int]]:
    times = np.array(sorted(points), dtype=np.int64) * MINUTE
    beside = known(start - DAY, start), known(end, end + DAY)
    found = coverage_after(span(start, end), times, at(now), complete=True, tries=tries, beside=beside)
    return [(r.start // MINUTE, r.end // MINUTE, str(r.state), r.tries) for r in found]


@pytest.mark.fault("AR27")
def test_only_the_last_week_of_a_silent_end_is_asked_again() -> None:
    """A market that ended a month ago is asked again for a week, not for the month."""
    ended = NOW - 30 * DAY
    found = answered(ended - DAY, NOW - 20, list(range(ended - DAY, ended)))
    assert [r[1:3] for r in found] == [(NOW - 7 * DAY, "final"), (NOW - 20, "provisional")]


def silent(start: int, end: int, asked: int) -> CoverageRecord:
    return CoverageRecord(start * MINUTE, end * MINUTE, PROVISIONAL, 0, asked * MINUTE, 1)


@pytest.mark.fault("AR27")
def test_silent_minutes_of_a_followed_market_are_asked_again_together() -> None:
    """Minutes that were answered one after the other are asked in one range, none before its hour."""
    records = [silent(n, n + 1, n + 11) for n in range(200)]
    asked = [(now, gap) for now in range(211, 400) for gap in gaps_to_fetch(records, span(0, 200), at(now))]
    now, gap = next((now, gap) for now, gap in asked)
    assert gap.start == 0
    for now, gap in asked:
        assert gap.end // MINUTE - 1 + 11 + HOUR <= now
    assert len(gaps_to_fetch(records[:1], span(0, 200), at(11 + HOUR))[:1]) == 1
    later = gaps_to_fetch(records, span(0, 200), at(211 + HOUR))
    assert later == [Gap(0, 200 * MINUTE, 1)]


@pytest.mark.fault("AR27")
@pytest.mark.parametrize(
    ("tries", "left", "right", "length", "state"),
    [
        (1, FINAL, FINAL, 59, FINAL),
        (0, FINAL, FINAL, 59, PROVISIONAL),
        (1, FINAL, FINAL, 60, PROVISIONAL),
        (1, FINAL, PROVISIONAL, 10, PROVISIONAL),
        (1, None, FINAL, 10, PROVISIONAL),
        (1, FINAL, None, 10, PROVISIONAL),
    ],
)
def test_a_pause_between_final_points_is_final_when_asked_twice(
    tries: int, left: CoverageState | None, right: CoverageState | None, length: int, state: CoverageState
) -> None:
    """Less than an hour, final on both sides, and asked before: so it is no hole."""
    end = 100 + length
    beside = [known(a, b, s) for a, b, s in ((0, 100, left), (end, 300, right)) if s is not None]
    now = at(400 + 60)
    (found,) = coverage_after(span(100, end), np.empty(0, np.int64), now, complete=True, tries=tries, beside=beside)
    assert (found.state, found.tries) == (state, 0 if state == FINAL else tries + 1)


@pytest.mark.parametrize(
    ("left", "right", "states"),
    [
        (FINAL, FINAL, ["final"]),
        (None, FINAL, ["provisional", "final"]),
        (FINAL, None, ["final", "provisional"]),
        (RECORDED, PROVISIONAL, ["provisional", "final", "provisional"]),
        (EMPTY, FINAL, ["provisional", "final"]),
        (FINAL, EMPTY, ["final", "provisional"]),
    ],
)
def test_silence_at_an_end_of_an_answer_is_judged_with_what_is_beside_it(
    left: CoverageState | str | None, right: CoverageState | str | None, states: list[str]
) -> None:
    """Twenty minutes before the first point and behind the last are final only between what is final.

    Beside forty empty minutes they are an hour without a point; beside what is not known they may be.
    """
    start, end = NOW - 300, NOW - 100
    beside = [known(start - 40, start, left)] if left else []
    beside += [known(end, end + 40, right)] if right else []
    beside += [known(start - 100, start - 40), known(end + 40, end + 50)]
    times = np.arange(start + 20, end - 20) * MINUTE
    found = coverage_after(span(start, end), times, at(NOW), complete=True, beside=beside)
    assert [str(r.state) for r in found] == states


@pytest.mark.parametrize(("length", "states"), [(59, ["final"]), (60, ["provisional", "final"])])
def test_empty_ranges_that_touch_are_one_hole(length: int, states: list[str]) -> None:
    """Silence of this answer and of two earlier ones is one hole, up to what is final."""
    start, more = NOW - 300, length - 20
    cuts = start - more - 9, start - more, start - 10, start
    beside = [known(a, b, s) for a, b, s in zip(cuts, cuts[1:], (FINAL, EMPTY, EMPTY), strict=False)]
    times = np.arange(start + 20, NOW - 200) * MINUTE
    beside.append(known(NOW - 200, NOW - 100))
    found = coverage_after(span(start, NOW - 200), times, at(NOW), complete=True, beside=beside)
    assert [str(r.state) for r in found] == states


def test_a_point_that_has_not_settled_ends_a_hole() -> None:
    """Silence up to the settle time is final if a point soon follows, and else is fetched again."""
    for last, state in ((NOW - 9, "final"), (None, "provisional")):
        points = [*range(NOW - 100, NOW - 20), *([] if last is None else [last])]
        times = np.array(points, dtype=np.int64) * MINUTE
        found = coverage_after(span(NOW - 100, NOW), times, at(NOW), complete=True, beside=[known(0, NOW - 100)])
        at_the_end = next(r for r in found if r.start < (NOW - 10) * MINUTE <= r.end)
        assert str(at_the_end.state) == state


@given(
    st.sets(st.integers(0, 3 * DAY - 1), max_size=40),
    st.integers(0, 3 * DAY),
    st.integers(1, 3 * DAY),
    st.integers(0, 12 * DAY),
    st.integers(0, 3),
)
def test_every_minute_of_an_answer_is_established_once(
    points: set[int], start: int, length: int, age: int, tries: int
) -> None:
    """Coverage after an answer is touching ranges that make it up; no hole near now is final, and no open minute."""
    end, now = start + length, start + length + age
    found = answered(start, end, list(points), now, tries)
    assert [r[0] for r in found] == [start, *(r[1] for r in found[:-1])]
    assert found[-1][1] == end
    settled = (now * MINUTE - FINALIZE_AFTER) // MINUTE
    for a, b, state, empty_answers in found:
        assert a < b
        assert (state == "provisional" and not empty_answers) == (b > settled)
    inside = sorted(p for p in points if start <= p < min(end, settled))
    final = union(span(a, b) for a, b, state, _ in found if state == "final")
    for before, after in itertools.pairwise(inside):
        if (after - before) * MINUTE > SHORTEST_GAP and tries < len(REFETCH_AFTER):
            assert gaps(final, span(before + 1, after)) == [span(before + 1, after)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.integers(1, 30),
            st.sampled_from(list(CoverageState)),
            st.integers(0, 4),
            st.integers(0, 3),
        ),
        max_size=8,
    ),
    st.integers(0, 20_000),
)
def test_what_is_asked_is_never_what_is_final(some: list[tuple[int, int, CoverageState, int, int]], now: int) -> None:
    """Gaps are disjoint and sorted; all that is neither final nor answered is in them, and nothing final."""
    records = overlay(
        CoverageRecord(*span(start, start + length), state, 0, 0, tries) for (start, length, state, tries, _) in some
    )
    asked = [gap.range for gap in gaps_to_fetch(records, span(0, 100), at(now))]
    limit = Range(0, min(100, now + 1) * MINUTE)
    assert all(a.end <= b.start for a, b in itertools.pairwise(asked))
    counting, never = (RECORDED, PROVISIONAL), (FINAL, EXPIRED)
    answered_ = [p.range for p in records if p.state in never or (p.state in counting and p.tries)]
    for gap in gaps(answered_, limit):
        assert gaps(asked, gap) == []
    for p in records:
        if p.state in (FINAL, EXPIRED):
            assert gaps(asked, p.range) == [p.range]


@pytest.mark.parametrize(
    ("points", "wanted"),
    [
        ([*range(-241, -20)], [(-300, -20, "final", 0)]),
        ([*range(-240, -20)], [(-300, -240, "provisional", 1), (-240, -20, "final", 0)]),
        ([*range(-300, -200), *range(-141, -20)], [(-300, -20, "final", 0)]),
        (
            [*range(-300, -200), *range(-140, -20)],
            [(-300, -200, "final", 0), (-200, -140, "provisional", 1), (-140, -20, "final", 0)],
        ),
        ([*range(-300, -79)], [(-300, -20, "final", 0)]),
        ([*range(-300, -80)], [(-300, -80, "final", 0), (-80, -20, "provisional", 1)]),
    ],
)
def test_an_hour_of_silence_is_a_hole_and_a_minute_less_is_none(
    points: list[int], wanted: list[tuple[int, int, str, int]]
) -> None:
    """Before the first point, between two, whose distance is then a minute more, and behind the last one."""
    found = answered(NOW - 300, NOW - 20, [NOW + n for n in points])
    assert [(a - NOW, b - NOW, state, tries) for a, b, state, tries in found] == wanted


@pytest.mark.parametrize(("after", "tries"), [(0, 3), (1, 1)])
def test_a_hole_that_ended_a_week_ago_is_asked_once_more(after: int, tries: int) -> None:
    """To the minute: what ended later is asked from the beginning."""
    end = NOW - 7 * DAY + after
    assert answered(end - 100, end + 1, [end - 100, end]) == [
        (end - 100, end - 99, "final", 0),
        (end - 99, end, "provisional", tries),
        (end, end + 1, "final", 0),
    ]
