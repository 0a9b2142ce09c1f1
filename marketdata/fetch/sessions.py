"""Connections: one requests Session per thread at a time, none of it shared, nothing read from netrc."""

from __future__ import annotations

import contextlib
import contextvars
import http.client
import io
import os
import socket
import threading
import time
from collections.abc import Iterator
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.connection import HTTPConnection, HTTPSConnection

# (steady time at which the attempt must be over, longest silence), of the attempt this thread makes
ATTEMPT: contextvars.ContextVar[tuple[float, float]] = contextvars.ContextVar("marketdata_attempt")
_LONGEST_HEAD = 72 * 1024


class _Timed(io.RawIOBase):
    """Bytes of a socket, each read within what is left of the attempt: a drip can not outlive it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._until, self._silence = ATTEMPT.get((time.monotonic() + 120.0, 30.0))
        self.allowed: int | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
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

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self._timed = _Timed(sock)
        self.fp = io.BufferedReader(self._timed)

    def begin(self) -> None:
        self._timed.allowed = _LONGEST_HEAD
        super().begin()
        self._timed.allowed = None
        # Behind a line that is none all headers are lost, the length of the body among them.
        if getattr(self.msg, "defects", None):
            raise http.client.HTTPException("the header is malformed")


class _TimedHTTP(HTTPConnection):
    response_class = _TimedResponse


class _TimedHTTPS(HTTPSConnection):
    response_class = _TimedResponse


_TIMED: dict[Any, Any] = {HTTPConnection: _TimedHTTP, HTTPSConnection: _TimedHTTPS}


class Adapter(HTTPAdapter):
    """Connections with a total deadline. Any other connection class, as of a recorder, is left as it is."""

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """A pool whose connections keep the deadline."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        pool.ConnectionCls = _TIMED.get(pool.ConnectionCls, pool.ConnectionCls)
        return pool


class Line:
    """A session, and how many requests it has answered."""

    def __init__(self, base_url: str) -> None:
        self.session = session = requests.Session()
        # Off for netrc; proxies and the CA bundle of the environment are taken for https alone.
        session.trust_env = False
        if base_url.startswith("https:"):
            session.proxies = dict(get_environ_proxies(base_url))
            session.verify = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or True
        session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        session.headers.clear()
        session.mount("https://", Adapter(max_retries=0))
        session.mount("http://", Adapter(max_retries=0))
        self.answered = 0


class Sessions:
    """Idle sessions of this process; a forked child starts with none."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._pid = os.getpid()
        self._idle: list[Line] = []
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def line(self) -> Iterator[Line]:
        """A session that no other thread has meanwhile. It is kept unless the block fails."""
        if self._pid != os.getpid():
            self._pid, self._idle, self._lock = os.getpid(), [], threading.Lock()
        with self._lock:
            line = self._idle.pop() if self._idle else None
        line = line or Line(self._base_url)
        try:
            yield line
        except BaseException:
            line.session.close()
            raise
        with self._lock:
            self._idle.append(line)

    def close(self) -> None:
        """Close what is idle."""
        with self._lock:
            idle, self._idle = self._idle, []
        for line in idle:
            line.session.close()
