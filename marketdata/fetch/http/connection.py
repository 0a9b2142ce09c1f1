"""Connections of requests and the bytes of a body: whole within the deadline, or an error."""

from __future__ import annotations

import contextlib
import contextvars
import http.client
import io
import itertools
import os
import socket
import time
import weakref
import zlib
from collections.abc import Iterable, Iterator
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.connection import HTTPConnection, HTTPSConnection

from marketdata.errors import ContractError, NetworkError, PayloadTooLargeError
from marketdata.fetch.http.fork_lock import ForkLock
from marketdata.fetch.http.retry import Policy

# (steady time at which the attempt must be over, longest silence), of the attempt this thread makes
ATTEMPT: contextvars.ContextVar[tuple[float, float]] = contextvars.ContextVar("marketdata_attempt")
# Variables of the environment that name a proxy for https, and the CA bundle; the first one that is set counts.
PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# Bytes of a header: 64 KiB, as http.client allows for a line, and what is buffered beyond its end.
_LONGEST_HEAD = 72 * 1024
# Connections that are kept: as many as requests are in flight.
_MOST_IDLE = 96
# Bytes that are read or inflated at once, so that a bomb is seen before it is in memory.
_STEP = 1 << 16


class _Timed(io.RawIOBase):
    """Bytes of a socket, each read within what is left of the attempt: a slow server cannot outlive it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._until, self._silence = ATTEMPT.get((time.monotonic() + 120.0, 30.0))
        self.allowed: int | None = None
        self.is_over = False
        with _OPEN_LOCK:
            _OPEN.add(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self.is_over:
            return None
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        # Closed by http.client while the answer is still read: then the timeout set before stays.
        with contextlib.suppress(OSError):
            self._sock.settimeout(min(left, self._silence))
        got = self._raw.readinto(buffer) or 0
        if self.allowed is not None:
            self.allowed -= got
            if self.allowed < 0:
                raise http.client.HTTPException("the header is larger than 64 KiB")
        return got

    def shut_down(self) -> None:
        """End the connection: whoever reads from it sees its end, and it is not used again."""
        with contextlib.suppress(OSError):
            socket.socket.shutdown(getattr(self._sock, "socket", self._sock), socket.SHUT_RDWR)

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


_OPEN: weakref.WeakSet[_Timed] = weakref.WeakSet()
_OPEN_LOCK = ForkLock()


def shut_down_all() -> None:
    """End every connection whose answer is being read."""
    with _OPEN_LOCK:
        reading = list(_OPEN)
    for timed in reading:
        timed.shut_down()


class _Answer(io.BufferedReader):
    """An answer; a connection that has sent more than that is not used again: the next request would be given it."""

    def __init__(self, timed: _Timed) -> None:
        super().__init__(timed)
        self._timed = timed

    def close(self) -> None:
        if not self.closed:
            self._timed.is_over = True  # so that peek shows what was received, and reads nothing
            if self.peek(1):
                self._timed.shut_down()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self._timed = _Timed(sock)
        self.fp = _Answer(self._timed)

    def begin(self) -> None:
        self._timed.allowed = _LONGEST_HEAD
        super().begin()
        # http.client passes over 100 alone; the bytes allowed for a header bound all of them together.
        while 101 < self.status < 200:
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()
        self._timed.allowed = None
        if self.status in (101, 204, 304):
            self.will_close = True  # what follows is not read, whatever the header says of it
        # Behind a line that is none all headers are lost, the length of the body among them.
        if getattr(self.msg, "defects", None):
            raise http.client.HTTPException("the header is malformed")


class _TimedHTTP(HTTPConnection):
    response_class = _TimedResponse


class _TimedHTTPS(HTTPSConnection):
    response_class = _TimedResponse


_TIMED: dict[Any, Any] = {HTTPConnection: _TimedHTTP, HTTPSConnection: _TimedHTTPS}


class Adapter(HTTPAdapter):
    """Connections with a total deadline; any other connection class, as of a recorder, stays."""

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """A pool whose connections obey the deadline."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = _TIMED.get(pool.ConnectionCls, pool.ConnectionCls)
        return pool


