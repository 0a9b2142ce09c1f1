"""A fetch over a slow network and within a plan, beside a loop that follows one cursor."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import requests
from reference.faults import Act, Ask, FaultServer, ok, refuse

import marketdata as md
from bench.measure import print_table
from bench.samples import START, minute

KEY = "a-key-of-the-benchmark-0123"
LATENCY = 0.25
BOOK = {"bids": [[0.49, 10.0], [0.48, 20.0]], "asks": [[0.51, 10.0], [0.52, 20.0]]}


class Service:
    """Markets of two tokens with a point each ``every`` minutes; counts requests, and limits them in any minute."""

    def __init__(self, rate: int, every: int = 1) -> None:
        self.rate, self.every = rate, every
        self.passed = self.refused = 0
        self._times: deque[float] = deque()
        self._lock = threading.Lock()

    def __call__(self, ask: Ask) -> Act:
        with self._lock:
            now = time.monotonic()
            while self._times and self._times[0] <= now - 60:
                self._times.popleft()
            if len(self._times) >= self.rate:
                self.refused += 1
                return refuse(429, "Too many requests.", Retry_After="1")
            self.passed += 1
            self._times.append(now)
        return ok(self._body(ask.path, ask.params), latency=LATENCY)

    def _body(self, path: str, query: dict[str, str]) -> dict[str, Any]:
        """Return the body for a path: usage, a market, or a page of its history."""
        if path == "/v1/usage":
            return {"limits": {"requests_per_minute": self.rate, "requests_remaining": self.rate - len(self._times)}}
        market = path.split("/")[3]
        tokens = {"Yes": f"{market}-1", "No": f"{market}-2"}
        if not query:
            return {"id": market, "slug": market, "tokens": [{"id": i, "label": name} for name, i in tokens.items()]}
        first, last = (_minute_of(query[name]) for name in ("start_ts", "end_ts"))
        view, length = path.rsplit("/", 1)[1], int(query.get("limit", 200))
        each = length if view == "metrics" else length // 2
        minutes = [m for m in range(int(query.get("cursor", first)), last) if m % self.every == 0]
        points = [{"t": minute(m), **_values(view)} for m in minutes[:each]]
        head = {"market_id": market, "resolution": query["resolution"]}
        count = len(points) if view == "metrics" else 2 * len(points)
        cursor = str(minutes[each]) if len(minutes) > each else None
        metadata = {"count": count, "limit": length, "next_cursor": cursor}
        data = points if view == "metrics" else dict.fromkeys(tokens, points)
        return {**head, **({} if view == "metrics" else {"tokens": tokens}), "data": data, "metadata": metadata}


def _values(view: str) -> dict[str, Any]:
    return {"books": BOOK, "prices": {"p": 0.5}, "metrics": {"volume": 1.0, "liquidity": 2.0, "spread": 0.02}}[view]


def _minute_of(text: str) -> int:
    return int((np.datetime64(text.rstrip("Z"), "us") - START) / np.timedelta64(1, "m"))


@contextmanager
def service(rate: int, every: int = 1) -> Iterator[tuple[Service, str]]:
    """Run a service on a free port."""
    answer = Service(rate, every)
    with FaultServer(answer) as server:
        yield answer, f"{server.base_url}/v1"


def follow_one_cursor(base_url: str, end: str) -> int:
    """Fetch a market's books one page after the other; return the number of pages."""
    query = {"start_ts": minute(0), "end_ts": end, "resolution": "1m", "limit": "200"}
    pages = 0
    with requests.Session() as session:
        while True:
            page = session.get(f"{base_url}/markets/m/books", params=query, timeout=60).json()
            pages += 1
            if page["metadata"]["next_cursor"] is None:
                return pages
            query["cursor"] = page["metadata"]["next_cursor"]


def run(*, quick: bool) -> None:
    """Print seconds and requests of single fetches, and the use of a plan by a pull."""
    rows = []
    day = minute(240 if quick else 1440)
    for what, every in (("a day of books", 1), ("the same, a point each half hour", 30)):
        with service(100_000, every) as (server, base_url):
            began = time.perf_counter()
            pages = follow_one_cursor(base_url, day)
            loop, server.passed = time.perf_counter() - began, 0
            with md.Client(base_url, KEY) as client:
                began = time.perf_counter()
                client.books("m", minute(0), day, "1m")
                ours = time.perf_counter() - began
            rows.append((what, f"{loop:.2f}", f"{ours:.2f}", f"{loop / ours:.1f}", str(pages), str(server.passed)))
    head = ("fetch", "one cursor s", "ours s", "ratio", "pages", "our requests")
    print_table(f"One market, {LATENCY * 1e3:.0f} ms a request", head, rows)
    _print_plan(1200, 4 if quick else 24)


def _print_plan(rate: int, count: int) -> None:
    """Fetch three views of many markets within a plan."""
    names, end = [f"m{i:02}" for i in range(count)], minute(720)
    with service(rate) as (server, base_url), md.Client(base_url, KEY) as client:
        began = time.perf_counter()
        for view in ("books", "prices", "metrics"):
            getattr(client, view)(names, minute(0), end, "1m")
        seconds = time.perf_counter() - began
        needed = count * (8 + 8 + 4)
        allowed = max(rate * seconds / 60, 1)
        row = (f"{count} markets x 12 h x 3 views", f"{seconds:.1f}", f"{server.passed / needed:.3f}")
        row = (*row, f"{server.passed / allowed:.0%}", str(server.refused))
    head = ("fetch", "s", "requests a page", "of the plan", "answers of 429")
    print_table(f"A plan of {rate} requests a minute", head, [row])
