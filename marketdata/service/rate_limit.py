"""Requests per minute of a key, wrong keys of an address: an exact sliding window of 60 s on a monotonic clock."""

from __future__ import annotations

import contextlib
import hashlib
import math
import mmap
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from pathlib import Path

# Requests are counted per minute [s].
WINDOW = 60


class RateLimiter:
    """Lets as many requests of a name pass in any 60 s as its plan allows; refusing takes constant time.

    Processes that are given one ``folder`` count together: the monotonic clock is that of the machine. Without one, of
    more than ``most`` names the one that asked longest ago starts anew.
    """

    def __init__(
        self, folder: Path | None = None, *, most: float = math.inf, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._folder = folder
        self._most = most
        self._lock = threading.Lock()
        self._rings: dict[str, bytes | bytearray] = {}

    def wait(self, name: str, per_minute: int) -> int | None:
        """None if the request passes, else the whole seconds after which one does."""
        with self._ring(name, per_minute) as ring:
            now, count, size = self._clock(), int(ring[0]), len(ring) - 1
            first = count - per_minute
            if first < 0 or ring[1 + first % size] < now - WINDOW:
                ring[1 + count % size], ring[0] = now, count + 1
                return None
            return math.floor(ring[1 + first % size] + WINDOW - now) + 1

    def left(self, name: str, per_minute: int) -> tuple[int, float]:
        """Requests that would pass now, and the seconds until one more does."""
        with self._ring(name, per_minute) as ring:
            now, count, size = self._clock(), int(ring[0]), len(ring) - 1
            kept = range(max(0, count - size), count)
            first = kept.start + bisect_left(kept, now - WINDOW, key=lambda number: ring[1 + number % size])
            if first == count:
                return per_minute, 0.0
            # More than the plan allows have passed only if the plan was lowered meanwhile.
            wait = ring[1 + max(first, count - per_minute) % size] + WINDOW - now
            return max(0, per_minute - (count - first)), max(0.0, wait)

    @contextlib.contextmanager
    def _ring(self, name: str, size: int) -> Iterator[memoryview[float]]:
        """The number of passed requests of a name, and times of the last ``size`` or more: number i is at 1 + i % size.

        For no other thread or process at the same time.
        """
        with self._lock:
            if self._folder is None:
                ring = self._rings.pop(name, b"")
                ring = ring if len(ring) >= (1 + size) * 8 else bytearray(_enlarged(ring, size))
                self._rings[name] = ring
                if len(self._rings) > self._most:
                    del self._rings[next(iter(self._rings))]
                yield memoryview(ring).cast("d")
                return
            import fcntl

            path = self._folder / hashlib.sha256(name.encode()).hexdigest()
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
