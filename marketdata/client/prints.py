"""Prints of many markets at once, in parts that are complete for a range."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import NamedTuple

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


class _Threads:
    """Threads that take requests in turn, and what they bring."""

    def __init__(self, source: Source, requests: Sequence[tuple[int, str, Range]], width: int) -> None:
        self._source, self._width = source, width
        self._todo, self._taking = iter(requests), threading.Lock()
        self._out = queue.Queue[Part | BaseException | None](_WAITING)  # None: a thread has ended
        self._many = min(len(requests), worker_count(source.pacer, source.latency))
        self.stop = threading.Event()

    def arriving(self, progress: Callable[[int], object]) -> Iterator[Part | BaseException]:
        """Parts and errors as they come; ``progress`` is told of nothing while it waits."""
        for _ in range(self._many):
            start_thread(self._work)
        while self._many:
            try:
                item = self._out.get(timeout=_POLL)
            except queue.Empty:
                progress(0)
                continue
            if item is None:
                self._many -= 1
            else:
                yield item

    def _work(self) -> None:
        """Make requests while there are any. A market that does not exist ends none of the others."""
        while not self.stop.is_set():
            with self._taking:
                request = next(self._todo, None)
            if request is None:
                break
            try:
                for part in _parts(self._source, *request, self._width):
                    self._put(part)
                    if self.stop.is_set():
                        return
            except BaseException as error:
                self._put(error)
                if not isinstance(error, NotFoundError):
                    break
        self._put(None)

    def _put(self, item: Part | BaseException | None) -> None:
        while not self.stop.is_set():
            try:
                self._out.put(item, timeout=_POLL)
                return
            except queue.Full:
                continue


def fetch_prints(
    source: Source, requests: Sequence[tuple[int, str, Range]], width: int, progress: Callable[[int], object]
) -> Generator[Part, None, None]:
    """The parts of all requests as they arrive, by whole buckets of a ``width``; ``requests`` are numbered markets.

    An error ends the fetch once what arrived was given; a market that does not exist is an error after all others.
    """
    threads, unknown = _Threads(source, requests, width), list[NotFoundError]()
    try:
        for item in threads.arriving(progress):
            if isinstance(item, Part):
                progress((item.rng.end - item.rng.start) // width)
                yield item
            elif isinstance(item, NotFoundError):
                unknown.append(item)
            else:
                raise item
    finally:
        threads.stop.set()
    if unknown:
        raise unknown[0]


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
