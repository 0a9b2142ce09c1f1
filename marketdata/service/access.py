"""Access to the parts of the service: the key of a request, its plan, and its remaining requests of a minute."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

from fastapi import Depends, HTTPException, Request, Security
from fastapi.security import APIKeyHeader
from starlette.datastructures import Headers

from marketdata.archive.reading import Reader
from marketdata.errors import ConfigError
from marketdata.resolution import UNITS, BucketWidth, Resolution
from marketdata.service.cursors import Cursors
from marketdata.service.keys import AccessPlan, KeyEntry, KeyStore
from marketdata.service.listings import Listings
from marketdata.service.pages import Pages
from marketdata.service.parameters import refuse_repeated


class RateLimiter:
    """Lets as many requests of a key pass in any 60 s as its plan allows.

    It is used by the event loop alone, so it needs no lock. It counts by the monotonic clock, which is never set back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._passed: defaultdict[str, deque[float]] = defaultdict(deque)

    def wait(self, key_id: str, per_minute: int) -> int | None:
        """None if the request passes, else the whole seconds after which one does."""
        remaining, seconds = self.remaining(key_id, per_minute)
        if not remaining:
            return math.floor(seconds) + 1
        self._passed[key_id].append(self.clock())
        return None

    def remaining(self, key_id: str, per_minute: int) -> tuple[int, float]:
        """Requests that would pass now, and the seconds until one more does."""
        passed, now = self._passed[key_id], self.clock()
        while passed and passed[0] < now - 60:
            passed.popleft()
        # More than the plan allows have passed only if the plan was lowered meanwhile.
        wait = passed[-min(len(passed), per_minute)] + 60 - now if passed else 0.0
        return max(0, per_minute - len(passed)), wait


@dataclass
class State:
    """The parts of the service; ``resolutions`` are those that requests may name, finest first."""

    archive: Reader
    simulated: bool
    keys: KeyStore
    cursors: Cursors
    clock: Callable[[], float]
    resolutions: list[str]
    host_names: set[str]
    pages: Pages
    listings: Listings
    limiter: RateLimiter = field(default_factory=RateLimiter)

    @property
    def derivable(self) -> list[str]:
        """The resolutions that the archive can be read at: its base may be coarser than some of the service's."""
        base = BucketWidth.of(self.archive.base)
        return [text for text in self.resolutions if base.divides(BucketWidth.of(text))]

    async def admit(self, headers: Headers) -> tuple[KeyEntry, AccessPlan]:
        """The key and plan of the sender; HTTPException 401 without one valid key, 429 beyond its rate."""
        if self.keys.is_stale:
            await asyncio.to_thread(self.keys.refresh)
        sent = _sent_keys(headers)
        grant = self.keys.find(sent[0].encode("latin-1")) if len(sent) == 1 else None
        if grant is None:
            raise HTTPException(401, "Invalid or expired API key.")
        key, plan = grant
        wait = self.limiter.wait(key.id, plan.requests_per_minute)
        if wait is not None:
            raise HTTPException(429, "Rate limit exceeded. Please try again later.", {"Retry-After": str(wait)})
        return key, plan


def _sent_keys(headers: Headers) -> list[str]:
    """The keys of a request, in X-API-Key or as a bearer token; two are refused, also if they are equal."""
    bearers = (value.partition(" ") for value in headers.getlist("authorization"))
    return [*headers.getlist("x-api-key"), *(key.strip() for kind, _, key in bearers if kind.lower() == "bearer")]


def read_resolutions(given: Sequence[str] | None, archive: Reader) -> list[str]:
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
    """The parts of the service, the key of a request, and its plan."""

    state: State
    key: KeyEntry
    plan: AccessPlan


# This header only describes the key: the middleware has checked it before any route is chosen.
_DESCRIBED_KEY = Security(APIKeyHeader(name="X-API-Key", auto_error=False, description="The key of your plan."))


def _request_context(request: Request, _key: Annotated[str | None, _DESCRIBED_KEY]) -> RequestContext:
    refuse_repeated(request)
    return RequestContext(request.app.state.service, *request.state.grant)


Context = Annotated[RequestContext, Depends(_request_context)]
