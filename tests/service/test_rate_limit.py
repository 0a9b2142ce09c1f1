"""Rows S29 to S32: how often a key may ask."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st
from service.apart import process
from service.conftest import delta_archive
from service.memory import MemoryArchive
from service.noise import noise
from service.web import Web, read_answer, stop_minute, window
from starlette.exceptions import HTTPException
from still import SOON

from marketdata.service.auth import Entry, Keys, digest
from marketdata.service.fair_queue import FairQueue
from marketdata.service.plans import AccessPlan
from marketdata.service.rate_limit import WINDOW, RateLimiter
from marketdata.service.server import build, serve, start


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.fault("S29")
def test_of_two_hundred_at_once_exactly_the_plan_passes(
    archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 concurrent requests of a key with 50 a minute: 50 pass, 150 are 429 with a Retry-After."""
    with serve(archive, keys={"k": "p"}, plans={"p": AccessPlan("p", 50)}) as service:
        stop_minute(service, monkeypatch)

        def one(_: int) -> tuple[int, str | None]:
            response = requests.get(service.base_url + "/v1/health", headers={"X-API-Key": "k"}, timeout=SOON)
            assert response.json()
            return response.status_code, response.headers.get("retry-after")

        with ThreadPoolExecutor(32) as pool:
            answers = list(pool.map(one, range(200)))
    assert sorted(status for status, _ in answers) == [200] * 50 + [429] * 150
    assert all(1 <= int(str(after)) <= 61 for status, after in answers if status == 429)


@pytest.mark.fault("S29")
def test_retry_after_is_true() -> None:
    """A request that waits as long as it was told passes, and a second less was too early."""
    source, clock = random.Random(29), Clock()
    rates = RateLimiter(clock=clock)
    for _ in range(2_000):
        clock.now += source.expovariate(0.3)
        wait = rates.wait("k", 10)
        if wait is not None:
            assert 1 <= wait <= WINDOW + 1
            if wait > 1:
                clock.now += wait - 1 - 1e-6
                assert rates.wait("k", 10) is not None
                clock.now += 1 + 1e-6
            else:
                clock.now += wait
            assert rates.wait("k", 10) is None


@pytest.mark.fault("S30")
def test_no_window_of_a_minute_holds_more_than_the_plan() -> None:
    """Bursts around every border: in any 60 seconds at most N requests passed, and a full budget is usable."""
    source, clock = random.Random(30), Clock()
    rates = RateLimiter(clock=clock)
    passed = []
    for _ in range(3_000):
        clock.now += source.choice([0.0, 0.01, 0.5, 3.0, 29.9, 59.9, 60.0, 60.1])
        if rates.wait("k", 7) is None:
            passed.append(clock.now)
    for i, begin in enumerate(passed):
        assert sum(begin <= t <= begin + WINDOW for t in passed[i : i + 20]) <= 7
    assert len(passed) > 1_000


