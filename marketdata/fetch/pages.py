"""The points of a window from its pages: each once, inside the range, and complete, or an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from marketdata.errors import ContractError, MarketDataError, PaginationStalledError
from marketdata.fetch import gate
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.order import PageOrder, is_sorted
from marketdata.fetch.windows import Window
from marketdata.points.columns import Data, Ints, Page, joined
from marketdata.points.duplicates import deduplicate
from marketdata.times import SECOND, Range


class Fetched(NamedTuple):
    """All points of a window; ``complete`` unless a page may be missing. ``request`` is the index of the range."""

    window: Window
    market_id: str
    columns: Data
    complete: bool
    pages: int
    labels: int
    notes: Counter[str]
    request: int = 0

    def note(self, report: Report, *, strict: bool = False) -> None:
        """Count pages, points and diagnostics in a report; ``strict`` makes a repair or diagnostic a ContractError."""
        report.pages += self.pages
        report.points += len(self.columns)
        if (refused := report.note(self.notes)) and strict:
            raise ContractError(f"{self.window}: strict mode refuses {', '.join(sorted(refused))}.")


class Content:
    """The points of pages: those inside of the range, and how many lie outside."""

    def __init__(self, window: Window) -> None:
        self._asked = Range(window.first_bucket, window.rng.end)
        self._outside: list[Ints] = []  # times of points outside of the range
        self.pages: list[Page] = []
        self.notes: Counter[str] = Counter()

    def add(self, page: Page, window: Window) -> Data:
        """Keep the points in a window, whose end may have moved; return those of the range that was asked for."""
        inside = page.columns.between(*self._asked)
        self.notes.update(page.notes)
        self.notes["points_sorted"] += not is_sorted(inside)
        if outside := page.points - len(inside):
            self.notes["outside_range"] += outside
            ts = page.columns.ts
            self._outside.append(ts[(ts < self._asked.start) | (ts >= self._asked.end)])
        self.pages.append(replace(page, columns=inside.between(self._asked.start, window.rng.end)))
        return inside

    def copy(self) -> Content:
        """As it is now, whatever comes later."""
        other = copy(self)
        other.pages, other.notes = [*self.pages], Counter(self.notes)
        return other

    def may_lack(self, limit: int) -> bool:
        """Whether the last page is full, so that others may follow whatever its cursor says."""
        page = self.pages[-1]
        return len(page.columns) + max(1, len(page.labels)) > min(limit, page.limit or limit)

    def fetched(self, window: Window, end: int, *, complete: bool) -> Fetched:
        """The points of a window before a time, each once; ContractError if none is of the range."""
        part, notes = window.within(window.rng.start, end), +self.notes
        if self._outside and not any(len(page.columns) for page in self.pages):
            gate.outside(np.concatenate(self._outside), window.rng, window.resolution.micros, str(part))
        # A bucket that was open when the first page was sent may have changed on a later one.
        date = self.pages[0].date
        open_from = None if date is None else int(date * SECOND) - window.resolution.micros + 1
        columns = joined([page.columns for page in self.pages]).between(part.first_bucket, end)
        try:
            columns, notes["duplicate_points"], notes["open_bucket_changed"] = deduplicate(columns.sort(), open_from)
        except ContractError as error:
            error.attempts = len(self.pages)
            raise
        labels = max([1, *(len(page.labels) for page in self.pages)])
        complete = complete and not notes["count_mismatch"]
        return Fetched(part, self.pages[0].market_id, columns, complete, len(self.pages), labels, +notes)


class Received:
    """The pages of a window so far: their content, and what their order proves. The end of the window may move."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.content, self.order = Content(window), PageOrder(window)

    def add(self, page: Page) -> None:
        """Take in a page."""
        self.order.see(self.content.add(page, self.window), page)

    def copy(self) -> Received:
        """As it is now, whatever comes later."""
        other = copy(self)
        other.content, other.order = self.content.copy(), self.order.copy()
        return other

    @property
    def reached(self) -> int:
        """The time before which all points have arrived if pages are in order; the start if there are none."""
        return max(self.window.rng.start, min(self.order.reached, self.window.rng.end))

    @property
    def proven(self) -> int:
        """That time if the pages prove their order; else the start."""
        return self.reached if self.order.is_proven else self.window.rng.start

    @property
    def may_lack(self) -> bool:
        """Whether the last page is full, so that others may follow whatever its cursor says."""
        return self.content.may_lack(self.window.limit)

    def again(self) -> list[Window] | None:
        """The ranges to request by time if a cursor fails: the rest, or both halves if no order is proven."""
        (start, end), width = self.window.rng, self.window.resolution.micros
        if (at := self.proven) > start:
            return [self.window.within(at, end)] if at < end else []
        at = min(self.window.first_bucket + self.window.buckets // 2 * width, self.order.last // width * width)
        return [self.window.within(start, at), self.window.within(at, end)] if at > start else None

    def fetched(self, end: int, *, complete: bool = True) -> Fetched:
        """The points before a time, each once."""
        return self.content.fetched(self.window, end, complete=complete)


def fetch(
    pages: Callable[[Window], Iterable[Page]],
    window: Window,
    report: Report,
    on_page: Callable[[Received], bool] = lambda _: False,
) -> Iterator[Fetched]:
    """The points of a window in parts that follow each other in time; after an error the rest is missing.

    ``on_page`` may move the end of the window, and returns whether all has arrived. If a cursor fails or is empty, the
    rest is requested by time: from the last bucket on if pages are in order, else in halves. After an empty cursor
    nothing shows that all arrived, so the points are not ``complete``.
    """
    todo, useless = [window], 0
    while todo:
        received, is_over = Received(todo.pop(0)), False
        try:
            for page in pages(received.window):
                received.add(page)
                if is_over := on_page(received):
                    break
        except MarketDataError as error:
            again = received.again() if isinstance(error, PaginationStalledError) and useless < 6 else None
            useless += 1
            if received.proven > received.window.rng.start:
                yield received.fetched(received.proven)
                useless = 0
            if again is None:
                error.attempts = error.attempts or max(1, len(received.content.pages))
                raise
            report.restarts += 1
            todo[:0] = again
            continue
        (start, end), is_open = received.window.rng, received.content.pages[-1].next_cursor == "" and not is_over
        halves = received.again() if is_open and received.may_lack and received.proven == start else None
        if halves is not None:
            report.restarts += 1
            todo[:0] = halves
            continue
        if is_open and start < received.reached < end:
            todo.insert(0, received.window.within(received.reached, end))
            end = received.reached
        received.content.notes["cursor_empty"] += is_open
        yield received.fetched(end, complete=not is_open)
        useless = 0
