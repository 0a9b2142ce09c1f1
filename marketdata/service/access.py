"""Access to the service: the key of a request, its plan, and the requests that it has left in its minute."""

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple

from starlette.datastructures import Headers

from marketdata.service import errors
from marketdata.service.keys import AccessPlan, KeyEntry, KeyStore


class RateLimiter:
    """Lets as many requests of a key pass in any 60 s as its plan allows.

    It is used by the event loop alone, so it needs no lock. It counts by the monotonic clock, which is never set back.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._passed: defaultdict[str, deque[float]] = defaultdict(deque)

    def wait(self, key_id: str, per_minute: int) -> int | None:
        """None if the request passes, else the whole seconds after which one does."""
        passed, now = self._last_minute(key_id)
        if len(passed) < per_minute:
            passed.append(now)
            return None
        return math.floor(passed[-per_minute] + 60 - now) + 1

    def remaining(self, key_id: str, per_minute: int) -> tuple[int, float]:
        """Requests that would pass now, and the seconds until one more does."""
        passed, now = self._last_minute(key_id)
        # More than the plan allows have passed only if the plan was lowered meanwhile.
        wait = passed[-min(len(passed), per_minute)] + 60 - now if passed else 0.0
        return max(0, per_minute - len(passed)), wait

    def _last_minute(self, key_id: str) -> tuple[deque[float], float]:
        passed, now = self._passed[key_id], self.clock()
        while passed and passed[0] < now - 60:
            passed.popleft()
        return passed, now


class Grant(NamedTuple):
    """What the key of a request allows."""

    key: KeyEntry
    plan: AccessPlan


class Access:
    """Admits requests by their key and its rate."""

    def __init__(self, keys: KeyStore) -> None:
        self.keys = keys
        self.limiter = RateLimiter()

    async def admit(self, headers: Headers) -> Grant:
        """The rights of the sender; HTTPException 401 without one valid key, 429 beyond its rate."""
        if self.keys.is_stale:
            await asyncio.to_thread(self.keys.refresh)
        sent = headers.getlist("x-api-key")
        grant = self.keys.find(sent[0].encode("latin-1")) if len(sent) == 1 else None
        if grant is None:
            raise errors.invalid_key()
        key, plan = grant
        wait = self.limiter.wait(key.id, plan.requests_per_minute)
        if wait is not None:
            raise errors.rate_exceeded(wait)
        return Grant(key, plan)
