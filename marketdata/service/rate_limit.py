"""Requests per minute of a key: an exact sliding window of 60 s on a monotonic clock."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import math
import mmap
import struct
import threading
import time
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

# Requests are counted per minute [s].
WINDOW = 60


class RateLimiter:
    """Lets as many requests of a key pass in any 60 s as its plan allows; refusing takes constant time.

    Processes that are given one ``folder`` count together: the monotonic clock is that of the machine.
    """

    def __init__(self, folder: Path | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._folder = folder
        self._lock = threading.Lock()
        self._rings: defaultdict[str, bytes | bytearray] = defaultdict(bytes)

    def wait(self, key_id: str, per_minute: int) -> int | None:
        """None if the request passes, else the whole seconds after which one does."""
        with self._ring(key_id, per_minute) as ring:
            now, count, size = self._clock(), int(ring[0]), len(ring) - 1
            first = count - per_minute
            if first < 0 or ring[1 + first % size] < now - WINDOW:
                ring[1 + count % size], ring[0] = now, count + 1
                return None
            return math.floor(ring[1 + first % size] + WINDOW - now) + 1

    def left(self, key_id: str, per_minute: int) -> tuple[int, float]:
        """Requests that would pass now, and the seconds until one more does."""
        with self._ring(key_id, per_minute) as ring:
            now, count, size = self._clock(), int(ring[0]), len(ring) - 1
            kept = range(max(0, count - size), count)
            first = kept.start + bisect_left(kept, now - WINDOW, key=lambda number: ring[1 + number % size])
            if first == count:
                return per_minute, 0.0
            # More than the plan allows have passed only if the plan was lowered meanwhile.
            wait = ring[1 + max(first, count - per_minute) % size] + WINDOW - now
            return max(0, per_minute - (count - first)), max(0.0, wait)

    @contextlib.contextmanager
    def _ring(self, key_id: str, size: int) -> Iterator[memoryview[float]]:
        """How many requests of a key passed, and the times of the last ``size`` or more: number i is at 1 + i % size.

        For no other thread or process at the same time.
        """
        with self._lock:
            if self._folder is None:
                if len(self._rings[key_id]) < (1 + size) * 8:
                    self._rings[key_id] = bytearray(_enlarged(self._rings[key_id], size))
                yield memoryview(self._rings[key_id]).cast("d")
                return
            import fcntl

            path = self._folder / hashlib.sha256(key_id.encode()).hexdigest()
            path.touch()
            with path.open("r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
                if path.stat().st_size < (1 + size) * 8:
                    fresh = _enlarged(file.read(), size)
                    file.seek(0)
                    file.write(fresh)
                yield memoryview(mmap.mmap(file.fileno(), 0)).cast("d")


def _enlarged(ring: bytes | bytearray, size: int) -> bytes:
    """A ring for more times: the plan is new, or was raised."""
    count, *times = memoryview(ring or bytes(8)).cast("d")
    kept = range(max(0, int(count) - len(times)), int(count))
    known = [times[number % len(times)] for number in kept]
    return struct.pack(f"{1 + size}d", len(known), *known, *[0.0] * (size - len(known)))


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
