"""A market whose every point is known, and the pages an honest service would answer with."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from reference.columns import each_book
from reference.faults import Act, Ask, ok, refuse

from marketdata.fetch import pages
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.markets import Markets
from marketdata.fetch.pages import Fetched
from marketdata.fetch.scheduler import Scheduler
from marketdata.fetch.sources.interface import Interface
from marketdata.fetch.windows import Window
from marketdata.resolution import BucketWidth
from marketdata.times import Range, parse_iso, to_text

MINUTE = 60_000_000
START = 1_767_225_600_000_000  # 2026-01-01
text_of = cache(to_text)
DATE = "Wed, 01 Jul 2026 00:00:00 GMT"
Points = dict[tuple[str, int], Any]


def minutes(count: int, first: int = 0) -> Range:
    """So many minutes from the start of 2026."""
    return Range(START + first * MINUTE, START + (first + count) * MINUTE)


@dataclass
class Oracle:
    """Answers history requests from ``points``: (label, t) to a price or to (bids, asks)."""

    points: Points
    labels: dict[str, str] = field(default_factory=lambda: {"Yes": "1" * 77, "No": "2" * 77})
    view: str = "prices"
    market_id: str = "m1"
    resolution: str = "1m"
    largest: int = 200

    @classmethod
    def of_prices(cls, count: int, labels: Iterable[str] = ("Yes", "No"), **options: Any) -> Oracle:
        """Every minute has a price of every label, each different."""
        names = list(labels)
        points = {
            (x, START + i * MINUTE): (i * len(names) + k) / 1e5 for i in range(count) for k, x in enumerate(names)
        }
        return cls(points, {x: str(k + 1) * 77 for k, x in enumerate(names)}, **options)

    @cached_property
    def _times(self) -> list[int]:
        return sorted({t for _, t in self.points})

    def request(self, count: int, limit: int = 200) -> Window:
        """A question for the first minutes."""
        return Window(self.view, "market", "slug", minutes(count), BucketWidth.of(self.resolution), limit)  # type: ignore[arg-type]

    def page(self, ask: Ask) -> dict[str, Any]:
        """The body of one honest page: whole buckets, at most ``limit`` points."""
        params = ask.params
        width = BucketWidth.of(self.resolution).micros
        start, end = parse_iso(params["start_ts"]) // width * width, parse_iso(params["end_ts"])
        if "cursor" in params:
            start = int(params["cursor"].removeprefix("c"))
        limit = min(int(params["limit"]), self.largest)
        taken: list[tuple[str, int]] = []
        following = None
        for t in self._times[bisect_left(self._times, start) :]:
            if t >= end:
                break
            bucket = [(x, t) for x in self.labels if (x, t) in self.points]
            if len(taken) + len(bucket) > limit:
                following = f"c{t}"
                break
            taken += bucket
        return self.body(taken, limit, following)

    def body(self, taken: list[tuple[str, int]], limit: int = 200, cursor: str | None = None) -> dict[str, Any]:
        """A body with these points."""
        data: dict[str, list[Any]] = {x: [] for x in self.labels}
        for label, t in taken:
            data[label].append(self.point(label, t))
        return {
            "market_id": self.market_id,
            "resolution": self.resolution,
            "tokens": self.labels,
            "data": data,
            "metadata": {"count": len(taken), "limit": limit, "next_cursor": cursor},
        }

    def point(self, label: str, t: int) -> dict[str, Any]:
        """One point as the service writes it."""
        value = self.points[label, t]
        if self.view == "books":
            return {"t": text_of(t), "bids": value[0], "asks": value[1]}
        return {"t": text_of(t), "p": value}

    def __call__(self, ask: Ask) -> Act:
        if not ask.path.startswith("/v1/markets/") or "start_ts" not in ask.params:
            return refuse(404, "Not Found")
        return ok(self.page(ask)).with_header("Date", DATE)


def read(
    transport: Transport,
    window: Window,
    *,
    report: Report | None = None,
    strict: bool = False,
    source: Interface | None = None,
) -> list[Fetched]:
    """One window read whole, however many pages it has."""
    report = Report() if report is None else report
    source = source or Interface(transport)
    out = []
    for fetched in pages.fetch(lambda part: source.pages(part, report), window, report):
        fetched.note(report, strict=strict)
        out.append(fetched)
    return out


def fetch(transport: Transport, *windows: Window, workers: int | None = None, **options: Any) -> Scheduler:
    """Windows cut and asked as the client does it, by ``workers`` threads or as many as the rate needs."""
    kind = Scheduler if workers is None else type("FixedScheduler", (Scheduler,), {"_workers": workers})
    source = Interface(transport)
    return kind(source, windows, Markets(source), **options)


def rows(pages: Iterable[Any]) -> list[tuple[str, int, Any]]:
    """(label, t, value) of every point of pages, windows or arrivals, as they came."""
    out: list[tuple[str, int, Any]] = []
    for page in pages:
        columns: Any = page.columns
        if hasattr(columns, "price"):
            labels = [columns.tokens[code].token_label for code in columns.token.tolist()]
            out += zip(labels, columns.ts.tolist(), columns.price.tolist(), strict=True)
        else:
            out += [(token.token_label, t, (bids, asks)) for token, t, bids, asks in each_book(columns)]
    return out


def expected(points: Points) -> list[tuple[str, int, Any]]:
    """The same rows, sorted, from the table."""
    return sorted((label, t, value) for (label, t), value in points.items())


def dumps(body: Any) -> bytes:
    """JSON bytes."""
    return json.dumps(body).encode()
