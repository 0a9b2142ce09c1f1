"""Requests per minute of a key: an exact sliding window of 60 s on a monotonic clock."""

from __future__ import annotations

import ipaddress
import math
import threading
import time
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable

WINDOW = 60


class RateLimiter:
    """Lets as many requests of a key pass in any 60 s as its plan allows; refusing takes constant time."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._passed: defaultdict[str, deque[float]] = defaultdict(deque)

    def wait(self, key_id: str, per_minute: int) -> int | None:
        """None if the request passes, else the whole seconds after which one does."""
        with self._lock:
            now, passed = self._window(key_id)
            if len(passed) < per_minute:
                passed.append(now)
                return None
            return math.floor(self._until_next(passed, per_minute, now)) + 1

    def left(self, key_id: str, per_minute: int) -> tuple[int, float]:
        """Requests that would pass now, and the seconds until one more does."""
        with self._lock:
            now, passed = self._window(key_id)
            if not passed:
                return per_minute, 0.0
            return max(0, per_minute - len(passed)), self._until_next(passed, per_minute, now)

    def _window(self, key_id: str) -> tuple[float, deque[float]]:
        now, passed = self._clock(), self._passed[key_id]
        while passed and passed[0] < now - WINDOW:
            passed.popleft()
        return now, passed

    @staticmethod
    def _until_next(passed: deque[float], per_minute: int, now: float) -> float:
        # More than the plan allows have passed only if the plan was lowered meanwhile.
        return max(0.0, passed[max(0, len(passed) - per_minute)] + WINDOW - now)


class FailedAttempts:
    """Wrong keys of the last minute by address, in a table of bounded size."""

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
        now, network = self._clock(), _network(address)
        since, count = self._table.pop(network, (now, 0))
        if now - since >= WINDOW:
            since, count = now, 0
        self._table[network] = since, count + 1
        if len(self._table) > self._addresses:
            self._table.popitem(last=False)
        return None if count < self._per_minute else math.floor(since + WINDOW - now) + 1


def _network(address: str) -> str:
    """The network of a client: an IPv6 client may choose any address with the same first 64 bits."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped is not None:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False))
