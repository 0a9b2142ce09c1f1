"""Error responses, with the statuses of interface section 7 and the texts that live services send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from marketdata.wire.models import LARGEST_LIMIT


def printable(text: str, length: int = 200) -> str:
    """Text of a client for messages and logs: cut, and escaped where not printable."""
    cut = text if len(text) <= length else text[: length - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def response(status: int, detail: object, headers: Mapping[str, str] | None = None) -> Response:
    """The response of an error."""
    return JSONResponse({"detail": detail}, status, headers)


def invalid_key() -> HTTPException:
    """401, with one text for every reason."""
    return HTTPException(401, "Invalid or expired API key.")


def failed() -> Response:
    """500, which says nothing about the cause."""
    return response(500, "Failed to fetch data.")


def market_not_found(id_or_slug: str) -> HTTPException:
    """404 of a market."""
    return HTTPException(404, f"Market not found: {printable(id_or_slug)}")


def token_not_found(token_id: str) -> HTTPException:
    """404 of a token."""
    return HTTPException(404, f"Token not found: {printable(token_id)}")


def invalid_cursor() -> HTTPException:
    """400 of a cursor that this service did not issue for this request."""
    return HTTPException(400, "Invalid cursor")


def invalid_time(name: str, text: str) -> HTTPException:
    """400 of a time that cannot be read."""
    return HTTPException(
        400,
        f"Invalid timestamp format: {name}={printable(text, 60)}. "
        "Use an ISO 8601 timestamp such as 2026-01-31T12:00:00Z, or Unix seconds.",
    )


def empty_range() -> HTTPException:
    """400 of a range without content."""
    return HTTPException(400, "start_ts must be before end_ts (start is inclusive, end is exclusive).")


def limit_too_large(limit: int) -> HTTPException:
    """400 of a page with more points than the interface allows."""
    return HTTPException(400, f"limit too large. Requested: {limit}, Maximum: {LARGEST_LIMIT}")


def limit_too_small(minimum: int) -> HTTPException:
    """400 of a limit below one bucket of the market."""
    return HTTPException(400, f"limit too small for this market. Minimum required: {minimum}")


def too_many_tokens(view: str) -> HTTPException:
    """400 of a market with more tokens than a page has points."""
    return HTTPException(
        400,
        f"This market has more than {LARGEST_LIMIT} tokens. "
        f"Use the single-token {view} endpoint instead: /v1/tokens/{{token_id}}/{view}",
    )


def view_not_allowed(view: str) -> HTTPException:
    """403 of a history view."""
    return HTTPException(403, f"Your plan does not allow historical {'order books' if view == 'books' else view}")


def resolution_not_allowed(resolution: str, allowed: Sequence[str]) -> HTTPException:
    """403 of a resolution; ``allowed`` begins with the finest."""
    finest, *coarser = allowed or ["none"]
    text = f"Your plan does not allow {resolution} granularity. Minimum: {finest}"
    return HTTPException(403, f"{text} (allowed: {', '.join(allowed)})" if coarser else text)


def lookback_not_allowed(days: float) -> HTTPException:
    """403 of a range that begins too far back."""
    return HTTPException(403, f"Your plan allows up to the last {days:g} days of historical data")


def rate_exceeded(retry_after: int) -> HTTPException:
    """429 with the whole seconds after which a request passes again."""
    return HTTPException(429, "Rate limit exceeded. Please try again later.", {"Retry-After": str(retry_after)})
