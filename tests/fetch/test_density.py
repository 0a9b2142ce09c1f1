"""How wide windows become by what was seen, and how ranges are cut into them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from reference.oracle import cut

from marketdata.fetch.windows import MarketInfo, Spans, Window
from marketdata.resolution import BucketWidth
from marketdata.times import Range

MINUTE = 60_000_000


def seen(*pages: tuple[int, int]) -> Spans:
    """Estimates after full pages of a market of two tokens, given as (filled buckets, buckets)."""
    spans = Spans(2, 200)
    for full, buckets in pages:
        spans.add(np.full(full, 2), buckets, is_full=True)
    return spans


def test_full_buckets_make_windows_of_full_pages() -> None:
    """In full data a window ends where a page does, and has at least one bucket."""
    assert [seen((100, 100)).width(pages) for pages in (1, 2, 16)] == [100, 200, 1600]
    assert seen((1, 1)).width(1) >= 1


def test_windows_are_narrower_by_what_chance_adds() -> None:
    """A window is a little narrower than its pages; where pages differ by more than chance, it is not."""
    assert 210 < seen((100, 120)).width(2) < 240
    assert 340 < seen((100, 200)).width(2) < 400
    assert seen((100, 100), (100, 300)).width(2) == 400


def test_a_cut_costs_more_where_pages_differ() -> None:
    """Half a page where pages are alike, a whole one where they differ or no full page arrived."""
    assert seen((100, 100), (100, 120)).expected_overfetch == 0.5
    assert seen().expected_overfetch == seen((100, 100), (100, 400)).expected_overfetch == 1.0


def test_silence_is_as_wide_as_it_may_be() -> None:
    """Pages without a point count as if they had one; before the first page nothing is missing."""
    spans = seen()
    assert spans.buckets == 100
    spans.add(np.zeros(0, np.int64), 100, is_full=False)
    assert spans.buckets == 20_000


@given(
    start=st.integers(-500, 500),
    length=st.integers(1, 400),
    active=st.tuples(st.none() | st.integers(-900, 900), st.none() | st.integers(0, 900)),
    resolution=st.sampled_from([BucketWidth.of("1m"), BucketWidth.of("10m"), BucketWidth.of("1h")]),
)
def test_the_active_range_is_the_buckets_between_begin_and_end(
    start: int, length: int, active: tuple[int | None, int | None], resolution: BucketWidth
) -> None:
    """A bucket is active if any of its time is (tenths of minutes)."""
    tenth, width = MINUTE // 10, resolution.micros
    begin = None if active[0] is None else active[0] * tenth
    end = None if active[1] is None else ((active[0] or 0) + active[1]) * tenth
    window = Window("prices", "market", "m", Range(start * tenth, (start + length) * tenth), resolution)
    active = MarketInfo((), begin, end).active_range(window)
    for at in range(window.first_bucket, window.rng.end, width):
        is_active = (begin is None or at + width > begin) and (end is None or at < end)
        assert (active.start < at + width and at < active.end) == is_active
    assert active.start >= window.rng.start
    assert active.end <= window.rng.end


@given(start=st.integers(-500, 500), length=st.integers(1, 3000), buckets=st.integers(1, 40))
def test_a_cut_window_has_parts_of_so_many_buckets(start: int, length: int, buckets: int) -> None:
    """They follow each other, begin and end at bucket edges but for the ends of the range, as wide as may be."""
    second, width = MINUTE // 60, MINUTE
    window = Window("books", "token", "1", Range(start * second, (start + length) * second), BucketWidth.of("1m"))
    parts = list(cut(window, buckets))
    assert parts[0].rng.start == window.rng.start
    assert parts[-1].rng.end == window.rng.end
    assert all(a.rng.end == b.rng.start and a.rng.end % width == 0 for a, b in pairwise(parts))
    assert all(part.buckets == buckets for part in parts[:-1])
    assert (
        sum(part.buckets for part in parts) == window.buckets == len({at // width for at in range(*window.rng, second)})
    )
    assert window.limit == 200  # the most that a page may hold
    assert window.first_bucket == window.rng.start // width * width
