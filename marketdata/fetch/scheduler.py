"""Request windows of any number of markets concurrently under one pacer.

A free thread takes the next part of a range, from its start on; a running part is never cut.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from marketdata.errors import ContractError, MarketDataError, NetworkError, NotFoundError
from marketdata.fetch.checkpoint import Report, Resume
from marketdata.fetch.markets import Markets
from marketdata.fetch.order import SourceOrder
from marketdata.fetch.pages import Fetched, Received, fetch
from marketdata.fetch.source import Source
from marketdata.fetch.threads import start_thread, worker_count
from marketdata.fetch.windows import WORTH_DIVIDING, MarketInfo, Window

# A part stays in memory until it is whole, and a page that fails costs all of its part.
MAX_PAGES = 16
# If so many markets fail before any answers, the error is about all of them.
_SUSPICIOUS = 10


class Part:
    """A part of a range that a thread requests, and its pages so far."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.fetched: list[Fetched] = []
        self.received: Received | None = None  # pages behind these, as they are
        self.reached = window.rng.start  # up to where points have arrived
        self.is_over = False

    def keep(self, report: Report, *, is_trusted: bool) -> None:
        """Take the points of pages in order so far."""
        received, self.received = self.received, None
        if received is None:
            return
        received.order.is_trusted |= is_trusted
        if (end := received.proven) > received.window.rng.start:
            with suppress(ContractError):  # a resume requests again what does not fit together
                self.fetched.append(received.fetched(end))
                self.fetched[-1].note(report)


