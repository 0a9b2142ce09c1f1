"""Responses: JSON bodies with their headers, and what the description says of refusals."""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response

from marketdata.service import bodies
from marketdata.wire import models

GZIP_FROM = 1_000

Described = dict[int | str, dict[str, Any]]
REFUSALS: Described = {
    400: {"model": models.ErrorResponse, "description": "Invalid timestamp, limit, cursor, market or host."},
    401: {"model": models.ErrorResponse, "description": "Key missing, invalid or expired."},
    414: {"model": models.ErrorResponse, "description": "The URL is too long."},
    422: {"model": models.ValidationErrorResponse, "description": "A parameter does not validate."},
    429: {"model": models.ErrorResponse, "description": "Rate limit exceeded for this key."},
    431: {"model": models.ErrorResponse, "description": "The headers are too large."},
    500: {"model": models.ErrorResponse, "description": "Unexpected error."},
    503: {"model": models.ErrorResponse, "description": "The service is busy."},
}
NOT_FOUND: Described = {404: {"model": models.ErrorResponse, "description": "Not found."}}
PLAN_REFUSES: Described = {403: {"model": models.ErrorResponse, "description": "The plan does not allow it."}}


def json_response(body: object, *, gzip: bool) -> Response:
    """A body, or an object that becomes one, compressed where that is worth it."""
    content = body if isinstance(body, bytes) else bodies.to_json(body)
    headers = {"Vary": "Accept-Encoding"}
    if gzip and len(content) >= GZIP_FROM:
        content, headers["Content-Encoding"] = bodies.gzipped(content), "gzip"
    return Response(content, media_type="application/json", headers=headers)
