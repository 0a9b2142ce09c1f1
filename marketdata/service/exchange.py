"""One request, read from the bytes of its head, and the bytes of its answer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Hashable, Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any

import httptools
from starlette.exceptions import HTTPException

# Bytes of a URL; headers of a request, and their bytes; parameters of a query: several times what a client needs, and
# little enough that no request holds the event loop for 5 ms.
MAX_URL = 8 * 1024
MAX_HEADERS = 100
MAX_HEADER_BYTES = 32 * 1024
MAX_PARAMETERS = 64

Message = MutableMapping[str, Any]
Header = tuple[bytes, bytes]
# Status lines.
_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}".encode() for status in HTTPStatus}
# A value of Accept-Encoding that allows gzip, with its weight, and a weight that refuses (RFC 9110, 12.4.2).
_GZIP = re.compile(rb"(?:^|,)\s*(?:gzip|\*)\s*(?:;([^,]*))?(?=,|$)")
_IS_ZERO = re.compile(rb"q=0(\.0{0,3})?")
# Entries of a scope that come from the request.
_ASKED = ("type", "http_version", "method", "scheme", "path", "raw_path", "root_path", "query_string", "headers")
# Methods that the parser knows, and the beginning of a request with another one.
_METHODS = "DELETE|GET|HEAD|POST|PUT|CONNECT|OPTIONS|TRACE|PATCH"
_OTHER_METHOD = re.compile(rb"(?!(?:%s) )[!#$%%&'*+.^_`|~0-9A-Za-z-]{1,64} /" % _METHODS.encode(), re.ASCII)


@dataclass(slots=True)
class Exchange:
    """A request and its answer; ``client`` is the name under which it waits for its turn."""

    client: str
    id: str
    method: str = "-"
    path: bytes = b"-"
    headers: dict[bytes, list[bytes]] = field(default_factory=dict)
    accepts_gzip: bool = False
    # Whether the connection is kept for another request.
    goes_on: bool = False
    # The request for the application, and what it sends (ASGI).
    scope: dict[str, Any] = field(default_factory=lambda: {"type": "http"})
    messages: list[Message] = field(default_factory=list)

    def read(self, head: bytes) -> None:
        """Read a head; HTTPException for one that is too long, or no HTTP."""
        line = head.partition(b"\r\n")[0]
        if len(line) > MAX_URL:
            raise HTTPException(414, f"The URL is longer than {MAX_URL} bytes.")
        if len(head) - len(line) > MAX_HEADER_BYTES or head.count(b"\r\n") > MAX_HEADERS + 2:
            raise HTTPException(431, "The request headers are too large.")
        parser = httptools.HttpRequestParser(self)
        try:
            with contextlib.suppress(httptools.HttpParserUpgrade):
                parser.feed_data(head)
            url = httptools.parse_url(line.split(b" ")[1])
        except httptools.HttpParserError:
            if _OTHER_METHOD.match(head):
                raise HTTPException(405, "Method Not Allowed", {"Allow": "GET"}) from None
            raise HTTPException(400, "Invalid HTTP request received.") from None
        self.method, self.path = parser.get_method().decode(), url.path or b"/"
        self.scope |= {
            "http_version": "1.1",
            "method": self.method,
            "scheme": "http",
            # As it was sent: decoded, "a%2Fb" is "a/b".
            "path": self.path.decode("latin-1"),
            "raw_path": self.path,
            "root_path": "",
            "query_string": url.query or b"",
            "headers": [(name, value) for name, values in self.headers.items() for value in values],
        }
        coding = _GZIP.search(b",".join(self.headers.get(b"accept-encoding", ())).lower())
        self.accepts_gzip = coding is not None and not _IS_ZERO.fullmatch((coding[1] or b"").replace(b" ", b""))
        # A body is never read: the connection ends instead.
        lengths = self.headers.get(b"content-length", ())
        has_body = b"transfer-encoding" in self.headers or any(length.strip(b"0") for length in lengths)
        asks_to_close = b"close" in b",".join(self.headers.get(b"connection", ())).lower()
        self.goes_on = parser.get_http_version() == "1.1" and not asks_to_close and not has_body
        if self.scope["query_string"].count(b"&") >= MAX_PARAMETERS:
            raise HTTPException(400, f"The URL has more than {MAX_PARAMETERS} parameters.")

    @property
    def page(self) -> Hashable:
        """The same for requests that have one answer."""
        return self.method, self.path, self.accepts_gzip, *sorted(self.scope["query_string"].split(b"&"))

    def following(self, cursor: str) -> Exchange:
        """The request of the page behind this one."""
        asked = [part for part in self.scope["query_string"].split(b"&") if not part.startswith(b"cursor=")]
        scope = {name: self.scope[name] for name in _ASKED}
        scope["query_string"] = b"&".join([*asked, b"cursor=" + cursor.encode()])
        return replace(self, scope=scope, messages=[])

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header (httptools); blanks around it are not part of its value (RFC 9110, 5.5).

        No route has cookies, which the framework would parse between all other requests.
        """
        if (name := name.lower()) != b"cookie":
            self.headers.setdefault(name, []).append(value.strip(b" \t"))

    async def receive(self) -> Message:
        """No body (ASGI)."""
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(self, message: Message) -> None:
        """A part of the answer (ASGI)."""
        self.messages.append(message)

    def answer(self, further: Iterable[Header]) -> bytes:
        """The bytes of the answer; of the further headers those that it does not have."""
        start, *parts = self.messages
        own = {name for name, _ in start["headers"]}
        headers = [*start["headers"], *(h for h in further if h[0] not in own), (b"x-request-id", self.id.encode())]
        if not self.goes_on:
            headers.append((b"connection", b"close"))
        lines = [_LINES[start["status"]], *(b"%s: %s" % header for header in headers), b"\r\n"]
        return b"".join([b"\r\n".join(lines), *(part["body"] for part in parts if self.method != "HEAD")])
