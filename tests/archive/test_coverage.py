"""Half-open interval arithmetic, against a dict of single instants."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.archive.coverage.intervals import (
    CoverageRecord,
    CoverageState,
    cut,
    gaps,
    merged,
    overlay,
    subtract,
    union,
    within,
)
from marketdata.times import Range

pytestmark = pytest.mark.fault("AR29")
END = 24


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


@given(coverage_records())
def test_merging_adds_the_rows_of_touching_records(records: list[CoverageRecord]) -> None:
    """Merged records have the same states and rows at every instant, and equal final ones no longer touch."""
    counted = [r._replace(rows=r.end - r.start) for r in overlay(records)]
    out = merged(counted)
    assert {t: r.state for r in out for t in range(*r.range)} == {t: r.state for r in counted for t in range(*r.range)}
    assert all(r.rows == r.end - r.start for r in out)
    assert not any(a.end == b.start and a.state == b.state == "final" for a, b in itertools.pairwise(out))


@given(st.lists(ranges(), max_size=8), st.lists(ranges(), max_size=6), ranges())
def test_gaps_and_unions_are_those_of_single_instants(some: list[Range], taken: list[Range], wanted: Range) -> None:
    """Unions, gaps and differences are the same sets of instants, in the fewest ranges."""
    assert instants(union(some)) == instants(some)
    assert instants(gaps(some, wanted)) == instants([wanted]) - instants(some)
    assert instants(subtract(some, taken)) == instants(some) - instants(taken)
    for out in (union(some), gaps(some, wanted), subtract(some, taken)):
        assert all(a.end < b.start for a, b in itertools.pairwise(out))


@given(coverage_records(), ranges())
def test_cutting_and_looking_within_are_complements(records: list[CoverageRecord], wanted: Range) -> None:
    """What lies within a range and what a cut of it leaves are disjoint and make the whole."""
    shown, end = overlay(records), max(*wanted)
    every = instants([r.range for r in shown])
    assert instants([r.range for r in within(shown, wanted)]) == every & instants([wanted])
    remaining = [part.range for r in shown for part in cut(r, wanted.start, end)]
    assert instants(remaining) == every - instants([Range(wanted.start, end)])
