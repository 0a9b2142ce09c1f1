"""What ``usage`` says about the plan of a key, whatever types it has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marketdata.resolution import BucketWidth
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
    """All fields that an answer of ``usage`` has, those of its ``limits`` too."""
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
