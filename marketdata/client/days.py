"""Whole days of a fetch by one request each, where a service offers them; all else is requested as pages.

A day comes as an Arrow stream, beside the interface. What does not come so is requested as pages, which say why.
"""

from __future__ import annotations

import importlib.util
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from typing import Any

from marketdata.client.markets import Markets
from marketdata.errors import (
    AuthenticationError,
    BadRequestError,
    ContractError,
    MarketDataError,
    NetworkError,
    NotFoundError,
    PlanError,
    RateLimitError,
    RequestError,
)
from marketdata.fetch.checkpoint import Report, Resume
from marketdata.fetch.http.retry import RETRYABLE
from marketdata.fetch.http.transport import Answer
from marketdata.fetch.http.workers import STOP, Stop, start
from marketdata.fetch.reader import Fetched, Reader, collected
from marketdata.fetch.scheduler import THREAD, Scheduler
from marketdata.fetch.windows import Window
from marketdata.resolution import Resolution
from marketdata.times import DAY, Range, to_text
from marketdata.wire.models import ARROW_STREAM

# Days requested at once: a service answers one or two of a key at a time.
_AT_ONCE = 4
# So many days are worth a request that shows whether they are offered.
_WORTH_ASKING = 4


class Days:
    """Whether and where a service offers days."""

    def __init__(self, reader: Reader) -> None:
        self.transport = reader.transport
        self._reader = reader
        # Markets whose days are refused, such as too long ones; None: all of them.
        self._refused: set[str | None] = set() if importlib.util.find_spec("pyarrow") else {None}

    def are_worth(self, windows: Sequence[Window]) -> bool:
        """Whether windows have days that can be requested at once; may request ``usage`` to see it."""
        some = [range_ for w in windows if self.may_have(w) and (range_ := whole_days(w)) is not None]
        if not some:
            return False
        if self.transport.offers_days is None and sum(r.end - r.start for r in some) >= _WORTH_ASKING * DAY:
            self.transport.learn_limits()
            if self.transport.offers_days is None:
                with suppress(MarketDataError):
                    self.transport.get(("usage",), deadline=0.0)
        return bool(self.transport.offers_days)

    def may_have(self, window: Window) -> bool:
        """Whether days of a window may be requested: at a coarser resolution a page has as many points."""
        is_fine = window.kind == "market" and window.resolution == Resolution.of("1m")
        return is_fine and self._refused.isdisjoint((None, window.id))

    def get(self, day: Window, report: Report, stop: threading.Event) -> Fetched | None:
        """The points of a day, None if they are to be requested as pages."""
        segments, params = (day.id, day.view, to_text(day.rng.start)[:10]), {"resolution": str(day.resolution)}
        how: dict[str, Any] = {"stop": stop, "counts": report, "root": "/days", "accept": ARROW_STREAM}
        try:
            fetched: Fetched = self.transport.get(segments, params, partial(self._read, day), **how)
        except (AuthenticationError, RateLimitError):
            raise  # pages would be answered so too
        except (ContractError, RequestError, NetworkError) as error:
            if stop.is_set():
                raise
            may_pass = error.status in RETRYABLE if isinstance(error, RequestError) else isinstance(error, NetworkError)
            if may_pass or isinstance(error, BadRequestError):
                self._refused.add(day.id)
            elif not isinstance(error, PlanError) and not (isinstance(error, NotFoundError) and day.id in error.detail):
                self._refused.add(None)
            return None
        return fetched

    def _read(self, day: Window, answer: Answer) -> Fetched:
        from marketdata.wire.stream import decode

        page = decode(day.view, answer.body)
        fetched = collected(day, [page], answer.date)
        if len(fetched.columns) != page.count:
            raise ContractError(f"{day}: the answer has other points than those of the day, each once.")
        self._reader.check(day, page)  # last: the pages that follow are compared with what it takes
        return fetched


