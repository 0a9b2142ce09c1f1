"""Checks of arguments that count, measure or name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import wraps
from inspect import signature
from numbers import Integral, Real
from typing import ParamSpec, TypeVar

import numpy as np

from marketdata.errors import ConfigError
from marketdata.points.columns import Floats

T = TypeVar("T")
P = ParamSpec("P")


def whole(name: str, value: object, least: int = 1, most: float = math.inf) -> int:
    """The argument as a whole number from ``least`` to ``most``; anything else is a ConfigError."""
    if isinstance(value, bool) or not isinstance(value, Integral) or not least <= int(value) <= most:
        bounds = f"from {least}" if most == math.inf else f"from {least} to {most}"
        raise ConfigError(f"is refused; allowed are whole numbers {bounds}.", argument=name, value=value)
    return int(value)


def number(name: str, value: object, *, least: float | None = None, most: float = math.inf) -> float:
    """The argument as a finite number, from ``least`` or without it above 0, to ``most``; else a ConfigError."""
    given = float(value) if isinstance(value, Real | Decimal) and not isinstance(value, bool) else math.nan
    if not math.isfinite(given) or (given <= 0 if least is None else given < least) or given > most:
        allowed = ("above 0" if least is None else f"from {least:g}") + ("" if most == math.inf else f" to {most:g}")
        raise ConfigError(f"is refused; allowed are finite numbers {allowed}.", argument=name, value=value)
    return given


def numbers(**given: object) -> list[Floats]:
    """Arguments that are numbers or arrays of them, as arrays of one shape; a null is NaN, no number a ConfigError."""
    arrays = []
    for name, value in given.items():
        try:
            if np.asarray(value).dtype.kind in "bUS":  # numpy reads texts of digits
                raise TypeError
            arrays.append(np.asarray(value, float))
        except (TypeError, ValueError):
            allowed = "is refused; allowed are a number and an array of numbers."
            raise ConfigError(allowed, argument=name, value=value) from None
    try:
        return list(np.broadcast_arrays(*arrays))
    except ValueError:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(given, arrays, strict=True))
        raise ConfigError(f"Arrays of different shapes: {shapes}; give numbers, or arrays of one shape.") from None


def choice(name: str, value: object, allowed: Iterable[T], shown: str | None = None) -> T:
    """The argument, if it is allowed; else a ConfigError, which lists the ``allowed`` values or says ``shown``."""
    values = {one: one for one in allowed}
    try:
        return values[value]  # type: ignore[index]
    except (KeyError, TypeError):  # a frame or a list is no key at all
        problem = f"does not exist; allowed are {shown or ', '.join(map(str, values))}."
        raise ConfigError(problem, argument=name, value=value) from None


def flag(name: str, value: object) -> bool:
    """The argument, if it is True or False; anything else is a ConfigError, as "no" would count as true."""
    if not isinstance(value, bool | np.bool_):
        raise ConfigError("does not exist; allowed are False, True.", argument=name, value=value)
    return bool(value)


def with_flags(*names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator for a function that takes these flags by name, which refuses what is no `flag` before all else.

    None is passed on to those whose default is None.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        defaults = {name: signature(function).parameters[name].default for name in names}

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in defaults.keys() & kwargs.keys():
                if not (kwargs[name] is None and defaults[name] is None):
                    kwargs[name] = flag(name, kwargs[name])
            return function(*args, **kwargs)

        return checked

    return decorate


def text(name: str, value: object, what: str) -> str:
    """The argument, if it is a text; anything else is a ConfigError."""
    if not isinstance(value, str):
        raise ConfigError(f"is refused; pass {what} as text.", argument=name, value=value)
    return value


def texts(name: str, value: object, what: str) -> list[str]:
    """The argument, a text or several, as a list of each once; anything else is a ConfigError."""
    items = [value] if isinstance(value, str) or not isinstance(value, Iterable) else list(value)
    for one in items:
        if not isinstance(one, str) or not one:
            raise ConfigError(f"is refused; pass {what} as text, or a list of them.", argument=name, value=one)
    return list(dict.fromkeys(map(str, items)))
