from __future__ import annotations

import gc
import heapq
import itertools
import random
import threading
import time
from collections.abc import Callable

import pytest
from reference.clocks import SOON, stop_time
from reference.faults import Act, Ask, FaultServer, ok, refuse

import marketdata.testing
from marketdata.clock import Clock
from marketdata.fetch.http.rate_limit import _BY_KEY, Pacer, pacer_for
from marketdata.fetch.http.transport import Transport
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


@pytest.mark.parametrize("rate", [10, 60, 120, 600, 2000])
@pytest.mark.parametrize("latency", [0.05, 0.25, 2.0])
def test_rate_is_used_and_never_passed(rate: int, latency: float) -> None:
    """At every rate and latency 98 % of the plan are used, and a strict sliding window never sees one too many."""
    sent, arrived = simulate(rate, latency, 600.0)
    assert most_in_a_minute(sent) <= rate
    assert most_in_a_minute(arrived) <= rate
    steady = [t for t in sent if 120 <= t < 600]
    assert len(steady) >= 0.98 * rate * 8


def test_a_few_requests_do_not_wait() -> None:
    """Who asks for a handful of pages does not wait for any of them."""
    for rate in (6, 120, 2000):
        pacer = Pacer(rate, Settable())
        assert [leaves(pacer, 0.0) for _ in range(5)] == [0.0] * 5


def test_unknown_rate_holds_nothing_back() -> None:
    """Until the rate is known nothing waits."""
    pacer = Pacer(clock=Settable())
    assert {leaves(pacer, 1.0) for _ in range(500)} == {1.0}
    assert not pacer.known


def test_starts_from_usage() -> None:
    """Requests that others spent in the running minute count as spent."""
    pacer = Pacer(clock=Settable())
    pacer.allow(100, remaining=3, reset_in=20.0)
    slots = [leaves(pacer, 0.0) for _ in range(5)]
    assert slots[:3] == [0, 0, 0]
    assert 20 <= slots[3] <= 21.5


def test_follows_usage() -> None:
    """A plan that was raised or lowered is followed from then on."""
    pacer = Pacer(60, Settable())
    pacer.allow(600)
    assert most_in_a_minute([leaves(pacer, 0.0) for _ in range(1500)]) <= 600
    pacer.allow(10)
    later = [leaves(pacer, 500.0) for _ in range(50)]
    assert most_in_a_minute(later) <= 10


def test_a_pause_draws_slots_anew(clock: Clock) -> None:
    """Slots reserved before a pause are not used inside of it, and after it there is no burst."""
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


