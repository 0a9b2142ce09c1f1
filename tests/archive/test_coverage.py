"""Half-open interval arithmetic, against a dict of single instants."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.archive.coverage.intervals import CoverageRecord, cut, gaps, held, merged, overlay, union, within
from marketdata.archive.coverage.state import CoverageState
from marketdata.times import Range

END = 24
STATES = list(CoverageState)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    """Any range, reversed and empty ones included."""
    return Range(draw(st.integers(0, END)), draw(st.integers(0, END)))


@st.composite
def coverage_records(draw: st.DrawFn) -> list[CoverageRecord]:
    """Records in the order in which they were made; each holds one row per instant."""
    out = []
    for seq, one in enumerate(draw(st.lists(ranges(), max_size=12))):
        size = max(0, one.end - one.start)
        digest = sum(hash((t, seq)) for t in range(one.start, one.end)) % 2**64
        out.append(CoverageRecord(one.start, one.end, draw(st.sampled_from(STATES)), size, digest, seq, seq))
    return out


def instants(some: list[Range]) -> set[int]:
    return {t for r in some for t in range(r.start, r.end)}


@pytest.mark.fault("AR29")
@given(coverage_records())
def test_the_latest_claim_shows_at_every_instant(some: list[CoverageRecord]) -> None:
    """Of overlapping, touching, nested and reversed records the latest shows, and none overlap."""
    oracle: dict[int, CoverageRecord] = {}
    for record in some:
        oracle.update(dict.fromkeys(range(record.start, record.end), record))
    pieces = overlay(reversed(some))
    assert all(a.end <= b.start for a, b in itertools.pairwise(pieces))
    shown = {t: (p.state, p.seq) for p in pieces for t in range(p.start, p.end)}
    assert shown == {t: (c.state, c.seq) for t, c in oracle.items()}


@pytest.mark.fault("AR29")
@given(coverage_records())
def test_a_cut_claim_does_not_pretend_to_know_its_content(some: list[CoverageRecord]) -> None:
    """Rows and hash of a part are those of its whole record, or not known."""
    whole = {(c.start, c.end, c.seq): (c.rows, c.digest) for c in some}
    for piece in overlay(some):
        assert (piece.rows, piece.digest) == whole.get((piece.start, piece.end, piece.seq), (None, None))


@pytest.mark.fault("AR29")
@given(st.lists(ranges(), max_size=8), ranges())
def test_gaps_and_held_make_the_whole(some: list[Range], wanted: Range) -> None:
    """What is held and what is missing are disjoint and together exactly what was asked."""
    missing = gaps(some, wanted)
    assert instants(missing) == instants([wanted]) - instants(some)
    assert missing == union(missing)
    assert len(missing) <= len(union(some)) + 1


@pytest.mark.fault("AR29")
@given(st.lists(ranges(), max_size=8))
def test_union_keeps_every_instant_and_no_touching_ranges(some: list[Range]) -> None:
    """A union holds the same instants in the fewest ranges."""
    out = union(some)
    assert instants(out) == instants(some)
    assert all(a.end < b.start for a, b in itertools.pairwise(out))


@pytest.mark.fault("AR29")
@given(coverage_records())
def test_merging_adds_rows_and_hashes(some: list[CoverageRecord]) -> None:
    """Merged pieces show the same states at the same instants, and their rows and hashes add up."""
    pieces = overlay(some)
    out = merged(pieces)
    assert {t: p.state for p in out for t in range(p.start, p.end)} == {
        t: p.state for p in pieces for t in range(p.start, p.end)
    }
    assert sum(p.rows or 0 for p in out) == sum(p.rows or 0 for p in pieces)
    assert sum(p.digest or 0 for p in out) % 2**64 == sum(p.digest or 0 for p in pieces) % 2**64


@pytest.mark.fault("AR29")
@given(coverage_records(), ranges())
def test_cutting_and_looking_within_are_complements(some: list[CoverageRecord], wanted: Range) -> None:
    """What lies within a range and what a cut of it leaves are disjoint and make the whole."""
    pieces = overlay(some)
    inside = instants([p.range for p in within(pieces, wanted)])
    outside = instants([left.range for p in pieces for left in cut(p, wanted.start, max(*wanted))])
    assert inside == instants([p.range for p in pieces]) & instants([wanted])
    assert outside == instants([p.range for p in pieces]) - instants([Range(wanted.start, max(*wanted))])


@pytest.mark.fault("AR29")
@given(coverage_records())
def test_what_is_held_is_what_is_not_missing(some: list[CoverageRecord]) -> None:
    """Only a record that says missing is not held."""
    pieces = overlay(some)
    shown = {t: p.state for p in pieces for t in range(p.start, p.end)}
    assert instants(held(pieces)) == {t for t, state in shown.items() if state != CoverageState.MISSING}
