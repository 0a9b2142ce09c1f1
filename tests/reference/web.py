"""A few words to ask a service as plainly as a user of requests would, over a socket or in process."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from reference.clocks import SOON
from starlette.testclient import TestClient

from marketdata.service import create_application
from marketdata.times import parse_iso, to_text

START = parse_iso("2026-01-05T00:00:00Z")
HOUR = 3_600_000_000
LONG_ID = "7" * 77


@dataclass
class Answer:
    """Status, body and headers."""

    status: int
    body: Any
    headers: Any


@dataclass(eq=False)
class Web:
    """One key at one address; ``session`` is one of requests, or a client in process."""

    base_url: str
    api_key: str | None = field(repr=False)
    session: Any

    def get(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> Answer:
        """GET with the key; parameters that are None stay out."""
        sent = {**({"X-API-Key": self.api_key} if self.api_key else {}), **(headers or {})}
        given = {name: value for name, value in params.items() if value is not None}
        more = {} if isinstance(self.session, TestClient) else {"timeout": SOON}
        response = self.session.get(self.base_url + path, params=given, headers=sent, **more)
        assert response.headers["content-type"] == "application/json", response.text[:200]
        return Answer(response.status_code, strict_json(response.content), response.headers)

    def history(self, view: str, market: str = "m1", hours: float = 3, resolution: str = "1m", **more: Any) -> Answer:
        """One page of a market from the start on."""
        return self.get(f"/v1/markets/{market}/{view}", **window(hours, resolution), **more)

    def walk(self, path: str, **params: Any) -> Iterator[Any]:
        """Bodies of all pages."""
        cursor = None
        while True:
            answer = self.get(path, cursor=cursor, **params)
            assert answer.status == 200, answer.body
            yield answer.body
            cursor = answer.body["metadata"]["next_cursor"]
            if cursor is None:
                return

    def as_key(self, key: str | None) -> Web:
        """The same service asked with another key."""
        return Web(self.base_url, key, self.session)


def in_process(archive: Any, **options: Any) -> Web:
    """The application of an archive, asked without a socket, with the first of its keys."""
    options.setdefault("keys", {"key": "local"})
    options.setdefault("secret", b"one secret for the whole suite")
    application = create_application(archive, **options)
    key = next(iter(options["keys"])) if isinstance(options["keys"], dict) else None
    return Web("http://127.0.0.1", key, TestClient(application, raise_server_exceptions=False))


def window(hours: float = 3, resolution: str = "1m") -> dict[str, str]:
    """Parameters of a range from the start on."""
    return {"start_ts": to_text(START), "end_ts": to_text(START + int(hours * HOUR)), "resolution": resolution}


def strict_json(body: bytes) -> Any:
    """JSON without NaN and infinities."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(body, parse_constant=refuse)


def raw(base_url: str, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes as they are; status, headers and body of the answer, or status 0 if the connection is closed."""
    host, port = base_url.removeprefix("http://").split(":")
    received = b""
    with socket.create_connection((host, int(port)), timeout=SOON) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        while not _is_complete(received) and (more := connection.recv(65536)):
            received += more
    if b"\r\n\r\n" not in received:
        return 0, {}, received
    status, headers, body = _split(received)
    return status, headers, body


def _split(received: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return int(lines[0].split()[1]), headers, body


def _is_complete(received: bytes) -> bool:
    if b"\r\n\r\n" not in received:
        return False
    _, headers, body = _split(received)
    return len(body) >= int(headers.get("content-length", 1 << 40))
