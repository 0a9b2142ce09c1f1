"""Clients of an HTTP service in one thread: sockets that wait side by side, so the load itself costs little."""

from __future__ import annotations

import re
import selectors
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

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

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(self.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._cursor = ""
        self._buffer = memoryview(bytearray(2**21))

    def ask(self) -> None:
        """Send the next request."""
        self._filled, self._end = 0, 0
        self._begun = time.perf_counter()
        line = f"GET {self.path}{self._cursor} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: bench\r\n\r\n"
        self.socket.sendall(line.encode())

    def read(self) -> bool:
        """Take what came; whether the walk is over."""
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
        if following[1] is None or len(self.took) == self.most:
            return True
        self._cursor = f"&cursor={following[1].decode()}"
        self.ask()
        return False


@dataclass
class Load:
    """What a number of walks took."""

    pages: int
    seconds: float
    took: list[float]
    page_bytes: float

    @property
    def rate(self) -> float:
        """Pages a second."""
        return self.pages / self.seconds


def walk(base_url: str, paths: list[str], most: int = 10**9) -> Load:
    """Follow paths side by side, one connection each, until all are at their end."""
    host, port = base_url.removeprefix("http://").split(":")
    waiting = selectors.DefaultSelector()
    walkers = [Walker((host, int(port)), path, most) for path in paths]
    begun = time.perf_counter()
    for walker in walkers:
        waiting.register(walker.socket, selectors.EVENT_READ, walker)
        walker.ask()
    left = len(walkers)
    while left:
        for done in _ready(waiting):
            waiting.unregister(done.socket)
            left -= 1
    seconds = time.perf_counter() - begun
    for walker in walkers:
        walker.socket.close()
    took = [t for walker in walkers for t in walker.took]
    sizes = [s for walker in walkers for s in walker.sizes]
    return Load(len(took), seconds, took, sum(sizes) / len(sizes))


def _ready(waiting: selectors.BaseSelector) -> Iterator[Any]:
    for key, _ in waiting.select():
        if key.data.read():
            yield key.data
