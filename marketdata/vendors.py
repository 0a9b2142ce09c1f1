"""What is known about the services that answer the interface; everything else is learned from their answers."""

from __future__ import annotations

import datetime as dt
import re
from contextlib import suppress

from marketdata.errors import BadRequestError, PlanError
from marketdata.times import parse_iso, to_datetime

_MINIMUM_LIMIT = re.compile(r"limit too small.*?minimum\D*(\d{1,9})\b", re.IGNORECASE | re.DOTALL | re.ASCII)
_MAXIMUM_LIMIT = re.compile(
    r"limit too large.*?maximum\D*(\d{1,9})\b|"
    r"limit must be (?:<=|at most|no more than|less than or equal to)\s*(\d{1,9})\b|"
    r"limit\b[^.;]*less than or equal to (\d{1,9})\b",
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
_FINEST = re.compile(r"\b(?:minimum|finest|min)\b\W*(?:is\s+)?(\d{1,6})\s?(ms|[smhd])\b", re.IGNORECASE | re.ASCII)
_DAYS = re.compile(r"\b(\d{1,6})[ -]days?\b", re.IGNORECASE | re.ASCII)
_EARLIEST = re.compile(r"\bearliest\b[^\d]*([\dT:.+Z-]{10,35})", re.IGNORECASE | re.ASCII)
_NO_VIEW = re.compile(r"not (?:allow|include)\s+(?:historical\s+)?(order ?books?|books|prices|metrics)", re.IGNORECASE)


def read_limits(error: BadRequestError, text: str) -> None:
    """Set ``minimum`` and ``maximum`` of an error about a page limit, by its text."""
    if (match := _MINIMUM_LIMIT.search(text)) is not None:
        error.minimum = int(match[1])
    if (match := _MAXIMUM_LIMIT.search(text)) is not None:
        error.maximum = int(next(filter(None, match.groups())))


def read_plan(error: PlanError, text: str, now: float) -> None:
    """Set what a 403 says about the plan; ``now`` is the time of the answer [Unix s]."""
    if (match := _NO_VIEW.search(text)) is not None:
        name = match[1].lower()
        error.view = "books" if "book" in name else name
    if (match := _FINEST.search(text)) is not None:
        count, unit = int(match[1]), match[2].lower()
        is_minutes = unit == "s" and count % 60 == 0
        error.minimum_resolution = f"{count // 60}m" if is_minutes else f"{count}{unit}"
    if (match := _DAYS.search(text)) is not None:
        error.history_days = int(match[1])
    if (match := _EARLIEST.search(text)) is not None:
        with suppress(ValueError, OverflowError):
            error.earliest = to_datetime(parse_iso(match[1].rstrip(".")))
    if error.earliest is None and error.history_days is not None:
        with suppress(ValueError, OverflowError):
            error.earliest = dt.datetime.fromtimestamp(now, dt.UTC) - dt.timedelta(days=error.history_days)
