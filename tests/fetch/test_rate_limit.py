from __future__ import annotations

import gc
import heapq
import itertools
import random
import threading

import pytest
from reference.clocks import SOON, stop_time
from reference.faults import ok

from marketdata.clock import Clock
from marketdata.fetch.http.rate_limit import Pacer, pacer_for
from marketdata.fetch.threads import worker_count


def most_in_a_minute(times: list[float]) -> int:
    """The largest number of times in any half-open window of 60 s."""
    most = first = 0
    for last, t in enumerate(times):
        while times[first] <= t - 60:
            first += 1
        most = max(most, last - first + 1)
    return most


class Settable(Clock):
    """A clock that is set, and that sleeps move."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> None:
        self.now += max(0.0, seconds)


def leaves(pacer: Pacer, now: float) -> float:
    """When a request leaves that is there at this time [s]."""
    clock = pacer._clock
    assert isinstance(clock, Settable)
    clock.now = now
    pacer.wait()
    return clock.now


def simulate(rate: int, latency: float, seconds: float, jitter: float = 0.1) -> tuple[list[float], list[float]]:
    """Times sent and arrived of as many threads as ``worker_count`` says, each asking again once it is answered."""
    draw = random.Random(rate)
    pacer = Pacer(rate, Settable())
    free = [0.0] * worker_count(pacer, latency)
    sent: list[float] = []
    arrived: list[float] = []
    while free[0] < seconds:
        slot = leaves(pacer, heapq.heappop(free))
        sent.append(slot)
        arrived.append(slot + latency / 2 + draw.uniform(0, jitter * latency))
        heapq.heappush(free, slot + latency * draw.uniform(0.8, 1.2))
    return sent, sorted(arrived)


@pytest.mark.parametrize(("rate", "latency"), [(10, 2.0), (120, 0.25), (600, 2.0)])
def test_a_rate_is_used_and_never_exceeded(rate, latency) -> None:
    """98 % of the plan are used, and a strict sliding window of a minute never has one request too many."""
    sent, arrived = simulate(rate, latency, 300.0)
    assert most_in_a_minute(sent) <= rate
    assert most_in_a_minute(arrived) <= rate
    assert sum(120 <= t < 300 for t in sent) >= 0.98 * rate * 3


def test_a_few_requests_do_not_wait() -> None:
    """Who asks for a handful of pages does not wait for any of them."""
    for rate in (6, 120, 2000):
        pacer = Pacer(rate, Settable())
        assert [leaves(pacer, 0.0) for _ in range(5)] == [0.0] * 5


def test_an_unknown_rate_holds_nothing_back() -> None:
    """Nothing waits until the rate is known."""
    pacer = Pacer(clock=Settable())
    assert {leaves(pacer, 1.0) for _ in range(500)} == {1.0}
    assert not pacer.known


def test_usage_tells_what_others_spent_and_what_a_plan_allows() -> None:
    """Requests that others spent in the running minute count; a plan that was raised or lowered is followed."""
    pacer = Pacer(clock=Settable())
    pacer.allow(100, remaining=3, reset_in=20.0)
    slots = [leaves(pacer, 0.0) for _ in range(5)]
    assert slots[:3] == [0, 0, 0]
    assert 20 <= slots[3] <= 21.5
    pacer = Pacer(60, Settable())
    pacer.allow(600)
    assert most_in_a_minute([leaves(pacer, 0.0) for _ in range(1500)]) <= 600
    pacer.allow(10)
    assert most_in_a_minute([leaves(pacer, 500.0) for _ in range(50)]) <= 10


def test_a_pause_is_followed_by_no_burst(clock) -> None:
    """Slots that were reserved before a pause are not used inside of it."""
    pacer = Pacer(120, clock)
    began = clock.monotonic()
    for _ in range(40):
        pacer.wait()
    pacer.pause(30.0)
    now = clock.monotonic()
    after = []
    for _ in range(5):
        pacer.wait()
        after.append(clock.monotonic() - now)
    assert 30 - 1e-2 <= after[0] <= 31
    assert all(b - a >= 0.4 for a, b in itertools.pairwise(after))
    assert now - began < 60


@pytest.mark.fault("N12")
def test_a_thread_that_waits_obeys_pauses_that_come_meanwhile(monkeypatch) -> None:
    """It sends after the last of them."""
    pauses = [30.0, 60.0, 90.0]

    class Refused(Clock):
        """While the first sleeps, another thread is told to wait, again and again."""

        def sleep_until(self, moment: float, stop: threading.Event | None = None) -> None:
            if moment > self.monotonic() and pauses[1:]:
                pacer.pause(pauses.pop(0))
            super().sleep_until(moment, stop)

    stop_time(monkeypatch)
    clock = Refused()
    clock.is_virtual = True
    pacer = Pacer(60, clock)
    began = clock.monotonic()
    while not clock.slept:
        pacer.wait()
    assert clock.monotonic() - began >= 60


@pytest.mark.parametrize(("requests", "learnt"), [(200, 180), (3, 10)])
def test_a_refusal_teaches_an_unknown_rate(clock, requests, learnt) -> None:
    """A tenth less than was sent; at least ten, as a refusal after a few requests says little."""
    pacer = Pacer(clock=clock)
    for _ in range(requests):
        pacer.wait()
    pacer.pause(60.0)
    assert pacer.requests_per_minute == learnt


def test_stop_ends_a_wait() -> None:
    """A thread that waits for its slot leaves when it is told to stop."""
    pacer = Pacer()
    pacer.pause(1e9)
    stop = threading.Event()
    thread = threading.Thread(target=pacer.wait, args=(stop,))
    thread.start()
    stop.set()
    thread.join(SOON)
    assert not thread.is_alive()


def test_a_key_has_one_pacer_as_long_as_a_client_uses_it() -> None:
    """Then it is forgotten."""
    one = pacer_for("digest-of-a-key")
    assert pacer_for("digest-of-a-key") is one
    assert pacer_for("another") is not one
    one.allow(7)
    del one
    gc.collect()
    assert not pacer_for("digest-of-a-key").known


@pytest.mark.parametrize(
    "body", [[], {"limits": {"requests_per_minute": "many"}}, {"limits": {"requests_per_minute": 0}}]
)
def test_usage_without_a_number_is_ignored(server, transport, body) -> None:
    """It is requested once, and changes nothing."""
    server.answer = lambda ask: ok(body)
    transport.learn_limits()
    transport.learn_limits()
    assert not transport.pacer.known
    assert len(server.asks) == 1
