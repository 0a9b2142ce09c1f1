"""Connections of requests and the bytes of a body: whole within the deadline, or an error."""

from __future__ import annotations

import contextlib
import contextvars
import gzip
import http.client
import io
import os
import socket
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from requests.utils import get_environ_proxies
from urllib3.connection import HTTPConnection, HTTPSConnection

from marketdata.errors import ContractError, NetworkError, PayloadTooLargeError

# The attempt of this thread: the steady time at which it must be over, and the longest silence.
ATTEMPT: contextvars.ContextVar[tuple[float, float]] = contextvars.ContextVar("marketdata_attempt")
# The first variable that is set counts.
PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")
BUNDLE_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
# Bytes that are read or inflated at once, so that a bomb is seen before it is in memory.
_STEP = 1 << 16


@dataclass(frozen=True)
class Policy:
    """Limits of one request, which is sent at most ``attempts`` times.

    All threads of a client share ``retries`` until a request is answered. An attempt may take ``connect`` to connect,
    ``silence`` between two bytes, and ``total`` in all [s]. A Retry-After above ``longest_wait`` [s] is an error.
    Reading stops at ``largest_body`` decoded bytes. After ``ratio_from`` bytes, it stops where the decoded size is
    ``largest_ratio`` times the sent size.
    """

    attempts: int = 5
    retries: int = 35
    connect: float = 5.0
    silence: float = 30.0
    total: float = 120.0
    longest_wait: float = 120.0
    largest_body: int = 64 << 20
    largest_ratio: int = 200
    ratio_from: int = 1 << 20


class _Timed(io.RawIOBase):
    """Bytes of a socket. Each read ends with the attempt, so that a slow server cannot prolong it."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._raw = sock.makefile("rb", buffering=0)
        self._until, self._silence = ATTEMPT.get()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        # http.client may close the socket while the answer is still read; the earlier timeout stays then.
        with contextlib.suppress(OSError):
            self._sock.settimeout(min(left, self._silence))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(sock, *args, **options)
        self.fp.close()
        self.fp = io.BufferedReader(_Timed(sock))

    def begin(self) -> None:
        super().begin()
        while 101 < self.status < 200:  # http.client passes over 100 alone
            self.headers = self.msg = None  # type: ignore[assignment]
            super().begin()
        # After an invalid line all headers are lost, also the length of the body.
        if getattr(self.msg, "defects", None):
            raise http.client.HTTPException("the header is malformed")


class _TimedHTTP(HTTPConnection):
    response_class = _TimedResponse


class _TimedHTTPS(HTTPSConnection):
    response_class = _TimedResponse


class Adapter(HTTPAdapter):
    """Connections with a total deadline. Another connection class, such as a recorder's, stays."""

    def get_connection_with_tls_context(self, *args: Any, **options: Any) -> Any:
        """A pool whose connections obey the deadline."""
        pool: Any = super().get_connection_with_tls_context(*args, **options)
        timed = {HTTPConnection: _TimedHTTP, HTTPSConnection: _TimedHTTPS}
        pool.ConnectionCls = timed.get(pool.ConnectionCls, pool.ConnectionCls)
        return pool


def bundle() -> str | None:
    """The file of certificates that the environment names."""
    return next(filter(None, map(os.environ.get, BUNDLE_VARIABLES)), None)


def new_session(base_url: str) -> requests.Session:
    """A session for all threads of a client; it keeps connections that an answer was read from to its end."""
    session = requests.Session()
    # Off for netrc; proxies and the CA bundle of the environment are used for https alone.
    session.trust_env = False
    if base_url.startswith("https:"):
        session.proxies = dict(get_environ_proxies(base_url))
        session.verify = bundle() or True
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    session.headers.clear()
    for scheme in ("https://", "http://"):
        session.mount(scheme, Adapter(pool_connections=1, pool_maxsize=96, max_retries=0))
    return session


def read_body(raw: Any, encoding: str, policy: Policy) -> bytes:
    """Read an answer of urllib3 to its verified end.

    It raises NetworkError for a cut or corrupt body and PayloadTooLargeError for one larger than any page. An encoding
    that was not requested is a ContractError.
    """
    name = encoding.strip().lower()
    if name not in ("", "identity", "gzip", "x-gzip"):
        raise ContractError(f"The answer is encoded as {name[:40]!r}; gzip or nothing was requested.")
    body = _whole(raw.read1, policy.largest_body, policy)
    # A recorder or a proxy may undo gzip and leave its header; gzip never begins as JSON does.
    if "gzip" not in name or body.startswith((b"{", b"[")):
        return body
    most = min(policy.largest_body, max(policy.ratio_from, policy.largest_ratio * len(body)))
    try:
        return _whole(gzip.GzipFile(fileobj=io.BytesIO(body)).read1, most, policy)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise NetworkError("The answer is a gzip stream that is corrupt or cut.") from None


def _whole(read: Callable[[int], bytes], most: int, policy: Policy) -> bytes:
    """Read to the end in small steps; stop above ``most`` bytes."""
    parts, size = [], 0
    while part := read(_STEP):
        parts.append(part)
        size += len(part)
        if size > most:
            raise PayloadTooLargeError(
                f"The answer is larger than {policy.largest_body} bytes, or grows more than "
                f"{policy.largest_ratio}-fold; reading stopped."
            )
    return b"".join(parts)
