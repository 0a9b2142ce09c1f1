"""How wide windows become by what was seen, and how ranges are cut into them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.fetch.windows import Density, MarketInfo, Window, cut
from marketdata.resolution import Resolution
from marketdata.times import Range

MINUTE = 60_000_000
FAR = 10**6


def seen(*windows: tuple[int, int], per_bucket: int = 2, limit: int = 200, parallel: int = 2) -> Density:
    """What is known after windows of so many points in so many buckets."""
    density = Density(limit, per_bucket, parallel)
    for units, buckets in windows:
        density.see(units, buckets, per_bucket)
    return density


@pytest.mark.parametrize(("per_bucket", "buckets"), [(1, 200), (2, 100), (3, 66), (200, 1), (500, 1), (0, 200)])
def test_the_first_window_is_one_full_page(per_bucket: int, buckets: int) -> None:
    """Nothing is known: so many buckets as fill a page if each has all of its points, one at least."""
    density = Density(200, per_bucket)
    assert (density.known, density.is_empty, density.full) == (False, False, buckets)
    assert density.width(FAR) == (buckets, 1)
    assert density.width(1) == (1, 1)
    assert not density.is_guess(FAR)


def test_silence_makes_windows_sixteen_times_as_wide_as_all_that_was_seen() -> None:
    """At most what is left; a point ends it."""
    density = seen((0, 100))
    assert (density.known, density.is_empty) == (True, True)
    assert density.width(FAR) == (1600, 1)
    assert density.width(700) == (700, 1)
    density.see(0, 1600, 2)
    assert density.width(FAR) == (16 * 1700, 1)
    density.see(1, 100, 2)
    assert not density.is_empty


def test_wider_than_twice_what_was_seen_is_a_guess() -> None:
    """Of all buckets together, whatever was in them."""
    density = seen((10, 60), (0, 40))
    assert [density.is_guess(n) for n in (1, 200, 201)] == [False, False, True]


def test_full_buckets_fill_a_page() -> None:
    """Where every bucket has all of its points, or more, windows are as wide as a page of them, one bucket at least."""
    assert seen((200, 100)).width(FAR) == (100, 1)
    assert seen((300, 100)).width(FAR) == (66, 1)
    assert seen((1000, 1)).width(FAR) == (1, 1)
    assert seen((200, 100)).width(30) == (30, 1)


def test_a_window_leaves_room_for_chance() -> None:
    """A page of nine tenths of the points is cut for two deviations more; with four windows for what these show."""
    assert seen(*[(180, 100)] * 3).width(FAR) == (104, 1)
    assert seen(*[(180, 100)] * 4).width(FAR) == (111, 1)
    assert seen((190, 100), (170, 100), (190, 100), (170, 100)).width(FAR) == (100, 1)


def test_sparse_points_come_by_chains_of_pages() -> None:
    """Up to eight pages behind a cursor, so few that the windows at once have work, as wide as points are expected."""
    density = seen((20, 200), per_bucket=1)
    assert density.width(FAR) == (3200, 8)
    assert density.width(12_000) == (3200, 3)
    default = Density(200, 1)
    default.see(20, 200, 1)
    assert default.width(12_000) == (3200, 3)
    assert seen((5, 10), per_bucket=0).width(FAR)[0] == seen((5, 10), per_bucket=1).width(FAR)[0]
    assert density.width(3_000) == (2000, 1)
    assert seen((20, 200), per_bucket=1, parallel=1).width(12_000)[1] == 6
    assert seen((200, 2000), per_bucket=1).width(FAR) == (1763, 1)  # of so many buckets little is chance


def test_uneven_windows_come_by_chains_of_pages() -> None:
    """Where four windows differ, the mean tells how wide a chain is; three of them are taken for chance."""
    assert seen(*[(200, 100), (0, 100)] * 2).width(1600) == (800, 4)
    wide = seen(*[(400, 2000), (0, 2000)] * 2, per_bucket=1)
    assert (wide.width(12_000), wide.width(FAR)) == ((6000, 3), (16_000, 8))
    assert seen((200, 100), (180, 100), (140, 100)).width(1600) == (106, 1)
    assert seen(*[(200, 100)] * 3, (56, 100)).width(1600) == (731, 6)
    assert seen(*[(8, 5)] * 3).width(FAR) == (100, 1)
    assert seen(*[(100, 100), (70, 100)] * 2, per_bucket=1).width(FAR) == (200, 1)  # 17 of 20 points are enough
    assert seen(*[(100, 100), (69, 100)] * 2, per_bucket=1).width(FAR)[1] == 8


def test_sixteen_windows_are_remembered() -> None:
    """What was before them does not count for the width, but for how far a guess may go."""
    density = seen((200, 100), *[(0, 100)] * 15)
    assert not density.is_empty
    density.see(0, 100, 2)
    assert density.is_empty
    assert density.width(FAR) == (16 * 1700, 1)
    assert not density.is_guess(3400)
    assert density.is_guess(3401)


@given(
    start=st.integers(-500, 500),
    length=st.integers(1, 400),
    life=st.tuples(st.none() | st.integers(-900, 900), st.none() | st.integers(0, 900)),
    resolution=st.sampled_from([Resolution.M1, Resolution.M10, Resolution.H1]),
)
def test_a_range_is_cut_where_a_life_begins_and_ends(
    start: int, length: int, life: tuple[int | None, int | None], resolution: Resolution
) -> None:
    """The parts follow each other, and a bucket is inside if any of its time is of the life (tenths of minutes)."""
    tenth, width = MINUTE // 10, resolution.micros
    begin = None if life[0] is None else life[0] * tenth
    end = None if life[1] is None else ((life[0] or 0) + life[1]) * tenth
    window = Window("prices", "market", "m", Range(start * tenth, (start + length) * tenth), resolution)
    parts = MarketInfo((), begin, end).parts(window)
    assert (parts[0][0].start, parts[-1][0].end) == window.rng
    assert all(a.end == b.start for (a, _), (b, _) in pairwise(parts))
    assert all(part.start < part.end for part, _ in parts)
    for part, is_inside in parts:
        for at in {part.start, part.end - 1, *range(part.start, part.end, tenth)}:
            bucket = at // width * width
            lives = (begin is None or bucket + width > begin) and (end is None or bucket < end)
            assert is_inside == lives


@given(start=st.integers(-500, 500), length=st.integers(1, 3000), buckets=st.integers(1, 40))
def test_a_cut_window_has_parts_of_so_many_buckets(start: int, length: int, buckets: int) -> None:
    """They follow each other, begin and end at bucket edges but for the ends of the range, as wide as may be."""
    second, width = MINUTE // 60, MINUTE
    window = Window("books", "token", "1", Range(start * second, (start + length) * second), Resolution.M1)
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
    if window.buckets > 1:
        left, right = window.halves()
        assert (left.rng.start, left.rng.end, right.rng.end) == (window.rng.start, right.rng.start, window.rng.end)
        assert left.rng.end % width == 0
        assert 0 <= right.buckets - left.buckets <= 1
