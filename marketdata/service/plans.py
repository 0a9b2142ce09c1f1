"""What a key may ask: the plan of interface sections 5 and 8."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marketdata.errors import ConfigError
from marketdata.resolution import Resolution
from marketdata.service import refusals
from marketdata.wire.columns import VIEWS

DAY = 86_400
DEFAULT_REQUESTS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The rights of a key.

    Parameters
    ----------
    name : str
        Name of the plan, shown by ``/v1/usage``.
    requests_per_minute : int
        Requests that pass in any 60 seconds.
    resolutions : tuple of str
        Allowed resolutions.
    views : tuple of str
        Allowed history views: books, prices, metrics.
    max_history_days : float or None
        How far back a range may begin [days]; None: without bound.
    """

    name: str
    requests_per_minute: int = DEFAULT_REQUESTS_PER_MINUTE
    resolutions: tuple[str, ...] = tuple(r.value for r in Resolution)
    views: tuple[str, ...] = VIEWS
    max_history_days: float | None = None

    @classmethod
    def read(cls, name: str, table: Mapping[str, Any]) -> Plan:
        """A plan from its table in the key file.

        Raises
        ------
        ConfigError
            If a name or value is not one of those allowed.
        """
        plan = cls(name)
        known = {"requests_per_minute", "resolutions", "views", "max_history_days"}
        unknown = sorted(set(table) - known)
        if unknown:
            raise ConfigError(f"Plan {name!r} has unknown entries {unknown}; allowed are {sorted(known)}.")
        rate = table.get("requests_per_minute", plan.requests_per_minute)
        if not isinstance(rate, int) or isinstance(rate, bool) or rate < 1:
            raise ConfigError(f"Plan {name!r}: requests_per_minute={rate!r} is not a whole number above 0.")
        days = table.get("max_history_days")
        is_number = isinstance(days, int | float) and not isinstance(days, bool)
        if days is not None and not (is_number and 0 < days < math.inf):
            raise ConfigError(
                f"Plan {name!r}: max_history_days={days!r} is not a number above 0; leave it out for all."
            )
        return cls(
            name,
            rate,
            _some_of(name, "resolutions", table.get("resolutions", plan.resolutions), plan.resolutions),
            _some_of(name, "views", table.get("views", plan.views), VIEWS),
            days,
        )

    def check(self, view: str, resolution: str, start: int, now: float) -> None:
        """Refuse what the plan does not allow.

        Parameters
        ----------
        view, resolution : str
            What is asked.
        start : int
            Start of the range [microseconds]; the border instant itself is allowed.
        now : float
            Unix time [seconds].

        Raises
        ------
        Refusal
            403 that names the view, resolution or lookback.
        """
        if view not in self.views:
            raise refusals.view_not_allowed(view)
        if resolution not in self.resolutions:
            raise refusals.resolution_not_allowed(resolution, self.resolutions)
        if self.max_history_days is not None and start < (now - self.max_history_days * DAY) * 1e6:
            raise refusals.lookback_not_allowed(self.max_history_days)

    @property
    def granularity_allowed(self) -> str:
        """Allowed resolutions as ``/v1/usage`` shows them."""
        return ",".join(self.resolutions)

    @property
    def history_days(self) -> str:
        """Lookback as ``/v1/usage`` shows it."""
        return "unlimited" if self.max_history_days is None else f"{self.max_history_days:g}"


def _some_of(plan: str, name: str, given: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [g for g in given if g not in allowed] if isinstance(given, list | tuple) else [given]
    if wrong:
        raise ConfigError(f"Plan {plan!r}: {name} has {wrong}; allowed are {list(allowed)}.")
    return tuple(a for a in allowed if a in given)


@dataclass(frozen=True, slots=True)
class Grant:
    """Who a request is from: the name of a key (never the key) and its plan."""

    key_id: str
    plan: Plan
    organization: str | None = None
