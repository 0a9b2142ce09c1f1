"""What routes need: the parts of the service, and the sender of a request."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader

from marketdata.archive.reader import Reader
from marketdata.errors import ConfigError
from marketdata.points.views import VIEWS, View
from marketdata.resolution import UNITS, BucketWidth, Resolution
from marketdata.service.access import Access, Grant
from marketdata.service.coverage import covered_intervals
from marketdata.service.cursors import Cursors
from marketdata.service.keys import KeyStore
from marketdata.service.listings import Listings
from marketdata.service.pages import CACHE_BYTES, Pages
from marketdata.service.parameters import refuse_repeated
from marketdata.times import Range

if TYPE_CHECKING:
    from collections.abc import Sequence


# For the description alone: the middleware has checked the key before any route is chosen.
_described_key = APIKeyHeader(name="X-API-Key", auto_error=False, description="The key of your plan.")


class State:
    """The parts of the service; ``resolutions`` are those that requests may name, finest first."""

    def __init__(
        self,
        archive: Any,
        keys: KeyStore,
        secret: bytes,
        *,
        resolutions: Sequence[str] | None = None,
        cache_bytes: int = CACHE_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.archive, self.clock = archive if isinstance(archive, Reader) else Reader(archive), clock
        self.simulated = archive.simulated
        self.resolutions = _read_resolutions(resolutions, self.archive)
        self.access = Access(keys)
        self.pages = Pages(self.archive, cache_bytes=cache_bytes)
        self.cursors = Cursors(secret, clock)
        self.listings = Listings(self.archive)
        self._covered = lru_cache(len(VIEWS))(self._read_covered)

    @property
    def derivable(self) -> list[str]:
        """The resolutions that the archive can be read at: its base may be coarser than some of the service's."""
        base = BucketWidth.of(self.archive.base)
        return [text for text in self.resolutions if base.divides(BucketWidth.of(text))]

    def covered(self, view: View) -> dict[str, list[Range]]:
        """The ranges with points, of every market that has some."""
        return self._covered(view, self.archive.version(view))

    def _read_covered(self, view: View, _version: int) -> dict[str, list[Range]]:
        return covered_intervals(self.archive.coverage(), view)


def _read_resolutions(given: Sequence[str] | None, archive: Reader) -> list[str]:
    """The five of the interface, and the archive's own below a minute; or what is given, by width."""
    base = BucketWidth.of(archive.base)
    if given is None:
        return [*([base.text] if base.micros < UNITS["m"] else []), *(one.value for one in Resolution)]
    widths = [BucketWidth.of(text, "resolutions") for text in given]
    for width in widths:
        if width.offset or not base.divides(width):
            problem = f"is refused; the archive has points of {base}, and buckets begin at the epoch."
            raise ConfigError(problem, argument="resolutions", value=width.text)
    if not widths:
        raise ConfigError("is empty; name at least one, such as '1m'.", argument="resolutions", value=given)
    return [width.text for width in sorted(widths, key=lambda width: width.micros)]


class RequestContext(NamedTuple):
    """The parts of the service, and what the key of a request allows."""

    state: State
    grant: Grant


def _request_context(request: Request, _key: Annotated[str | None, Security(_described_key)]) -> RequestContext:
    refuse_repeated(request)
    return RequestContext(request.app.state.service, request.state.grant)


Context = Annotated[RequestContext, Depends(_request_context)]
