"""How much of a key's rate a fetch uses, and what it costs, beside one cursor and a pool that does not pace itself."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import numpy as np
from coded import coded_books, coded_series

import marketdata as md
from bench.measure import Table
from marketdata.client.markets import Markets
from marketdata.clock import Clock
from marketdata.errors import RateLimitError
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.retry import Failure
from marketdata.fetch.http.transport import Answer, Transport
from marketdata.fetch.reader import Reader
from marketdata.fetch.scheduler import THREAD, Scheduler
from marketdata.fetch.windows import Window
from marketdata.points.columns import Token
from marketdata.resolution import Resolution
from marketdata.times import Range, parse_iso, to_text

MINUTE = 60_000_000
START = parse_iso("2025-01-01T00:00:00Z")
MARKETS = 4
MINUTES = {120: 10, 600: 4, 2000: 2}  # how long each rate is watched [minutes]
LATENCIES = (0.05, 0.25, 2.0)
POOL = 16  # threads of the pool that does not pace itself
LEVELS = 20
BOOK = {side: [[0.5 + sign * k / 100, 10.0 * k] for k in (1, 2)] for side, sign in (("bids", -1), ("asks", 1))}
_GAP = 29  # every so many minutes there is no point


class EventClock(Clock):
    """Time that moves when every thread of a fetch sleeps, to the first that is to wake: a simulation, not a rush."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turn = threading.Lock()
        self._asleep: list[tuple[float, int, threading.Event, bool]] = []
        self._number = self._sleeping = 0

    def monotonic(self) -> float:
        return self._now

    def time(self) -> float:
        return START / 1e6 + self._now

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> None:
        if seconds <= 0:
            return
        counts = threading.current_thread().name == THREAD
        woken = threading.Event()
        with self._turn:
            self._number += 1
            self._sleeping += counts
            heapq.heappush(self._asleep, (self._now + seconds, self._number, woken, counts))
        while not woken.is_set():
            self._wake_first()
            # A thread that ends says nothing, so now and then somebody has to look.
            woken.wait(0.05)

    def _wake_first(self) -> None:
        """If nobody is awake."""
        with self._turn:
            awake = sum(t.name == THREAD for t in threading.enumerate()) - self._sleeping
            if self._asleep and not awake:
                self._now, _, woken, counts = heapq.heappop(self._asleep)
                self._sleeping -= counts
                woken.set()


@dataclass
class Sliding:
    """A service that answers so many requests in any 60 s, and not one more."""

    rate: int
    passed: list[float] = field(default_factory=list)
    refused: int = 0
    _times: deque[float] = field(default_factory=deque)

    def wait(self, now: float) -> float | None:
        """None if a request that arrives now passes, else the seconds until one will [s]."""
        while self._times and self._times[0] <= now - 60:
            self._times.popleft()
        if len(self._times) < self.rate:
            self._times.append(now)
            self.passed.append(now)
            return None
        self.refused += 1
        return self._times[0] + 60 - now


class Far(Transport):
    """The library's transport, but for the wire: a strict service at a distance, in simulated time."""

    def __init__(self, window: Sliding, latency: float, clock: EventClock) -> None:
        super().__init__("http://127.0.0.1:9", "k" * 20, pacer=Pacer(clock=clock), clock=clock, seed=1)
        self._window, self._distance, self._dice = window, latency, random.Random(7)

    def _attempt(self, path: str, tried: int, read: Callable[[Answer], Any], accept: str) -> Any:
        if path.count("/") == 3 and "?" not in path:
            self._window.wait(self._clock.monotonic())
            self.latency = self._distance
            return read(Answer(body(path, self._window.rate), None, path))
        with self._count:
            went, came = (self._distance * self._dice.uniform(0.4, 0.6) for _ in range(2))
        self._clock.sleep(went)
        with self._count:
            wait = self._window.wait(self._clock.monotonic())
        self._clock.sleep(came)
        if wait is not None:
            return Failure(RateLimitError("429", status=429), "throttled", float(int(wait) + 1))
        self.latency = went + came
        return read(Answer(body(path, self._window.rate), None, path))


