"""Checks of arguments that count or measure."""

from __future__ import annotations

import math
from typing import Any

from marketdata.errors import ConfigError


def whole(name: str, value: Any) -> int:
    """Check an argument that counts.

    Raises
    ------
    ConfigError
        If it is no whole number from 1.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < 1:
        raise ConfigError(f"{name}={value!r} is refused; allowed are whole numbers from 1.")
    return int(value)


def number(name: str, value: Any, *, least: float | None = None) -> float:
    """Check an argument that measures.

    Raises
    ------
    ConfigError
        If it is not finite, below ``least``, or without ``least`` not above 0.
    """
    good = isinstance(value, int | float) or hasattr(value, "__float__")
    good = good and not isinstance(value, bool | str) and math.isfinite(value)
    if not good or (value <= 0 if least is None else value < least):
        allowed = "above 0" if least is None else f"from {least:g}"
        raise ConfigError(f"{name}={value!r} is refused; allowed are finite numbers {allowed}.")
    return float(value)