@pytest.mark.parametrize("pauses", [[30.0], [30.0, 60.0], [30.0, 60.0, 90.0]])
def test_waiting_threads_obey_a_later_pause(pauses: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that waits for its slot does not send during a later pause."""

    class Refused(Clock):
        """While the first sleeps, another thread is told to wait, again and again."""

        def sleep(self, seconds: float, stop: threading.Event | None = None) -> None:
            if seconds > 0 and pacer.refusals < len(pauses):
                pacer.pause(pauses[pacer.refusals])
            super().sleep(seconds, stop)

    stop_time(monkeypatch)
    clock = Refused()
    clock.begin_virtual()
    pacer = Pacer(60, clock)
    began = clock.monotonic()
    while not clock.slept:
        pacer.wait()
    assert clock.monotonic() - began >= pauses[-1]
    assert pacer.refusals == len(pauses)


def test_spacing_grows_once_a_second_and_to_four_times(clock: Clock) -> None:
    """Refusals of requests that left together count once; a pause that is no refusal counts not at all."""
    pacer = Pacer(600, clock)
    even = pacer._spacing()
    clock.sleep(100)
    for wait, times in ((0.0, 1.1), (0.5, 1.1), (1.0, 1.21)):
        clock.sleep(wait)
        pacer.pause(0.1)
        assert pacer._spacing() == pytest.approx(times * even)
    clock.sleep(5)
    pacer.pause(0.1, refused=False)
    assert pacer._spacing() == pytest.approx(1.21 * even)
    for _ in range(40):
        clock.sleep(1.5)
        pacer.pause(0.1)
    assert pacer._spacing() == pytest.approx(4 * even)


def test_no_fewer_than_ten_requests_are_learnt(clock: Clock) -> None:
    """A refusal after a few requests says little of the rate."""
    pacer = Pacer(clock=clock)
    for _ in range(3):
        pacer.wait()
    pacer.pause(1.0)
    assert pacer.requests_per_minute == 10


def test_learns_from_refusals(clock: Clock) -> None:
    """Without a known rate a 429 teaches one; with one, the spacing grows for a while and comes back."""
    pacer = Pacer(clock=clock)
    for _ in range(200):
        pacer.wait()
    pacer.pause(60.0)
    assert pacer.requests_per_minute == 180
    known = Pacer(600, clock)
    even = known._spacing()
    clock.sleep(100)
    known.pause(1.0)
    assert known._spacing() == pytest.approx(1.1 * even)
    for _ in range(5):
        clock.sleep(70)
        known.wait()
    assert known._spacing() == pytest.approx(even)


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


def test_registry_forgets_keys_that_nobody_uses() -> None:
    """A key has one pacer, which lives as long as a client has it."""
    one = pacer_for("digest-of-a-key")
    assert pacer_for("digest-of-a-key") is one
    assert pacer_for("another") is not one
    del one
    gc.collect()
    assert "digest-of-a-key" not in _BY_KEY


def limited(rate: int, clock: Clock, usage: bool = True) -> Callable[[Ask], Act]:
    """A service with a strict sliding window on the test's clock."""
    times: list[float] = []
    lock = threading.Lock()

    def answer(ask: Ask) -> Act:
        with lock:
            now = clock.monotonic()
            times[:] = [t for t in times if t > now - 60]
            if len(times) >= rate:
                return refuse(429, "Rate limit exceeded.", Retry_After=str(int(60 - (now - times[0])) + 1))
            times.append(now)
            if ask.path == "/v1/usage" and usage:
                return ok({"limits": {"requests_per_minute": rate, "requests_remaining": rate - len(times)}})
            return refuse(404, "Not Found") if ask.path == "/v1/usage" else ok({})

    return answer


@pytest.mark.parametrize(("usage", "refused"), [(True, 0), (False, 3)], ids=["told", "not told"])
def test_limits_are_learnt(
    server: FaultServer, transport: Transport, clock: Clock, refused: int, *, usage: bool
) -> None:
    """The rate is asked for before a request is refused; without usage refusals teach it, and few are needed."""
    server.answer = limited(100, clock, usage)
    for _ in range(400):
        transport.get(["x"])
    assert transport.retries <= refused
    assert [a.path for a in server.asks].count("/v1/usage") == 1
    assert transport.pacer.requests_per_minute == 100 or not usage


@pytest.mark.parametrize(
    "body",
    [{}, [], {"limits": []}, {"limits": {"requests_per_minute": "many"}}, {"limits": {"requests_per_minute": 0}}],
)
def test_odd_usage_is_ignored(server: FaultServer, transport: Transport, body: object) -> None:
    """An answer of usage without a number changes nothing."""
    server.answer = lambda ask: ok(body)
    transport.learn_limits()
    transport.learn_limits()
    assert not transport.pacer.known
    assert len(server.asks) == 1


def test_no_waiting(server: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In testing mode a client waits for nothing, and tells how long it would have."""
    stop_time(monkeypatch)
    transport = Transport(server.base_url, "testing-mode-key-0123", pacer=Pacer())
    server.script = [refuse(429, Retry_After="100"), refuse(503, Retry_After="50")]
    began = time.monotonic()
    with marketdata.testing.no_waiting() as clock:
        assert transport.get(["x"]).attempts == 3
    assert 150 <= clock.slept <= 153
    assert time.monotonic() - began < 100
    transport.close()
