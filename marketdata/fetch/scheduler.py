"""The one scheduler: windows of any number of markets, requested concurrently under one pacer.

It keeps as many requests in flight as the key's rate and the latency need, and yields what is complete, in order or as
it comes. After its stop flag is set nothing more is sent.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from marketdata.errors import MarketDataError, NetworkError, NotFoundError, TooManyTokensError
from marketdata.fetch.checkpoint import Report, Resume
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.parts import LONGEST, Job, Track
from marketdata.fetch.reader import Fetched, Part, Reader
from marketdata.fetch.windows import WORTH_DIVIDING, MarketInfo, Window

THREAD = "marketdata-fetch"
Task = Callable[[], None]
# Requests in flight: where the plan is unknown, at least, and at most.
_FEWEST_UNKNOWN, _FEWEST, _MOST = 8, 16, 96
# With at least this many pages, a request to learn the rate is worth its cost.
_WORTH_USAGE = 8
# Pages that may be wasted at the ends of windows; one more for so many pages that a range has; how many of those are
# believed in, over those that came.
_WASTE, _PAGES_A_WASTE, _FORESIGHT = 2, 50, 3
_STUCK = "The fetch has windows left, and none of them can be requested: this is an error in marketdata."


class Markets(Protocol):
    """A source of the active range and the tokens of markets."""

    def known(self, id_or_slug: str) -> MarketInfo | None:
        """The record as known without a request."""

    def look_up(self, id_or_slug: str) -> MarketInfo:
        """The record by the service; an empty one if it has none."""


def worker_count(pacer: Pacer, latency: float | None) -> int:
    """Concurrent requests that use up the key's rate at this latency."""
    rate = pacer.requests_per_minute
    if rate is None:
        return _FEWEST_UNKNOWN
    return min(_MOST, max(_FEWEST, math.ceil(rate / 60 * (latency or 0.3) * 1.3) + 2))


