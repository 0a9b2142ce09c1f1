"""Limits of a connection, which the HTTP server lacks: size and time of request heads, and unread bytes of answers."""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict, deque
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from marketdata.service import errors

HEAD_SECONDS = 10.0
STALL_SECONDS = 30.0
MAX_HEAD = 64 * 1024
MAX_URL = 8 * 1024
# Bytes of answers that clients have not read yet, of all connections together; one answer of each connection.
MAX_UNSENT = 64 * 2**20
# Bytes that are parsed in one turn: some fifty of the shortest requests.
PARSED_AT_ONCE = 1024
URL_TOO_LONG = f"The URL is longer than {MAX_URL} bytes."
HEADERS_TOO_LARGE = "The request headers are too large."
_METHODS = (b"DELETE", b"GET", b"HEAD", b"POST", b"PUT", b"CONNECT", b"OPTIONS", b"TRACE", b"PATCH")
_UNKNOWN_METHOD = re.compile(rb"\s*([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}) /", re.ASCII)


class ParseQueue:
    """Connections with bytes to parse: one in each turn of the loop, senders (keys or addresses) in rotation."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[LimitedProtocol]] = OrderedDict()

    def add(self, sender: str, connection: LimitedProtocol) -> None:
        """Queue a connection for parsing a part of its bytes."""
        if not self._waiting:
            connection.loop.call_soon(self._parse_next)
        self._waiting.setdefault(sender, deque()).append(connection)

    def _parse_next(self) -> None:
        sender, connections = self._waiting.popitem(last=False)
        connection = connections.popleft()
        if connections:
            self._waiting[sender] = connections
        if self._waiting:
            connection.loop.call_soon(self._parse_next)
        connection.parse_part()


_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, ParseQueue] = WeakKeyDictionary()


class LimitedProtocol(HttpToolsProtocol):
    """One connection, with limits."""

    head_seconds = HEAD_SECONDS
    stall_seconds = STALL_SECONDS
    max_unsent = MAX_UNSENT

    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _head_bytes = 0
    _in_head = False
    _first = b""
    stalled_at = 0.0
    # An answer is complete but not read; the next request waits for that.
    _unread = False
    _in_queue = False
    _sender = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client connects."""
        super().connection_made(transport)
        self._unparsed = bytearray()
        self._queue = _queues.setdefault(self.loop, ParseQueue())
        self._sender = self.client[0] if self.client else ""
        # The middleware writes the access log; this one would show queries, and keys in them.
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

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; trailers, which come after the head, are none."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head is whole."""
        self._in_head = False
        self._stop("_head_timer")
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Bytes arrive."""
        self._unparsed += data
        if len(self._unparsed) > PARSED_AT_ONCE:
            self.flow.pause_reading()
        self._await_turn()

    def on_body(self, body: bytes) -> None:
        """No route reads a body."""

    def on_response_complete(self) -> None:
        """An answer is written; the next request follows once it is read."""
        if self.flow.write_paused and not self.transport.is_closing():
            self._unread = True
            self.flow.pause_reading()
            return
        grant = self.cycle.scope["state"].get("grant")
        if grant is not None:
            self._sender = f"key {grant.key_id}"
        super().on_response_complete()
        self._await_turn()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._stop("_stall_timer")
        self._stall_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)
        self.stalled_at = self.loop.time()
        self._bound_unsent()

    def resume_writing(self) -> None:
        """The client reads again."""
        self._stop("_stall_timer")
        super().resume_writing()
        if self._unread:
            self._unread = False
            self.on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing arrived for long: close, even if the client never reads what was written."""
        super().timeout_keep_alive_handler()
        self._stop("_stall_timer")
        self._stall_timer = self.loop.call_later(self.stall_seconds, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Answer invalid HTTP as JSON; 405 for an unknown method."""
        if not self._idle:
            # The previous answer is still being written.
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

    def _await_turn(self) -> None:
        if not self._in_queue and not self._must_wait:
            self._in_queue = True
            self._queue.add(self._sender, self)

    @property
    def _must_wait(self) -> bool:
        """Whether there is nothing to parse, or no room for answers."""
        return self._unread or bool(self.pipeline) or not self._unparsed

    def parse_part(self) -> None:
        """Parse a part of the bytes; the rest in its next turn, or when there is room for answers."""
        self._in_queue = False
        if self._must_wait:
            return
        data = bytes(self._unparsed[:PARSED_AT_ONCE])
        del self._unparsed[:PARSED_AT_ONCE]
        if self._idle:
            self._first = self._first[:128] + data[: 128 - len(self._first[:128])]
        if not self.transport.is_closing():
            super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            # The head began somewhere in the first bytes, so only those after them count.
            self._head_bytes = 0 if self._head_bytes < 0 else self._head_bytes + len(data)
            if self._head_bytes > MAX_HEAD:
                self._refuse_head()
        if self.transport.is_closing():
            self._unparsed.clear()
            return
        if self._idle:
            self._await_head()
        else:
            self._first = b""
        if self._unparsed:
            self.flow.pause_reading()
            self._await_turn()
        elif not self.pipeline:
            self.flow.resume_reading()

    def _bound_unsent(self) -> None:
        """Abort the connections with the most unread bytes until the others fit."""
        unsent = {
            p: p.transport.get_write_buffer_size()
            for p in self.connections
            if isinstance(p, LimitedProtocol) and p.flow.write_paused
        }
        total = sum(unsent.values())
        while total > self.max_unsent:
            largest = max(unsent, key=lambda p: (unsent[p], -p.stalled_at))
            total -= unsent.pop(largest)
            largest.transport.abort()

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
        body = errors.body(detail)
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
