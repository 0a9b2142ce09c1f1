"""Bucket sizes: the five of the service (interface 2.1), and further ones that frames and archives accept."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from marketdata.errors import ConfigError


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
        return _MICROS[self.value]

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


# Lengths of the units of durations [microseconds].
UNITS = {"s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000, "w": 604_800_000_000}


@dataclass(frozen=True)
class BucketWidth:
    """Width of buckets ``floor(t / width) * width`` from the epoch: seconds that divide a day, days, a week."""

    text: str = field(compare=False)
    micros: int
    offset: int = 0

    def __str__(self) -> str:
        return self.text

    @property
    def seconds(self) -> int:
        """Width of the bucket [seconds]."""
        return self.micros // UNITS["s"]

    def floor(self, ts: Any) -> Any:
        """Start of the bucket of a time, or of an array of them [microseconds]."""
        if not self.offset:
            return ts // self.micros * self.micros
        return (ts - self.offset) // self.micros * self.micros + self.offset

    def divides(self, other: BucketWidth) -> bool:
        """Whether each bucket of another width consists of whole buckets of this one."""
        return other.micros % self.micros == 0 and (other.offset - self.offset) % self.micros == 0

    @classmethod
    def of(cls, value: object, argument: str = "resolution") -> BucketWidth:
        """Read a bucket size as a user writes it; else a ConfigError that names the argument."""
        if isinstance(value, cls):
            return value
        text = str(value) if isinstance(value, str) else ""
        if text == "1w":  # from Monday on; the epoch was a Thursday
            return cls(text, UNITS["w"], 4 * UNITS["d"])
        match = re.fullmatch(r"([1-9][0-9]{0,5})([smhd])", text, re.ASCII)
        if match is not None:
            micros, day = int(match[1]) * UNITS[match[2]], UNITS["d"]
            if day % micros == 0 or micros % day == 0:
                return cls(text, micros)
        raise ConfigError(
            "does not exist; allowed are whole seconds, minutes or hours that divide a day (1s 30s 1m 5m 15m 1h "
            "4h ...), whole days (1d 2d ...) and 1w.",
            argument=argument,
            value=value,
        )


# The micros of each, read once: they are asked for every page.
_MICROS = {resolution.value: BucketWidth.of(resolution.value).micros for resolution in Resolution}
# The one width whose buckets do not begin at the epoch.
WEEK = BucketWidth.of("1w")
# Widths of the points that an archive stores.
BASES = {base: BucketWidth.of(base) for base in ("1s", "1m")}
