"""The measures of books as functions of frames; `make stubs` writes their types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from marketdata.points.measures import MEASURES
from marketdata.tidy.measures import on_frames

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: on_frames(measure) for name, measure in MEASURES.items() if measure.is_function
}
for _function in FUNCTIONS.values():
    _function.__module__ = __name__
globals().update(FUNCTIONS)
