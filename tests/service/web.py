"""A few words to ask a service as plainly as a user of requests would."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests
from still import SOON

from marketdata.service.server import Service
from marketdata.times import parse_iso, to_text

START = parse_iso("2026-01-05T00:00:00Z")
HOUR = 3_600_000_000
LONG_ID = "7" * 77


def stop_minute(service: Service, patch: pytest.MonkeyPatch) -> None:
    """Let no time pass for the rates of a service: all that a test requests is of one minute, however long it takes."""
    access = service._worker.connections._respond.__self__  # type: ignore[union-attr]
    now = time.monotonic()
    for limiter in (access.parts.rate_limiter, access._wrong_keys):
        patch.setattr(limiter, "_clock", lambda: now)


def cases(usual: int) -> int:
    """How many cases a soak tries: ``SOAK_CASES``, or its usual number."""
    return int(os.environ.get("SOAK_CASES", usual))


@dataclass
class Answer:
    """Status, body and headers."""

    status: int
    body: Any
    headers: Any


@dataclass
class Web:
    """One key at one address."""

    base_url: str
    api_key: str | None = field(repr=False)
    session: requests.Session

    def get(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> Answer:
        """GET with the key; parameters that are None stay out."""
        found = {**({"X-API-Key": self.api_key} if self.api_key else {}), **(headers or {})}
        response = self.session.get(self.base_url + path, params=params, headers=found, timeout=SOON)
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


def raw(base_url: str, data: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes as they are; status, headers and body of what comes back until the end or the length."""
    host, port = base_url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=SOON) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(data)
        return read_answer(connection)


def read_answer(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """One answer; status 0 where the connection was closed without one."""
    got = b""
    with contextlib.suppress(OSError):
        while b"\r\n\r\n" not in got and (more := connection.recv(65536)):
            got += more
    if b"\r\n\r\n" not in got:
        return 0, {}, got
    head, _, body = got.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
    with contextlib.suppress(OSError):
        while len(body) < int(headers.get("content-length", "0")) and (more := connection.recv(65536)):
            body += more
    return int(lines[0].split()[1]), headers, body


def window(hours: float = 3, resolution: str = "1m") -> dict[str, str]:
    """Parameters of a range from the start on."""
    return {"start_ts": to_text(START), "end_ts": to_text(START + int(hours * HOUR)), "resolution": resolution}


def strict_json(body: bytes) -> Any:
    """JSON without NaN and infinities."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is not JSON")

    return json.loads(body, parse_constant=refuse)
