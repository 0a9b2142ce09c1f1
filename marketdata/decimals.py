"""Numbers in texts and in JSON, read strictly: what is no finite decimal number is no number."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from numbers import Real

_DECIMAL = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def parse_number(text: str) -> float:
    """The number of a text such as ``0.53``, ``-12`` or ``1e-6``; ValueError for another one, and beyond a float.

    So ``Infinity``, ``NaN``, ``1e400``, ``0_1``, spaces around a number and 400 digits are refused.
    """
    number = float(text) if _DECIMAL.fullmatch(text) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"{text[:80]!r} is no finite number")
    return number


def to_number(value: object) -> float:
    """A number, or a text of one, as a float; NaN for null and for an empty text. ValueError for everything else.

    A truth value is no number.
    """
    if isinstance(value, str):
        return parse_number(value) if value else math.nan
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        raise ValueError(f"{type(value).__name__} is no number")  # noqa: TRY004 data, no argument
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{str(value)[:80]} is no finite number")
    return number