class Stream:
    """The range of one market or token: the requested ``parts``, and from ``frontier`` on what is not requested yet.

    The first part is all of it; once its first page tells how dense the points are, others take their share.
    """

    def __init__(self, index: int, window: Window, info: MarketInfo | None) -> None:
        self.index, self.window, self.info = index, window, info
        self.parts: deque[Part] = deque()
        self.opening = Part(window)  # the first one
        self.frontier = window.rng.start
        self.points = 0  # that were yielded
        self.total = 0.0  # pages, as the first one suggests
        self._labels = (info or MarketInfo()).labels(window) or 2
        self._page = float(window.limit)  # points of a full page
        self._density, self._weight = float(self._labels), 0.0  # points of a bucket, as so many buckets tell

    @property
    def remaining(self) -> float:
        """Pages that nobody requests."""
        return self.pages_from(self.frontier)

    def pages_from(self, start: int) -> float:
        """Expected pages from a time to the end of the market."""
        end = (self.info or MarketInfo()).active_range(self.window).end
        return max(0, end - start) / self.window.resolution.micros * self._density / self._page

    def learn(self, points: int, buckets: int, *, is_full: bool) -> None:
        """Take in a page; recent ones count most."""
        self._density = (self._density * self._weight + points) / (self._weight + buckets)
        if is_full and points:
            self._page = float(points) if not self._weight else (3 * self._page + points) / 4
        self._weight = min(self._weight + buckets, 16 * self._page / max(self._density, 1e-9))

    def hand_out(self, pages: float) -> int:
        """Move the frontier by this many pages, minus a margin for chance; to the end if hardly a page would remain."""
        (_, end), width = self.window.rng, self.window.resolution.micros
        missing = max(0.0, 1 - self._density / self._labels)
        # If the number of points is unknown, a cut costs half a page.
        pages = max(pages, 2 if missing < 0.2 and self.total < 20 else min(MAX_PAGES, self.total / 4))
        if pages + 0.5 < self.remaining:
            pages -= 0.2 * math.sqrt(missing * pages)
            buckets = max(1, int(pages * self._page / self._density))
            end = min(end, (self.frontier // width + buckets) * width)
        self.frontier = end
        return end

    def begin(self) -> Part:
        """The first part: all of it."""
        self.frontier = self.window.rng.end
        self.parts.append(self.opening)
        return self.opening

    def next_part(self, pages: float) -> Part:
        """The next part, of so many pages."""
        self.parts.append(Part(self.window.within(self.frontier, self.hand_out(pages))))
        return self.parts[-1]


class Scheduler:
    """Requests windows of any width concurrently; iterate over it once for the points.

    ``report`` is filled in. ``strict`` makes repairs and diagnostics errors. ``in_order`` yields in the order of the
    windows instead of the order of arrival. ``buffer`` is the most parts that wait in memory. ``order`` is what
    earlier fetches have seen. The iterating thread calls ``progress`` with the number of buckets that arrived since
    the last call, 0 while it waits.
    """

    def __init__(
        self,
        source: Source,
        windows: Sequence[Window],
        markets: Markets,
        *,
        report: Report | None = None,
        strict: bool = False,
        in_order: bool = False,
        buffer: int | None = None,
        order: SourceOrder | None = None,
    ) -> None:
        self._source, self._windows, self._markets = source, windows, markets
        self._strict, self._in_order, self._buffer = strict, in_order, buffer
        self._change = threading.Condition()
        self._stop = threading.Event()
        self.report = report or Report()
        self._waiting = deque(Stream(k, window, markets.known(window)) for k, window in enumerate(windows))
        self._begun: list[Stream] = []
        self._missing: dict[Stream, MarketDataError] = {}
        self._ready: deque[Fetched] = deque()
        self._active = 0
        self._order = order or SourceOrder()
        self.progress: Callable[[int], object] = lambda _: None
        self._arrived = 0  # buckets that ``progress`` was not told of
        self._error: BaseException | None = None
        # A short fetch is not worth a request to learn the rate.
        self._wants_usage = sum(math.ceil(stream.remaining) for stream in self._waiting) > 8
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
                        self._tell()
                    self._tell()
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

    def close(self) -> None:
        """Send nothing more."""
        self._stop.set()

    def stop(self) -> tuple[list[Fetched], Resume]:
        """Send nothing more; return points that were not yielded, and windows that remain to request."""
        self.close()
        with self._change:
            for part in [part for stream in self._begun for part in stream.parts]:
                part.keep(self.report, is_trusted=self._order.is_known)
            self._release()
            received, rest = list(self._ready), list[Window]()
            self._ready.clear()
            for stream in sorted({*self._begun, *self._waiting, *self._missing}, key=lambda stream: stream.index):
                at, end = stream.window.rng
                for fetched in (fetched for part in stream.parts for fetched in part.fetched):
                    if at < fetched.window.rng.start:
                        if self._in_order:  # nothing is yielded behind a gap
                            break
                        rest.append(stream.window.within(at, fetched.window.rng.start))
                    if not (self._in_order and rest):
                        received.append(fetched._replace(request=stream.index))
                        at = fetched.window.rng.end
                rest += [stream.window.within(at, end)] if at < end else []
            self._begun.clear()  # so that later arrivals are ignored
            return received, Resume(tuple(rest))

    def _tell(self) -> None:
        arrived, self._arrived = self._arrived, 0
        self.progress(arrived)

    # -- what to request: these are called under the lock

    @property
    def _workers(self) -> int:
        return worker_count(self._source.pacer, self._source.latency)

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
            if not self._source.pacer.known:
                return self._source.learn_limits
        pending = len(self._ready) + sum(len(stream.parts) for stream in self._begun)
        if self._buffer is not None and pending >= max(self._buffer, 2 * self._workers):
            return None
        for stream in self._begun:
            if stream.frontier < stream.window.rng.end:
                return partial(self._request, stream, stream.next_part(self._share))
        if not self._waiting:
            return None
        self._begun.append(stream := self._waiting.popleft())
        return partial(self._request, stream, stream.begin())

    @property
    def _share(self) -> float:
        """Pages that a free thread takes: many while much remains, few at the end, as each cut costs half a page."""
        remaining = sum(stream.remaining for stream in (*self._begun, *self._waiting))
        return min(MAX_PAGES, math.ceil(remaining / self._workers))

    def _release(self) -> None:
        """Release complete parts to be yielded, in order up to the first gap."""
        for stream in list(self._begun):
            while stream.parts:
                for fetched in stream.parts[0].fetched:
                    stream.points += len(fetched.columns)
                    stream.window = stream.window.within(fetched.window.rng.end, stream.window.rng.end)
                    self._ready.append(fetched._replace(request=stream.index))
                stream.parts[0].fetched.clear()
                if not stream.parts[0].is_over:
                    break
                stream.parts.popleft()
            if stream.window.rng.start == stream.window.rng.end:
                self._begun.remove(stream)
                self.empty += [] if stream.points else [self._windows[stream.index]]
            elif self._in_order:
                return

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

    def _request(self, stream: Stream, part: Part) -> None:
        """Request a part and take in its points."""
        pages = partial(self._source.pages, report=self.report, stop=self._stop)
        try:
            for fetched in fetch(pages, part.window, self.report, partial(self._note_page, stream, part)):
                with self._change:
                    if stream in self._begun:
                        fetched.note(self.report, strict=self._strict)
                        part.fetched.append(fetched)
                        part.received = None
                        self._release()
        except MarketDataError as error:
            if len({window.id for window in self._windows}) == 1 or not self._is_of_one(error):
                raise
            with self._change:
                self._missing[stream] = error
                self._begun = [other for other in self._begun if other is not stream]
        with self._change:
            part.is_over = True
            self._reach(stream, part, part.window.rng.end)
            self._release()

    def _is_of_one(self, error: MarketDataError) -> bool:
        """Whether an error is about one market alone, so that the others are fetched before it is raised."""
        if isinstance(error, NotFoundError):
            return True
        is_of_all = not self.report.points and len(self._missing) >= _SUSPICIOUS
        return error.market is not None and not is_of_all

    def _reach(self, stream: Stream, part: Part, at: int) -> None:
        """Count all buckets before a time as arrived."""
        if at > part.reached:
            self._arrived += (at - part.reached) // stream.window.resolution.micros
            part.reached = at

    def _note_page(self, stream: Stream, part: Part, received: Received) -> bool:
        """Take in a page; whether all of the part has arrived. After the first page of a range others take the rest."""
        pages, order, at = received.content.pages, received.order, received.reached
        is_first = part is stream.opening and part.window.rng == received.window.rng and len(pages) == 1
        with self._change:
            self._order.see(order)
            order.is_trusted = self._order.is_known
            part.received = received.copy()
            if self._order.is_kept:
                self._reach(stream, part, at)
            self._learn(stream, received, is_first=is_first)
        may_divide = bool(pages[-1].next_cursor) and self._order.is_kept and order.is_side_by_side
        may_divide &= is_first and at > part.window.rng.start
        if may_divide and stream.info is None and stream.pages_from(at) > 20:
            stream.info = self._markets.look_up(stream.window.id)
        with self._change:
            if may_divide and (total := stream.pages_from(at)) > WORTH_DIVIDING:
                stream.total = total
                stream.frontier = at
                part.window = received.window = part.window.within(part.window.rng.start, stream.hand_out(self._share))
            self._start()
        return received.proven == received.window.rng.end

    def _learn(self, stream: Stream, received: Received, *, is_first: bool) -> None:
        """Learn from the newest page how dense points are: it reaches from the one before it to its last point."""
        page, order, width = received.content.pages[-1], received.order, stream.window.resolution.micros
        begin = int(page.columns.ts.min(initial=order.last)) if is_first else order.before + 1
        end = order.last + width if page.next_cursor else received.window.rng.end
        stream.learn(len(page.columns), max(1, (end - begin) // width), is_full=bool(page.next_cursor))

    def _missing_markets_error(self) -> MarketDataError:
        """The error about the markets that do not exist or cannot be read, once the others have arrived."""
        missing = sorted(self._missing, key=lambda stream: stream.index)
        error = self._missing[missing[0]]
        names = ", ".join(map(repr, list(dict.fromkeys(stream.window.id for stream in missing))[:10]))
        problem, error.hint = error.problem, f"The rows of the others are in .partial. {error.hint}".rstrip()
        what = "Not found" if isinstance(error, NotFoundError) else "Not fetched"
        error.args = (f"{problem} {what}: {names}. {error.hint}",)
        error.resume = Resume(tuple(stream.window for stream in missing))
        return error
