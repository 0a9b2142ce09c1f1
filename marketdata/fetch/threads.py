"""Threads that send requests, as many as the rate of the key needs."""

from __future__ import annotations

import atexit
import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.source import Source

THREAD = "marketdata-fetch"
_RUNNING: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_LAST_WAIT = 1.0  # for threads at exit [s]


def worker_count(pacer: Pacer, latency: float | None) -> int:
    """Concurrent requests that use up the key's rate at this latency."""
    rate = pacer.requests_per_minute
    if rate is None:
        return 8
    return min(96, max(16, math.ceil(rate / 60 * (latency or 0.3) * 1.3) + 2))


def start_thread(work: Callable[[], object]) -> threading.Thread:
    """A thread that sends requests, and does not keep a program from ending."""
    thread = threading.Thread(target=work, name=THREAD, daemon=True)
    _RUNNING.add(thread)
    thread.start()
    return thread


@atexit.register
def _let_threads_end() -> None:
    """Wait a moment for threads at exit, because a thread within numpy would abort the process."""
    until = time.monotonic() + _LAST_WAIT
    for thread in list(_RUNNING):
        thread.join(max(0.0, until - time.monotonic()))


def run_all(source: Source, calls: Sequence[Callable[[], object]]) -> None:
    """Make calls concurrently, as many at once as the key's rate needs; the first error ends them."""
    todo, errors, stop = iter(calls), list[BaseException](), threading.Event()

    def work() -> None:
        for call in todo:
            if stop.is_set():
                return
            try:
                call()
            except BaseException as error:
                errors.append(error)
                stop.set()

    many = min(len(calls), worker_count(source.pacer, source.latency))
    try:
        threads = [start_thread(work) for _ in range(many)]
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)
    finally:
        stop.set()
    if errors:
        raise errors[0]
