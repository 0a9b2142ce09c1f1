"""One window, read whole: its pages, verified complete, without duplicates, inside its range.

A window whose pages are not known to be complete is requested again in halves: a smaller one needs fewer cursors.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np

from marketdata.errors import ContractError, LimitTooSmallError, MarketDataError, PaginationStalledError
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Answer, Transport
from marketdata.fetch.pagination import paginate
from marketdata.fetch.windows import IdKind, Window
from marketdata.points.columns import Data, Page, joined
from marketdata.points.duplicates import deduplicate, repeated
from marketdata.points.views import View
from marketdata.times import SECOND, Range, to_text
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT

# How often a window of one bucket is requested, and how often a window whose count stays wrong is halved.
_MOST_TRIES = 3
_MOST_HALVINGS = 3
# Pages of a window and its halves together, over the pages that it can have.
_BUDGET = 2
# Why points of a window may be missing: its pages count another number of them, or end with an empty cursor.
Incomplete = Literal["count", "cursor"]
# Noted once a fetch, not for every page.
_ONCE = frozenset({"limit_clamped", "cursor_empty", "content_type_not_json"})


@dataclass
class Memory:
    """What a client learned from windows for those after them.

    ``minimums``: (view, id) to the least limit of a market; ``markets``: (kind, id or slug) to the market;
    ``counts_otherwise``: whether ``metadata.count`` is no number of points, however counted; ``empty_cursor_ends``,
    ``empty_cursor_lies``: whether an empty ``next_cursor`` was seen at the end, or before it.
    """

    minimums: dict[tuple[View, str], int] = field(default_factory=dict)
    markets: dict[tuple[IdKind, str], str] = field(default_factory=dict)
    counts_otherwise: bool = False
    empty_cursor_ends: bool = False
    empty_cursor_lies: bool = False


class Chunk(NamedTuple):
    """All points of a window.

    ``labels`` counts the tokens of the market; ``units`` and ``per_bucket`` count the points, and those of a complete
    bucket, as the service counts; ``limit`` is the effective page limit; ``notes`` are oddities by name;
    ``full``: points and buckets of each page behind which another one came.
    """

    columns: Data
    market_id: str
    labels: int
    units: int
    per_bucket: int
    limit: int
    complete: bool
    pages: int
    notes: Counter[str]
    full: tuple[tuple[int, int], ...] = ()


@dataclass
class Received:
    """The pages of a window so far, and when they were sent."""

    pages: list[Page] = field(default_factory=list)
    dates: list[float] = field(default_factory=list)

    def clear(self) -> None:
        """Begin anew."""
        self.pages, self.dates = [], []


class Prefix(NamedTuple):
    """What came of a window; before ``end`` it lacks nothing if pages have the points of each token in rising order."""

    chunk: Chunk
    end: int


class TooWideError(Exception):
    """A window has more pages than it should have; cut, its parts can be requested concurrently."""

    def __init__(self, prefix: Prefix) -> None:
        super().__init__()
        self.prefix = prefix


class Reader:
    """Reads windows of one fetch; threads share it."""

    def __init__(
        self,
        transport: Transport,
        memory: Memory,
        report: Report,
        *,
        strict: bool = False,
        stop: threading.Event | None = None,
    ) -> None:
        self.report = report
        self._transport = transport
        self._memory = memory
        self._strict = strict
        self._stop = stop
        self._lock = threading.Lock()
        self._noted: set[str] = set()
        self._labels: dict[str, dict[str, str | None]] = {}

    def read(self, window: Window, most: int | None = None, received: Received | None = None) -> Chunk:
        """All points of a window; TooWideError if there are more than ``most`` pages. Errors have ``.attempts``.

        ``received`` is filled in with its pages as they come.
        """
        before = self.report.requests
        try:
            chunk = self._read(window, _Budget(most), received or Received())
            refused = self.note(chunk)
            if self._strict and refused:
                raise ContractError(f"{window}: strict mode refuses {', '.join(sorted(refused))}.")
        except MarketDataError as error:
            if error.attempts is None:
                error.attempts = max(1, self.report.requests - before)
            raise
        return chunk

    def _read(self, window: Window, budget: _Budget, received: Received) -> Chunk:
        """The points of a window, in halves where its pages do not end, or may lack points."""
        tried = 0
        while True:
            received.clear()
            try:
                chunk = self._fetch(window, budget, received)
                why = self._incomplete(window, chunk)
                return self._halved(window, chunk, budget, why) if why else chunk
            except LimitTooSmallError as error:
                least = error.minimum
                if least is None or not self._limit(window) < least <= LARGEST_LIMIT:
                    raise
                self._memory.minimums[window.view, window.id] = least
                with self._lock:
                    self.report.note({"limit_raised": 1})
            except PaginationStalledError:
                tried += 1
                budget.most = None  # its halves are requested to their ends
                self._count_restart()
                if budget.is_spent or (window.buckets == 1 and tried == _MOST_TRIES):
                    raise
                if window.buckets > 1:
                    before = [page.columns for page in received.pages]
                    received.clear()  # a window that is requested in halves
                    parts = [self._read(half, budget, Received()) for half in window.halves()]
                    return with_all(window, before, _joined(parts))

    def _limit(self, window: Window) -> int:
        return max(window.limit, self._memory.minimums.get((window.view, window.id), 1))

    def _fetch(self, window: Window, budget: _Budget, received: Received) -> Chunk:
        """The points of the pages of a window, each once and inside its range; ``received`` is filled in."""
        window = replace(window, limit=self._limit(window))
        pages = received.pages

        def bound(page: Page) -> int:
            least = page.limit if page.limit and 1 <= page.limit < window.limit else window.limit
            return -(-window.buckets * _labels(pages) // least) * 2 + 50

        read = partial(self._page, window, received.dates, [])
        get = partial(self._transport.get, window.segments, read=read, stop=self._stop, counts=self.report)
        for page in paginate(lambda cursor: get({**window.params, "cursor": cursor}), keys_of, window, bound):
            budget.requested += 1
            pages.append(page)
            budget.bound = max(budget.bound, bound(page))
            if budget.most is not None and len(pages) >= budget.most and page.next_cursor:
                raise TooWideError(self.prefix(window, received))
        return self._chunk(window, received)

    def prefix(self, window: Window, received: Received) -> Prefix:
        """What came of a window that is not read to its end."""
        received = Received(list(received.pages), list(received.dates))  # a thread may add to it
        chunk = self._chunk(window, received)
        some = [page.columns for page in received.pages if len(page.columns)]
        rises = all(bool((c.steps() > 0).all()) for c in some) and all(
            before.ts.max() <= after.ts.min() for before, after in pairwise(some)
        )
        # A token that has a point here has come up to here; all of them have where all have a point.
        at, points = np.unique(chunk.columns.ts, return_counts=True)
        whole = at[points == chunk.labels]
        end = int(whole[-1]) if rises and len(whole) else window.rng.start
        return Prefix(chunk, max(end, window.rng.start))

    def note(self, chunk: Chunk) -> frozenset[str]:
        """Count a chunk in the report; returns what strict mode refuses."""
        with self._lock:
            new = {name: n for name, n in chunk.notes.items() if name not in self._noted}
            self._noted |= _ONCE & set(new)
            self.report.pages += chunk.pages
            self.report.points += len(chunk.columns)
            return frozenset(self.report.note({name: 1 if name in _ONCE else n for name, n in new.items()}))

    def _chunk(self, window: Window, received: Received) -> Chunk:
        """The points of pages, each once and inside the range of the window."""
        pages, dates, labels = received.pages, received.dates, _labels(received.pages)
        notes = sum((page.notes for page in pages), Counter())
        notes["limit_clamped"] += any(page.limit is not None and page.limit < window.limit for page in pages)
        notes["cursor_empty"] += pages[-1].next_cursor == ""
        every: Data = joined([page.columns for page in pages])
        columns = every.between(window.first_bucket, window.rng.end)
        notes["outside_range"] += len(every) - len(columns)
        if (columns.steps() <= 0).any():
            notes["points_sorted"] += sum(bool((page.columns.steps() < 0).any()) for page in pages)
            # A bucket that was open when the first page was sent may have changed on a later one.
            open_from = int(min(dates) * SECOND) - window.resolution.micros + 1 if dates else None
            columns, notes["duplicate_points"], notes["open_bucket_changed"] = deduplicate(columns.sort(), open_from)
        counted = sum(page.points if page.count is None else page.count for page in pages)
        by_time = counted < sum(page.points for page in pages) and not notes["count_mismatch"]
        return Chunk(
            columns=columns,
            market_id=pages[0].market_id,
            labels=labels,
            units=len(np.unique(columns.ts)) if by_time else len(columns),
            per_bucket=1 if by_time else labels,
            limit=min([window.limit, *(page.limit for page in pages if page.limit and page.limit >= 1)]),
            complete=not notes["count_mismatch"],
            pages=len(pages),
            notes=+notes,
            full=_spans(window, [page for page in pages if page.next_cursor]),
        )

    def _page(self, window: Window, dates: list[float], miscounted: list[Data], answer: Answer) -> Page:
        """The page of an answer; ContractError if it is invalid, or about something else than the pages before."""
        before = miscounted.pop() if miscounted else None
        page = decode_page(window.view, answer.body, rng=Range(window.first_bucket, window.rng.end))
        self._transport.check_cursor(page.next_cursor)
        if page.resolution != window.resolution:
            raise ContractError(f"{window}: the answer has the resolution {page.resolution!r}.")
        with self._lock:
            known = self._memory.markets.setdefault((window.kind, window.id), page.market_id)
            labels = self._labels.setdefault(page.market_id, {})
            changed = [x for x, token in page.labels.items() if labels.setdefault(x, token) != token]
        if page.market_id != known:
            raise ContractError(f"{window}: the answer is about market {page.market_id!r}, before it was {known!r}.")
        if changed:
            x = changed[0]
            raise ContractError(f"{window}: token {x!r} was {labels[x]!r} and is now {page.labels[x]!r}.")
        if window.kind == "token" and page.labels and set(page.labels.values()) != {window.id}:
            raise ContractError(f"{window}: the answer is about the tokens {list(page.labels.values())[:3]}.")
        if page.count not in (page.points, len(np.unique(page.columns.ts))):
            # The same answer twice: the service counts otherwise. A different one: points get lost on the way.
            if not self._memory.counts_otherwise and (before is None or not same(before, page.columns)):
                miscounted += [page.columns] if before is None else []
                raise ContractError(f"{window}: metadata.count is {page.count}, not {page.points}.")
            page.notes["count_mismatch"] += 1
        page.notes.update(answer.notes)
        if answer.date is not None:
            dates.append(answer.date)
        return page

    def _incomplete(self, window: Window, chunk: Chunk, halvings: int = _MOST_HALVINGS) -> Incomplete | None:
        """Why a window may have more points than arrived, if smaller ones can tell."""
        if chunk.notes["count_mismatch"] and halvings and not self._memory.counts_otherwise:
            return "count"
        if not chunk.notes["cursor_empty"] or len(chunk.columns) >= window.buckets * chunk.labels:
            return None
        # Nothing says that points are missing if an empty cursor was seen to be the end, and the page has room.
        has_room = chunk.units + chunk.per_bucket <= chunk.limit
        return None if has_room and self._memory.empty_cursor_ends and not self._memory.empty_cursor_lies else "cursor"

    def _halved(
        self, window: Window, chunk: Chunk, budget: _Budget, why: Incomplete, halvings: int = _MOST_HALVINGS
    ) -> Chunk:
        """An incomplete window as its halves, which bring what was lost or lies behind an empty cursor."""
        # One bucket has no halves: where it may lack points it is requested once more.
        is_one = window.buckets == 1
        if is_one and why == "cursor":
            return chunk._replace(complete=False)
        budget.most = None
        self._count_restart()
        halves = (window,) if is_one else window.halves()
        parts = [self._fetch(half, budget, Received()) for half in halves]
        if why == "count":
            if halvings == _MOST_HALVINGS and not is_one and not any(part.complete for part in parts):
                self._memory.counts_otherwise = True
        elif sum(len(part.columns) for part in parts) == len(chunk.columns):
            self._memory.empty_cursor_ends = True
            return with_all(window, [chunk.columns], _joined(parts))
        else:
            self._memory.empty_cursor_lies = True
        left = 0 if is_one else halvings - 1
        whole = _joined(
            [
                self._halved(half, part, budget, again, left) if (again := self._incomplete(half, part, left)) else part
                for half, part in zip(halves, parts, strict=True)
            ]
        )
        return with_all(window, [chunk.columns], whole)

    def _count_restart(self) -> None:
        with self._lock:
            self.report.restarts += 1


@dataclass
class _Budget:
    """Pages that a window and its halves may cost, and have cost."""

    most: int | None
    requested: int = 0
    bound: int = 1

    @property
    def is_spent(self) -> bool:
        return self.requested >= _BUDGET * self.bound


def _labels(pages: Iterable[Page]) -> int:
    """Tokens of the market, as its pages name them."""
    return max([1, *(len(page.labels) for page in pages)])


def _joined(parts: Sequence[Chunk]) -> Chunk:
    if len(parts) == 1:
        return parts[0]
    first, second = parts
    return Chunk(
        columns=joined([first.columns, second.columns]).sort(),
        market_id=first.market_id,
        labels=max(first.labels, second.labels),
        units=first.units + second.units,
        per_bucket=max(first.per_bucket, second.per_bucket),
        limit=min(first.limit, second.limit),
        complete=first.complete and second.complete,
        pages=first.pages + second.pages,
        notes=first.notes + second.notes,
        full=first.full + second.full,
    )


def _spans(window: Window, pages: Iterable[Page]) -> tuple[tuple[int, int], ...]:
    """Points and buckets of each page that has points."""
    some = (page.columns for page in pages if len(page.columns))
    return tuple((len(c), int(np.ptp(c.ts)) // window.resolution.micros + 1) for c in some)


def with_all(window: Window, before: Sequence[Data], chunk: Chunk) -> Chunk:
    """The points of a window requested again, if they include all that came before; else a ContractError."""
    if not before:
        return chunk
    inside = (columns.between(window.first_bucket, window.rng.end) for columns in before)
    lost = sorted({key for columns in inside for key in _keys(columns)} - set(_keys(chunk.columns)), key=str)
    if lost:
        label, t = lost[0]
        raise ContractError(
            f"{window}: {len(lost)} points came once and not again, such as {label!r} at {to_text(t)}: the service "
            "lost them, or should not have sent them."
        )
    return chunk


def _keys(columns: Data) -> Iterable[tuple[str | None, int]]:
    labels = [token.token_label for token in columns.tokens]
    return ((labels[c], t) for c, t in zip(columns.token.tolist(), columns.ts.tolist(), strict=True))


def keys_of(page: Page) -> Iterable[tuple[str | None, int]]:
    """(label, t) of each point of a page."""
    return _keys(page.columns)


def same(first: Data, second: Data) -> bool:
    """Whether both have the same points with the same values."""
    again, is_equal = repeated(joined([first, second]).sort())
    return len(again) == len(first) == len(second) and bool(is_equal.all())
