"""How ranges are cut into windows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from marketdata.fetch.windows import MarketInfo, Window
from marketdata.resolution import BucketWidth
from marketdata.times import Range

MINUTE = 60_000_000


@given(
    start=st.integers(-500, 500),
    length=st.integers(1, 400),
    active=st.tuples(st.none() | st.integers(-900, 900), st.none() | st.integers(0, 900)),
    resolution=st.sampled_from([BucketWidth.of("1m"), BucketWidth.of("10m"), BucketWidth.of("1h")]),
)
def test_the_active_range_is_the_buckets_between_begin_and_end(start, length, active, resolution) -> None:
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
