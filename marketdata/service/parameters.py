"""Parameters of requests (interface section 4.1), parsed strictly."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Literal
from urllib.parse import unquote_to_bytes

from fastapi import Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from marketdata.resolution import Resolution
from marketdata.service import errors
from marketdata.times import DAY, Range, parse_iso, parse_seconds
from marketdata.wire.models import LARGEST_LIMIT

# Points or records of a page by default, and characters of an id (interface 4.1).
DEFAULT_LIMIT, MAX_ID = 100, 200

SortField = Literal["updated_at", "start_date", "end_date", "id", "slug", "title", "status"]
Order = Literal["asc", "desc"]

# A limit; what no name has; Unix seconds.
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UNIX = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
# A raw "+" of an offset arrives as a space. Only behind a time of day: "2026-01-31 05:30" is a date and a time.
_LOST_PLUS = re.compile(r"(:\d\d(?:[.,]\d+)?) (\d\d:?\d\d)$", re.ASCII)
# The times that ISO 8601 can name.
_FIRST, _LAST = parse_iso("0001-01-01"), parse_iso("9999-12-31T23:59:59.999999")


def whole_number(value: object) -> object:
    """A number of ASCII digits only."""
    if isinstance(value, str):
        if _DIGITS.fullmatch(value) is None:
            raise PydanticCustomError("int_parsing", "Input should be a whole number written with the digits 0 to 9")
        return int(value)
    return value


def path_text(value: object) -> object:
    """The decoded text of a path segment, where ``%2F`` is no separator; refuses invalid and control characters."""
    if not isinstance(value, str):
        return value
    try:
        text = unquote_to_bytes(value.encode("latin-1")).decode("utf-8")
    except UnicodeError:
        raise PydanticCustomError("string_unicode", "Input should be percent-encoded UTF-8") from None
    if _CONTROL.search(text):
        raise PydanticCustomError("string_control", "Input should not contain control characters")
    return text


def read_time(text: str, name: str) -> int:
    """Microseconds since the epoch from ISO 8601 text or Unix seconds; else HTTPException 400."""
    try:
        micros = parse_seconds(text) if _UNIX.fullmatch(text) else parse_iso(_LOST_PLUS.sub(r"\1+\2", text))
    except (ValueError, OverflowError):
        raise errors.invalid_time(name, text) from None
    if not _FIRST <= micros <= _LAST:
        raise errors.invalid_time(name, text)
    return micros


_ShortText = Annotated[str, Field(min_length=1, max_length=MAX_ID), BeforeValidator(path_text)]
IdOrSlug = Annotated[_ShortText, Path(description="Market ID or market slug.")]
TokenId = Annotated[_ShortText, Path(description="Token ID.")]
Limit = Annotated[
    int,
    Field(ge=1, le=LARGEST_LIMIT, description="Maximum number of points in this page."),
    BeforeValidator(whole_number),
]
CursorText = Annotated[str | None, Field(description="`metadata.next_cursor` of the previous page.")]
Time = Annotated[str, Field(description="ISO 8601 timestamp or Unix seconds; without a zone it is UTC.")]


class HistoryQuery(BaseModel):
    """Parameters of every history view."""

    model_config = ConfigDict(frozen=True)

    start_ts: Time
    end_ts: Time
    resolution: Resolution = Field(description="Aggregation bucket size.")
    limit: Limit = DEFAULT_LIMIT
    cursor: CursorText = None

    @cached_property
    def range(self) -> Range:
        """The requested range; HTTPException 400."""
        rng = Range(read_time(self.start_ts, "start_ts"), read_time(self.end_ts, "end_ts"))
        if rng.start >= rng.end:
            raise errors.empty_range()
        return rng


HistoryParameters = Annotated[HistoryQuery, Query()]


class ListingQuery(BaseModel):
    """Parameters of every listing (interface 4.5). One that is unknown is refused: else it would list everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Limit = DEFAULT_LIMIT
    cursor: CursorText = None
    search: str | None = Field(None, max_length=200, description="Words that slug or title contain.")
    sort: SortField = Field("updated_at", description="Field to sort by; records without it come last.")
    order: Order = "desc"
    status: str | None = Field(None, max_length=100, description="Status of the record.")
    tags: str | None = Field(None, max_length=1000, description="Comma-separated tags.")
    tags_match: Literal["any", "all"] = "any"
    start_date_min: str | None = None
    start_date_max: str | None = None
    end_date_min: str | None = None
    end_date_max: str | None = None

    @property
    def wanted_tags(self) -> list[str]:
        """The tags by which records are chosen."""
        return [tag.strip() for tag in (self.tags or "").split(",") if tag.strip()]

    @property
    def bounds(self) -> list[tuple[str, int, int]]:
        """Dates by which records are chosen, the bounds inclusive [microseconds]; HTTPException 400."""
        start, end = (self.start_date_min, self.start_date_max), (self.end_date_min, self.end_date_max)
        return [
            (
                field,
                _FIRST if low is None else read_time(low, f"{field}_min"),
                _LAST if high is None else _end_of(high, f"{field}_max"),
            )
            for field, (low, high) in (("start_date", start), ("end_date", end))
            if low is not None or high is not None
        ]


class EventQuery(ListingQuery):
    """Parameters of events, of one series if its id or slug is given."""

    series_id: str | None = None
    series_slug: str | None = None


class MarketQuery(ListingQuery):
    """Parameters of markets, of one event if its id or slug is given."""

    event_id: str | None = None
    event_slug: str | None = None


def _end_of(text: str, name: str) -> int:
    """An upper bound is inclusive; a plain date means all of its day."""
    micros = read_time(text, name)
    return micros + DAY - 1 if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else micros
