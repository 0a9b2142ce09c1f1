"""Dependencies of routes: parameters of interface section 4.1, parsed strictly, and the parts of the service."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from marketdata.resolution import Resolution
from marketdata.service import errors
from marketdata.service.auth import Grant
from marketdata.service.coverage import CoverageCache
from marketdata.service.exchange import Exchange
from marketdata.service.listings import ListingQuery, Listings, Order, SortField
from marketdata.service.pagination import Cursors, Pages
from marketdata.service.rate_limit import RateLimiter
from marketdata.times import DAY, Range, parse_iso, parse_seconds
from marketdata.wire.models import LARGEST_LIMIT

if TYPE_CHECKING:
    from marketdata.archive import Archive

# Points or records of a page by default, and characters of an id (interface 4.1).
DEFAULT_LIMIT, MAX_ID = 100, 200
# Bytes from which an answer is compressed: a shorter one fits a packet.
GZIP_FROM = 1_000

_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_UNIX = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)
# A raw "+" of an offset arrives as a space. Only behind a time of day: "2026-01-31 05:30" is a date and a time.
_LOST_PLUS = re.compile(r"(:\d\d(?:[.,]\d+)?) (\d\d:?\d\d)$", re.ASCII)
_FIRST, _LAST = parse_iso("0001-01-01"), parse_iso("9999-12-31T23:59:59.999999")
# Names of the query parameters of each path.
_NAMES: dict[str, list[str]] = {}
_REFUSED_AS_400 = {"start_ts", "end_ts", "cursor"}


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


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of the service, which the application's state has."""

    source: Archive
    pages: Pages
    cursors: Cursors
    listings: Listings
    rate_limiter: RateLimiter
    clock: Callable[[], float]
    coverage: CoverageCache


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The parts of the service, a request, and its sender."""

    parts: Parts
    exchange: Exchange
    grant: Grant

    def respond(self, content: bytes, media_type: str = "application/json", **headers: str) -> Response:
        """A response of bytes, compressed if that is accepted and worth it."""
        headers = {"Vary": "Accept-Encoding", **headers}
        if self.exchange.accepts_gzip and len(content) >= GZIP_FROM:
            # Of the fastest level: a page of books is about a third as long.
            packer = zlib.compressobj(1, zlib.DEFLATED, 31)
            content, headers["Content-Encoding"] = packer.compress(content) + packer.flush(), "gzip"
        return Response(content, media_type=media_type, headers=headers)


async def read_context(request: Request) -> RequestContext:
    """Refuse a parameter that is given twice."""
    given = [name for name, _ in request.query_params.multi_items()]
    for name in sorted(given):
        if given.count(name) == 1:
            continue
        if name == "cursor":
            raise errors.invalid_cursor()
        if name in _REFUSED_AS_400:
            raise errors.invalid_time(name, ", ".join(request.query_params.getlist(name)))
        problem = {"loc": ("query", name), "msg": "Input should be given once", "type": "multiple_values"}
        raise RequestValidationError([problem])
    return RequestContext(request.app.state.parts, request.state.exchange, request.state.grant)


def _parameter_names(route: APIRoute) -> list[str]:
    """Names of the query parameters that a route or one of its dependencies takes, in order."""
    found = _NAMES.get(route.path)
    if found is None:
        found, rest = [], [route.dependant]
        while rest:
            part = rest.pop(0)
            found += [parameter.alias for parameter in part.query_params]
            rest[:0] = part.dependencies
        _NAMES[route.path] = found
    return found


Context = Annotated[RequestContext, Depends(read_context)]

_ShortText = Annotated[str, Field(min_length=1, max_length=MAX_ID), BeforeValidator(path_text)]
IdOrSlug = Annotated[_ShortText, Path(description="Market ID or market slug.")]
TokenId = Annotated[_ShortText, Path(description="Token ID.")]
Limit = Annotated[
    int,
    Field(ge=1, le=LARGEST_LIMIT),
    BeforeValidator(whole_number),
    Query(description="Maximum number of points in this page."),
]
CursorText = Annotated[str | None, Query(description="`metadata.next_cursor` of the previous page.")]
Time = Annotated[str, Query(description="ISO 8601 timestamp or Unix seconds; without a zone it is UTC.")]


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Parameters of every history view."""

    range: Range
    resolution: Resolution
    limit: int
    cursor: str | None


async def _history_query(
    start_ts: Time,
    end_ts: Time,
    resolution: Annotated[Resolution, Query(description="Aggregation bucket size.")],
    limit: Limit = DEFAULT_LIMIT,
    cursor: CursorText = None,
) -> HistoryQuery:
    rng = Range(read_time(start_ts, "start_ts"), read_time(end_ts, "end_ts"))
    if rng.start >= rng.end:
        raise errors.empty_range()
    return HistoryQuery(rng, resolution, limit, cursor)


HistoryParameters = Annotated[HistoryQuery, Depends(_history_query)]


async def _listing_query(
    request: Request,
    limit: Limit = DEFAULT_LIMIT,
    cursor: CursorText = None,
    search: Annotated[str | None, Query(max_length=200, description="Words that slug or title contain.")] = None,
    sort: Annotated[SortField, Query(description="Field to sort by; records without it come last.")] = "updated_at",
    order: Order = "desc",
    status: Annotated[str | None, Query(description="Status of the record.", max_length=100)] = None,
    tags: Annotated[str | None, Query(description="Comma-separated tags.", max_length=1000)] = None,
    tags_match: Literal["any", "all"] = "any",
    start_date_min: str | None = None,
    start_date_max: str | None = None,
    end_date_min: str | None = None,
    end_date_max: str | None = None,
) -> ListingQuery:
    # Left unread, a misspelt filter would list everything.
    allowed = _parameter_names(request.scope["route"])
    unknown = [name for name in request.query_params if name not in allowed]
    if unknown:
        message = f"Unknown filter; allowed are {', '.join(allowed)}"
        raise RequestValidationError(
            [{"loc": ("query", errors.shown(name)), "msg": message, "type": "extra_forbidden"} for name in unknown]
        )
    given = {
        "start_date": (start_date_min, start_date_max),
        "end_date": (end_date_min, end_date_max),
    }
    bounds = tuple(
        (
            field,
            _FIRST if low is None else read_time(low, f"{field}_min"),
            _LAST if high is None else _end_of(high, f"{field}_max"),
        )
        for field, (low, high) in given.items()
        if low is not None or high is not None
    )
    wanted = tuple(t.strip() for t in (tags or "").split(",") if t.strip())
    return ListingQuery(limit, cursor, search, sort, order, status, wanted, tags_match, bounds)


def _end_of(text: str, name: str) -> int:
    """An upper bound is inclusive; a plain date means all of its day."""
    micros = read_time(text, name)
    return micros + DAY - 1 if re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII) else micros


ListingParameters = Annotated[ListingQuery, Depends(_listing_query)]
