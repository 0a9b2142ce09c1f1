"""Times and durations as users write them."""

from __future__ import annotations

import datetime as dt
import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.errors import ConfigError
from marketdata.resolution import UNITS, BucketWidth
from marketdata.times import ends_of, now, to_duration, to_micros, to_range, to_text


@pytest.mark.fault("T3", "T9")
def test_times_of_a_question_are_read_as_users_write_them() -> None:
    """Aware, naive, date, text, seconds and numpy name the same instant; junk and milliseconds are refused."""
    want = 1_767_225_600_000_000
    zone = dt.timezone(dt.timedelta(hours=2))
    for value in (
        "2026-01-01",
        "2026-01-01T00:00Z",
        "2026-01-01 02:00+02:00",
        "2026-01-01T02+02",
        "20260101T000000Z",
        "20260101T020000.000+0200",
        dt.date(2026, 1, 1),
        dt.datetime(2026, 1, 1),  # noqa: DTZ001 the naive case
        dt.datetime(2026, 1, 1, 2, tzinfo=zone),
        pd.Timestamp("2026-01-01"),
        pd.Timestamp("2026-01-01 02:00", tz=zone),
        np.datetime64("2026-01-01"),
        1_767_225_600,
        1_767_225_600.0,
        "1767225600",
        np.int64(1_767_225_600),
    ):
        assert to_micros(value, "start") == want, value
    for impossible in ("2026-01-01T23:59:60Z", "2026-01-01T24:00:00Z", "2026-13-01T00:00:00Z"):
        with pytest.raises(ConfigError, match="start"):
            to_range(impossible, "2027-01-01")
    for bad in ("yesterday", "", None, True, float("nan"), pd.NaT, object(), [], "2026", "20260101", 1e300):
        with pytest.raises(ConfigError, match="start="):
            to_micros(bad, "start")
    for milliseconds in (1_767_225_600_000, "1767225600000", 1.7672256e12):
        with pytest.raises(ConfigError, match="milliseconds"):
            to_micros(milliseconds, "start")
    with pytest.raises(ConfigError, match="not before"):
        to_range("2026-01-02", "2026-01-01")
    with pytest.raises(ConfigError, match="not before"):
        to_range("2026-01-01", "2026-01-01")


@pytest.mark.fault("T10")
def test_questions_are_sent_in_the_z_form() -> None:
    """No plus sign can be lost in a query."""
    assert to_text(to_micros("2026-01-01T05:30:00.250+05:30", "start")) == "2026-01-01T00:00:00.250000Z"


@pytest.mark.fault("T11")
def test_arithmetic_is_exact_utc_everywhere() -> None:
    """Nights of clock changes, 1969 and the epoch itself are ordinary."""
    assert to_micros("1970-01-01", "start") == 0 == to_micros(0, "start")
    assert to_micros("1969-12-31T23:59:59.5Z", "start") == -500_000 == to_micros(-0.5, "start")
    assert to_micros("2026-03-29T03:00+02:00", "start") - to_micros("2026-03-29T01:59+01:00", "start") == 60_000_000


@pytest.mark.parametrize(
    ("value", "seconds"), [("90s", 90), ("30min", 1800), ("2H", 7200), ("1d", 86_400), ("1w", 604_800), ("0s", 0)]
)
def test_a_duration_is_a_text_or_a_timedelta(value, seconds) -> None:
    """Both are exact microseconds; a number of seconds only where it is said to be one, within the limits."""
    for one in (value, dt.timedelta(seconds=seconds)):
        assert to_duration(one, "tolerance") == seconds * 1_000_000
    assert to_duration(dt.timedelta(microseconds=1), "tolerance") == 1
    with pytest.raises(ConfigError, match=r"tolerance=.*a timedelta and texts such as 90s"):
        to_duration(seconds, "tolerance")
    if 1 <= seconds <= 86_400:
        for one in (value, seconds, float(seconds)):
            assert to_duration(one, "every", least="1s", most="1d", numbers=True) == seconds * 1_000_000
    else:
        with pytest.raises(ConfigError, match=r"every=.*a number of seconds and texts.*from 1s to 1d"):
            to_duration(seconds, "every", least="1s", most="1d", numbers=True)


