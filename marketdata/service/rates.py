"""Requests per minute of a key: an exact moving window of 60 seconds on a clock that is never set back."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from limits import RateLimitItemPerMinute
from limits.storage import MovingWindowSupport, Storage, storage_from_string
from limits.strategies import MovingWindowRateLimiter

WINDOW = 60
MEMORY = "memory://"


class PerMinute(RateLimitItemPerMinute):
    """A rate whose window goes on when the number of requests that a plan allows is changed."""

    def key_for(self, *identifiers: Any) -> str:
        """The window of a key."""
        return "/".join(("marketdata", *map(str, identifiers)))


class Windows(Storage, MovingWindowSupport):
    """Moving windows in memory.

    The store that ``limits`` brings reads the wall clock, so a clock that is set forward would let a
    second budget through, and it starts a thread per request to expire entries.
    """

    STORAGE_SCHEME = ["marketdata-windows"]  # noqa: RUF012 - as the base class says it

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._passed: dict[str, deque[float]] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        """What this storage raises."""
        return ValueError

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        """Take a place in the window, if there is one."""
        now = self._clock()
        with self._lock:
            passed = self._passed.setdefault(key, deque())
            while passed and passed[0] < now - expiry:
                passed.popleft()
            if len(passed) + amount > limit:
                return False
            passed.extend([now] * amount)
            return True

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        """When the entry passed that must leave before the next one passes, and how many are in the window."""
        now = self._clock()
        with self._lock:
            inside = [t for t in self._passed.get(key, ()) if t >= now - expiry]
        return (inside[max(0, len(inside) - limit)], len(inside)) if inside else (now, 0)

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Not a counter."""
        raise NotImplementedError

    def get(self, key: str) -> int:
        """Not a counter."""
        raise NotImplementedError

    def get_expiry(self, key: str) -> float:
        """Not a counter."""
        raise NotImplementedError

    def check(self) -> bool:
        """Memory is always there."""
        return True

    def reset(self) -> int | None:
        """Forget every window."""
        with self._lock:
            count = len(self._passed)
            self._passed.clear()
        return count

    def clear(self, key: str) -> None:
        """Forget one window."""
        with self._lock:
            self._passed.pop(key, None)


class Rates:
    """Which requests of a key pass.

    Parameters
    ----------
    store : str
        ``memory://``, or the address of a store that several services share (``redis://...``).
    """

    def __init__(self, store: str = MEMORY, *, clock: Callable[[], float] | None = None) -> None:
        self.shared = store != MEMORY
        self._clock = clock or (time.time if self.shared else time.monotonic)
        storage = storage_from_string(store) if self.shared else Windows(self._clock)
        assert isinstance(storage, Storage)
        self._limiter = MovingWindowRateLimiter(storage)

    def wait(self, key_id: str, per_minute: int) -> int | None:
        """None if the request passes, else the whole seconds after which one does."""
        if self._limiter.hit(PerMinute(per_minute), key_id):
            return None
        return math.floor(max(0.0, self.left(key_id, per_minute)[1])) + 1

    def left(self, key_id: str, per_minute: int) -> tuple[int, float]:
        """Requests that would pass now, and the seconds until the oldest one leaves the window."""
        stats = self._limiter.get_window_stats(PerMinute(per_minute), key_id)
        if stats.remaining >= per_minute:
            return per_minute, 0.0
        return max(0, stats.remaining), stats.reset_time - self._clock()


class WrongKeys:
    """How often an address showed a wrong key in the last minute; a table of bounded size."""

    def __init__(
        self, per_minute: int = 300, *, addresses: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_minute = per_minute
        self._addresses = addresses
        self._clock = clock
        self._table: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._table)

    def wait(self, address: str) -> int | None:
        """Count a wrong key; None while that is tolerated, else the whole seconds to wait."""
        now = self._clock()
        since, count = self._table.pop(address, (now, 0))
        if now - since >= WINDOW:
            since, count = now, 0
        self._table[address] = since, count + 1
        if len(self._table) > self._addresses:
            self._table.popitem(last=False)
        return None if count < self._per_minute else math.floor(since + WINDOW - now) + 1
