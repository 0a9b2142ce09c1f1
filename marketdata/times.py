"""Times of arguments, query parameters and points, to whole microseconds UTC and back; without a zone they are UTC.

``"-1d"`` counts back from now, and a ``period`` is a length in the place of a start or an end.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError
from marketdata.resolution import UNITS, micros_of

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    import numpy as np

TimeLike: TypeAlias = "str | float | dt.date | np.datetime64"
Duration: TypeAlias = str | dt.timedelta
SECOND, MINUTE, HOUR, DAY = (UNITS[unit] for unit in "smhd")
_BEFORE_NOW = re.compile(r"now$|[+-]\d{1,9}[A-Za-z]+$", re.ASCII)
_NO_TIME = ("", "none", "null", "nan", "nat", "<na>")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LAST = 253_402_300_800 * SECOND  # the start of the year 10000
# 1e11 s is the year 5138, 1e11 ms is 1973: a larger number is milliseconds, not a far future.
TOO_FAR = 100_000_000_000 * SECOND


class Range(NamedTuple):
    """A half-open range [start, end) of microseconds since the epoch, UTC."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"[{to_text(self.start)}, {to_text(self.end)})"


def parse_iso(text: str) -> int:
    """Microseconds of an ISO 8601 text, digits below truncated; ValueError for another text or a leap second."""
    # After a space an hour alone may be an offset whose plus was lost, and a date of 8 digits alone may be a number:
    # both need the T. Some versions of Python read 24:00.
    date = r"(?:\d{4}-\d\d-\d\d(?! \d\d(?!:))|\d{8}(?=T))"
    time = r"[Tt ](?!24)\d\d(?::?\d\d(?::?\d\d(?:[.,]\d{1,18})?)?)?"
    zone = r"[Zz]|[+-](?:[01]\d|2[0-3])(?::?[0-5]\d)?"
    if re.fullmatch(f"{date}(?:{time}(?:{zone})?)?", text, re.ASCII) is None:
        raise ValueError(f"{text[:80]!r} is not an ISO 8601 time{_dashed(text)}")
    return _of_datetime(dt.datetime.fromisoformat(text.upper()))


def first_time(record: Mapping[str, Any], *names: str) -> int | None:
    """The time of the first field with an ISO 8601 text or a Unix time [microseconds]; None if none has one."""
    for value in map(record.get, names):
        if isinstance(value, str | int | float):
            with suppress(ValueError, OverflowError):
                return parse_moment(value)
    return None


def _of_datetime(moment: dt.datetime) -> int:
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
    if aware != aware:  # noqa: PLR0124 only NaT differs from itself
        raise ValueError("it is not a time")
    return (aware - _EPOCH) // dt.timedelta(microseconds=1)


def _dashed(text: str) -> str:
    """A hint where eight digits, or slashes or dots, look like a date."""
    if re.match(r"\d{1,2}[./-]\d{1,2}[./-]\d{4}", text, re.ASCII):
        return "; write the year first, as in 2025-12-31"
    match = re.fullmatch(r"(19|20)(\d\d)([/.]?)(0\d|1[0-2])\3([0-2]\d|3[01])", text, re.ASCII)
    return f"; write {match[1]}{match[2]}-{match[4]}-{match[5]}" if match else ""


def parse_seconds(text: str) -> int:
    """Microseconds of a text of Unix seconds; ValueError if it is no plain number or must be milliseconds."""
    if re.fullmatch(r"[+-]?\d{1,18}(?:\.\d{1,18})?", text, re.ASCII) is None:
        raise ValueError(f"{text[:80]!r} is not a number of seconds")
    whole, _, fraction = text.partition(".")
    micros = abs(int(whole)) * SECOND + int(fraction[:6].ljust(6, "0") if fraction else 0)
    if micros >= TOO_FAR:
        raise ValueError(f"{text[:80]!r} is too large for Unix seconds; is it milliseconds? Divide by 1000")
    return -micros if whole.startswith("-") else micros


def parse_time(text: str) -> int:
    """Microseconds of an ISO 8601 text, or of Unix seconds with at least nine digits; ValueError for another text."""
    return parse_seconds(text) if re.fullmatch(r"\d{9,}(\.\d+)?", text, re.ASCII) else parse_iso(text)


