"""Parameters of requests (interface section 4.1), parsed strictly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import unquote_to_bytes

from fastapi import Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from marketdata.service import errors
from marketdata.times import DAY, Range, parse_iso, parse_seconds
from marketdata.wire.models import LARGEST_LIMIT

SortField = Literal["updated_at", "created_at", "start_date", "end_date", "id", "slug", "title", "status"]
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# A raw "+" of an offset arrives as a space. Only behind a time of day: "2026-01-31 05:30" is a date and a time.
_LOST_PLUS = re.compile(r"(:\d\d(?:[.,]\d+)?) (\d\d:?\d\d)$", re.ASCII)
_FIRST, _LAST = parse_iso("0001-01-01"), parse_iso("9999-12-31T23:59:59.999999")


def _whole_number(value: object) -> object:
    if not isinstance(value, str):
        return value
    if _DIGITS.fullmatch(value) is None:
        raise PydanticCustomError("int_parsing", "Input should be a whole number written with the digits 0 to 9")
    return int(value)


def _path_text(value: object) -> object:
    """The decoded text of a path segment, in which ``%2F`` is no separator."""
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
        micros = parse_seconds(text) if _NUMBER.fullmatch(text) else parse_iso(_LOST_PLUS.sub(r"\1+\2", text))
    except (ValueError, OverflowError):
        raise errors.invalid_time(name, text) from None
    if not _FIRST <= micros <= _LAST:
        raise errors.invalid_time(name, text)
    return micros


def refuse_repeated(request: Request) -> None:
    """Refuse a parameter that is given twice, except ``tags``: 400 for a time or cursor, else 422."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in sorted({name for name in names if names.count(name) > 1} - {"tags"}):
        if name == "cursor":
            raise errors.invalid_cursor()
        if name in ("start_ts", "end_ts"):
            raise errors.invalid_time(name, ", ".join(request.query_params.getlist(name)))
        raise invalid_parameter(name, "Input should be given once", "multiple_values")


def invalid_parameter(name: str, message: str, kind: str) -> RequestValidationError:
    """422 of a query parameter."""
    return RequestValidationError([{"loc": ("query", name), "msg": message, "type": kind}])


_Segment = Annotated[str, Field(min_length=1, max_length=200), BeforeValidator(_path_text)]
IdOrSlug = Annotated[_Segment, Path(description="Market ID or market slug.")]
TokenId = Annotated[_Segment, Path(description="Token ID.")]
_Whole = BeforeValidator(_whole_number)
_Cursor = Annotated[str | None, Field(description="`metadata.next_cursor` of the previous page.")]
_Time = Annotated[str, Field(description="ISO 8601 timestamp or Unix seconds; without a zone it is UTC.")]
_Number = Annotated[float | None, Field(ge=0, allow_inf_nan=False)]


class HistoryQuery(BaseModel):
    """Parameters of every history view."""

    model_config = ConfigDict(frozen=True)

    start_ts: _Time
    end_ts: _Time
    resolution: str = Field(description="Aggregation bucket size.")
    # The schema names the largest limit, but a larger one is 400 and not 422, as live services answer.
    limit: Annotated[
        int,
        Field(ge=1, json_schema_extra={"maximum": LARGEST_LIMIT}, description="Maximum number of points in this page."),
        _Whole,
    ] = 100
    cursor: _Cursor = None

    def read_range(self, resolutions: Sequence[str]) -> Range:
        """The range; RequestValidationError for another resolution, HTTPException 400 for limit and times."""
        if self.resolution not in resolutions:
            raise invalid_parameter("resolution", f"Input should be one of {', '.join(resolutions)}", "enum")
        if self.limit > LARGEST_LIMIT:
            raise errors.limit_too_large(self.limit)
        rng = Range(read_time(self.start_ts, "start_ts"), read_time(self.end_ts, "end_ts"))
        if rng.start >= rng.end:
            raise errors.empty_range()
        return rng


HistoryParameters = Annotated[HistoryQuery, Query()]


class ListingQuery(BaseModel):
    """Parameters of every listing (interface 4.5); an unknown one is refused, as it would list everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: Annotated[int, Field(ge=1, le=1_000, description="Maximum number of records in this page."), _Whole] = 100
    cursor: _Cursor = None
    search: str | None = Field(None, max_length=200, description="Words that slug or title contain.")
    sort: SortField = Field("updated_at", description="Field to sort by; records without it come last.")
    order: Literal["asc", "desc"] = "desc"
    status: str | None = Field(None, max_length=100, description="Status of the record.")
    tags: list[str] = Field([], description="Tags, repeated or separated by commas.")
    tags_match: Literal["any", "all"] = "any"
    start_date_min: str | None = None
    start_date_max: str | None = None
    end_date_min: str | None = None
    end_date_max: str | None = None

    @property
    def wanted_tags(self) -> set[str]:
        """The tags by which records are chosen."""
        return {tag.strip() for text in self.tags for tag in text.split(",")} - {""}

    @property
    def date_bounds(self) -> list[tuple[str, int, int]]:
        """Dates by which records are chosen, the bounds inclusive [microseconds]; HTTPException 400."""
        bounds = {
            "start_date": (self.start_date_min, self.start_date_max),
            "end_date": (self.end_date_min, self.end_date_max),
        }
        return [
            (
                field,
                _FIRST if low is None else read_time(low, f"{field}_min"),
                _LAST if high is None else _end_of(high, f"{field}_max"),
            )
            for field, (low, high) in bounds.items()
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
    include_closed: bool = Field(default=True, description="Whether closed and resolved markets are listed.")
    category: str | None = Field(None, max_length=100, description="Category of the market, such as `crypto`.")
    min_liquidity: _Number = Field(None, description="Least liquidity; markets without it are left out.")


def _end_of(text: str, name: str) -> int:
    """An upper bound is inclusive; a plain date means all of its day."""
    micros = read_time(text, name)
    return micros + DAY - 1 if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else micros
