"""The cost of a fetch, before it is made."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marketdata.display import html_table
from marketdata.fetch.windows import WORTH_DIVIDING, Window
from marketdata.points.views import VIEWS
from marketdata.resolution import Resolution
from marketdata.times import DAY, Range

_NAMES = re.compile(rf"\b({'|'.join(Resolution)})\b")


@dataclass(frozen=True)
class Plan:
    """The cost of a fetch if every bucket of the range has its points.

    ``requests`` are pages and ``points`` token x bucket; ``minutes`` is the time at the key's ``requests_per_minute``,
    None if that is not known; ``memory`` the size of the tidy frame [bytes], with 40 levels a book; ``refused`` are the
    parts that the plan of the key does not allow.
    """

    requests: int
    points: int
    minutes: float | None
    memory: int
    refused: tuple[str, ...] = ()
    requests_per_minute: int | None = None

    def __repr__(self) -> str:
        requests = f"{self.requests:,} request{'' if self.requests == 1 else 's'}"
        line = f"{requests}, {self.points:,} points, {self._time()}, about {_size(self.memory)}."
        return "\n".join([line, *(f"refused by the plan: {part}" for part in self.refused)])

    def _time(self) -> str:
        if self.minutes is None:
            return "at a rate not known yet"
        time = f"{self.minutes:,.1f} minutes" if self.minutes >= 0.05 else "a few seconds"
        return f"{time} at {self.requests_per_minute:,} requests a minute"

    def _repr_html_(self) -> str:
        rows = [
            ("requests", f"{self.requests:,}"),
            ("points", f"{self.points:,}"),
            ("time", self._time()),
            ("memory", f"about {_size(self.memory)}"),
            *(("refused by the plan", part) for part in self.refused),
        ]
        return html_table(rows)


def make_plan(
    windows: Sequence[Window], tokens: Mapping[str, int] | int, usage: Mapping[str, Any] | None, now: int
) -> Plan:
    """The cost of uncut windows now, from the tokens of each market (a metric counts as one) and ``usage``."""
    limits = (usage or {}).get("limits")
    limits = limits if isinstance(limits, Mapping) else {}
    rate = limits.get("requests_per_minute")
    rate = rate if isinstance(rate, int) and rate > 0 else None
    pages = points = memory = 0
    refused: list[str] = []
    for window in windows:
        known = tokens if isinstance(tokens, int) else tokens.get(window.id, 2)
        count = max(1, known) if window.kind == "market" and VIEWS[window.view].has_tokens else 1
        points += window.buckets * count
        memory += window.buckets * count * VIEWS[window.view].point_bytes
        page = max(1, window.limit // count)  # it has whole buckets
        # If one request is not enough, the second one begins with the last bucket of the first.
        overlap = window.buckets > WORTH_DIVIDING * page
        pages += max(1, math.ceil((window.buckets + overlap) / page))
        refused += _refusals(window, limits, now)
    minutes = pages / rate if rate else None
    return Plan(pages, points, minutes, memory, tuple(refused), rate)


def _refusals(window: Window, limits: Mapping[str, Any], now: int) -> list[str]:
    """Parts of a window that a plan does not allow, in words."""
    out = []
    allowed = _allowed(limits.get("granularity_allowed"))
    if allowed is not None and window.resolution not in allowed:
        names = ", ".join(allowed)
        out.append(f"{window.view} of {window.kind} {window.id} at {window.resolution}: the plan allows {names}")
    days = str(limits.get("max_history_days") or "").strip()
    if days.isascii() and days.isdigit():
        first = now - int(days) * DAY
        if window.rng.start < first:
            part = Range(window.rng.start, min(first, window.rng.end))
            out.append(f"{window.view} of {window.kind} {window.id} in {part}: the plan reaches back {days} days")
    return out


def _allowed(text: object) -> list[Resolution] | None:
    """The resolutions a plan names; one name alone is the finest that it allows. None: no limit is known."""
    names = [Resolution(n) for n in _NAMES.findall(text if isinstance(text, str) else "")]
    if len(names) == 1:
        return [r for r in Resolution if r.seconds >= names[0].seconds]
    return names or None


def _size(count: int) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}" if count < 10 * size else f"{count / size:,.0f} {unit}"
    return f"{count} bytes"
