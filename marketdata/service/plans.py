"""Plans: the rights and the rate of a key (interface sections 5 and 8)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marketdata.errors import ConfigError
from marketdata.points.views import VIEWS
from marketdata.resolution import Resolution
from marketdata.service import errors

# Length of a day [s], and requests a minute of a plan that names none.
DAY = 86_400
DEFAULT_REQUESTS_PER_MINUTE = 60_000
_PLAN_ENTRIES = ("requests_per_minute", "resolutions", "views", "max_history_days")


class EntryError(ConfigError):
    """An entry of a plan or key was refused: ``entry``, its name, or None for the whole table."""

    def __init__(self, message: str, entry: str | None = None) -> None:
        super().__init__(message)
        self.entry = entry


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """The rights of a key: requests in any 60 s, resolutions, views, and lookback [days] (None: unlimited)."""

    name: str
    requests_per_minute: int = DEFAULT_REQUESTS_PER_MINUTE
    resolutions: tuple[str, ...] = tuple(r.value for r in Resolution)
    views: tuple[str, ...] = tuple(VIEWS)
    max_history_days: float | None = None

    @classmethod
    def read(cls, name: str, table: Mapping[str, Any]) -> AccessPlan:
        """A plan from its table in the key file; EntryError if a name or value is not allowed."""
        check_entries(f"Plan {name!r}", table, _PLAN_ENTRIES)
        plan = cls(name)
        rate = table.get("requests_per_minute", plan.requests_per_minute)
        if not isinstance(rate, int) or isinstance(rate, bool) or rate < 1:
            raise EntryError(
                f"Plan {name!r}: requests_per_minute={rate!r} is not a whole number above 0.", "requests_per_minute"
            )
        days = table.get("max_history_days")
        is_number = isinstance(days, int | float) and not isinstance(days, bool)
        if days is not None and not (is_number and 0 < days < math.inf):
            raise EntryError(
                f"Plan {name!r}: max_history_days={days!r} is not a number above 0; leave it out for all.",
                "max_history_days",
            )
        return cls(
            name,
            rate,
            _some_of(name, "resolutions", table.get("resolutions", plan.resolutions), plan.resolutions),
            _some_of(name, "views", table.get("views", plan.views), tuple(VIEWS)),
            days,
        )

    def check(self, view: str, resolution: str, start: int, now: float) -> None:
        """HTTPException 403 for what the plan does not allow; a range may begin exactly at the bound."""
        if view not in self.views:
            raise errors.view_not_allowed(view)
        if resolution not in self.resolutions:
            raise errors.resolution_not_allowed(resolution, self.resolutions)
        if self.max_history_days is not None and start < (now - self.max_history_days * DAY) * 1e6:
            raise errors.lookback_not_allowed(self.max_history_days)


def check_entries(what: str, table: Any, allowed: tuple[str, ...]) -> None:
    """EntryError for a table of the key file with an unknown entry."""
    if not isinstance(table, Mapping):
        raise EntryError(f"{what} is {table!r}; it needs a table of entries such as {allowed[0]}.")
    for name in table:
        if name not in allowed:
            raise EntryError(f"{what} has the unknown entry {name!r}; allowed are {', '.join(allowed)}.", name)


def _some_of(plan: str, name: str, given: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [g for g in given if g not in allowed] if isinstance(given, list | tuple) else [given]
    if wrong:
        raise EntryError(f"Plan {plan!r}: {name} has {wrong}; allowed are {list(allowed)}.", name)
    return tuple(a for a in allowed if a in given)
