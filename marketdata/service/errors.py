"""Error responses with the status and text of interface section 7."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from marketdata.wire.models import LARGEST_LIMIT

# Texts of the interface (section 7): they tell nothing of why.
INVALID_KEY = "Invalid or expired API key."
FAILED = "Failed to fetch data."


def shown(text: str, length: int = 200) -> str:
    """Text of a client for messages and logs: cut, and escaped where not printable."""
    cut = text if len(text) <= length else text[: length - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def response(status: int, detail: object, headers: Mapping[str, str] | None = None) -> Response:
    """The response of an error."""
    return JSONResponse({"detail": detail}, status, headers)


def market_not_found(id_or_slug: str) -> HTTPException:
    """404 of a market."""
    return HTTPException(404, f"Market not found: {shown(id_or_slug)}")


def token_not_found(token_id: str) -> HTTPException:
    """404 of a token."""
    return HTTPException(404, f"Token not found: {shown(token_id)}")


def invalid_cursor() -> HTTPException:
    """400 of a cursor that this service did not issue for this request."""
    return HTTPException(400, "Invalid cursor")


def invalid_time(name: str, text: str) -> HTTPException:
    """400 of a time that cannot be read."""
    return HTTPException(
        400,
        f"Invalid timestamp format: {name}={shown(text, 60)!s}. "
        "Use an ISO 8601 timestamp such as 2026-01-31T12:00:00Z, or Unix seconds.",
    )


def empty_range() -> HTTPException:
    """400 of a range without content."""
    return HTTPException(400, "start_ts must be before end_ts (start is inclusive, end is exclusive).")


def limit_too_small(minimum: int) -> HTTPException:
    """400 of a limit below one bucket of the market."""
    return HTTPException(400, f"limit too small for this market. Minimum required: {minimum}")


def too_many_tokens(view: str) -> HTTPException:
    """400 of a market whose buckets fit in no page."""
    return HTTPException(
        400,
        f"This market has more than {LARGEST_LIMIT} tokens. "
        f"Use the single-token {view} endpoint instead: /v1/tokens/{{token_id}}/{view}",
    )


def view_not_allowed(view: str) -> HTTPException:
    """403 of a history view."""
    named = {"books": "order books"}.get(view, view)
    return HTTPException(403, f"Your plan does not allow historical {named}.")


def resolution_not_allowed(resolution: str, allowed: Sequence[str]) -> HTTPException:
    """403 of a resolution."""
    return HTTPException(
        403, f"Your plan does not allow resolution {resolution}. Allowed: {', '.join(allowed) or 'none'}."
    )


def lookback_not_allowed(days: float) -> HTTPException:
    """403 of a range that begins too far back."""
    return HTTPException(403, f"Your plan does not allow data older than {days:g} days.")


def rate_exceeded(retry_after: int) -> HTTPException:
    """429 with the whole seconds after which a request passes again."""
    return HTTPException(429, "Rate limit exceeded. Please try again later.", {"Retry-After": str(retry_after)})


def overloaded() -> HTTPException:
    """503 where more requests wait than there is room for."""
    return HTTPException(503, "The service is busy. Please try again later.", {"Retry-After": "1"})