@pytest.mark.fault("S30")
def test_the_window_does_not_follow_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock that is set back or forward opens no second budget."""
    rates = RateLimiter()
    assert [rates.wait("k", 2) for _ in range(2)] == [None, None]
    real = time.time()
    for jump in (-86_400, 86_400):
        monkeypatch.setattr(time, "time", lambda jump=jump: real + jump)
        assert rates.wait("k", 2) is not None


@pytest.mark.fault("S31")
def test_a_noisy_key_leaves_room_for_a_quiet_one() -> None:
    """While every request of a noisy key hangs in the archive, a quiet key is answered."""
    hold = threading.Event()

    class Slow(MemoryArchive):
        def find_market(self, id_or_slug: str):
            if id_or_slug == "slow":
                hold.wait(SOON)
            return super().find_market(id_or_slug)

    archive = Slow()
    archive.add_market("m", {"Yes": "1"})
    with serve(archive, keys={"noisy": "p", "quiet": "p"}, plans={"p": AccessPlan("p")}) as service:

        def noisy(_: int) -> int:
            found = requests.get(service.base_url + "/v1/markets/slow", headers={"X-API-Key": "noisy"}, timeout=SOON)
            return found.status_code

        with ThreadPoolExecutor(30) as pool, requests.Session() as session:
            waiting = [pool.submit(noisy, i) for i in range(30)]
            quiet = Web(service.base_url, "quiet", session)
            assert [quiet.get("/v1/markets/m").status for _ in range(20)] == [200] * 20
            assert not any(f.done() for f in waiting)
            hold.set()
            assert [f.result() for f in waiting] == [404] * 30


@pytest.mark.fault("S41")
def test_a_flood_of_one_key_costs_another_nothing(archive: MemoryArchive) -> None:
    """While 700 connections of one key wait, another key gets each of its answers and no 503."""
    hold = threading.Event()

    class Slow(MemoryArchive):
        def find_market(self, id_or_slug: str):
            if id_or_slug == "slow":
                hold.wait(SOON)
            return super().find_market(id_or_slug)

    archive = Slow()
    archive.add_market("m", {"Yes": "1"})
    keys = Keys([Entry(name, digest(name.encode()), "p") for name in ("a", "b")], {"p": AccessPlan("p")})
    access = build(archive, keys)
    flood = b"GET /v1/markets/slow HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: a\r\nConnection: close\r\n\r\n"
    with start(access) as service, contextlib.ExitStack() as stack, requests.Session() as session:
        host, port = service.base_url.removeprefix("http://").split(":")
        waiting = [stack.enter_context(socket.create_connection((host, int(port)), timeout=SOON)) for _ in range(700)]
        for connection in waiting:
            connection.sendall(flood)
        while access.queue.in_flight < 700:
            time.sleep(0.01)
        quiet = Web(service.base_url, "b", session)
        assert [quiet.get("/v1/markets/m").status for _ in range(50)] == [200] * 50
        hold.set()
        assert {read_answer(connection)[0] for connection in waiting} == {404}


@pytest.mark.fault("S41")
def test_of_a_burst_the_requests_of_others_are_started_first(
    archive: MemoryArchive, caplog: pytest.LogCaptureFixture
) -> None:
    """Where 200 connections of one key and then one of another send at the same moment, its request is second."""
    caplog.set_level(logging.INFO, "marketdata.service.access")
    with serve(archive, keys={"a": "p", "b": "p"}, plans={"p": {}}) as service, contextlib.ExitStack() as stack:
        host, port = service.base_url.removeprefix("http://").split(":")
        senders = ["a"] * 200 + ["b"]
        connections = [stack.enter_context(socket.create_connection((host, int(port)), timeout=SOON)) for _ in senders]

        def ask_and_read(gate: threading.Event) -> None:
            for connection, key in zip(connections, senders, strict=True):
                connection.sendall(f"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-API-Key: {key}\r\n\r\n".encode())
            gate.set()
            assert {read_answer(connection)[0] for connection in connections} == {200}

        ask_and_read(threading.Event())
        caplog.clear()
        held, gate = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            gate.wait(SOON)

        service._worker.loop.call_soon_threadsafe(hold)
        held.wait(SOON)
        ask_and_read(gate)
        answered = [record.getMessage().partition("key=")[2].split()[0] for record in caplog.records]
    assert len(answered) == 201
    # Of the first key two are answered at the same time.
    assert "key1" in answered[:3]


async def settle() -> None:
    """Turns of the loop after which all that may start has started."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.fault("S41")
