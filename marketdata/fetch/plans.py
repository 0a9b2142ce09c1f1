"""The plan of a key as ``usage`` names it, and the cost of a fetch before it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from marketdata.display import html_table
from marketdata.fetch.windows import MarketInfo, Window
from marketdata.points.views import VIEWS
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, Range
from marketdata.vendors import widths_in


@dataclass(frozen=True)
class PlanLimits:
    """Limits of the plan of a key; None, or no resolutions, where ``usage`` does not say.

    ``remaining`` requests of this minute are restored at ``reset_at`` [Unix s]. Several ``resolutions`` are all that
    the plan allows; a single one is the finest. ``history_days`` is how far back the plan reaches.
    """

    requests_per_minute: int | None = None
    remaining: int | None = None
    reset_at: float | None = None
    requests_per_day: int | None = None
    resolutions: tuple[BucketWidth, ...] = ()
    history_days: float | None = None

    def allows(self, width: BucketWidth) -> bool:
        """Whether the plan allows a resolution, as far as is known."""
        if len(self.resolutions) > 1:
            return width in self.resolutions
        return all(width.micros >= finest.micros for finest in self.resolutions)


def read_usage(usage: Any) -> PlanLimits:
    """The limits that an answer of ``usage`` names; what cannot be read is left out."""
    fields = usage_fields(usage)
    rate = _number(fields.get("requests_per_minute"))
    remaining = _number(fields.get("requests_remaining"))
    daily = next((fields[name] for name in fields if re.search(r"per_day|daily", name) and "remain" not in name), None)
    per_day = _number(daily)
    return PlanLimits(
        requests_per_minute=int(rate) if rate is not None and rate >= 1 else None,
        remaining=None if remaining is None else int(remaining),
        reset_at=_number(fields.get("reset_at")),
        requests_per_day=int(per_day) if per_day else None,
        resolutions=tuple(widths_in(fields.get("granularity_allowed"))),
        history_days=_number(fields.get("max_history_days")) or None,
    )


def usage_fields(usage: Any) -> dict[str, Any]:
    """All fields of an answer of ``usage`` and of its ``limits``."""
    if not isinstance(usage, Mapping):
        return {}
    limits = usage.get("limits")
    return {**(limits if isinstance(limits, Mapping) else {}), **usage}


def _number(value: object) -> float | None:
    """A number that is not negative, also as the first one of a text such as "30 days"."""
    if isinstance(value, str):
        match = re.match(r"\s*(\d{1,3}(?:,\d{3})+|\d{1,12}(?:\.\d{1,6})?)(?![\w.,])", value, re.ASCII)
        value = float(match[1].replace(",", "")) if match is not None else None
    return float(value) if type(value) in (int, float) and 0 <= value < 1e15 else None  # type: ignore[operator,arg-type]


@dataclass(frozen=True)
class Plan:
    """The cost of a fetch if every bucket of a market's active range has its points.

    ``requests`` counts pages, and ``points`` one per token and bucket. ``minutes`` is the time at the key's
    ``requests_per_minute``; both are None if unknown. ``memory`` is the size of the tidy frame [bytes] with 40 levels
    per book. ``refused`` names the ranges that the plan of the key does not allow. ``requests_per_day`` is its daily
    quota, None if it has none.
    """

    requests: int
    points: int
    minutes: float | None
    memory: int
    refused: tuple[str, ...] = ()
    requests_per_minute: int | None = None
    requests_per_day: int | None = None

    @property
    def days(self) -> int | None:
        """Days that the daily quota of the key takes; None if it has none."""
        return None if self.requests_per_day is None else math.ceil(self.requests / self.requests_per_day)

    def __repr__(self) -> str:
        requests = f"{self.requests:,} request{'' if self.requests == 1 else 's'}"
        line = f"{requests}, {self.points:,} points, {self._time()}, about {_size(self.memory)}."
        return "\n".join([line, *(f"refused by the plan: {part}" for part in self.refused)])

    def _time(self) -> str:
        if self.minutes is None:
            return "at a rate not known yet"
        time = f"{self.minutes:,.1f} minutes" if self.minutes >= 0.05 else "a few seconds"
        text = f"{time} at {self.requests_per_minute:,} requests a minute"
        if self.days is None or self.days <= 1:
            return text
        return f"{text}, {self.days:,} days at {self.requests_per_day:,} requests a day"

    def _repr_html_(self) -> str:
        cost = repr(self).partition("\n")[0]
        return html_table([("cost", cost), *(("refused by the plan", part) for part in self.refused)])


def make_plan(
    windows: Sequence[Window],
    infos: Mapping[str, MarketInfo],
    limits: PlanLimits,
    now: int,
    requests_of: Callable[[Window, int], float],
) -> Plan:
    """The cost of uncut windows, by the tokens and active range of each market and the plan of the key.

    ``requests_of`` gives the requests that a window takes, by its number of tokens.
    """
    points = memory = 0
    shares = 0.0
    refused: list[str] = []
    for window in windows:
        info = infos.get(window.id, MarketInfo())
        tokens = info.labels(window) or 2
        part = replace(window, rng=info.active_range(window))
        active = max(0, part.buckets)
        points += active * tokens
        memory += active * tokens * VIEWS[window.view].point_bytes
        shares += requests_of(part, tokens) if active else 1
        refused += _refusals(window, limits, now)
    requests, rate = math.ceil(round(shares, 6)), limits.requests_per_minute
    minutes = requests / rate if rate else None
    return Plan(requests, points, minutes, memory, tuple(refused), rate, limits.requests_per_day)


def _refusals(window: Window, limits: PlanLimits, now: int) -> list[str]:
    """Ranges of a window that a plan does not allow, in words."""
    out, what = [], f"{window.view} of {window.kind} {window.id}"
    if not limits.allows(window.resolution):
        names = ", ".join(map(str, limits.resolutions)) + (" and coarser" if len(limits.resolutions) == 1 else "")
        out.append(f"{what} at {window.resolution}: the plan allows {names}")
    if limits.history_days is not None:
        first = now - round(limits.history_days * DAY)
        if window.rng.start < first:
            part = Range(window.rng.start, min(first, window.rng.end))
            out.append(f"{what} in {part}: the plan reaches back {limits.history_days:g} days")
    return out


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 10 * size else f"{count / size:,.0f} {unit}"
    return f"{count} bytes"
