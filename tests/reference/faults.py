"""A server in this process that misbehaves as told, in the words of toxiproxy.

``FaultServer(answer)`` asks ``answer(ask)`` for an ``Act`` per request; acts in ``script`` come first.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Ask:
    """One request as it came in."""

    target: str
    headers: tuple[tuple[str, str], ...]
    connection: int = 0
    at: float = 0.0
    method: str = "GET"
    body: bytes = b""

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def params(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    def header(self, name: str) -> list[str]:
        return [v for n, v in self.headers if n.lower() == name.lower()]


@dataclass(frozen=True)
class Act:
    """One answer, and what goes wrong with it."""

    status: int = 200
    body: bytes = b"{}"
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "application/json"),)
    framing: str = "length"  # length, chunked, close
    limit_data: int | None = None  # bytes of the body that are sent before the connection ends
    reset: bool = False  # end by RST, not FIN
    latency: float = 0.0
    slicer: tuple[int, float] | None = None  # bytes per slice, pause between slices [s]
    before: bytes = b""  # sent ahead of the status line
    raw: bytes | None = None  # sent instead of everything
    ends: bool = False  # the connection ends after a whole answer

    def with_header(self, name: str, value: str) -> Act:
        kept = tuple((n, v) for n, v in self.headers if n.lower() != name.lower())
        return replace(self, headers=(*kept, (name, value)))

    def zipped(self, data: bytes | None = None) -> Act:
        """The same body in gzip; or these bytes under the name of gzip."""
        return replace(self.with_header("Content-Encoding", "gzip"), body=data or gzip.compress(self.body))


RESET_PEER = Act(raw=b"", reset=True)
HANG_UP = Act(raw=b"")


def ok(value: Any, **options: Any) -> Act:
    """200 with this JSON."""
    return Act(body=json.dumps(value).encode(), **options)


def refuse(status: int, detail: Any = "no", **headers: str) -> Act:
    """An error of the service with this detail."""
    act = Act(status=status, body=json.dumps({"detail": detail}).encode())
    for name, value in headers.items():
        act = act.with_header(name.replace("_", "-"), value)
    return act


@dataclass
class FaultServer:
    """Use as a context manager; ``base_url`` and ``asks`` are what tests look at."""

    answer: Callable[[Ask], Act] = lambda ask: ok({})
    script: list[Act] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.base_url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for sock in self._open:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    @property
    def connections(self) -> int:
        """How many connections asked something."""
        return len({a.connection for a in self.asks})

    def _accept(self) -> None:
        number = 0
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            number += 1
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._open.add(sock)
            threading.Thread(target=self._serve, args=(sock, number), daemon=True).start()

    def _serve(self, sock: socket.socket, number: int) -> None:
        try:
            with contextlib.suppress(OSError), sock, sock.makefile("rb") as stream:
                while (ask := _read(stream, number)) is not None:
                    with self._lock:
                        self.asks.append(ask)
                        act = self.script.pop(0) if self.script else None
                    if not play(act or self.answer(ask), sock):
                        return
        finally:
            with self._lock:
                self._open.discard(sock)


def _read(stream: Any, number: int) -> Ask | None:
    first = stream.readline(65536).decode("latin-1").split(" ")
    if len(first) < 3:
        return None
    headers = []
    while (line := stream.readline(65536).decode("latin-1").rstrip("\r\n")) != "":
        name, _, value = line.partition(":")
        headers.append((name, value.strip()))
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Ask(first[1], tuple(headers), number, time.monotonic(), first[0], stream.read(length))


def play(act: Act, sock: socket.socket) -> bool:
    """Send an act; whether the connection goes on."""
    time.sleep(act.latency)
    data = act.raw if act.raw is not None else act.before + _head(act) + _framed(act)
    if act.slicer is None:
        sock.sendall(data)
    else:
        size, pause = act.slicer
        for i in range(0, len(data), size):
            sock.sendall(data[i : i + size])
            time.sleep(pause)
    if act.reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return not (act.raw is not None or act.limit_data is not None or act.framing == "close" or act.ends)


def _head(act: Act) -> bytes:
    headers = [f"{n}: {v}" for n, v in act.headers]
    if act.framing == "length" and act.status not in (204, 304):
        headers.append(f"Content-Length: {len(act.body)}")
    elif act.framing == "chunked":
        headers.append("Transfer-Encoding: chunked")
    elif act.framing == "close":
        headers.append("Connection: close")
    return "\r\n".join([f"HTTP/1.1 {act.status} X", *headers, "", ""]).encode("latin-1")


def _framed(act: Act) -> bytes:
    body = act.body if act.limit_data is None else act.body[: act.limit_data]
    if act.status in (204, 304):
        return b""
    if act.framing != "chunked":
        return body
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i : i + 100]), body[i : i + 100]) for i in range(0, len(body), 100))
    return chunks if act.limit_data is not None else chunks + b"0\r\n\r\n"