def there(first: int, last: int) -> np.ndarray[Any, Any]:
    """Minutes of a market that have a point."""
    minutes = np.arange(first, last)
    return minutes[minutes % _GAP != 3]


def body(path: str, rate: int) -> bytes:
    """What the service answers: pages of 200 points of two tokens."""
    parts = urlsplit(path)
    if parts.path == "/v1/usage":
        return json.dumps({"limits": {"requests_per_minute": rate, "requests_remaining": rate - 1}}).encode()
    if not parts.query:
        return json.dumps({"id": parts.path.split("/")[3], "tokens": [{"id": "1"}, {"id": "2"}]}).encode()
    asked = dict(parse_qsl(parts.query))
    first, last = (
        (parse_iso(asked[name]) - START) // MINUTE if name in asked else 0 for name in ("start_ts", "end_ts")
    )
    first = int(asked.get("cursor", first))
    minutes = there(first, min(last, first + 150))
    more = len(minutes) > 100 or first + 150 < last
    minutes = minutes[:100]
    values = BOOK if parts.path.endswith("/books") else {"p": 0.5}
    points = [{"t": to_text(START + int(m) * MINUTE), **values} for m in minutes]
    page = {
        "market_id": parts.path.split("/")[3],
        "resolution": "1m",
        "tokens": {"Yes": "1", "No": "2"},
        "data": {"Yes": points, "No": points},
        "metadata": {
            "count": 2 * len(points),
            "limit": 200,
            "next_cursor": str(int(minutes[-1]) + 1) if more else None,
        },
    }
    return json.dumps(page).encode()


