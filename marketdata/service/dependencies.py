"""Dependencies of routes: the parts of the service, and the request that they answer."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Response
from fastapi.exceptions import RequestValidationError

from marketdata.points.views import VIEWS, View
from marketdata.service import errors
from marketdata.service.auth import Grant
from marketdata.service.cache import CACHE_BYTES
from marketdata.service.coverage import covered_intervals
from marketdata.service.exchange import Exchange
from marketdata.service.listings import Listings
from marketdata.service.pagination import Cursors, Pages
from marketdata.service.rate_limit import RateLimiter
from marketdata.times import Range

if TYPE_CHECKING:
    from marketdata.archive import Archive

# Bytes from which an answer is compressed: a shorter one fits a packet.
GZIP_FROM = 1_000
# Parameters that are refused with 400 rather than 422 (interface 7).
_REFUSED_AS_400 = {"start_ts", "end_ts", "cursor"}


class Parts:
    """The parts of the service, which the application's state has; processes with one ``folder`` count together."""

    def __init__(
        self,
        source: Archive,
        secret: bytes,
        *,
        cache_bytes: int = CACHE_BYTES,
        clock: Callable[[], float] = time.time,
        folder: Path | None = None,
    ) -> None:
        self.source, self.clock = source, clock
        self.pages = Pages(source, cache_bytes=cache_bytes)
        self.cursors = Cursors(secret, clock=clock)
        self.listings = Listings(source)
        self._covered = lru_cache(len(VIEWS))(lambda view, _: covered_intervals(source.coverage(frame="polars"), view))
        self.rate_limiter = RateLimiter(folder)

    def covered(self, view: View) -> dict[str, list[Range]]:
        """The ranges with points of every market that has some: a commit of points has their coverage too."""
        return self._covered(view, self.source.version(view))

    def warm(self) -> None:
        """Load what the first request would otherwise wait for."""
        for view in VIEWS:
            self.covered(view)
        self.listings.warm()


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
            # The fastest level makes a page of books about a third as long.
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


Context = Annotated[RequestContext, Depends(read_context)]