class Scheduler:
    """Requests windows of any width concurrently; iterate over it once for what comes of them.

    ``report`` is filled in; ``strict``: repairs and oddities are errors; ``in_order``: yield in the order of the
    windows, else as they come; ``buffer``: most parts in memory before that; ``workers``: concurrent requests, by
    default what the rate and the latency need.
    """

    def __init__(
        self,
        reader: Reader,
        windows: Sequence[Window],
        markets: Markets,
        *,
        report: Report | None = None,
        strict: bool = False,
        in_order: bool = False,
        buffer: int | None = None,
        workers: int | None = None,
    ) -> None:
        self._reader = reader
        self._transport = reader.transport
        self._markets = markets
        self._in_order = in_order
        self._buffer = buffer
        self._fixed = workers
        self._strict = strict
        self._change = threading.Condition()
        self._stop = threading.Event()
        self.report = report if report is not None else Report()
        infos = [markets.known(w.id) if w.kind == "market" else MarketInfo() for w in windows]
        jobs = [Job(k, w, i) for k, (w, i) in enumerate(zip(windows, infos, strict=True))]
        self._waiting = deque(jobs)
        self._begun: list[Job] = []
        self._missing: dict[Job, NotFoundError] = {}
        self._ready: deque[Fetched] = deque()
        self._names = {w.id for w in windows}
        self._active = self._came = 0
        self._wasted = 0.0
        self._error: BaseException | None = None
        self._wants_usage = sum(job.pages for job in jobs) > _WORTH_USAGE
        self.empty: list[Window] = []  # requested, and without a point

    def __iter__(self) -> Iterator[Fetched]:
        try:
            while True:
                with self._change:
                    self._start()
                    while not (self._ready or self._error or self._stop.is_set() or self._is_over):
                        if not self._active:
                            raise RuntimeError(_STUCK)
                        # A timeout, so that Ctrl-C is seen on every system, and a stop soon.
                        self._change.wait(0.1)
                        self._start()
                    if self._error or not self._ready:
                        break
                    fetched = self._ready.popleft()
                yield fetched
            if not (self._error or self._is_over):
                self._error = NetworkError("The fetch was given up.")
            if self._error is not None:
                rest, resume = self.leave()
                yield from rest
                if isinstance(self._error, MarketDataError):
                    self._error.resume = resume
                raise self._error
            if self._missing:
                raise self._of_the_missing()
        finally:
            self.close()

    def leave(self) -> tuple[list[Fetched], Resume]:
        """Send nothing more; returns what had arrived and was not yielded, and what is left to request."""
        self.close()
        with self._change:
            for track in self._tracks:
                # A part that cannot be joined with the others is requested again.
                with suppress(MarketDataError):
                    for fetched in track.keep():
                        fetched.note(self.report)
            self._release()
            rest, left = list(self._ready), list[Window]()
            self._ready.clear()
            for job in sorted({*self._begun, *self._waiting, *self._missing}, key=lambda job: job.index):
                done, windows = job.leave(in_order=self._in_order)
                rest, left = rest + done, left + windows
            self._begun.clear()  # so that nothing that comes now is taken in
            return rest, Resume(tuple(left))

    def close(self) -> None:
        """Send nothing more."""
        self._stop.set()
        with self._change:
            self._change.notify_all()

    @property
    def _pending(self) -> int:
        """Parts that were requested or arrived, and are not yielded."""
        return len(self._ready) + sum(len(track.parts) for track in self._tracks)

    @property
    def _tracks(self) -> list[Track]:
        """The tracks of all jobs that were begun and are not yielded."""
        return [track for job in self._begun for track in job.tracks]

    @property
    def _left(self) -> float:
        """Pages of them that are still to come."""
        return sum(one.unrequested + sum(map(one.left, one.parts)) for one in self._tracks)

    @property
    def _is_over(self) -> bool:
        return not self._begun and not self._waiting

    @property
    def _workers(self) -> int:
        return self._fixed or worker_count(self._transport.pacer, self._transport.latency)

    # -- what to request: these are called under the lock

    def _start(self) -> None:
        """Start threads up to what the rate needs, while there are requests."""
        while self._active < self._workers and not self._stop.is_set() and (task := self._take()) is not None:
            self._active += 1
            start_thread(partial(self._work, task))

    def _take(self) -> Task | None:
        """The next request; None: there is none before something arrives, or is yielded."""
        if self._wants_usage:
            self._wants_usage = False
            if not self._transport.pacer.known:
                return self._transport.learn_limits
        has_room = self._buffer is None or self._pending < max(self._buffer, 0 if self._fixed else 2 * self._workers)
        for job in self._begun:
            # Points are yielded in order, behind those of the first part, so that it may always be requested.
            may_begin = self._in_order and job is self._begun[0] and not self._ready
            is_begun = any(track.parts for track in job.tracks)
            for track in job.open[:1]:
                if has_room or (track.waits and (is_begun or may_begin)):
                    return partial(self._request, job, track, self._part(track))
        if not has_room or not self._waiting:
            return None
        self._begun.append(job := self._waiting.popleft())
        if job.needs_info:
            return partial(self._look_up, job)
        return self._take()

    def _part(self, track: Track) -> Part:
        """The next part of a track: it is for as many workers as its share of all that is left."""
        own = track.unrequested
        share = 1 if self._waiting or not own else round(self._workers * own / self._left)
        cuts = self._budget(track) / track.spans.cost
        return track.take(int(min(share, cuts + 1)), None if self._buffer is None else LONGEST)

    def _budget(self, track: Track) -> float:
        """Pages that may be wasted from now on: each cut may waste some, as it is not known where pages end."""
        if track.is_short:
            return math.inf
        waste = self._wasted + sum(one.waste for one in self._tracks)
        pages = min(sum(one.pages(one.window.rng) for one in self._tracks), _FORESIGHT * self._came)
        return _WASTE + pages / _PAGES_A_WASTE - waste

    def _note_page(self, track: Track, part: Part) -> None:
        """A page came: what is left of its part is divided if that is more than its share, and workers are free."""
        with self._change:
            self._came += 1
            track.see(part)
            self._start()
            if self._active == self._workers or any(job.open for job in self._begun):
                return
            own = track.left(part)
            is_worth = own > WORTH_DIVIDING and round(self._workers * own / self._left) > 1
            if is_worth and self._budget(track) > track.cost(part):
                part.most = len(part.pages)

    # -- a thread

    def _work(self, task: Task | None) -> None:
        """Make requests while there are any."""
        while task is not None:
            error: BaseException | None = None
            try:
                task()
            except BaseException as raised:  # whatever it is, it is raised in the thread that iterates
                error = raised
            with self._change:
                self._fail(error)
                self._start()  # other threads first: they take what is to be yielded next
                task = self._take() if not self._stop.is_set() and self._active <= self._workers else None
                if task is None:
                    self._active -= 1
                self._change.notify_all()

    def _look_up(self, job: Job) -> None:
        """Learn when the market of a job was active, and which tokens it has."""
        info = self._markets.look_up(job.window.id)
        with self._change:
            job.begin(info)

    def _request(self, job: Job, track: Track, part: Part) -> None:
        """Request a part, and take in what came of it."""
        try:
            fetched = self._reader.read(part, self.report, self._stop, partial(self._note_page, track))
        except TooManyTokensError:
            info = self._markets.look_up(job.window.id)
            with self._change:
                if track in job.tracks and (part.window.kind == "token" or not job.begin(info)):
                    raise
            return
        except NotFoundError as error:
            if len(self._names) == 1:
                raise
            with self._change:
                self._missing[job] = error
                if job in self._begun:
                    self._begun.remove(job)
                self._release()
            return
        with self._change:
            if job not in self._begun or track not in job.tracks or part not in track.parts:
                return  # of a market that does not exist, or is requested by token now, or of a fetch that has ended
            if fetched is not None:
                fetched.note(self.report, strict=self._strict)
            for before in track.receive(part, fetched):
                before.note(self.report, strict=self._strict)
            self._release()

    def _release(self) -> None:
        """Let what is complete be yielded: in order, up to the first gap; called under the lock."""
        for job in list(self._begun):
            self._ready.extend(job.pop())
            if job.is_done:
                self._begun.remove(job)
                self._wasted += sum(track.waste for track in job.tracks)
                self.empty += [] if job.points else [job.window]
            elif self._in_order:
                return

    def _fail(self, error: BaseException | None) -> None:
        if error is not None and self._error is None and not self._stop.is_set():
            self._error = error
            self._stop.set()

    def _of_the_missing(self) -> NotFoundError:
        """The error about the markets that do not exist, once the others have arrived."""
        error = next(iter(self._missing.values()))
        missing = sorted(self._missing, key=lambda job: job.index)
        names = ", ".join(map(repr, list(dict.fromkeys(job.window.id for job in missing))[:10]))
        hint = f"The rows of the others are in .partial. {error.hint}".rstrip()
        problem = f"{error.problem} Not found: {names}."
        out = NotFoundError(problem, status=error.status, detail=error.detail, url=error.url, hint=hint)
        out.attempts, out.resume = error.attempts, Resume(tuple(job.window for job in missing))
        return out


def start_thread(work: Callable[[], object]) -> threading.Thread:
    """A thread that sends requests, and does not keep a program from ending."""
    thread = threading.Thread(target=work, name=THREAD, daemon=True)
    thread.start()
    return thread


def run_all(transport: Transport, calls: Sequence[Callable[[], object]]) -> None:
    """Make calls concurrently, as many at once as the key's rate needs; the first error ends them."""
    todo, errors, stop = iter(calls), list[BaseException](), threading.Event()

    def work() -> None:
        try:
            while not stop.is_set() and (call := next(todo, None)) is not None:
                call()
        except BaseException as error:
            errors.append(error)
            stop.set()

    many = min(len(calls), worker_count(transport.pacer, transport.latency))
    threads: list[threading.Thread] = []
    try:
        threads += (start_thread(work) for _ in range(many))
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)
    finally:
        stop.set()
    if errors:
        raise errors[0]
