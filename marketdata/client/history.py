"""Fetching a history: requests walked side by side, pages joined into one tidy frame."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from marketdata.accessor import to_frame
from marketdata.client.targets import Catalogue, Facts, by_token, whole
from marketdata.errors import MarketDataError, ServiceOddityWarning, TooManyTokensError, warn
from marketdata.fetch.paging import Memory
from marketdata.fetch.planning import Fetch, Progress, fetch_all
from marketdata.fetch.position import LARGEST_LIMIT, Position, Report, Request, Resume
from marketdata.fetch.transport import Transport
from marketdata.tidy.frames import FrameKind
from marketdata.times import Range
from marketdata.wire.columns import AnyColumns, BookColumns, Page, View, concat, empty, merged

_FRAME_POINTS = {"books": 20_000, "prices": 500_000, "metrics": 500_000}
_BUFFERED_PAGES = 64
_WORTH_A_BAR = 5


class Options(NamedTuple):
    """How a client fetches.

    Attributes
    ----------
    strict : bool
        Repairs and oddities are errors.
    progress : bool or None
        Show a bar; None: where a person is watching (a terminal or a notebook).
    page_limit : int
        Points asked for per page.
    """

    strict: bool = False
    progress: bool | None = None
    page_limit: int = LARGEST_LIMIT


class History:
    """Walks requests and hands out what they bring."""

    def __init__(self, transport: Transport, options: Options) -> None:
        self.transport = transport
        self.catalogue = Catalogue(transport)
        self._options = options
        self._memory = Memory()

    def columns(
        self, requests: Sequence[Request | Position], report: Report, levels: int | None, frame: FrameKind
    ) -> AnyColumns:
        """Everything that the requests bring; a failure carries the frame so far and how to go on."""
        arrived = _Arrived(_view(requests), levels)
        with self._bar(requests) as progress:
            walks = self.walks(requests, report, progress)
            with _partial(arrived, walks, frame):
                for request, page in walks:
                    arrived.add(request, page)
        _warn(report)
        return arrived.joined()

    def walks(
        self,
        requests: Sequence[Request | Position],
        report: Report,
        progress: Progress | None = None,
        buffer: int | None = None,
    ) -> _Walks:
        """Pages in the order of the requests, to iterate once."""

        def fetch(left: Sequence[Request | Position]) -> Fetch:
            return fetch_all(
                self.transport,
                left,
                report=report,
                strict=self._options.strict,
                memory=self._memory,
                progress=progress,
                buffer=buffer,
            )

        return _Walks(fetch, requests, self.catalogue)

    def frames(
        self, requests: Sequence[Request], report: Report, levels: int | None, frame: FrameKind
    ) -> Iterator[Any]:
        """Frames in time order, market after market, each of a bounded number of points."""
        arrived = _Arrived(_view(requests), levels)
        most = _FRAME_POINTS[arrived.view]
        with self._bar(requests) as progress:
            walks = self.walks(requests, report, progress, _BUFFERED_PAGES)
            with _partial(arrived, walks, frame):
                current: str | None = None
                for request, page in walks:
                    if arrived.points and (request.id != current or arrived.points >= most):
                        yield to_frame(arrived.taken(), frame)
                    current = request.id
                    arrived.add(request, page)
                if arrived.points:
                    yield to_frame(arrived.taken(), frame)
        _warn(report)

    @contextmanager
    def _bar(self, requests: Sequence[Request | Position]) -> Iterator[Progress | None]:
        """A bar of pages where a person is watching; nothing of it stays when it is done."""
        bar_class = _bar_class(self._options.progress)
        expected = sum(self.catalogue.pages(r.request if isinstance(r, Position) else r) for r in requests)
        if bar_class is None or expected < _WORTH_A_BAR:
            yield None
            return
        with bar_class(total=expected, desc=_view(requests), unit="page", leave=False) as bar:

            def progress(pages: int, _complete: int) -> None:
                bar.total = max(bar.total, pages)
                bar.update(pages - bar.n)

            yield progress


def _bar_class(wanted: bool | None) -> Any:
    """A tqdm for a terminal or a notebook, or None where a bar would only leave text behind."""
    notebook = "ipykernel" in sys.modules
    if wanted is False or (wanted is None and not notebook and not sys.stderr.isatty()):
        return None
    if not notebook:
        from tqdm import tqdm

        return tqdm
    if importlib.util.find_spec("ipywidgets") is None:
        return None
    from tqdm.notebook import tqdm_notebook

    return tqdm_notebook


class _Walks:
    """Pages of requests; a market too wide for a page goes on token by token."""

    def __init__(
        self,
        fetch: Callable[[Sequence[Request | Position]], Fetch],
        requests: Sequence[Request | Position],
        catalogue: Catalogue,
    ) -> None:
        self._fetch = fetch
        self._catalogue = catalogue
        self._now = fetch(requests)

    def __iter__(self) -> Iterator[tuple[Request, Page]]:
        while True:
            try:
                yield from self._now
                return
            except TooManyTokensError as error:
                self._now = self._fetch(self._narrowed(error))

    def leave(self) -> tuple[list[tuple[Request, Page]], Resume]:
        """Send nothing more; what had arrived, and what is left to ask."""
        return self._now.leave()

    def _narrowed(self, error: TooManyTokensError) -> list[Request | Position]:
        positions = error.resume.positions if isinstance(error.resume, Resume) else ()
        out: list[Request | Position] = []
        for position in positions:
            request = position.request
            facts = self._catalogue.facts(request.id) if request.kind == "market" else Facts()
            wide = request.view != "metrics" and len(facts.tokens) > LARGEST_LIMIT
            out += by_token(request, facts) if wide else [position]
        if len(out) == len(positions):
            raise error
        return out


class _Arrived:
    """Pages that arrived, cut to the levels asked, each market once."""

    def __init__(self, view: View, levels: int | None) -> None:
        if levels is not None:
            whole("levels", levels, 1)
        self.view = view
        self._levels = levels
        self._parts: list[AnyColumns] = []
        self._named: dict[str, str] = {}
        self.points = 0

    def add(self, request: Request, page: Page) -> None:
        """Keep a page, unless the same market was asked under another of its names."""
        if request.kind == "market" and self._named.setdefault(page.market_id, request.id) != request.id:
            return
        columns = page.columns
        if self._levels is not None and isinstance(columns, BookColumns):
            columns = columns.cut(self._levels)
        self._parts.append(columns)
        self.points += len(columns)

    def joined(self) -> AnyColumns:
        """All of it, in tidy order."""
        parts = [p for p in self._parts if len(p)]
        return merged(parts) if parts else empty(self.view)  # type: ignore[type-var]

    def taken(self) -> AnyColumns:
        """All of it; nothing is kept."""
        out = self.joined()
        self._parts, self.points = [], 0
        return out


@contextmanager
def _partial(arrived: _Arrived, walks: _Walks, frame: FrameKind) -> Iterator[None]:
    """Hang the frame so far, and how to go on, on whatever ends the walk."""
    try:
        yield
    except MarketDataError as error:
        error.partial = to_frame(arrived.joined(), frame)
        raise
    except KeyboardInterrupt as stop:
        rest, resume = walks.leave()
        for request, page in rest:
            arrived.add(request, page)
        stop.partial, stop.resume = to_frame(arrived.joined(), frame), resume  # type: ignore[attr-defined]
        raise


def _view(requests: Iterable[Request | Position]) -> View:
    first = next(iter(requests))
    return first.request.view if isinstance(first, Position) else first.view


def _warn(report: Report) -> None:
    if report.warnings:
        counts = ", ".join(f"{name} {n}" for name, n in sorted(report.warnings.items()))
        warn(
            f"The service's answers were kept as they came, but look odd: {counts}.",
            ServiceOddityWarning,
        )


def safe_parts(pages: Iterable[tuple[Request, Page]]) -> Iterator[tuple[Request, Range, AnyColumns, bool]]:
    """Stretches of each request that are complete, with their points, as they become so.

    A stretch ends where every label has been seen to pass, and is complete once a page behind it began there or later;
    a label without points, and points that go back in time, hold it back to the end of its request. The last item says
    whether the end was proven.
    """
    current: _Stretch | None = None
    for request, page in pages:
        if current is not None and current.request != request:
            yield current.rest()
        if current is None or current.request != request:
            current = _Stretch(request)
        part = current.add(page)
        if part is not None:
            yield part
    if current is not None:
        yield current.rest()


class _Stretch:
    def __init__(self, request: Request) -> None:
        self.request = request
        self._done = request.rng.start
        self._held: AnyColumns = empty(request.view)
        self._last = dict.fromkeys(request.labels, request.first_bucket)
        self._border = request.first_bucket
        self._rises = self._proven = True

    def add(self, page: Page) -> tuple[Request, Range, AnyColumns, bool] | None:
        self._proven &= not page.notes["count_mismatch"]
        if len(page.columns):
            self._rises &= int(page.columns.ts.min()) >= self._border
        ready = self._until(self._border) if self._rises and self._border > self._done else None
        self._held = concat([self._held, page.columns]) if len(self._held) else page.columns  # type: ignore[type-var]
        for label in page.labels or ("",):
            self._last.setdefault(label, self.request.first_bucket)
        for token, last in _last_times(page.columns):
            self._last[token] = max(last, self._last.get(token, last))
        self._border = min(self._last.values())
        return ready

    def rest(self) -> tuple[Request, Range, AnyColumns, bool]:
        return self._until(self.request.rng.end)

    def _until(self, border: int) -> tuple[Request, Range, AnyColumns, bool]:
        ready = self._held.between(-(2**62), border)
        self._held = self._held.between(border, 2**62)
        rng, self._done = Range(self._done, border), border
        return self.request, rng, ready.sort(), self._proven


def _last_times(columns: AnyColumns) -> Iterator[tuple[str, int]]:
    for code, token in enumerate(columns.tokens):
        times = columns.ts[columns.token == code]
        if len(times):
            yield token.token_label or "", int(times.max())
