"""What the stubs of both venues share: faults on the way, outages, and answers in process instead of a socket."""

from __future__ import annotations

import io
import itertools
import json
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pytest
import requests
import urllib3
from reference.dialects import Dialect, spoken
from reference.faults import Act, Ask

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.times import SECOND, Range, parse_iso

NOW = parse_iso("2026-01-09T00:00:00Z")
FAULTS = (
    "429", "429 with a wait", "429 until a date", "500", "503", "503 with a wait", "200 with an error", "cut",
    "refused", "reset", "slow", "403 with a page", "530 with a page", "425",
)  # fmt: skip
"""What may happen to a request, up to four times in a row; the next attempt is answered."""
ODD_FAULTS = ("a page of HTML", "half a body", "no JSON")
"""What may happen to a request once."""
_RAISED = {
    "cut": requests.ConnectionError("the connection was cut"),
    "refused": requests.ConnectionError(ConnectionRefusedError(111, "Connection refused")),
    "reset": requests.ConnectionError(ConnectionResetError(104, "Connection reset by peer")),
    "slow": requests.ReadTimeout("no byte came"),
}


def refused(status: int, body: Mapping[str, Any]) -> Act:
    """An error in the words of a venue."""
    return Act(status=status, body=json.dumps(body).encode())


def proxy_page(status: int) -> Act:
    """The page of a proxy before a venue (noted 2026-10-09)."""
    return Act(status=status, body=b"<html><body>Just a moment</body></html>").with_header("Content-Type", "text/html")


def fault(name: str, answer: Callable[[], Act], now: int) -> Act:
    """What comes of a request in place of its answer: one of `FAULTS` and `ODD_FAULTS`, or a status with no body."""
    if (error := _RAISED.get(name)) is not None:
        raise error
    if name == "200 with an error":
        return refused(200, {"error": "Too Many Requests"})
    if name == "a page of HTML":
        return proxy_page(200)
    if name == "half a body":
        body = answer().body
        return Act(body=body[: len(body) // 2]).with_header("Content-Length", str(len(body)))
    if name == "no JSON":
        return Act(body=b'{"data": [')
    if name.endswith("with a page"):
        return proxy_page(int(name[:3]))
    act = refused(int(name[:3]), {"error": "slow down"})
    if name.endswith("until a date"):
        date = datetime.fromtimestamp(now // SECOND + 3, UTC)
        return act.with_header("Retry-After", format_datetime(date, usegmt=True))
    return act.with_header("Retry-After", "2") if name.endswith("with a wait") else act


@dataclass(kw_only=True)
class VenueStub:
    """``faults`` are taken one a request, None for none; in ``outages`` every answer is ``outage``, such as "503".

    ``dialect`` says how answers are written.
    """

    venue: ClassVar[str]
    hosts: ClassVar[tuple[str, ...]]
    faults: Iterator[str | None] = field(default_factory=lambda: iter(()))
    outages: tuple[Range, ...] = ()
    outage: str = "503"
    dialect: Dialect = field(default_factory=Dialect)
    paths: Counter[str] = field(default_factory=Counter)

    @property
    def now(self) -> int:
        """Microseconds by the clock of the package, which tests move."""
        return int(SYSTEM.time() * SECOND)

    def __call__(self, ask: Ask) -> Act:
        self.paths[ask.path] += 1
        is_down = any(outage.start <= self.now < outage.end for outage in self.outages)
        name = self.outage if is_down else next(self.faults, None)
        answer = partial(spoken(self.dialect, self.answer), ask)
        act = answer() if name is None else fault(name, answer, self.now)
        return act.with_header("Date", format_datetime(datetime.fromtimestamp(self.now / SECOND, UTC), usegmt=True))

    def answer(self, ask: Ask) -> Act:
        raise NotImplementedError


def page(rows: list[Any], params: Mapping[str, str], largest: int, name: str, *, sticky: bool) -> tuple[list[Any], str]:
    """The rows of a page and its cursor, '' for the end; a ``sticky`` end shows only on an empty page."""
    limit = min(int(params.get("limit", largest)), largest)
    first = int(params.get(name, "0") or 0)
    end = first + limit
    return rows[first:end], str(end) if end < len(rows) or (sticky and first < len(rows) == end) else ""


@contextmanager
def answered(hosts: Mapping[str, Callable[[Ask], Act]]) -> Iterator[None]:
    """Requests to these hosts are answered in process, with no socket; a request to another host fails."""

    def send(_: Any, request: requests.PreparedRequest, **__: Any) -> requests.Response:
        parts = urlsplit(request.url or "")
        body = request.body or b""
        body = body.encode() if isinstance(body, str) else bytes(body)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        act = hosts[parts.netloc](Ask(target, tuple(request.headers.items()), method=request.method or "", body=body))
        response = requests.Response()
        response.status_code, response.request, response.url = act.status, request, request.url or ""
        response.headers.update(dict(act.headers))
        response.raw = urllib3.HTTPResponse(io.BytesIO(act.body), dict(act.headers), act.status, preload_content=False)
        return response

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("requests.adapters.HTTPAdapter.send", send)
        yield


@contextmanager
def simulated_clock(now: int, *, is_still: bool = False) -> Iterator[None]:
    """A clock of the package that begins at a time [microseconds] and moves on where something waits.

    ``is_still``: it moves nowhere else, so that the time that the machine takes counts for nothing.
    """
    with pytest.MonkeyPatch.context() as patch:
        steady = itertools.count()
        patch.setattr(SYSTEM, "is_virtual", True)
        patch.setattr(SYSTEM, "slept", 0.0)
        patch.setattr(SYSTEM, "_ahead", 0.0)
        # Another clock's requests count for none of this one.
        patch.setattr("marketdata.fetch.http.rate_limit._BY_KEY", weakref.WeakValueDictionary())
        patch.setattr("time.time_ns", lambda: now * 1000 + next(steady))
        if is_still:
            still = SimpleNamespace(monotonic=lambda: 0.0, time_ns=time.time_ns, sleep=time.sleep)
            patch.setattr("marketdata.clock.time", still)
        yield


@contextmanager
def client_of(stub: VenueStub, now: int = NOW, **options: Any) -> Iterator[md.Client[Any]]:
    """A client of the venue of a stub, which answers in process; the clock is simulated."""
    with simulated_clock(now), answered(dict.fromkeys(stub.hosts, stub)):
        yield md.Client(stub.venue, frame="polars", progress=False, **options)


def listed(ids: str | Iterable[str]) -> list[str]:
    """Ids of a parameter, by comma or repeated."""
    return [one for one in (ids.split(",") if isinstance(ids, str) else ids) if one]