def markets(pages: int) -> tuple[list[Window], int]:
    """Markets that have so many pages together, and the pages that are needed."""
    each = pages * 100 // MARKETS
    asked = [
        Window("prices", "market", f"m{i}", Range(START, START + each * MINUTE), Resolution.M1) for i in range(MARKETS)
    ]
    return asked, MARKETS * -(-len(there(0, each)) // 100)


@dataclass
class Outcome:
    """What a fetch came to."""

    seconds: float
    needed: int
    passed: list[float]
    refused: int

    def row(self, name: str, rate: int, latency: float) -> list[str]:
        """As it stands in the table; the share is of pages that are needed, over the whole of the fetch."""
        share = self.needed / (self.seconds / 60 * rate)
        first, last = self.seconds * 0.2, self.seconds * 0.8
        middle = sum(first <= t < last for t in self.passed) / ((last - first) / 60 * rate)
        cost = (len(self.passed) + self.refused) / self.needed
        where = [f"{rate}", f"{latency * 1e3:.0f} ms", f"{self.seconds / 60:.1f}"]
        return [name, *where, f"{middle:.1%}", f"{share:.1%}", f"{self.refused:,}", f"{cost:.3f}"]


def ours(rate: int, latency: float, pages: int) -> Outcome:
    """The library, all of it but the wire."""
    clock, window = EventClock(), Sliding(rate)
    transport = Far(window, latency, clock)
    asked, needed = markets(pages)
    points = sum(len(arrival.columns) for arrival in Scheduler(Reader(transport), asked, Markets(transport)))
    assert points == 2 * sum(len(there(0, r.buckets)) for r in asked)
    return Outcome(clock.monotonic(), needed, window.passed, window.refused)


def side_by_side(walkers: int, rate: int, latency: float, pages: int) -> Outcome:
    """Walkers that each ask again as soon as they are answered, and wait as long as a 429 tells them."""
    window, dice, needed = Sliding(rate), random.Random(7), markets(pages)[1]
    # (time, nth, whether it arrives): arrivals must be seen in the order of time
    events = [(latency * dice.uniform(0.4, 0.6), k, True) for k in range(min(walkers, needed))]
    asked, number, now = len(events), len(events), 0.0
    while events:
        now, _, arrives = heapq.heappop(events)
        back, number = latency * dice.uniform(0.4, 0.6), number + 1
        if not arrives:
            heapq.heappush(events, (now + back, number, True))
            continue
        wait = window.wait(now)
        if wait is not None:
            heapq.heappush(events, (now + back + int(wait) + 1, number, False))
        elif asked < needed:
            asked += 1
            heapq.heappush(events, (now + back, number, False))
    return Outcome(now + latency / 2, needed, window.passed, window.refused)


SLOW = """
import asyncio, json, sys, time
import marketdata as md
from marketdata.service import access, server

latency, rate = float(sys.argv[2]), int(sys.argv[3])
counts = {200: [], 429: []}
respond = access.Access.respond
# Pages are measured: this service says of no whole days that it has them.
access._ALWAYS[:] = [header for header in access._ALWAYS if header[0] != b"x-days"]

async def slow(self, head, address):
    await asyncio.sleep(latency / 2)
    answer, goes_on = await respond(self, head, address)
    counts.setdefault(int(answer[9:12]), []).append(time.monotonic())
    await asyncio.sleep(latency / 2)
    return answer, goes_on

access.Access.respond = slow
with server.serve(md.Archive(sys.argv[1]), requests_per_minute=rate) as service:
    print(service.base_url, service.api_key, flush=True)
    sys.stdin.readline()
    print(json.dumps(counts), flush=True)
"""


@contextlib.contextmanager
def local_service(archive: md.Archive, rate: int, latency: float) -> Iterator[tuple[str, str, Any]]:
    """A local service in a process of its own, slowed down; and what tells when each request was answered how."""
    command = [sys.executable, "-c", SLOW, archive.location, str(latency), str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        inlet, outlet = process.stdin, process.stdout

        def counts() -> dict[str, list[float]]:
            inlet.write("\n")
            inlet.flush()
            out: dict[str, list[float]] = json.loads(outlet.readline())
            return out

        base_url, key = outlet.readline().split()
        yield base_url, key, counts
        process.kill()


def tokens_of(market: str) -> tuple[Token, Token]:
    return Token(market, f"{market}-1", "Yes"), Token(market, f"{market}-2", "No")


def add(archive: md.Archive, minutes: dict[str, Any], *, only_prices: bool = False) -> None:
    """History of markets: which minutes each has."""
    archive.add(
        markets=[
            {"market_id": m, "slug": f"s{m}", "token_ids": [f"{m}-1", f"{m}-2"], "token_labels": ["Yes", "No"]}
            for m in minutes
        ]
    )
    tokens = tuple(token for m in sorted(minutes) for token in tokens_of(m))
    lengths = [len(minutes[m]) for m in sorted(minutes) for _ in range(2)]
    code = np.repeat(np.arange(len(tokens), dtype=np.int32), lengths)
    ts = START + np.concatenate([minutes[m] for m in sorted(minutes) for _ in range(2)]).astype(np.int64) * MINUTE
    prices = coded_series(tokens, code, ts, {"price": np.full(len(ts), 0.5)})
    if only_prices:
        archive.add(prices=prices)
        return
    side = np.column_stack([np.linspace(0.4, 0.3, LEVELS), np.arange(1.0, LEVELS + 1)])
    other = np.column_stack([np.linspace(0.6, 0.7, LEVELS), np.arange(1.0, LEVELS + 1)])
    levels = np.tile(np.vstack([side, other]), (len(ts), 1))
    books = coded_books(tokens, code, ts, np.full(2 * len(ts), LEVELS, np.int64), levels)
    named = tuple(Token(m) for m in sorted(minutes))
    each = np.repeat(np.arange(len(named), dtype=np.int32), lengths[::2])
    when = START + np.concatenate([minutes[m] for m in sorted(minutes)]).astype(np.int64) * MINUTE
    values = {name: np.full(len(when), 0.5) for name in ("volume", "liquidity", "spread")}
    archive.add(books=books, prices=prices, metrics=coded_series(named, each, when, values))


def through_a_real_service(rate: int, latency: float, pages: int) -> Outcome:
    """A client, a socket, a service with a moving window of a minute; the clock on the wall."""
    each = pages * 100 // MARKETS
    needed = markets(pages)[1]
    with tempfile.TemporaryDirectory() as folder:
        archive = md.Archive(folder)
        add(archive, {f"m{i}": there(0, each) for i in range(MARKETS)}, only_prices=True)
        with local_service(archive, rate, latency) as (base_url, key, counted), md.Client(base_url, key) as client:
            ids = [f"m{i}" for i in range(MARKETS)]
            client.health()
            began = time.monotonic()
            frame = client.prices(ids, to_text(START), to_text(START + each * MINUTE), "1m")
            seconds = time.monotonic() - began
            assert len(frame) == 2 * MARKETS * len(there(0, each))
            counts = counted()
    # One machine, one steady clock for both processes.
    return Outcome(seconds, needed, [t - began for t in counts["200"]], len(counts["429"]))


def calls(*, quick: bool = False) -> Table:
    """What single calls and pulls cost with 250 ms from question to answer."""
    table = Table(
        "Calls and pulls at 250 ms a request", ["what", "seconds", "requests", "of the plan", "answers of 429"]
    )
    many, hours = (40, 3) if quick else (300, 12)
    filled = {f"h{k:03}": np.arange(60 * hours) for k in range(24)}
    with tempfile.TemporaryDirectory() as folder:
        archive = md.Archive(f"{folder}/source")
        hour = {f"n{k:03}": np.arange(60) for k in range(many)}
        add(archive, {"day": np.arange(1300), "sparse": np.arange(0, 1440, 30), **filled, **hour})
        with local_service(archive, 100_000, 0.25) as (base_url, key, _), md.Client(base_url, key) as client:
            client.health()
            for name, what in (("day", "a day of books, 13 full pages"), ("sparse", "a day, a point each half hour")):
                seconds, report = [], md.Report()
                for _ in range(1 if quick else 5):
                    report = md.Report()
                    began = time.monotonic()
                    client.books(name, to_text(START), to_text(START + 1440 * MINUTE), "1m", report=report)
                    seconds.append(time.monotonic() - began)
                table.rows.append([what, f"{min(seconds):.2f}", f"{report.requests}", "", ""])
        for name, names, until in (
            (f"`archive.pull`, 24 markets x {hours} h x 3 views, 1,200/min", list(filled), 60 * hours),
            (f"`archive.pull`, {many} markets x 1 h x 3 views, 1,200/min", list(hour), 60),
        ):
            with local_service(archive, 1200, 0.25) as (base_url, key, counted), md.Client(base_url, key) as client:
                held = md.Archive(f"{folder}/{len(names)}")
                held.add(markets=[r for r in archive.records("markets") if r["id"] in set(names)])
                began = time.monotonic()
                held.pull(client, names, start=to_text(START), end=to_text(START + until * MINUTE), progress=False)
                took = time.monotonic() - began
                counts = counted()
                passed = len(counts["200"])
                assert all(len(held.columns("books", name)) == 2 * until for name in names[::50])
                share = f"{passed / (took / 60 * 1200):.0%}"
                table.rows.append([name, f"{took:.1f}", f"{passed}", share, f"{len(counts['429'])}"])
        after = sent_after_cancel(archive, list(filled), 60 * hours)
        table.rows.append(["`abooks` of 24 markets, cancelled: sent in the next second", "", f"{after}", "", ""])
    table.notes.append(
        "A real service in a process of its own on this machine, each answer held back by the latency; sockets, JSON, "
        "frames and commits included. Calls: the fastest of five. Of the plan: requests answered over what the plan "
        "allows from the call of `pull` to its return. Cancelled: requests beyond those that were on their way."
    )
    return table


def sent_after_cancel(archive: md.Archive, names: list[str], minutes: int) -> int:
    """Requests that reach a service a round trip or more after a coroutine was cancelled, in its next second."""
    latency = 0.25
    with local_service(archive, 100_000, latency) as (base_url, key, counted), md.Client(base_url, key) as client:

        async def cancelled() -> float:
            asked = client.abooks(names, to_text(START), to_text(START + minutes * MINUTE), "1m")
            task = asyncio.create_task(asked)
            await asyncio.sleep(0.4)
            assert not task.done()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            now = time.monotonic()
            await asyncio.sleep(1.0 + latency)
            return now

        end = asyncio.run(cancelled())
        times = counted()["200"]
        assert any(t < end for t in times)
    return sum(t > end + latency for t in times)


def memory(view: str, days: int) -> float:
    """Largest growth of traced memory while an iterator runs over so many days of a market [MiB]."""
    clock = EventClock()
    transport = Far(Sliding(10**9), 0.0, clock)
    client = md.Client("http://127.0.0.1:9", "k" * 20, progress=False)
    client._transport = transport
    client._history = type(client._history)(transport, client._options)
    until = to_text(START + days * 1440 * MINUTE)
    frames = getattr(client, f"iter_{view}")("m0", to_text(START), until, "1m")
    gc.collect()
    tracemalloc.start()
    for frame in frames:
        del frame
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


def run(*, quick: bool = False) -> list[Table]:
    """Every rate and latency, each way; then a minute of real time."""
    head = [
        "way",
        "requests a minute",
        "latency",
        "minutes",
        "of the plan",
        "first to last",
        "answers of 429",
        "requests a page",
    ]
    table = Table("Fetching within a plan, simulated clock", head)
    for rate, minutes in MINUTES.items():
        for latency in LATENCIES:
            pages = rate * (1 if quick else minutes)
            table.rows.append(ours(rate, latency, pages).row("**marketdata**", rate, latency))
            table.rows.append(side_by_side(1, rate, latency, pages).row("one cursor", rate, latency))
            pool = side_by_side(POOL, rate, latency, pages)
            table.rows.append(pool.row(f"{POOL} threads, no pacer", rate, latency))
    table.notes.append(
        f"Pages for {', '.join(map(str, MINUTES.values()))} minutes of each plan, {MARKETS} markets, one minute in "
        f"{_GAP} without a point, against a window that never lets one request too many pass in any 60 s. The "
        "library's own scheduler, pacer and threads run; the wire and the clock are simulated, and markets are "
        "looked up in no time. Of the plan: requests that passed in the middle three fifths of the time. First to "
        "last: pages needed over what the plan allows from the first request to the last answer; the round trips at "
        "both ends weigh on short fetches at long latencies. More than 100 % is a window filled at its beginning, "
        "which is refused when it is full."
    )
    real = Table("Fetching within a plan, a real service on this machine", head)
    rate, latency = 2000, 0.25
    pages = rate // 4 if quick else rate
    real.rows.append(through_a_real_service(rate, latency, pages).row("**marketdata**", rate, latency))
    real.notes.append(
        "One `client.prices` call of four markets to one pandas frame, sockets and JSON included, against the local "
        "service with its own moving window, each answer held back by the latency. Asking for the markets and for the "
        "usage counts as requests."
    )
    grows = Table("Memory of an iterator over one market at 1m", ["iterator", "days", "MiB at most"])
    for view, spans in (("prices", (20, 80)), ("books", (20, 365))):
        for days in (2, 8) if quick else spans:
            grows.rows.append([f"`iter_{view}`", f"{days}", f"{memory(view, days):.0f}"])
    grows.notes.append(
        "Growth of traced memory while the iterator runs, two tokens, books of two levels a side; the frame that is "
        "handed out, and the next one while it is made, are most of it."
    )
    return [table, real, calls(quick=quick), grows]
