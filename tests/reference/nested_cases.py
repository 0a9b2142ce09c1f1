"""Functions of nested books and of level rows."""

from __future__ import annotations

from typing import Any

import narwhals as nw

import marketdata as md
from marketdata.points.schema import LISTS


def is_nested(frame: Any) -> bool:
    names = set() if isinstance(frame, list) else set(nw.from_native(frame).collect_schema().names())
    return set(LISTS) <= names and "level" not in names  # a ladder has such columns too, of numbers


def as_levels(frame: Any) -> Any:
    return md.explode(frame) if is_nested(frame) else frame