NOT_A_DURATION = ["", "s", "1", "1.5h", "-1s", " 1s", "1 s", "1S", "1y", "1234567890s", "\u0661s"]


@pytest.mark.parametrize("value", [*NOT_A_DURATION, None, True, math.nan, math.inf, [1], dt.timedelta(-1)])
def test_what_is_no_duration_is_refused(value) -> None:
    """The error names the argument, whether or not numbers are taken."""
    for numbers in (False, True):
        with pytest.raises(ConfigError, match="after="):
            to_duration(value, "after", numbers=numbers)


@given(amount=st.integers(1, 400), unit=st.sampled_from(["s", "m", "h", "d", "w"]))
def test_a_time_may_count_back_from_now(amount: int, unit: str) -> None:
    """A text such as -3d is that long before the present, with and without blanks."""
    before = now()
    for text in (f"-{amount}{unit}", f" -{amount}{unit} "):
        at = to_micros(text, "start")
        assert 0 <= at + amount * UNITS[unit] - before < 10_000_000


@given(
    start=st.one_of(st.none(), st.integers(10**9, 2 * 10**9)), end=st.one_of(st.none(), st.integers(10**9, 2 * 10**9)),
    seconds=st.integers(1, 10**7),
)  # fmt: skip
def test_a_period_takes_the_place_of_a_start_or_an_end(start: int | None, end: int | None, seconds: int) -> None:
    """The range is as long as the period, and with neither time it ends now; with both it is refused."""
    if start is not None and end is not None:
        with pytest.raises(ConfigError, match="one too many beside start and end"):
            ends_of(start, end, f"{seconds}s")
        return
    first, last = to_range(*ends_of(start, end, dt.timedelta(seconds=seconds)))  # type: ignore[arg-type]
    assert last - first == seconds * 1_000_000
    assert start is None or first == start * 1_000_000
    assert end is None or last == end * 1_000_000
    assert start is not None or end is not None or 0 <= now() - last < 10_000_000


def test_what_cannot_count_from_now_is_refused() -> None:
    """Times in data never count from now, the future does not, and an unknown unit says which ones there are."""
    for bad in ("-1mo", "+1d", "-1y", "-d", "- 1d"):
        with pytest.raises(ConfigError, match=r"start=.*cannot be read"):
            to_micros(bad, "start")
    for text in ("now", "-1d"):
        with pytest.raises(ConfigError, match="resolved_at"):
            to_micros(text, "resolved_at", is_data=True)
    with pytest.raises(ConfigError, match=r"period='max'.*Leave out start="):
        ends_of(None, None, "max")
    with pytest.raises(ConfigError, match=r"period='1mo'.*2h 1d 1w"):
        ends_of(None, None, "1mo")


@given(st.integers(1, 90), st.sampled_from(["hour", "hours", "minute", "mins", "second", "day", "days", "hr"]))
def test_a_width_in_words_is_told_the_one_that_it_means(count: int, word: str) -> None:
    """The hint of the error is a width that is allowed and as long; where there is none, there is no hint."""
    unit = next(unit for unit in UNITS if word.startswith(unit))
    for text in (f"{count}{word}", f"{count} {word}", f"{count}-{word}".upper()):
        with pytest.raises(ConfigError, match="resolution=") as refused:
            BucketWidth.of(text)
        meant = refused.value.hint.removeprefix("Did you mean '").removesuffix("'?")
        assert not meant or BucketWidth.of(meant).micros == count * UNITS[unit]
    for text, width in (("hourly", "1h"), ("daily", "1d"), ("1 week", "1w"), (60, "1m"), (3600, "1h")):
        with pytest.raises(ConfigError, match=f"Did you mean '{width}'"):
            BucketWidth.of(text)