@given(
    st.lists(st.sampled_from("abcd"), max_size=60),
    st.integers(1, 4),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_clients_take_turns(asked: list[str], slots: int, client_slots: int, order: random.Random) -> None:
    """No more run than may, of a client more than one only where it is alone, no free slot is left for which one
    may start, and between two starts of a client that waits every other one that waits starts once.
    """

    async def run() -> None:
        queue, running, started = FairQueue(slots, client_slots), [], []

        async def request(client: str) -> None:
            await queue.acquire(client)
            running.append(client)
            started.append(client)

        tasks = [asyncio.create_task(request(client)) for client in asked]
        left = Counter(asked)
        while tasks:
            await settle()
            assert len(running) <= slots
            assert all(running.count(client) <= client_slots for client in running)
            left = Counter(asked) - Counter(started)
            assert len(running) == slots or all(
                running.count(client) >= (client_slots if set(running) <= {client} else 1) for client in left
            )
            assert queue.in_flight == len(running) + left.total()
            if not running:
                break
            before = set(left)
            done = running.pop(order.randrange(len(running)))
            queue.release(done)
            await settle()
            turns.append((before, started[-1]))
        assert sorted(started) == sorted(asked)

    turns: list[tuple[set[str], str]] = []
    asyncio.run(run())
    waits: Counter[str] = Counter()
    for before, took in turns:
        for client in before - {took}:
            waits[client] += 1
        waits[took] = 0
        # Beside the turns of the three others, those in which its own slots are taken.
        assert client_slots > 1 or slots > 1 or all(count <= 3 for count in waits.values())


@pytest.mark.fault("S41")
@given(st.integers(1, 8), st.integers(0, 8), st.integers(1, 3), st.randoms(use_true_random=False))
def test_the_next_request_that_is_started_is_that_of_the_other_key(
    slots: int, others: int, client_slots: int, order: random.Random
) -> None:
    """While 700 requests of a key wait, the request of another key is the next one that is started: at once where
    a slot is free, else when the next request is done, whosever that is; and beside it the flood keeps one slot.
    """

    async def run() -> None:
        queue, started = FairQueue(slots, client_slots), []

        async def request(client: str) -> None:
            await queue.acquire(client)
            started.append(client)

        tasks = [asyncio.create_task(request(f"other {i}")) for i in range(min(others, slots - 1))]
        tasks += [asyncio.create_task(request("flood")) for _ in range(700)]
        await settle()
        running = started.copy()
        started.clear()
        tasks.append(asyncio.create_task(request("quiet")))
        await settle()
        if len(running) == slots:
            queue.release(running.pop(order.randrange(len(running))))
            await settle()
        assert started[0] == "quiet"
        while "flood" in running:
            running.remove("flood")
            queue.release("flood")
            await settle()
        assert started == ["quiet", *["flood"] * (slots > len(running) + 1)]
        for task in tasks:
            task.cancel()

    asyncio.run(run())


@pytest.mark.fault("S41")
def test_a_full_service_drops_the_newest_of_the_longest_queue() -> None:
    """Where there is no more room the key with the most waiting loses its newest request, never a quiet one."""

    async def run() -> None:
        queue = FairQueue(2, 1, room=10)
        for client in "ab":
            await queue.acquire(client)
        flood = [asyncio.create_task(queue.acquire("a")) for _ in range(20)]
        await settle()
        assert [task.done() for task in flood] == [False] * 8 + [True] * 12
        quiet = asyncio.create_task(queue.acquire("c"))
        await asyncio.wait([flood[7]])
        assert isinstance(flood[7].exception(), HTTPException)
        assert queue.in_flight == 10
        queue.release("b")
        await quiet
        for task in flood[:7]:
            queue.release("a")
            await task
        for client in "ac":
            queue.release(client)
        assert queue.in_flight == 0

    asyncio.run(run())


@pytest.mark.fault("S31")
def test_a_refusal_costs_the_same_at_any_rate() -> None:
    """Of a window of 60,000 requests a refusal looks at one, and few are looked at for what is left."""

    class Looking(RateLimiter):
        looked = 0

        @contextlib.contextmanager
        def _ring(self, key_id: str, size: int) -> Iterator[Any]:
            class Ring(list[float]):
                def __getitem__(self, place: Any) -> Any:
                    Looking.looked += 1
                    return super().__getitem__(place)

            with super()._ring(key_id, size) as ring:
                yield Ring(ring)

    limiter = Looking(clock=Clock())
    with RateLimiter._ring(limiter, "k", 60_000) as ring:
        for place, value in enumerate([60_000.0, *[limiter._clock()] * 60_000]):
            ring[place] = value
    assert limiter.wait("k", 60_000) == WINDOW + 1
    assert Looking.looked <= 4
    assert limiter.left("k", 60_000) == (0, WINDOW)
    assert Looking.looked <= 30


@pytest.mark.fault("S30", "S32")
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 20.0, 59.9, 60.0, 60.1]), st.integers(1, 9), st.integers(0, 1)),
        max_size=60,
    ),
    st.booleans(),
)
def test_a_window_is_the_plain_list(asked: list[tuple[float, int, int]], shared: bool) -> None:
    """With plans that change, in memory and in files of two processes, what passes and is left is that of a list."""
    clock, passed = Clock(), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        one = RateLimiter(Path(folder) if shared else None, clock=clock)
        limiters = one, RateLimiter(Path(folder), clock=clock) if shared else one
        for pause, plan, which in asked:
            clock.now += pause
            recent = [at for at in passed if at >= clock.now - WINDOW]
            until = recent[max(0, len(recent) - plan)] + WINDOW - clock.now if recent else 0.0
            assert limiters[which].left("k", plan) == (max(0, plan - len(recent)), until)
            wait = limiters[which].wait("k", plan)
            assert wait == (None if len(recent) < plan else math.floor(until) + 1)
            if wait is None:
                passed.append(clock.now)