def whole_days(window: Window) -> Range | None:
    """The days [UTC] that a window has whole."""
    first, last = -(-window.rng.start // DAY) * DAY, window.rng.end // DAY * DAY
    return Range(first, last) if first < last else None


@dataclass(eq=False)
class _Part:
    """What is left of a part of a requested window; ``on_way``: its first days, which are requested already."""

    request: int
    window: Window
    is_days: bool = False
    is_dense: bool = False
    on_way: deque[tuple[Window, Future[Fetched | None]]] = field(default_factory=deque)

    def next_day(self) -> Window | None:
        """The first day that is not requested; of days that may have few points one at a time."""
        at = self.on_way[-1][0].rng.end if self.on_way else self.window.rng.start
        if at >= self.window.rng.end or (self.on_way and not self.is_dense):
            return None
        return replace(self.window, rng=Range(at, at + DAY))


class DayFetch:
    """A fetch as a `Scheduler` is one, which requests what is no whole day: ``pages`` begins one of some windows."""

    def __init__(
        self,
        days: Days,
        windows: Sequence[Window],
        markets: Markets,
        pages: Callable[[Sequence[Window]], Scheduler],
        report: Report,
        *,
        strict: bool,
        in_order: bool,
    ) -> None:
        self.report = report
        self.empty: list[Window] = []
        self._days, self._windows, self._markets, self._pages = days, windows, markets, pages
        self._strict, self._in_order = strict, in_order
        self._stop = Stop(STOP.get())
        parts = [part for k, window in enumerate(windows) for part in self._parts(k, window)]
        self._todo = deque(parts if in_order else sorted(parts, key=lambda part: not part.is_days))
        self._on_way = 0
        self._running: Scheduler | None = None

    def __iter__(self) -> Iterator[Fetched]:
        points: Counter[int] = Counter()
        late: list[Window] = []
        try:
            while self._todo:
                some = self._next_day() if self._todo[0].is_days else self._as_pages()
                try:
                    for fetched in some:
                        points[fetched.request] += len(fetched.columns)
                        yield fetched
                except NotFoundError as error:
                    # Of several markets, an error once the others have arrived.
                    if not self._todo or error.resume is None:
                        raise
                    late += error.resume.windows
                    self._running = None
            if late:
                yield from self._pages(late)
        except MarketDataError as error:
            error.resume = Resume((*(error.resume.windows if error.resume else ()), *self._left()))
            raise
        finally:
            self.close()
        self.empty = [window for k, window in enumerate(self._windows) if not points[k]]

    def leave(self) -> tuple[list[Fetched], Resume]:
        """Send nothing more; returns what had arrived and was not yielded, and what is left to request."""
        self.close()
        rest, resume = self._running.leave() if self._running else ([], Resume(()))
        return rest, Resume((*resume.windows, *self._left()))

    def close(self) -> None:
        """Send nothing more."""
        self._stop.set()
        if self._running:
            self._running.close()

    def _left(self) -> Iterator[Window]:
        return (part.window for part in self._todo)

    def _parts(self, request: int, window: Window) -> list[_Part]:
        """A window cut before and after its whole days."""
        days = whole_days(window) if self._days.may_have(window) else None
        if days is None:
            return [_Part(request, window)]
        ranges = (Range(window.rng.start, days.start), days, Range(days.end, window.rng.end))
        return [_Part(request, replace(window, rng=r), is_days=r is days) for r in ranges if r.start < r.end]

    def _replace_first(self, parts: Sequence[_Part]) -> None:
        """Request other parts instead of the first one; pages after all days, unless the order counts."""
        self._on_way -= len(self._todo.popleft().on_way)
        ahead = [part for part in parts if part.is_days or self._in_order]
        self._todo.extendleft(reversed(ahead))
        self._todo.extend(part for part in parts if part not in ahead)

    def _as_pages(self) -> Iterator[Fetched]:
        parts = list(takewhile(lambda part: not part.is_days, self._todo))
        for _ in parts:
            self._todo.popleft()
        self._running = self._pages([part.window for part in parts])
        for fetched in self._running:
            yield fetched._replace(request=parts[fetched.request].request)
        self._running = None

    def _next_day(self) -> Iterator[Fetched]:
        """The next day of the first part; what follows one that is refused, or has few points, is cut anew."""
        part = self._todo[0]
        self._request_ahead()
        day, answer = part.on_way.popleft()
        fetched = self._wait(answer)
        self._on_way -= 1
        if fetched is None or (self._strict and Report().note(fetched.notes)):
            self._replace_first([_Part(part.request, part.window)])
            return
        part.window = replace(part.window, rng=Range(day.rng.end, part.window.rng.end))
        part.is_dense = len(fetched.columns) >= day.limit
        if day.rng.end == part.window.rng.end:
            self._replace_first([])
        elif not part.is_dense:
            self._replace_first(self._of_few_points(part))
        fetched.note(self.report)
        yield fetched._replace(request=part.request)

    def _of_few_points(self, part: _Part) -> list[_Part]:
        """What follows a day whose points fit a page: pages, which have more days each, up to where a market begins."""
        ranges = self._markets.look_up(part.window.id).parts(part.window)
        before, *after = [replace(part.window, rng=rng) for rng, _ in ranges]
        if ranges[0][1]:
            return [_Part(part.request, part.window)]
        return [_Part(part.request, before), *(new for window in after for new in self._parts(part.request, window))]

    def _request_ahead(self) -> None:
        """Request days up to as many as are answered at once, those of the first parts first."""
        for part in self._todo:
            while self._on_way < _AT_ONCE and part.is_days and (day := part.next_day()) is not None:
                answer: Future[Fetched | None] = Future()
                part.on_way.append((day, answer))
                self._on_way += 1
                start(partial(self._request, day, answer), THREAD)
            if self._on_way == _AT_ONCE:
                return

    def _request(self, day: Window, answer: Future[Fetched | None]) -> None:
        try:
            answer.set_result(self._days.get(day, self.report, self._stop))
        except BaseException as error:  # whatever it is, it is raised in the thread that iterates
            answer.set_exception(error)

    def _wait(self, answer: Future[Fetched | None]) -> Fetched | None:
        while not self._stop.is_set():
            # A timeout, so that Ctrl-C is seen on every system, and a stop soon.
            with suppress(TimeoutError):
                return answer.result(0.1)
        raise NetworkError("The fetch was given up.")