def parse_moment(value: object) -> int:
    """Microseconds of a Unix time in any unit, a number or a text of one, or of an ISO 8601 text; else a ValueError."""
    if not isinstance(value, str):
        return unix_micros(value)
    match = re.fullmatch(r"(\d{1,20})(\.\d*)?", value, re.ASCII)
    return parse_iso(value) if match is None else unix_micros(float(value) if match[2] else int(value))


def moment_text(value: object) -> str | None:
    """The ISO 8601 text of a time in a record, which may be such a text, a Unix time in any unit, or a date.

    None for null, also as programs print it; ValueError for anything else.
    """
    if value is None or str(value).strip().lower() in _NO_TIME:
        return None
    if isinstance(value, dt.date):
        return to_text(_of_datetime(value) if isinstance(value, dt.datetime) else _micros(value))
    try:
        return to_text(parse_moment(value.strip() if isinstance(value, str) else value))
    except OverflowError as problem:
        raise ValueError(str(problem)) from None


def unix_micros(number: object) -> int:
    """Microseconds of a Unix time in s, ms, us or ns, by magnitude; ValueError outside of the years 1973 to 5138."""
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise ValueError(f"{str(number)[:80]!r} is not a Unix time")  # noqa: TRY004 data, no argument
    times, over = unix_scale(number)
    return round(number * times) // over


def unix_scale(number: float) -> tuple[int, int]:
    """The factor and divisor that make microseconds of a Unix time; ValueError as `unix_micros`."""
    for first, times, over in ((10**8, 10**6, 1), (10**11, 10**3, 1), (10**14, 1, 1), (10**17, 1, 10**3)):
        if first <= number < first * 1000:
            return times, over
    raise ValueError(f"{number!r} is not a Unix time of the years 1973 to 5138")


def to_micros(value: object, name: str, *, is_data: bool = False) -> int:
    """Microseconds since the epoch of the time argument ``name``; ConfigError outside of the years 1 to 9999.

    A datetime, date (midnight UTC), ISO text, "now", a text such as "-1d" that counts back from now, Unix seconds [s]
    as a number or a text of 9 to 11 digits (never milliseconds), numpy datetime64, pandas or polars timestamp. With
    ``is_data`` nothing counts from now.
    """
    try:
        micros = _micros(value) if is_data or not isinstance(value, str) else _before_now(value.strip())
    except (ValueError, OverflowError, TypeError) as problem:
        hint = (
            "Allowed: an ISO 8601 text such as '2026-01-31' or '2026-01-31T12:00:00Z', a date, a datetime (without a "
            "zone: UTC), Unix seconds, or a text that counts back from now, such as '-1d'."
        )
        raise ConfigError(f"cannot be read: {problem}.", argument=name, value=value, hint=hint) from None
    if not -62_135_596_800 * SECOND <= micros < _LAST:
        raise ConfigError("is outside of the years 1 to 9999.", argument=name, value=value)
    return micros


def to_duration(value: object, name: str, *, least: str = "0s", most: str | None = None, numbers: bool = False) -> int:
    """Microseconds of ``name``, a timedelta, text ("2h") or number of seconds (if ``numbers``); else ConfigError."""
    micros = micros_of(value)
    if numbers and isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < TOO_FAR // SECOND:
        micros = round(value * SECOND)
    shortest, longest = micros_of(least) or 0, math.inf if most is None else micros_of(most) or 0
    if micros is None or not shortest <= micros <= longest:
        kinds = "a timedelta, a number of seconds" if numbers else "a timedelta"
        limits = f"from {least}" if most is None else f"from {least} to {most}"
        raise ConfigError(
            f"is refused; allowed are {kinds} and texts such as 90s 30m 2h 1d 1w, {limits}.", argument=name, value=value
        )
    return micros


def to_durations(value: object, name: str, example: str, *, least: str = "0s") -> dict[str, int]:
    """Durations by their texts [microseconds], of one or of a list of different ones; else a ConfigError."""
    listed = [value] if isinstance(value, str | dt.timedelta) or not isinstance(value, Iterable) else [*value]
    out = {}
    for one in listed:
        micros = to_duration(one, name, least=least)
        out[one if isinstance(one, str) else f"{micros / SECOND:g}s"] = micros
    if not out or len({*out.values()}) < len(listed):
        problem = f"is refused; allowed is a list of different durations, such as {example}."
        raise ConfigError(problem, argument=name, value=value)
    return out


