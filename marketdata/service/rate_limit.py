"""Requests per minute of a key: an exact sliding window of 60 s on a monotonic clock."""

from __future__ import annotations

import contextlib
import hashlib
import io
import ipaddress
import math
import struct
import threading
import time
from bisect import bisect_left
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

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
        self._files: defaultdict[str, BinaryIO] = defaultdict(io.BytesIO)

    def wait(self, key_id: str, per_minute: int) -> int | None:
        """None if the request passes, else the whole seconds after which one does."""
        with self._passed(key_id, per_minute) as passed:
            now, first = self._clock(), passed.count - per_minute
            if first < 0 or passed[first] < now - WINDOW:
                passed.append(now)
                return None
            return math.floor(passed[first] + WINDOW - now) + 1

    def left(self, key_id: str, per_minute: int) -> tuple[int, float]:
        """Requests that would pass now, and the seconds until one more does."""
        with self._passed(key_id, per_minute) as passed:
            now, count = self._clock(), passed.count
            kept = range(max(0, count - passed.size), count)
            first = kept.start + bisect_left(kept, now - WINDOW, key=passed.__getitem__)
            if first == count:
                return per_minute, 0.0
            # More than the plan allows have passed only if the plan was lowered meanwhile.
            wait = passed[max(first, count - per_minute)] + WINDOW - now
            return max(0, per_minute - (count - first)), max(0.0, wait)

    @contextlib.contextmanager
    def _passed(self, key_id: str, per_minute: int) -> Iterator[Passed]:
        """The requests of a key, for no other thread or process at the same time."""
        with self._lock:
            if self._folder is None:
                yield Passed(self._files[key_id], per_minute)
                return
            import fcntl

            path = self._folder / hashlib.sha256(key_id.encode()).hexdigest()
            path.touch()
            with path.open("r+b", buffering=0) as file:
                fcntl.flock(file, fcntl.LOCK_EX)  # until it is closed
                yield Passed(file, per_minute)


class Passed:
    """The times of the last ``size`` requests that passed, in a file; the last of all is number ``count - 1``."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        file.seek(0)
        self.count, self.size = struct.unpack("QQ", file.read(16) or bytes(16))
        if self.size < size:
            # The plan is new, or was raised.
            kept = range(max(0, self.count - self.size), self.count)
            times = [self[number] for number in kept]
            self.count, self.size = kept.start, size
            for at in times:
                self.append(at)

    def __getitem__(self, number: int) -> float:
        self._file.seek(16 + number % self.size * 8)
        found: float = struct.unpack("d", self._file.read(8))[0]
        return found

    def append(self, at: float) -> None:
        """A request passed."""
        self._file.seek(16 + self.count % self.size * 8)
        self._file.write(struct.pack("d", at))
        self.count += 1
        self._file.seek(0)
        self._file.write(struct.pack("QQ", self.count, self.size))


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
