"""Clients of an HTTP service in one thread: sockets that wait side by side, so the load itself costs little."""

from __future__ import annotations

import math
import re
import selectors
import socket
import time
from bisect import insort
from collections import deque
from dataclasses import dataclass, field

_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_CURSOR = re.compile(rb'"next_cursor":(?:"([^"]+)"|null)')


@dataclass
class Walker:
    """One connection that follows the cursors of a path to the end."""

    address: tuple[str, int]
    path: str
    most: int
    took: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    due: float = math.inf

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(self.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._cursor = ""
        self._buffer = memoryview(bytearray(2**21))

    def ask(self) -> None:
        """Send the next request."""
        self._filled, self._end = 0, 0
        # A request that is sent late for its plan has waited since it was due.
        self._begun = min(time.perf_counter(), self.due)
        line = f"GET {self.path}{self._cursor} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: bench\r\n\r\n"
        self.socket.sendall(line.encode())

    def read(self) -> bool:
        """Take what came; whether a page is whole."""
        self._filled += self.socket.recv_into(self._buffer[self._filled :])
        if not self._end:
            head, found, _ = bytes(self._buffer[: min(self._filled, 4096)]).partition(b"\r\n\r\n")
            if not found:
                return False
            length = _LENGTH.search(head)
            assert head.startswith(b"HTTP/1.1 200"), head
            assert length is not None
            self._end = len(head) + 4 + int(length[1])
        if self._filled < self._end:
            return False
        self.took.append(time.perf_counter() - self._begun)
        self.sizes.append(self._end)
        following = _CURSOR.search(self._buffer[max(0, self._end - 400) : self._end])
        assert following is not None
        self._cursor = f"&cursor={following[1].decode()}" if following[1] else ""
        return True

    @property
    def over(self) -> bool:
        """Whether the walk is at its end."""
        return bool(self.took) and (not self._cursor or len(self.took) == self.most)


@dataclass
class Load:
    """What a number of walks took."""

    pages: int
    seconds: float
    took: list[float]
    page_bytes: float
    cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Pages a second."""
        return self.pages / self.seconds


def walk(base_url: str, paths: list[str], most: int = 10**9, *, rate: float | None = None) -> Load:
    """Follow paths side by side, one connection each, until all are at their end.

    Parameters
    ----------
    most : int
        Pages of one path.
    rate : float, optional
        Pages a second of all together, sent when they are due; without it each connection asks at once again.
    """
    host, port = base_url.removeprefix("http://").split(":")
    waiting = selectors.DefaultSelector()
    walkers = [Walker((host, int(port)), path, most) for path in paths]
    begun = time.perf_counter()
    every = len(walkers) / rate if rate else 0.0
    idle = deque(walkers)
    for k, walker in enumerate(walkers):
        waiting.register(walker.socket, selectors.EVENT_READ, walker)
        walker.due = begun + k * every / len(walkers)
    left = len(walkers)
    while left:
        while idle and idle[0].due <= time.perf_counter():
            idle.popleft().ask()
        for key, _ in waiting.select(max(0.0, idle[0].due - time.perf_counter()) if idle else None):
            walker = key.data
            if not walker.read():
                continue
            if walker.over:
                waiting.unregister(walker.socket)
                left -= 1
                continue
            walker.due = walker.due + every if rate else time.perf_counter()
            insort(idle, walker, key=lambda w: w.due)
    seconds = time.perf_counter() - begun
    for walker in walkers:
        walker.socket.close()
    took = [t for walker in walkers for t in walker.took]
    sizes = [s for walker in walkers for s in walker.sizes]
    return Load(len(took), seconds, took, sum(sizes) / len(sizes))
