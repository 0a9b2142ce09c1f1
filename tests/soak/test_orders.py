"""Fetches from services with pages of any order, refused or empty cursors, and refusals in between."""

from __future__ import annotations

import random
from typing import Any

import pytest
from fetch.markets import ORDERS, paged
from reference.faults import HANG_UP, Act, Ask, FaultServer, ok, refuse
from reference.oracle import DATE, MINUTE, START, Oracle, expected, fetch, minutes, rows

from marketdata.clock import Clock
from marketdata.errors import MarketDataError
from marketdata.fetch.http.connection import Policy
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.windows import Window
from marketdata.resolution import BucketWidth


def market(draw: random.Random) -> tuple[Oracle, int]:
    """A market of some tokens, and its minutes: full, thin, in bursts, or with tokens that trade alone."""
    count, names = draw.choice([60, 400, 1500]), [f"t{k}" for k in range(draw.choice([1, 2, 2, 3, 7]))]
    density, burst = draw.choice([1.0, 0.9, 0.2, 0.02]), draw.randrange(count)
    is_burst, is_alone = draw.random() < 0.3, draw.random() < 0.2
    oracle = Oracle.of_prices(0, names)
    oracle.labels = {name: f"id{name}" for name in names}
    for t in range(count):
        is_there = burst <= t < burst + 150 if is_burst else draw.random() < density
        for k, name in enumerate(names):
            if is_there and not (is_alone and draw.random() < 0.5):
                oracle.points[name, START + t * MINUTE] = (t * len(names) + k) / 1e5
    return oracle, count


class Venue:
    """A service that sends its pages in one order, and loses cursors, connections or patience."""

    def __init__(self, oracle: Oracle, draw: random.Random) -> None:
        self.oracle, self.draw = oracle, draw
        self.order = draw.choice(["time"] * 6 + ORDERS)
        self.size, self.own_labels = draw.choice([200, 200, 61, 100]), draw.random() < 0.2
        self.refused, self.broken = draw.choice([0, 0, 0.05, 0.3, 1]), draw.choice([0, 0.05, 0.2])
        self.is_empty = self.order == "time" and draw.random() < 0.3
        self.dies_after: int | None = draw.choice([None, None, 1, 5, 15])
        self.asked = 0

    def __call__(self, ask: Ask) -> Act:
        if "start_ts" not in ask.params:
            return refuse(404, "Not Found")
        self.asked += 1
        if self.dies_after is not None and self.asked > self.dies_after:
            return refuse(403, "no")
        if self.draw.random() < self.broken:
            return self.draw.choice([HANG_UP, refuse(503), refuse(429, "slow", Retry_After="1")])
        if "cursor" in ask.params and self.draw.random() < self.refused:
            return refuse(400, "stale cursor")
        if self.is_empty:
            body = self.oracle.page(ask)
            body["metadata"]["next_cursor"] = ""
            return ok(body).with_header("Date", DATE)
        return paged(self.oracle, ask, size=self.size, order=self.order, own_labels=self.own_labels)


@pytest.mark.fault("P1", "P3", "P15")
@pytest.mark.parametrize("count", [8, pytest.param(400, marks=pytest.mark.soak)])
def test_a_service_of_any_order_gives_all_rows_once_or_an_error_that_resumes(count: int) -> None:
    """What arrived and what a resume brings are all rows, each once."""
    for seed in range(count):
        draw = random.Random(seed)
        oracle, length = market(draw)
        venue = Venue(oracle, draw)
        with FaultServer(venue) as server:
            clock = Clock()
            clock.is_virtual = True
            pacer, policy = Pacer(clock=clock), Policy(retries=1000)
            transport = Transport(server.base_url, "k" * 20, pacer=pacer, clock=clock, policy=policy, seed=1)
            windows: Any = [Window("prices", "market", "slug", minutes(length), BucketWidth.of("1m"))]
            received: list[Any] = []
            for _ in range(4):
                try:
                    for part in fetch(transport, *windows, in_order=bool(seed % 2), workers=6):
                        received.append(part)  # noqa: PERF402 what came before an error counts
                    windows = ()
                    break
                except MarketDataError as error:
                    windows, venue.dies_after = error.resume.windows, None
            transport.close()
        points = {k: v for k, v in oracle.points.items() if not any(w.rng.start <= k[1] < w.rng.end for w in windows)}
        got, want = sorted(rows(received)), expected(points)
        assert got == want, (seed, venue.order, len(got), len(want))
