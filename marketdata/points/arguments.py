"""Checks of arguments that count, measure or name."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import SupportsFloat, SupportsIndex, TypeVar

from marketdata.errors import ConfigError

# One of the values that an argument may have.
T = TypeVar("T")


def whole(name: str, value: object, least: int = 1, most: float = math.inf) -> int:
    """The argument as a whole number from ``least`` to ``most``; anything else is a ConfigError."""
    if isinstance(value, bool) or not isinstance(value, SupportsIndex) or not least <= value.__index__() <= most:
        bounds = f"from {least}" if most == math.inf else f"from {least} to {most}"
        raise ConfigError(f"{name}={value!r} is refused; allowed are whole numbers {bounds}.")
    return value.__index__()


def number(name: str, value: object, *, least: float | None = None) -> float:
    """The argument as a finite number, from ``least`` or without it above 0; anything else is a ConfigError."""
    given = float(value) if isinstance(value, SupportsFloat) and not isinstance(value, bool) else math.nan
    if not math.isfinite(given) or (given <= 0 if least is None else given < least):
        allowed = "above 0" if least is None else f"from {least:g}"
        raise ConfigError(f"{name}={value!r} is refused; allowed are finite numbers {allowed}.")
    return given


def choice(name: str, value: object, allowed: Iterable[T]) -> T:
    """The argument, if it is one of those allowed; anything else is a ConfigError."""
    known = tuple(allowed)
    if value not in known:
        raise ConfigError(f"does not exist; allowed are {', '.join(map(str, known))}.", argument=name, value=value)
    return known[known.index(value)]


def names(name: str, value: object, what: str = "an id or slug") -> list[str]:
    """The argument, a text or several, as a list of each once; a frame, a record and what is no text: ConfigError."""
    if isinstance(value, Mapping) or hasattr(value, "columns"):
        column = "token_id" if name == "token_id" else "market_id"
        raise ConfigError(f"{name} is a {type(value).__name__}; pass {what}, or a list of them: frame[{column!r}].")
    some = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    for one in some:
        if not isinstance(one, str) or not one:
            raise ConfigError(f"{name}={one!r} is refused; pass {what} as text, or a list of them.")
    return list(dict.fromkeys(map(str, some)))