class Sessions(ForkLock):
    """The session of this process, whose connections all threads share; a forked child makes its own."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        super().__init__()

    def open(self) -> None:
        """Begin with a new lock and without a session."""
        super().open()
        self._session: requests.Session | None = None

    def get(self) -> requests.Session:
        """The session, which keeps connections that an answer was read from to its end."""
        with self:
            self._session = self._session or self._make()
            return self._session

    def _make(self) -> requests.Session:
        session = requests.Session()
        # Off for netrc; proxies and the CA bundle of the environment are used for https alone.
        session.trust_env = False
        if self._base_url.startswith("https:"):
            session.proxies = dict(get_environ_proxies(self._base_url))
            session.verify = next(filter(None, map(os.environ.get, BUNDLES)), True)
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        session.headers.clear()
        for scheme in ("https://", "http://"):
            session.mount(scheme, Adapter(pool_connections=1, pool_maxsize=_MOST_IDLE, max_retries=0))
        return session

    def close(self) -> None:
        """Close what is idle."""
        with self:
            session, self._session = self._session, None
        if session is not None:
            session.close()


class _Read(ForkLock):
    """Decoded bytes of the answers that all threads are reading; a forked child reads none."""

    def open(self) -> None:
        super().open()
        self.total = 0

    def add(self, size: int) -> int:
        """The total, with so many bytes more."""
        with self:
            self.total += size
            return self.total


_READ = _Read()


def read_body(raw: Any, encoding: str, policy: Policy, until: float) -> bytes:
    """Read an answer of urllib3 to its verified end, at the latest by ``until`` [steady s].

    NetworkError if it is cut, corrupt or too slow; PayloadTooLargeError if larger than any page; ContractError for an
    encoding that was not requested.
    """
    name = encoding.strip().lower()
    if name not in ("", "identity", "gzip", "x-gzip"):
        raise ContractError(f"The answer is encoded as {name[:40]!r}; gzip or nothing was requested.")
    # A recorder's answer has no such option.
    options = {"decode_content": False} if isinstance(raw, urllib3.BaseHTTPResponse) else {}
    received = decoded = 0

    def arriving() -> Iterator[bytes]:
        nonlocal received
        while data := raw.read1(_STEP, **options):
            if time.monotonic() > until:
                raise NetworkError(f"The answer took longer than {policy.total:g} s.")
            received += len(data)
            yield data

    chunks = arriving()
    first = next(chunks, b"")
    chunks = itertools.chain([first], chunks)
    # A recorder or a proxy may undo gzip and leave its header; gzip never begins as JSON and Arrow streams do.
    zipped = "gzip" in name and not first.startswith((b"{", b"[", b"\xff\xff\xff\xff"))
    parts: list[bytes] = []
    try:
        for out in _inflated(chunks) if zipped else chunks:
            decoded += len(out)
            total = _READ.add(len(out))
            if decoded > policy.largest_body:
                raise PayloadTooLargeError(f"The answer is larger than {policy.largest_body} bytes; reading stopped.")
            if decoded > policy.total_from and total > policy.largest_total:
                raise PayloadTooLargeError(
                    f"Answers read at once are larger than {policy.largest_total} bytes together, and this one than "
                    f"{policy.total_from}; reading stopped."
                )
            if decoded > policy.ratio_from and decoded > policy.largest_ratio * received:
                raise PayloadTooLargeError(f"The answer grows more than {policy.largest_ratio}-fold; reading stopped.")
            parts.append(out)
        return b"".join(parts)
    finally:
        _READ.add(-decoded)


def _inflated(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Gzip, of one member or several, in bounded steps; the end of the stream and its checksum must have been seen."""
    stream = zlib.decompressobj(31)
    try:
        for chunk in chunks:
            data = chunk
            while data:
                if stream.eof:
                    stream = zlib.decompressobj(31)
                yield stream.decompress(data, _STEP)
                data = stream.unused_data if stream.eof else stream.unconsumed_tail
        while not stream.eof and (out := stream.decompress(b"", _STEP)):
            yield out
    except zlib.error:
        raise NetworkError("The answer is a corrupt gzip stream.") from None
    if not stream.eof:
        raise NetworkError("The answer is a cut gzip stream: its end or its checksum is missing.")
