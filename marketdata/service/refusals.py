"""What the service says when it says no: the texts of interface section 7, each in one place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

INVALID_KEY = "Invalid or expired API key."
RATE_EXCEEDED = "Rate limit exceeded. Please try again later."
OVERLOADED = "The service is busy. Please try again later."
FAILED = "Failed to fetch data."
INVALID_CURSOR = "Invalid cursor"
MAX_TOKENS = 200


class Refusal(Exception):  # noqa: N818 - an answer of the service, not a fault of ours
    """An answer other than 200.

    Attributes
    ----------
    status : int
        HTTP status.
    detail : str
        Text of the ``ErrorResponse`` (interface 2.7).
    headers : mapping of str to str
        Further response headers.
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})


def shown(text: str, length: int = 200) -> str:
    r"""A foreign text, cut, with everything that does not print escaped.

    Examples
    --------
    >>> shown("a\r\nb")
    'a\\r\\nb'
    """
    cut = text if len(text) <= length else text[: length - 1] + "…"
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in cut)


def market_not_found(id_or_slug: str) -> Refusal:
    """404 of a market."""
    return Refusal(404, f"Market not found: {shown(id_or_slug)}")


def token_not_found(token_id: str) -> Refusal:
    """404 of a token."""
    return Refusal(404, f"Token not found: {shown(token_id)}")


def invalid_cursor() -> Refusal:
    """400 of a cursor that this service did not give for this very request."""
    return Refusal(400, INVALID_CURSOR)


def invalid_time(name: str, text: str) -> Refusal:
    """400 of a time that can not be read."""
    return Refusal(
        400,
        f"Invalid timestamp format: {name}={shown(text, 60)!s}. "
        "Use an ISO 8601 timestamp such as 2026-01-31T12:00:00Z, or Unix seconds.",
    )


def empty_range() -> Refusal:
    """400 of a range that holds nothing."""
    return Refusal(400, "start_ts must be before end_ts (start is inclusive, end is exclusive).")


def limit_too_small(minimum: int) -> Refusal:
    """400 of a limit that can not hold one bucket of the market."""
    return Refusal(400, f"limit too small for this market. Minimum required: {minimum}")


def too_many_tokens(view: str) -> Refusal:
    """400 of a market whose buckets fit in no page."""
    return Refusal(
        400,
        f"This market has more than {MAX_TOKENS} tokens. "
        f"Use the single-token {view} endpoint instead: /v1/tokens/{{token_id}}/{view}",
    )


def view_not_allowed(view: str) -> Refusal:
    """403 of a history view."""
    named = {"books": "order books"}.get(view, view)
    return Refusal(403, f"Your plan does not allow historical {named}.")


def resolution_not_allowed(resolution: str, allowed: Sequence[str]) -> Refusal:
    """403 of a resolution."""
    return Refusal(403, f"Your plan does not allow resolution {resolution}. Allowed: {', '.join(allowed) or 'none'}.")


def lookback_not_allowed(days: float) -> Refusal:
    """403 of a range that begins too far back."""
    return Refusal(403, f"Your plan does not allow data older than {days:g} days.")


def rate_exceeded(retry_after: int) -> Refusal:
    """429 with the whole seconds after which a request passes again."""
    return Refusal(429, RATE_EXCEEDED, {"Retry-After": str(retry_after)})
