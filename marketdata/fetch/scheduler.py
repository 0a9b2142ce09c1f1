"""Request windows of any number of markets concurrently under one pacer.

The scheduler keeps as many requests in flight as the key's rate and the latency need. It yields complete ranges, in
order or as they arrive. It sends nothing after its stop flag is set.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from marketdata.errors import ContractError, MarketDataError, NetworkError, NotFoundError, TooManyTokensError
from marketdata.fetch.checkpoint import Report, Resume
from marketdata.fetch.chunks import Stream, Task
from marketdata.fetch.markets import Markets
from marketdata.fetch.reader import Chunk, Fetched, Reader
from marketdata.fetch.threads import start_thread, worker_count
from marketdata.fetch.windows import WORTH_DIVIDING, Window


class Scheduler:
    """Requests windows of any width concurrently; iterate over it once for the points.

    ``report`` is filled in. ``strict`` makes repairs and diagnostics errors. ``in_order`` yields in the order of the
    windows instead of the order of arrival. ``buffer`` is the most chunks that wait in memory.
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
    ) -> None:
        self._reader = reader
        self._windows = windows
        self._markets = markets
        self._in_order = in_order
        self._buffer = buffer
        self._strict = strict
        self._change = threading.Condition()
        self._stop = threading.Event()
        self.report = report or Report()
        self._waiting = deque(Task(k, window, markets.known(window)) for k, window in enumerate(windows))
        self._begun: list[Task] = []
        self._missing: dict[Task, NotFoundError] = {}
        self._ready: deque[Fetched] = deque()
        self._active = self._pages_received = 0
        self._overfetched = 0.0
        self._error: BaseException | None = None
        # A short fetch is not worth a request to learn the rate.
        self._wants_usage = sum(task.pages for task in self._waiting) > 8
        self.empty: list[Window] = []  # requested, and without a point

    def __iter__(self) -> Iterator[Fetched]:
        try:
            while True:
                with self._change:
                    self._start()
                    while not (self._ready or self._stop.is_set()) and (self._begun or self._waiting):
                        # A timeout, so that Ctrl-C is seen on every system, and a stop soon.
                        self._change.wait(0.1)
                        self._start()
                    if self._error or not self._ready:
                        break
                    fetched = self._ready.popleft()
                yield fetched
            if self._error is None and (self._begun or self._waiting):
                self._error = NetworkError("The fetch was given up.")
            if self._error is not None:
                received, resume = self.stop()
                yield from received
                if isinstance(self._error, MarketDataError):
                    self._error.resume = resume
                raise self._error
            if self._missing:
                raise self._missing_markets_error()
        finally:
            self.close()

    def stop(self) -> tuple[list[Fetched], Resume]:
        """Send nothing more; return what arrived but was not yielded, and what remains to request."""
        self.close()
        with self._change:
            for stream in self._streams:
                for chunk in [chunk for chunk in stream.chunks if chunk.fetched is None and chunk.pages]:
                    with suppress(ContractError):  # a resume requests a chunk again that does not fit the others
                        self._note(stream.receive(chunk, None))
            self._release()
            received, remaining = list(self._ready), list[Window]()
            self._ready.clear()
            for task in sorted({*self._begun, *self._waiting, *self._missing}, key=lambda task: task.index):
                done, windows = task.stop(in_order=self._in_order)
                received, remaining = received + done, remaining + windows
            self._begun.clear()  # so that later arrivals are ignored
            return received, Resume(tuple(remaining))

    def close(self) -> None:
        """Send nothing more."""
        self._stop.set()

    @property
    def _streams(self) -> list[Stream]:
        """The streams of all tasks that were begun and are not yielded."""
        return [stream for task in self._begun for stream in task.streams]

    @property
    def _workers(self) -> int:
        return worker_count(self._reader.transport.pacer, self._reader.transport.latency)

    # -- what to request: these are called under the lock

    def _start(self) -> None:
        """Start threads up to what the rate needs, while there are requests."""
        while self._active < self._workers and (request := self._next_request()) is not None:
            self._active += 1
            start_thread(partial(self._work, request))

    def _next_request(self) -> Callable[[], object] | None:
        """The next request; None until something arrives or is yielded."""
        if self._stop.is_set():
            return None
        if self._wants_usage:
            self._wants_usage = False
            if not self._reader.transport.pacer.known:
                return self._reader.transport.learn_limits
        pending = len(self._ready) + sum(chunk.is_requested for one in self._streams for chunk in one.chunks)
        has_room = self._buffer is None or pending < max(self._buffer, 2 * self._workers)
        for task in self._begun:
            if (waiting := task.waiting) is None:
                continue
            stream, chunk = waiting
            # Others may wait for the points of the first chunk, so that it may always be requested.
            if has_room or (chunk is stream.chunks[0] and not self._ready):
                stream.request(chunk, self._parts(stream, chunk))
                return partial(self._request, task, stream, chunk)
        if not has_room or not self._waiting:
            return None
        self._begun.append(task := self._waiting.popleft())
        return self._next_request() if task.streams else partial(self._look_up, task)

    def _parts(self, stream: Stream, chunk: Chunk) -> int:
        """In how many parts to request the rest of a chunk: its share of idle workers, as far as overfetch allows.

        Cuts cause overfetch, as nobody knows where pages end. A fetch may overfetch two pages, and one more for every
        50 pages. An estimate of its pages counts only up to three times the pages received, as early estimates are
        rough. It does not matter in a stream that surely has few pages.
        """
        pages = stream.remaining_pages(chunk)
        if self._waiting or not pages:
            return 1
        remaining = sum(one.remaining_pages(part) for one in self._streams for part in one.chunks)
        share = round(self._workers * pages / remaining)
        if stream.spans.is_regular and stream.pages(stream.window.rng) < 20:
            return share
        overfetch: float = self._overfetched + sum(one.overfetch for one in self._streams)
        expected = min(sum(one.pages(one.window.rng) for one in self._streams), 3 * self._pages_received)
        return int(min(share, (2 + expected / 50 - overfetch) / stream.spans.expected_overfetch + 1))

    def _note_page(self, stream: Stream, chunk: Chunk) -> bool:
        """Take in a page; divide the rest of its chunk if workers are idle and it is more than its share."""
        with self._change:
            self._pages_received += 1
            is_complete = stream.add_page(chunk)
            self._start()
            is_idle = self._active < self._workers and not any(task.waiting for task in self._begun)
            if not is_complete and is_idle and stream.remaining_pages(chunk) > WORTH_DIVIDING:
                stream.divide(chunk, self._parts(stream, chunk))
                self._start()
            return is_complete

    # -- a thread

    def _work(self, request: Callable[[], object] | None) -> None:
        """Make requests while there are any."""
        while request is not None:
            try:
                request()
            except BaseException as error:  # the iterating thread raises it
                with self._change:
                    if not self._stop.is_set():
                        self._error = error
                        self._stop.set()
            with self._change:
                self._start()  # other threads first: they take what is to be yielded next
                request = self._next_request() if self._active <= self._workers else None
                self._active -= request is None
                self._change.notify_all()

    def _look_up(self, task: Task) -> bool:
        """Learn when the market of a task was active, and which tokens it has; whether these are requested alone."""
        info = self._markets.look_up(task.window.id)
        with self._change:
            return task.begin(info)

    def _request(self, task: Task, stream: Stream, chunk: Chunk) -> None:
        """Request a chunk and take in its points."""
        try:
            fetched = self._reader.read(chunk, self.report, self._stop, partial(self._note_page, stream))
        except TooManyTokensError:
            if stream in task.streams and (chunk.window.kind == "token" or not self._look_up(task)):
                raise
            return
        except NotFoundError as error:
            if len({window.id for window in self._windows}) == 1:
                raise
            with self._change:
                self._missing[task] = error
                self._begun = [other for other in self._begun if other is not task]
                self._release()
            return
        with self._change:
            if task not in self._begun or stream not in task.streams or chunk not in stream.chunks:
                return  # the market does not exist, is now requested by token, or the fetch has ended
            self._note(stream.receive(chunk, fetched))
            self._release()

    def _note(self, fetched: Fetched | None) -> None:
        if fetched is not None:
            fetched.note(self.report, strict=self._strict)

    def _release(self) -> None:
        """Let complete ranges be yielded, in order up to the first gap; called under the lock."""
        for task in list(self._begun):
            if (fetched := task.pop()) is not None:
                self._ready.append(fetched)
            if task.window.rng.start == task.window.rng.end:
                self._begun.remove(task)
                self._overfetched += sum(stream.overfetch for stream in task.streams)
                self.empty += [] if task.points else [self._windows[task.index]]
            elif self._in_order:
                return

    def _missing_markets_error(self) -> NotFoundError:
        """The error about the markets that do not exist, once the others have arrived."""
        missing = sorted(self._missing, key=lambda task: task.index)
        error = self._missing[missing[0]]
        names = ", ".join(map(repr, list(dict.fromkeys(task.window.id for task in missing))[:10]))
        problem, error.hint = error.problem, f"The rows of the others are in .partial. {error.hint}".rstrip()
        error.args = (f"{problem} Not found: {names}. {error.hint}",)
        error.resume = Resume(tuple(task.window for task in missing))
        return error