@pytest.mark.fault("S31")
def test_keys_have_windows_of_their_own() -> None:
    """A key that has spent its minute takes nothing from another one."""
    rates = RateLimiter(clock=Clock())
    assert [rates.wait("a", 2) is None for _ in range(4)] == [True, True, False, False]
    assert rates.wait("b", 2) is None


def test_usage_agrees_with_the_limiter(archive: MemoryArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remaining requests that usage names are exactly those that still pass."""
    with serve(archive, keys={"k": "p"}, plans={"p": AccessPlan("p", 20)}) as service, requests.Session() as session:
        stop_minute(service, monkeypatch)
        web = Web(service.base_url, "k", session)
        for _ in range(4):
            assert web.history("prices", hours=0.1).status == 200
        web.get("/v1/nowhere")
        usage = web.get("/v1/usage").body
        left = usage["limits"]["requests_remaining"]
        assert (usage["limits"]["requests_per_minute"], left) == (20, 14)
        answers = [web.get("/v1/markets/m1/prices", **window(0.1)) for _ in range(left + 3)]
        assert [a.status for a in answers] == [200] * left + [429] * 3
        assert answers[-1].body == {"detail": "Rate limit exceeded. Please try again later."}


def test_a_plan_that_shrinks_counts_what_has_passed() -> None:
    """With fewer requests allowed than have passed, none is left and the wait is for the one that must leave."""
    clock = Clock()
    rates = RateLimiter(clock=clock)
    for _ in range(10):
        clock.now += 1
        assert rates.wait("k", 10) is None
    assert rates.left("k", 4)[0] == 0
    wait = rates.wait("k", 4)
    assert wait == 58  # the seventh of ten must be more than a minute old
    clock.now += wait
    assert rates.wait("k", 4) is None


@pytest.mark.fault("G16")
@pytest.mark.soak
def test_two_hundred_clients_on_three_keys(archive: MemoryArchive, tmp_path: Path) -> None:
    """Over 70 s of 200 clients, exactly the plan passes in any 60 s, and the quiet key is served all along."""
    plans = {"p": {"requests_per_minute": 600}, "q": {"requests_per_minute": 6_000}}
    delta_archive(archive, tmp_path)
    with (
        process(tmp_path, keys={"a": "p", "b": "p", "quiet": "q"}, plans=plans) as (_, address, _),
        ProcessPoolExecutor(1, get_context("spawn")) as apart,
        requests.Session() as session,
    ):

        def p99(seconds: float) -> float:
            took, end = [], time.monotonic() + seconds
            while time.monotonic() < end:
                begun = time.perf_counter()
                assert Web(address, "quiet", session).history("books").status == 200
                took.append(time.perf_counter() - begun)
                time.sleep(0.02)
            return sorted(took)[int(len(took) * 0.99)] * 1e3

        apart.submit(time.sleep, 0).result()
        p99(3)
        alone = p99(20)
        target = f"/v1/markets/m1/books?{urlencode({**window(), 'limit': '200'})}"
        noisy = apart.submit(noise, address, target, {"a": 100, "b": 100}, 70)
        beside = p99(65)
        passed = noisy.result()
    print(f"\nquiet key p99 {alone:.1f} ms alone, {beside:.1f} ms beside 200 clients")
    for key in ("a", "b"):
        answers = sorted(passed[key])
        assert len(answers) >= 600
        for i, (begun, _) in enumerate(answers):
            # whole exchanges inside of 60 s are a lower bound of what passed in it
            assert sum(end <= begun + WINDOW for _, end in answers[i : i + 1200]) <= 600
