"""Plans: the rights and the rate of a key (interface sections 5 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from marketdata.errors import ConfigError
from marketdata.points.views import VIEWS
from marketdata.resolution import Resolution
from marketdata.service import errors

# Length of a day [s], and requests a minute of a plan that names none: more than one client can send.
DAY = 86_400
DEFAULT_REQUESTS_PER_MINUTE = 60_000


class EntryError(ConfigError):
    """An entry of a plan or key was refused: ``entry``, its name, or None for the whole table."""

    def __init__(self, message: str, entry: str | None = None) -> None:
        super().__init__(message)
        self.entry = entry


class Table(BaseModel):
    """A table of the key file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @classmethod
    def read(cls, what: str, table: Any) -> dict[str, Any]:
        """The entries of a table; EntryError for the first that is missing, unknown, or not allowed."""
        try:
            return {name: value for name, value in cls.model_validate(table)}  # noqa: C416  keys is a field too
        except ValidationError as problem:
            first = problem.errors(include_url=False)[0]
        if not first["loc"]:
            raise EntryError(f"{what} is {table!r}; it needs a table of {', '.join(cls.model_fields)}.")
        name = str(first["loc"][0])
        if first["type"] == "missing":
            raise EntryError(f"{what} has no {name}.", name)
        if first["type"] == "extra_forbidden":
            known = ", ".join(cls.model_fields)
            raise EntryError(f"{what} has the unknown entry {name!r}; allowed are {known}.", name)
        raise EntryError(
            f"{what}: {name}={table[name]!r} is refused: {first['msg'].removeprefix('Value error, ')}.", name
        )


def _some_of(allowed: Sequence[str]) -> Any:
    """Some of the allowed texts, in their order."""

    def check(given: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [one for one in given if one not in allowed]
        if wrong:
            raise ValueError(f"{wrong} not among {', '.join(allowed)}")
        return tuple(one for one in allowed if one in given)

    return Annotated[tuple[str, ...], Field(strict=False), AfterValidator(check)]


class _PlanTable(Table):
    requests_per_minute: int = Field(DEFAULT_REQUESTS_PER_MINUTE, ge=1)
    resolutions: _some_of([r.value for r in Resolution]) = tuple(r.value for r in Resolution)  # type: ignore[valid-type]
    views: _some_of(tuple(VIEWS)) = tuple(VIEWS)  # type: ignore[valid-type]
    max_history_days: float | None = Field(None, gt=0, allow_inf_nan=False)


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
        return cls(name, **_PlanTable.read(f"Plan {name!r}", table))

    def check(self, view: str, resolution: str, start: int, now: float) -> None:
        """HTTPException 403 for what the plan does not allow; a range may begin exactly at the bound."""
        if view not in self.views:
            raise errors.view_not_allowed(view)
        if resolution not in self.resolutions:
            raise errors.resolution_not_allowed(resolution, self.resolutions)
        if self.max_history_days is not None and start < (now - self.max_history_days * DAY) * 1e6:
            raise errors.lookback_not_allowed(self.max_history_days)
