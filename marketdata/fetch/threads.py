"""Threads that send requests, as many as the rate of the key needs."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence

from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.source import Source

THREAD = "marketdata-fetch"


def worker_count(pacer: Pacer, latency: float | None) -> int:
    """Concurrent requests that use up the key's rate at this latency."""
    rate = pacer.requests_per_minute
    if rate is None:
        return 8
    return min(96, max(16, math.ceil(rate / 60 * (latency or 0.3) * 1.3) + 2))


def start_thread(work: Callable[[], object]) -> threading.Thread:
    """A thread that sends requests, and does not keep a program from ending."""
    thread = threading.Thread(target=work, name=THREAD, daemon=True)
    thread.start()
    return thread


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
