"""Parameters of requests (interface section 4.1), parsed strictly."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from typing import Annotated, Literal, Self
from urllib.parse import unquote_to_bytes

from fastapi import HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from marketdata.decimals import parse_number
from marketdata.service.cursors import invalid_cursor
from marketdata.service.responses import printable
from marketdata.times import DAY, Range, parse_iso, parse_seconds
from marketdata.wire.models import LARGEST_LIMIT

SortField = Literal["updated_at", "created_at", "start_date", "end_date", "id", "slug", "title", "status"]
_FIRST, _LAST = parse_iso("0001-01-01"), parse_iso("9999-12-31T23:59:59.999999")


def _whole_number(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,9}", text, re.ASCII) is None:
        raise PydanticCustomError("int_parsing", "Input should be a whole number written with the digits 0 to 9")
    return int(text)


def _number(text: str) -> float:
    try:
        return parse_number(text)
    except ValueError:
        raise PydanticCustomError("float_parsing", "Input should be a finite decimal number") from None


def _path_text(text: str) -> str:
    """The decoded text of a path segment, in which ``%2F`` is no separator."""
    try:
        decoded = unquote_to_bytes(text.encode("latin-1")).decode("utf-8")
    except UnicodeError:
        raise PydanticCustomError("string_unicode", "Input should be percent-encoded UTF-8") from None
    if re.search(r"[\x00-\x1f\x7f-\x9f]", decoded):
        raise PydanticCustomError("string_control", "Input should not contain control characters")
    return decoded


def _read_time(text: str, info: ValidationInfo) -> int:
    """Microseconds since the epoch from ISO 8601 text or Unix seconds; else HTTPException 400."""
    # A raw "+" of an offset arrives as a space. Only behind a time of day: "2026-01-31 05:30" is a date and a time.
    with_plus = re.sub(r"(:\d\d(?:[.,]\d+)?) (\d\d:?\d\d)$", r"\1+\2", text, flags=re.ASCII)
    with suppress(ValueError, OverflowError):
        is_number = re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text, re.ASCII)
        micros = parse_seconds(text) if is_number else parse_iso(with_plus)
        if _FIRST <= micros <= _LAST:
            return micros
    raise HTTPException(
        400,
        f"Invalid timestamp format: {info.field_name}={printable(text, 60)}. "
        "Use an ISO 8601 timestamp such as 2026-01-31T12:00:00Z, or Unix seconds.",
    )


def _read_last_time(text: str, info: ValidationInfo) -> int:
    """An upper bound is inclusive; a plain date means all of its day."""
    micros = _read_time(text, info)
    return micros + DAY - 1 if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else micros


def refuse_repeated(request: Request) -> None:
    """Refuse a parameter that is given twice, except ``tags``: 400 for a time or cursor, else 422."""
    counts = Counter(name for name, _ in request.query_params.multi_items())
    for name in sorted(name for name, count in counts.items() if count > 1 and name != "tags"):
        if name == "cursor":
            raise invalid_cursor()
        if name in ("start_ts", "end_ts"):
            raise HTTPException(400, f"Invalid timestamp format: {name} is given more than once.")
        raise invalid_parameter(name, "Input should be given once", "multiple_values")


def invalid_parameter(name: str, message: str, kind: str) -> RequestValidationError:
    """422 of a query parameter."""
    return RequestValidationError([{"loc": ("query", name), "msg": message, "type": kind}])


# What the description says of ids in paths, and of times in a query; what has the form may be no time all the same.
_OF_IDS: dict[str, JsonValue] = {"pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$"}
_OF_TIMES = {"type": "string", "pattern": r"^(?:\d{1,18}(?:\.\d{1,18})?|\d{4}-\d\d-\d\d.*|\d{8}[Tt].*)$"}
_Segment = Annotated[str, Field(min_length=1, max_length=200, json_schema_extra=_OF_IDS), BeforeValidator(_path_text)]
IdOrSlug = Annotated[_Segment, Path(description="Market ID or market slug.")]
TokenId = Annotated[_Segment, Path(description="Token ID.")]
_Whole = BeforeValidator(_whole_number)
_Cursor = Annotated[str | None, Field(description="`metadata.next_cursor` of the previous page.")]
_Time = Annotated[
    int,
    BeforeValidator(_read_time),
    WithJsonSchema(_OF_TIMES),
    Field(description="ISO 8601 timestamp or Unix seconds; without a zone it is UTC."),
]
_LastTime = Annotated[int, BeforeValidator(_read_last_time), WithJsonSchema(_OF_TIMES)]


class HistoryQuery(BaseModel):
    """Parameters of every history view; HTTPException 400 for a limit that is too large, and for times."""

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

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.limit > LARGEST_LIMIT:
            raise HTTPException(400, f"limit too large. Requested: {self.limit}, Maximum: {LARGEST_LIMIT}")
        if self.start_ts >= self.end_ts:
            raise HTTPException(400, "start_ts must be before end_ts (start is inclusive, end is exclusive).")
        return self

    @property
    def range(self) -> Range:
        """The range that is asked for [microseconds]."""
        return Range(self.start_ts, self.end_ts)


HistoryParameters = Annotated[HistoryQuery, Query()]


class ListingQuery(BaseModel):
    """Parameters of every listing (interface 4.5); an unknown one is refused, as it would list everything."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=1_000, description="Maximum number of records in this page."), _Whole] = 100
    cursor: _Cursor = None
    search: str | None = Field(None, max_length=200, description="Words that slug or title contain.")
    sort: SortField = Field("updated_at", description="Field to sort by; records without it come last.")
    order: Literal["asc", "desc"] = "desc"
    status: str | None = Field(None, max_length=100, description="Status of the record.")
    category: str | None = Field(None, max_length=100, description="Category of the record, such as `crypto`.")
    tags: list[str] = Field([], description="Tags, repeated or separated by commas.")
    tags_match: Literal["any", "all"] = "any"
    start_date_min: _Time | None = None
    start_date_max: _LastTime | None = None
    end_date_min: _Time | None = None
    end_date_max: _LastTime | None = None


class EventQuery(ListingQuery):
    """Parameters of events, of one series if its id or slug is given."""

    series_id: str | None = None
    series_slug: str | None = None


class MarketQuery(ListingQuery):
    """Parameters of markets, of one event if its id or slug is given."""

    event_id: str | None = None
    event_slug: str | None = None
    include_closed: bool = Field(default=True, description="Whether closed and resolved markets are listed.")
    min_liquidity: Annotated[float | None, BeforeValidator(_number), Field(ge=0, allow_inf_nan=False)] = Field(
        None, description="Least liquidity; markets without it are left out."
    )
