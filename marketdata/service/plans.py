"""Plans: the rights and the rate of a key (interface sections 5 and 8)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, TypeVar, cast

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from marketdata.errors import ConfigError
from marketdata.points.views import VIEWS
from marketdata.resolution import Resolution
from marketdata.service import errors

# Length of a day [s], and requests a minute of a plan that names none: more than one client can send.
DAY = 86_400
DEFAULT_REQUESTS_PER_MINUTE = 60_000
_RESOLUTIONS = tuple(r.value for r in Resolution)


T = TypeVar("T")


@lru_cache
def _adapter(kind: type[Any]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def read_table(kind: type[T], what: str, table: Any, **given: str) -> T:
    """A table of the key file as a dataclass; ConfigError for the first entry that is unknown, missing or not allowed.

    ``given`` are the fields that stand elsewhere.
    """
    known = [field.name for field in dataclasses.fields(cast("Any", kind)) if field.name not in given]
    if not isinstance(table, Mapping):
        raise ConfigError(f"{what} is {table!r}; it needs a table of {', '.join(known)}.")
    for name in table:
        if name not in known:
            raise ConfigError(f"{what} has the unknown entry {name!r}; allowed are {', '.join(known)}.")
    try:
        return cast("T", _adapter(cast("Any", kind)).validate_python({**table, **given}))
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
    name = str(first["loc"][0])
    if first["type"] == "missing":
        raise ConfigError(f"{what} has no {name}.")
    refusal = first["msg"].removeprefix("Value error, ")
    raise ConfigError(f"{what}: {name}={table[name]!r} is refused: {refusal}.")


def _some_of(allowed: Sequence[str]) -> AfterValidator:
    """Some of the allowed texts, in their order."""

    def check(given: tuple[str, ...]) -> tuple[str, ...]:
        wrong = [one for one in given if one not in allowed]
        if wrong:
            raise ValueError(f"{wrong} not among {', '.join(allowed)}")
        return tuple(one for one in allowed if one in given)

    return AfterValidator(check)


@dataclass(frozen=True, slots=True)
class AccessPlan:
    """The rights of a key: requests in any 60 s, resolutions, views, and lookback [days] (None: unlimited)."""

    name: str
    requests_per_minute: Annotated[int, Field(ge=1, strict=True)] = DEFAULT_REQUESTS_PER_MINUTE
    resolutions: Annotated[tuple[str, ...], _some_of(_RESOLUTIONS)] = _RESOLUTIONS
    views: Annotated[tuple[str, ...], _some_of(tuple(VIEWS))] = tuple(VIEWS)
    max_history_days: Annotated[float | None, Field(gt=0, allow_inf_nan=False, strict=True)] = None

    @classmethod
    def read(cls, name: str, table: Mapping[str, Any]) -> AccessPlan:
        """A plan from its table in the key file; ConfigError if a name or value is not allowed."""
        return read_table(cls, f"Plan {name!r}", table, name=name)

    def check(self, view: str, resolution: str, start: int, now: float) -> None:
        """HTTPException 403 for what the plan does not allow; a range may begin exactly at the bound."""
        if view not in self.views:
            raise errors.view_not_allowed(view)
        if resolution not in self.resolutions:
            raise errors.resolution_not_allowed(resolution, self.resolutions)
        if self.max_history_days is not None and start < (now - self.max_history_days * DAY) * 1e6:
            raise errors.lookback_not_allowed(self.max_history_days)
