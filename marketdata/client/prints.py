"""Prints of many markets at once, in parts that are complete for a range."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np

from marketdata.errors import NotFoundError
from marketdata.fetch.source import Source
from marketdata.fetch.threads import start_thread, worker_count
from marketdata.points.columns import Trades, joined
from marketdata.times import Range

# Parts that wait for the one who reads them; each is a page, or a few.
_WAITING = 64
_POLL = 0.2  # between looks whether threads live [s]


class Part(NamedTuple):
    """The prints of a range of a request, all of them unless an error came."""

    request: int
    rng: Range
    columns: Trades


def fetch_prints(
    source: Source, requests: Sequence[tuple[int, str, Range]], width: int, progress: Callable[[int], object]
) -> Generator[Part, None, None]:
    """The parts of all requests as they arrive, by whole buckets of a ``width``; ``requests`` are numbered markets.

    An error ends the fetch once what arrived was given; a market that does not exist is an error after all others.
    """
    todo, out = iter(requests), queue.Queue[Part | BaseException | None](_WAITING)
    stop, taking = threading.Event(), threading.Lock()

    def put(item: Part | BaseException | None) -> None:
        while not stop.is_set():
            try:
                out.put(item, timeout=_POLL)
                return
            except queue.Full:
                continue

    def work() -> None:
        while not stop.is_set():
            with taking:
                request = next(todo, None)
            if request is None:
                break
            try:
                for part in _parts(source, *request, width):
                    put(part)
                    if stop.is_set():
                        return
            except BaseException as error:
                put(error)
                if not isinstance(error, NotFoundError):
                    break
        put(None)

    many = min(len(requests), worker_count(source.pacer, source.latency))
    for _ in range(many):
        start_thread(work)
    errors: list[BaseException] = []
    try:
        while many:
            try:
                item: Any = out.get(timeout=_POLL)
            except queue.Empty:
                progress(0)
                continue
            if item is None:
                many -= 1
            elif isinstance(item, Part):
                progress((item.rng.end - item.rng.start) // width)
                yield item
            else:
                errors.append(item)
                if not isinstance(item, NotFoundError):
                    break
    finally:
        stop.set()
    if errors:
        raise next((error for error in errors if not isinstance(error, NotFoundError)), errors[0])


def _parts(source: Source, request: int, market: str, rng: Range, width: int) -> Iterator[Part]:
    """The parts of a request, from the newest to the oldest, by whole buckets of a width."""
    end, waiting = rng.end, list[Trades]()
    with closing(source.prints(market, rng)) as arriving:
        for complete, columns in arriving:
            if complete.end > end:  # later than it should be
                late = Range(complete.start // width * width, -(-complete.end // width) * width)
                yield Part(request, Range(max(late.start, rng.start), min(late.end, rng.end)), columns)
                continue
            waiting += [columns] if len(columns) else []
            begin = rng.start if complete.start <= rng.start else min(-(-complete.start // width) * width, end)
            if begin < end:
                every = joined(waiting) if waiting else Trades.empty()
                is_here = every.ts >= begin
                waiting = [] if is_here.all() else [every.take(np.flatnonzero(~is_here))]
                yield Part(request, Range(begin, end), every.take(np.flatnonzero(is_here)).sort())
                end = begin
