"""A fetch whose threads take turns: one runs at a time, in simulated time, in an order that a seed draws.

What a fetch requests depends on which answer comes first. Here a seed says how long each answer takes, and so who
comes first; the machine and its load say nothing. The scheduler, the reader, the pacer and the threads are the
library's own; the wire, the clock and the locks are simulated.
"""

from __future__ import annotations

import heapq
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from reference import oracle
from reference.faults import Act, Ask, ok
from reference.oracle import START

from marketdata.clock import Clock
from marketdata.errors import NetworkError
from marketdata.fetch.http.errors import Failure, server_date
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.transport import Answer, Transport
from marketdata.fetch.scheduler import Scheduler
from marketdata.fetch.windows import Window

LATENCY = 0.05  # on average, from a request to its answer [s]


class Turns(Clock):
    """The clock, and who runs: the one that is to wake first, when the one that ran sleeps or ends."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.now, self.seed = 0.0, seed
        self.draw = random.Random(seed)
        self._asleep: list[tuple[float, float, threading.Semaphore]] = []  # when each wakes, and what wakes it

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return START / 1e6 + self.now

    def sleep(self, seconds: float, stop: threading.Event | None = None) -> None:
        if seconds > 0:
            baton = self.lie_down(seconds)
            self.wake_next()
            baton.acquire()

    def lie_down(self, seconds: float, baton: threading.Semaphore | None = None) -> threading.Semaphore:
        """Wake whoever has the baton after so long, and not when that was to happen before."""
        baton = baton or threading.Semaphore(0)
        # The seed decides among threads that wake at the same time.
        others = [one for one in self._asleep if one[2] is not baton]
        self._asleep = [*others, (self.now + seconds, self.draw.random(), baton)]
        heapq.heapify(self._asleep)
        return baton

    def wake_next(self) -> None:
        """Somebody else's turn."""
        if self._asleep:
            now, _, baton = heapq.heappop(self._asleep)
            self.now = max(self.now, now)
            baton.release()

    def start(self, work: Callable[[], object]) -> threading.Thread:
        """A thread that begins when it is its turn."""
        baton = self.lie_down(0.0)

        def run() -> None:
            baton.acquire()
            try:
                work()
            finally:
                self.wake_next()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def end(self) -> None:
        """Let all others come to their end."""
        while self._asleep:
            self.sleep(1e9)


class Change:
    """The condition on which the thread that takes what comes waits; a lock is not needed where one runs at a time."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._waiting: threading.Semaphore | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, seconds: float) -> None:
        assert self._turns._asleep, "a fetch that waits for nobody"
        self._waiting = self._turns.lie_down(seconds)
        self._turns.wake_next()
        self._waiting.acquire()
        self._waiting = None

    def notify_all(self) -> None:
        if self._waiting is not None:
            self._turns.lie_down(0.0, self._waiting)


@dataclass
class Near:
    """A service without a wire: ``answer`` and ``asks`` as a `FaultServer` has them; requests at once, at most."""

    turns: Turns
    answer: Callable[[Ask], Act] = lambda ask: ok({})
    asks: list[Ask] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0


class Paced(Transport):
    """The library's transport, but for the wire: each request and each answer takes as long as the seed says."""

    def __init__(self, service: Near) -> None:
        turns = service.turns
        super().__init__("http://127.0.0.1:9", "k" * 20, pacer=Pacer(clock=turns), clock=turns, seed=1)
        self._turns, self._service = turns, service

    def _attempt(self, path: str, tried: int, content: object) -> Any:
        went, came = (self._turns.draw.uniform(0.1, 0.9) * LATENCY for _ in range(2))
        ask, service = Ask(path, (), 0, self._turns.now), self._service
        service.at_once += 1
        service.most_at_once = max(service.most_at_once, service.at_once)
        self._turns.sleep(went)
        service.asks.append(ask)
        act = service.answer(ask)
        self._turns.sleep(came)
        service.at_once -= 1
        if act.raw is not None:
            return Failure(NetworkError("The connection was closed."), "at_once" if tried == 1 else "yes")
        head, url = dict(act.headers), self.base_url + path
        date = server_date(head.get("Date"))
        if act.status != 200:
            return self._refused(act.status, head, "application/json", act.body, url, self.keys.get(), date)
        self.latency = LATENCY
        return Answer(act.body, date, tried)


def fetch(transport: Paced, *windows: Window, **options: Any) -> Scheduler:
    """Windows cut and asked as the client does it, in turns."""
    scheduler = oracle.fetch(transport, *windows, **options)
    scheduler._change = Change(transport._turns)  # type: ignore[assignment]
    return scheduler
