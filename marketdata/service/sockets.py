"""What one connection may do: a head of bounded size within bounded time, and no stalled reading.

The HTTP server beneath has no time limit for a request head and answers its own errors as text.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

HEAD_SECONDS = 10.0
STALL_SECONDS = 30.0
MAX_HEAD = 64 * 1024
MAX_URL = 8 * 1024
URL_TOO_LONG = f"The URL is longer than {MAX_URL} bytes."
HEADERS_TOO_LARGE = "The request headers are too large."
_METHODS = (b"DELETE", b"GET", b"HEAD", b"POST", b"PUT", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH")
_UNKNOWN_METHOD = re.compile(rb"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) /", re.ASCII)


class GuardedProtocol(HttpToolsProtocol):
    """One connection, with limits."""

    head_seconds = HEAD_SECONDS
    stall_seconds = STALL_SECONDS

    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = False
    _first = b""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connects and owes a request head."""
        super().connection_made(transport)
        # The guard writes the access log; the one here would show queries, and keys in them.
        self.access_log = False
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._stop("_head_timer")
        self._stop("_stall_timer")
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = -1

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._in_head = False
        self._stop("_head_timer")
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Bytes arrive."""
        if self.transport.is_closing():
            return
        if self._idle:
            self._first = self._first[:128] + data[: 128 - len(self._first[:128])]
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head:
            # Where in these bytes a head began is not known, so only those after them count.
            self._head_bytes = 0 if self._head_bytes < 0 else self._head_bytes + len(data)
            if self._head_bytes > MAX_HEAD:
                self._refuse_head()
                return
        if self._idle:
            self._await_head()
        else:
            self._first = b""

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._stop("_stall_timer")
        self._stall_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop("_stall_timer")
        super().resume_writing()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for long: close, also if the client never takes what was written."""
        super().timeout_keep_alive_handler()
        self._stop("_stall_timer")
        self._stall_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """What is not HTTP is answered as JSON; a method that nobody knows is named as such."""
        if not self._idle:
            # The answer before is still being written; nothing may be mixed into it.
            self.cycle.keep_alive = False
            return
        if len(getattr(self, "url", b"")) > MAX_URL:
            self._write_and_close(414, URL_TOO_LONG)
            return
        method = _UNKNOWN_METHOD.match(self._first)
        if method is not None and method[1] not in _METHODS:
            self._write_and_close(405, "Method Not Allowed", [(b"allow", b"GET")])
        else:
            self._write_and_close(400, msg)

    @property
    def _idle(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def _await_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._head_late)

    def _head_late(self) -> None:
        self._head_timer = None
        if self._idle and not self.transport.is_closing():
            self.transport.close()

    def _refuse_head(self) -> None:
        if not self._idle:
            self.transport.close()
        elif b"\n" in self._first or self.headers:
            self._write_and_close(431, HEADERS_TOO_LARGE)
        else:
            self._write_and_close(414, URL_TOO_LONG)

    def _write_and_close(self, status: int, detail: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        body = json.dumps({"detail": detail}).encode()
        head = [STATUS_LINE[status], b"content-type: application/json\r\n", b"x-content-type-options: nosniff\r\n"]
        head.append(b"cache-control: no-store\r\n")
        head += [name + b": " + value + b"\r\n" for name, value in headers or ()]
        head += [b"content-length: " + str(len(body)).encode() + b"\r\nconnection: close\r\n\r\n", body]
        self.transport.write(b"".join(head))
        self.transport.close()

    def _stop(self, timer: str) -> None:
        running: Any = getattr(self, timer)
        if running is not None:
            running.cancel()
            setattr(self, timer, None)
