"""Widths of buckets: the five of the interface (2.1), and the others that frames and archives accept."""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from marketdata.errors import ConfigError

Width: TypeAlias = str | dt.timedelta


class Resolution(StrEnum):
    """A bucket size; a bucket is ``floor(t / width) * width`` from the Unix epoch in UTC (interface 2.1).

    Examples
    --------
    >>> Resolution.of("10m").seconds
    600
    """

    M1 = "1m"
    M10 = "10m"
    H1 = "1h"
    H6 = "6h"
    D1 = "1d"

    @property
    def seconds(self) -> int:
        """Width of the bucket [seconds]."""
        return self.micros // UNITS["s"]

    @property
    def micros(self) -> int:
        """Width of the bucket [microseconds]."""
        return BucketWidth.of(self.value).micros

    @classmethod
    def of(cls, value: object) -> Resolution:
        """Read a resolution, as text or itself; ConfigError if it is none of the five."""
        if isinstance(value, str) and value in set(cls):
            return cls(value)
        text = f"does not exist; the service has {', '.join(cls)}."
        with suppress(ConfigError):
            if BucketWidth.of(value).micros > cls.M1.micros:
                text += " An archive and df.md.resample take this one too: fetch a finer one of those, and resample it."
        raise ConfigError(text, argument="resolution", value=value)


# Microseconds, so that no width needs a fraction.
UNITS = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000, "w": 604_800_000_000}


@dataclass(frozen=True)
class BucketWidth:
    """Width of buckets that begin at the epoch: 250ms to 1d if it divides a day, whole days, or a week from Monday."""

    text: str = field(compare=False)
    micros: int
    offset: int = 0

    def __str__(self) -> str:
        return self.text

    def floor(self, ts: Any) -> Any:
        """Start of the bucket of a time, or of an array of times [microseconds]."""
        if not self.offset:
            return ts // self.micros * self.micros
        return (ts - self.offset) // self.micros * self.micros + self.offset

    def divides(self, other: BucketWidth) -> bool:
        """Whether each bucket of another width consists of whole buckets of this one."""
        return other.micros % self.micros == 0 and (other.offset - self.offset) % self.micros == 0

    @classmethod
    def of_micros(cls, micros: int) -> BucketWidth:
        """A width of whole milliseconds, its text in the largest unit that divides it: "1h", "250ms"."""
        unit = next((unit for unit in "dhms" if micros % UNITS[unit] == 0), None)
        return cls(f"{micros // 1_000}ms" if unit is None else f"{micros // UNITS[unit]}{unit}", micros)

    @classmethod
    def of(cls, value: object, argument: str = "resolution") -> BucketWidth:
        """Read a width as a user writes it; a ConfigError names the argument."""
        if isinstance(value, cls):
            return value
        if isinstance(value, str) and value == "1w":  # from Monday on; the epoch was a Thursday
            return cls("1w", UNITS["w"], 4 * UNITS["d"])
        micros, day = micros_of(value), UNITS["d"]
        is_weeks = isinstance(value, str) and value.endswith("w")
        if micros is not None and micros >= 250_000 and (day % micros == 0 or micros % day == 0) and not is_weeks:
            return cls.of_micros(micros)
        near = _meant(value)
        raise ConfigError(
            "does not exist; allowed are widths from 250ms that divide a day (250ms 1s 30s 1m 5min 1h 4h ...), whole "
            "days (1d 2d ...), 1w, and a timedelta of such a length.",
            argument=argument,
            value=value,
            hint=f"Did you mean {near!r}?" if near else "",
        )


def _meant(value: object) -> str | None:
    """The width that a word such as "hourly", "1hour" or "60" may mean, if it is one."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = f"{value}s" if value % 60 else f"{value // 60}min"
    match = re.fullmatch(r"\s*(\d{0,6})\s*[-_ ]?([a-z]+)\s*", str(value).lower(), re.ASCII)
    unit = "" if match is None else next((unit for unit, words in _WORDS.items() if match[2] in words), "")
    micros = None if match is None or not unit else micros_of(f"{match[1] or 1}{unit}")
    if micros is None or not 250_000 <= micros <= UNITS["d"] * 31 or (UNITS["d"] % micros and micros % UNITS["d"]):
        return None
    return "1w" if micros == UNITS["w"] else str(BucketWidth.of_micros(micros))


_WORDS = {
    "s": ("s", "sec", "secs", "second", "seconds"), "m": ("min", "mins", "minute", "minutes", "minutely", "t"),
    "h": ("h", "hr", "hrs", "hour", "hours", "hourly"), "d": ("d", "day", "days", "daily"),
    "w": ("w", "wk", "week", "weeks", "weekly"),
}  # fmt: skip


def micros_of(value: object) -> int | None:
    """The length of a text such as "90s" or "2h", or of a timedelta [microseconds]; None for anything else."""
    if isinstance(value, dt.timedelta):
        # Only a pandas Timedelta has nanoseconds; NaT is a timedelta in name only.
        if value != value or getattr(value, "nanoseconds", False):  # noqa: PLR0124
            return None
        return value // dt.timedelta(microseconds=1)
    match = re.fullmatch(r"([0-9]{1,9})([A-Za-z]+)", value, re.ASCII) if isinstance(value, str) else None
    if match is None:
        return None
    # "M" is no unit: pandas means a month by it.
    unit = {"sec": "s", "min": "m", "hr": "h", "H": "h", "D": "d"}.get(match[2], match[2])
    length = 1_000 if unit == "ms" else UNITS.get(unit, 0)
    micros = int(match[1]) * length
    return micros if length and micros < 2**62 else None  # a sum with a time has 64 bits


# The one width whose buckets do not begin at the epoch.
WEEK = BucketWidth.of("1w")
BASES = {base: BucketWidth.of(base) for base in ("1s", "1m")}
