"""Many requests at once: cut at bucket edges, walked side by side under one pacer, handed out in order."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from marketdata.errors import MarketDataError, NetworkError
from marketdata.fetch.answers import Answer
from marketdata.fetch.pacing import Pacer
from marketdata.fetch.paging import Memory, Walk
from marketdata.fetch.plan import pages_of, tokens_of
from marketdata.fetch.position import Position, Report, Request, Resume
from marketdata.resolution import Resolution
from marketdata.times import Range
from marketdata.wire.columns import Page

# The last page of a segment is half filled on average: 4 % of 12 pages, 2 % of the 20 taken where walks are enough.
_LEAST_PAGES = 12
_ROUNDS = 2  # segments per walk, so that the last ones end together
_BOUNDED_PAGES = 20
_FEWEST, _MOST = 8, 96
Progress = Callable[[int, int], None]


class Getter(Protocol):
    """What fetching needs of a transport."""

    pacer: Pacer

    @property
    def latency(self) -> float | None:
        """Seconds of one request [s]."""

    def get(
        self, segments: Sequence[str], params: Mapping[str, str] | None = None, *, stop: threading.Event | None = None
    ) -> Answer:
        """One answer."""

    def learn_limits(self) -> None:
        """Tell the pacer what the key may spend, if nobody did."""


def split(rng: Range, resolution: Resolution, *, tokens: int = 2, limit: int = 200, pages: int = 20) -> list[Range]:
    """Cut a range at bucket edges into parts of so many full pages.

    Examples
    --------
    >>> [p.end // 60_000_000 for p in split(Range(0, 5000 * 60_000_000), Resolution.M1)]
    [2000, 4000, 5000]
    """
    step = max(1, limit // max(1, tokens)) * max(1, pages) * resolution.micros
    cuts = [rng.start]
    cut = rng.start // resolution.micros * resolution.micros + step
    while cut < rng.end:
        cuts.append(cut)
        cut += step
    return [Range(a, b) for a, b in zip(cuts, [*cuts[1:], rng.end], strict=True)]


def segment(
    requests: Sequence[Request], tokens: Mapping[str, int] | int, busy: int, *, bounded: bool = False
) -> list[Request]:
    """Cut requests into as many as keep ``busy`` walks going, and no more.

    Parameters
    ----------
    requests : sequence of Request
    tokens : int or mapping of id to int
        Tokens of each market.
    busy : int
        Walks side by side, see ``crew``.
    bounded : bool
        Short parts, for results that are handed on in order and not held.
    """
    counts = [tokens_of(r, tokens) for r in requests]
    total = sum(pages_of(r, n) for r, n in zip(requests, counts, strict=True))
    fewest = min(_BOUNDED_PAGES, max(_LEAST_PAGES, math.ceil(total / busy)))
    pages = max(fewest, math.ceil(total / (_ROUNDS * busy)))
    if bounded:
        pages = min(pages, _BOUNDED_PAGES)
    out = []
    for request, count in zip(requests, counts, strict=True):
        # A rest of a few pages is no walk of its own.
        even = max(1, round(pages_of(request, count) / pages))
        each = math.ceil(pages_of(request, count) / even)
        parts = split(request.rng, request.resolution, tokens=count, limit=request.limit, pages=each)
        out += [replace(request, rng=part) for part in parts]
    return out


def crew(pacer: Pacer, latency: float | None) -> int:
    """Walks side by side that use up the key's rate at this latency."""
    rate = pacer.requests_per_minute
    if rate is None:
        return _FEWEST
    return min(_MOST, max(_FEWEST, math.ceil(rate / 60 * (latency or 0.3) * 1.3) + 2))


class _Job:
    def __init__(self, request: Request | Position, walk: Walk) -> None:
        self.origin = request if isinstance(request, Position) else Position.start(request)
        self.request = self.origin.request
        left = self.origin.remaining
        self.buckets_left = (left.end - left.start) // self.request.resolution.micros
        self.walk = walk
        self.lock = threading.Lock()  # free only while the walk waits for an answer
        self.pages: deque[Page] = deque()
        self.report = Report()
        self.done = False


class Fetch:
    """Pages of many requests, in the order of the requests; ask for it with ``fetch_all``.

    Iterate over it once. After an error, or after a KeyboardInterrupt wherever it struck, ``leave`` gives what
    had arrived and was not handed out, and what is left to ask.
    """

    def __init__(
        self,
        transport: Getter,
        requests: Sequence[Request | Position],
        *,
        report: Report,
        strict: bool,
        memory: Memory,
        progress: Progress | None,
        buffer: int | None,
        workers: int | None,
    ) -> None:
        self._transport = transport
        self._report = report
        self._progress = progress
        self._buffer = buffer
        self._workers = workers
        self._change = threading.Condition()
        self._stop = threading.Event()
        self._jobs = [self._job(r, strict, memory) for r in requests]
        # Where nothing is handed on before the end, the longest first: then no long one is left alone at the last.
        self._order = list(range(len(self._jobs)))
        if buffer is None:
            self._order.sort(key=lambda k: -self._jobs[k].buckets_left)
        self._next, self._head, self._buffered, self._alive, self._pages = 0, 0, 0, 0, 0
        self._starting = 0
        self._error: BaseException | None = None
        self._left: Resume | None = None

    def __iter__(self) -> Iterator[tuple[Request, Page]]:
        if not self._transport.pacer.known and self._is_large():
            self._transport.learn_limits()
        with self._change:
            self._grow()
        try:
            while self._head < len(self._jobs):
                job = self._jobs[self._head]
                with self._change:
                    # A timeout, so that Ctrl-C is seen on every system.
                    while not (job.pages or job.done or self._error):
                        self._change.wait(1.0)
                    if self._error:
                        break
                    page = job.pages.popleft() if job.pages else None
                    if page is None:
                        self._head += 1
                    else:
                        self._buffered -= 1
                    self._change.notify_all()
                if page is not None:
                    yield job.request, page
                    self._show_progress()
            if self._error is not None:
                rest, resume = self.leave()
                yield from rest
                if isinstance(self._error, MarketDataError):
                    self._error.resume = resume
                raise self._error
        finally:
            self._stop.set()
            with self._change:
                self._change.notify_all()
            for job in self._jobs:
                self._report.add(job.report)
                job.report = Report()

    def leave(self) -> tuple[list[tuple[Request, Page]], Resume]:
        """Send nothing more; the pages that arrived and were not handed out, and what is left to ask."""
        self._stop.set()
        with self._change:
            self._change.notify_all()
        rest: list[tuple[Request, Page]] = []
        left: list[Position] = []
        for index, job in enumerate(self._jobs):
            # Held by its thread while a page is taken in: then all of the page counts as arrived.
            with job.lock:
                if self._buffer is not None and index > self._head:
                    # Handed on in order: what lies behind a gap is asked for again.
                    left.append(job.origin)
                    continue
                rest += [(job.request, page) for page in job.pages]
                job.pages.clear()
                if not job.done:
                    left.append(job.walk.snapshot())
        if self._left is None:
            self._left = Resume(tuple(left))
        return rest, self._left

    def _job(self, request: Request | Position, strict: bool, memory: Memory) -> _Job:
        def get(segments: Sequence[str], params: Mapping[str, str]) -> Answer:
            job.lock.release()
            try:
                answer = self._transport.get(segments, params, stop=self._stop)
            finally:
                job.lock.acquire()
            if self._stop.is_set():
                raise NetworkError("The request was given up.")
            return answer

        walk = Walk(get, request, strict=strict, memory=memory)
        job = _Job(request, walk)
        walk.report = job.report
        return job

    def _is_large(self) -> bool:
        return len(self._jobs) > 1 or any(j.request.buckets > j.request.limit * 2 for j in self._jobs)

    def _show_progress(self) -> None:
        self._pages += 1
        if self._progress is not None:
            self._progress(self._pages, sum(j.done and not j.pages for j in self._jobs))

    def _grow(self) -> None:
        """Start threads up to what the rate needs, as the latency becomes known; called under the lock."""
        wanted = self._workers or crew(self._transport.pacer, self._transport.latency)
        if self._workers is None and self._buffer is None and self._transport.pacer.known:
            # All parts side by side end together; one after the other, the last few can not use the rate.
            wanted = min(_MOST, _ROUNDS * wanted)
        for _ in range(min(wanted - self._alive, len(self._jobs) - self._next - self._starting)):
            self._alive += 1
            self._starting += 1
            threading.Thread(target=self._work, name="marketdata-fetch", daemon=True).start()

    def _work(self) -> None:
        with self._change:
            self._starting -= 1
        while True:
            with self._change:
                if self._next >= len(self._jobs) or self._stop.is_set():
                    self._alive -= 1
                    return
                index, self._next = self._order[self._next], self._next + 1
            job = self._jobs[index]
            with job.lock:
                error = self._walk(job, index)
                job.done = error is None
            with self._change:
                if error is not None and self._error is None and not self._stop.is_set():
                    self._error = error
                    self._stop.set()
                self._change.notify_all()

    def _walk(self, job: _Job, index: int) -> BaseException | None:
        try:
            for page in job.walk.pages():
                with self._change:
                    while self._is_full(index) and not self._stop.is_set():
                        self._change.wait(1.0)
                    job.pages.append(page)
                    self._buffered += 1
                    self._grow()
                    self._change.notify_all()
        except BaseException as error:  # whatever it is, it belongs to the thread that takes the pages
            return error
        return None

    def _is_full(self, index: int) -> bool:
        if self._buffer is None or index == self._head:
            return False
        # With less room than a part for each walk, all would wait for the first.
        room = self._buffer if self._workers else max(self._buffer, _BOUNDED_PAGES * self._alive)
        return self._buffered >= room


def fetch_all(
    transport: Getter,
    requests: Sequence[Request | Position],
    *,
    report: Report | None = None,
    strict: bool = False,
    memory: Memory | None = None,
    progress: Progress | None = None,
    buffer: int | None = None,
    workers: int | None = None,
) -> Fetch:
    """Walk many requests side by side, paced by the key's rate.

    Parameters
    ----------
    transport : Transport
    requests : sequence of Request or Position
        Positions go on where they stand.
    report : Report, optional
    strict : bool
        Repairs and warnings are errors.
    memory : Memory, optional
    progress : callable, optional
        ``progress(pages, requests complete)`` after each page, in the calling thread.
    buffer : int, optional
        Pages held at most before they are handed out, and none behind a gap when a request fails; with ``workers``
        left open at least 20 for each walk. None: no bound.
    workers : int, optional
        Walks side by side; by default as many as the rate and the latency ask for.

    Returns
    -------
    Fetch
        Iterate for ``(request, page)`` in the order of the requests. When a request fails the others are stopped,
        what had arrived is handed out, and the error is raised with ``.resume`` for all that is missing.

    Raises
    ------
    MarketDataError
        While iterating.
    """
    return Fetch(
        transport,
        requests,
        report=report if report is not None else Report(),
        strict=strict,
        memory=memory if memory is not None else Memory(),
        progress=progress,
        buffer=buffer,
        workers=workers,
    )
