"""Routers below ``/v1``."""

from __future__ import annotations

from fastapi import APIRouter, Security
from fastapi.security import APIKeyHeader
from starlette.convertors import StringConvertor, register_url_convertor

from marketdata.service.responses import REFUSALS, Described

# For the description only: the middleware has checked the key.
_key_header = APIKeyHeader(name="X-API-Key", auto_error=False, description="The key of your plan.")


class _Segment(StringConvertor):
    """A path segment, which may be empty: a history path without a slug is 422 and not 404."""

    regex = "[^/]*"


register_url_convertor("segment", _Segment())


def v1_router(tag: str, responses: Described | None = None) -> APIRouter:
    """A router whose routes need a key."""
    return APIRouter(
        prefix="/v1",
        tags=[tag],
        dependencies=[Security(_key_header)],
        responses={**REFUSALS, **(responses or {})},
    )