def to_range(start: TimeLike, end: TimeLike) -> Range:
    """The half-open range of two time arguments; ConfigError if one cannot be read or start is not before end."""
    out = Range(to_micros(start, "start"), to_micros(end, "end"))
    if out.start >= out.end:
        problem = f"is not before the end, {to_text(out.end)}; the start is inclusive and the end exclusive."
        raise ConfigError(problem, argument="start", value=start)
    return out


def ends_of(
    start: TimeLike | None, end: TimeLike | None, period: Duration | None
) -> tuple[TimeLike | None, TimeLike | None]:
    """The start and end of a range; a ``period`` takes the place of one of them, and without both it ends now.

    Texts that count back from now become times. ConfigError if all three are given, or for a period that is no length
    of time.
    """
    start, end = (
        to_datetime(to_micros(at, name)) if isinstance(at, str) and _BEFORE_NOW.match(at.strip()) else at
        for name, at in (("start", start), ("end", end))
    )
    if period is None:
        return start, end
    if start is not None and end is not None:
        hint = "Leave out start=, end= or period=: two of them are a range."
        raise ConfigError("is one too many beside start and end.", argument="period", value=period, hint=hint)
    if isinstance(period, str) and period == "max":
        hint = "Leave out start=, end= and period= for all of it."
        raise ConfigError("is refused.", argument="period", value=period, hint=hint)
    length = to_duration(period, "period", least="1s")
    if start is not None:
        return start, to_datetime(to_micros(start, "start") + length)
    last = now() if end is None else to_micros(end, "end")
    return to_datetime(last - length), to_datetime(last)


def now() -> int:
    """The present by the clock of this machine [microseconds]."""
    return int(SYSTEM.time() * SECOND)


def to_text(micros: int) -> str:
    """ISO 8601 in UTC with a ``Z``, such as 1970-01-01T00:00:00Z; a fraction only where there is one."""
    moment = to_datetime(micros)
    return moment.isoformat().replace("+00:00", "Z") if micros < _LAST else "10000-01-01T00:00:00Z"


def to_datetime(micros: int) -> dt.datetime:
    """Aware datetime in UTC (the last representable one for the end of the year 9999)."""
    return _EPOCH + dt.timedelta(microseconds=min(micros, _LAST - 1))


def to_zone(value: object, name: str) -> ZoneInfo:
    """A time zone by its name; ConfigError for anything else."""
    from zoneinfo import ZoneInfo

    with suppress(LookupError, ValueError, OSError):
        if isinstance(value, str):
            return ZoneInfo(value)
    allowed = "names such as 'America/New_York', 'Europe/London' and 'UTC'"
    raise ConfigError(f"is no time zone; allowed are {allowed}.", argument=name, value=value)


def _before_now(text: str) -> int:
    """The time of a text that may count back from now."""
    if text == "now":
        return now()
    if not _BEFORE_NOW.match(text):
        return _micros(text)
    if text.startswith("+") or (length := micros_of(text[1:])) is None:
        raise ValueError(f"{text[:80]!r} is not a time before now such as -90s, -30m, -2h, -1d or -1w")
    return now() - length


def _micros(value: Any) -> int:
    if type(value).__name__ == "datetime64":
        value = value.astype("datetime64[us]")
    if hasattr(value, "item"):  # of numpy
        value = value.item()
    if isinstance(value, str):
        return parse_time(value.strip())
    if isinstance(value, dt.datetime):
        return _of_datetime(value)
    if isinstance(value, dt.date):
        return (value - _EPOCH.date()).days * DAY
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{'a truth value' if isinstance(value, bool) else type(value).__name__} is not a time")
    if not abs(value) < float("inf"):
        raise ValueError("it is not finite")
    if abs(value) >= TOO_FAR // SECOND:
        raise ValueError("it is too large for Unix seconds; is it milliseconds? Divide by 1000")
    if isinstance(value, int) and (hint := _dashed(str(value))):
        raise ValueError(f"as Unix seconds it is a day of 1970{hint}, as text, if it is a date")
    return round(value * SECOND)
