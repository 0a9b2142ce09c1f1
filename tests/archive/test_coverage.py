"""Half-open interval arithmetic, against a dict of single instants."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.archive.coverage.intervals import (
    CoverageRecord,
    covered,
    cut,
    gaps,
    overlay,
    subtract,
    union,
    within,
)
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.coverage.table import _APART, _merged, _records, record_rows
from marketdata.times import Range

END = 24
STATES = list(CoverageState)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    """Any range, reversed and empty ones included."""
    return Range(draw(st.integers(0, END)), draw(st.integers(0, END)))


@st.composite
def coverage_records(draw: st.DrawFn) -> list[CoverageRecord]:
    """Records in the order in which they were made; each has one row per instant."""
    out = []
    for seq, one in enumerate(draw(st.lists(ranges(), max_size=12))):
        size = max(0, one.end - one.start)
        out.append(CoverageRecord(one.start, one.end, draw(st.sampled_from(STATES)), size, seq, seq))
    return out


def instants(some: list[Range]) -> set[int]:
    return {t for r in some for t in range(r.start, r.end)}


@pytest.mark.fault("AR29")
@given(coverage_records())
def test_the_latest_record_shows_at_every_instant(some: list[CoverageRecord]) -> None:
    """Of overlapping, touching, nested and reversed records the latest shows, and none overlap."""
    oracle: dict[int, CoverageRecord] = {}
    for record in some:
        oracle.update(dict.fromkeys(range(record.start, record.end), record))
    records = overlay(reversed(some))
    assert all(a.end <= b.start for a, b in itertools.pairwise(records))
    shown = {t: (p.state, p.seq) for p in records for t in range(p.start, p.end)}
    assert shown == {t: (c.state, c.seq) for t, c in oracle.items()}


@pytest.mark.fault("AR29")
@given(coverage_records(), st.integers(0, 12))
def test_later_records_go_onto_earlier_ones(some: list[CoverageRecord], at: int) -> None:
    """What is laid over what was laid before is all of it laid at once, and what it was laid on stays as it was."""
    before = overlay(some[:at])
    kept = list(before)
    assert overlay(some[at:], before) == overlay(some)
    assert before == kept


@pytest.mark.fault("AR29")
@given(coverage_records())
def test_a_cut_record_does_not_pretend_to_know_its_content(some: list[CoverageRecord]) -> None:
    """Rows of a part are those of its whole record, or not known."""
    whole = {(c.start, c.end, c.seq): c.rows for c in some}
    for record in overlay(some):
        assert record.rows == whole.get((record.start, record.end, record.seq))


@pytest.mark.fault("AR29")
@given(st.lists(ranges(), max_size=8), ranges())
def test_gaps_and_what_is_covered_make_the_whole(some: list[Range], wanted: Range) -> None:
    """What is covered and what is missing are disjoint and together exactly what was asked."""
    missing = gaps(some, wanted)
    assert instants(missing) == instants([wanted]) - instants(some)
    assert missing == union(missing)
    assert len(missing) <= len(union(some)) + 1


@pytest.mark.fault("AR29")
@given(st.lists(ranges(), max_size=8))
def test_union_keeps_every_instant_and_no_touching_ranges(some: list[Range]) -> None:
    """A union has the same instants in the fewest ranges."""
    out = union(some)
    assert instants(out) == instants(some)
    assert all(a.end < b.start for a, b in itertools.pairwise(out))


def merged(some: list[CoverageRecord], market: str = "m") -> list[CoverageRecord]:
    """What the coverage table makes of sorted, disjoint records of a market."""
    return _records(_merged(record_rows((("books", market), record) for record in some)).rows())


def plainly_merged(some: list[CoverageRecord]) -> list[CoverageRecord]:
    """Touching records of one state as one, record by record."""
    out: list[CoverageRecord] = []
    for record in some:
        last = out[-1] if out else None
        known = last is not None and last.rows is not None and record.rows is not None
        unknown = last is not None and last.rows is None and record.rows is None
        alike = last and (last.end, last.state, last.tries) == (record.start, record.state, record.tries)
        if alike and last and record.state == CoverageState.PROVISIONAL:
            alike = last.fetched_at // _APART == record.fetched_at // _APART  # else they are asked again apart
            alike = alike and (last.rows == 0) == (record.rows == 0)  # what is empty stays so
        if alike and last and (known or unknown):
            out[-1] = CoverageRecord(
                last.start, record.end, last.state,
                (last.rows or 0) + (record.rows or 0) if known else None,
                min(last.fetched_at, record.fetched_at), max(last.seq, record.seq),
                last.tries, max(last.commit, record.commit),
            )  # fmt: skip
        else:
            out.append(record)
    return out


@pytest.mark.fault("AR29")
@given(coverage_records(), st.randoms(use_true_random=False))
def test_merging_adds_rows(some: list[CoverageRecord], draw: random.Random) -> None:
    """Touching records of one state become one: rows add up, and it is as old as its oldest part."""
    numbered = [
        record._replace(
            state=draw.choice([CoverageState.FINAL, CoverageState.PROVISIONAL]),
            fetched_at=draw.randrange(4) * _APART // 2,
            rows=draw.choice([record.rows, 0]),
            tries=draw.randrange(2),
            commit=draw.randrange(9),
        )
        for record in some
    ]
    records = overlay(numbered)
    assert merged(records) == plainly_merged(records)


@pytest.mark.fault("AR29")
def test_records_of_two_markets_stay_apart() -> None:
    """Records that touch in time are one only where market and view are the same."""
    one = CoverageRecord(0, 5, CoverageState.FINAL, 3, 70, 8)
    two = one._replace(start=5, end=9)
    keys = ("books", "a"), ("books", "b"), ("prices", "b")
    for first, second in itertools.pairwise(keys):
        assert len(_merged(record_rows([(first, one), (second, two)]))) == 2
    assert len(_merged(record_rows([(keys[0], one), (keys[0], two)]))) == 1


@pytest.mark.fault("AR29")
@given(coverage_records(), ranges())
def test_what_lies_within_a_range_knows_its_content_where_it_is_whole(
    some: list[CoverageRecord], wanted: Range
) -> None:
    """A record inside is itself; of one that reaches out the count is not known, all else is."""
    whole = overlay(some)
    for found in within(whole, wanted):
        of = next(p for p in whole if p.start <= found.start < p.end)
        if wanted.start <= of.start and of.end <= wanted.end:
            assert found == of
        else:
            assert found == of._replace(start=found.start, end=found.end, rows=None)


@pytest.mark.fault("AR29")
@given(st.lists(ranges(), max_size=6), st.lists(ranges(), max_size=6))
def test_taking_ranges_away_leaves_the_others(wanted: list[Range], taken: list[Range]) -> None:
    """What is left is what was wanted and not taken, in the fewest ranges."""
    left = subtract(wanted, taken)
    assert instants(left) == instants(wanted) - instants(taken)
    assert left == union(left)


@pytest.mark.fault("AR29")
@given(coverage_records(), ranges())
def test_cutting_and_looking_within_are_complements(some: list[CoverageRecord], wanted: Range) -> None:
    """What lies within a range and what a cut of it leaves are disjoint and make the whole."""
    records = overlay(some)
    inside = instants([p.range for p in within(records, wanted)])
    outside = instants([left.range for p in records for left in cut(p, wanted.start, max(*wanted))])
    assert inside == instants([p.range for p in records]) & instants([wanted])
    assert outside == instants([p.range for p in records]) - instants([Range(wanted.start, max(*wanted))])


@pytest.mark.fault("AR29")
@given(coverage_records())
def test_what_is_held_is_what_is_not_missing(some: list[CoverageRecord]) -> None:
    """Only a record that says missing is not held."""
    records = overlay(some)
    shown = {t: p.state for p in records for t in range(p.start, p.end)}
    assert instants(covered(records)) == {t for t, state in shown.items() if state != CoverageState.MISSING}
