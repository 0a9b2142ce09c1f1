"""The points of a window from its pages: each once, inside the range, and complete, or an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

import numpy as np

from marketdata.errors import ContractError, MarketDataError, PaginationStalledError
from marketdata.fetch import gate
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.windows import Window
from marketdata.points.columns import Data, Ints, Page, Token, joined
from marketdata.points.duplicates import deduplicate
from marketdata.points.views import VIEWS
from marketdata.times import SECOND


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


@dataclass
class Received:
    """The pages of a window so far. Its end may be set to an earlier time while pages come.

    A venue may send its points in any order. Only in order of time does a page tell that all points before its last one
    have arrived. Two pages prove the order, and so does one page that begins with the window and ends with two tokens
    at one time.
    """

    window: Window
    pages: list[Page] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)
    is_ordered: bool = True  # as far as seen
    is_trusted: bool = False  # whether other pages of this source have proven the order
    _filled: int = 0  # pages with points
    _outside: list[Ints] = field(default_factory=list)  # times of points outside of the range
    _side_by_side: int = 0  # pages with two tokens of the one before: one token after the other is no order of time
    _begins_at_start: bool = False  # whether the first of several pages has all its tokens in the first bucket

    def __post_init__(self) -> None:
        self._is_one = self.window.kind == "token" or not VIEWS[self.window.view].has_tokens
        self._tokens: set[Token] = set()
        self._asked_end = self.window.rng.end
        self.last = self.before = self.window.rng.start - 1  # the last point, and the last one of the page before

    def add(self, page: Page) -> None:
        """Take in a page: its points in the range, and whether it follows the others in time."""
        inside = page.columns.between(self.window.first_bucket, self._asked_end)
        self.notes.update(page.notes)
        if outside := page.points - len(inside):
            self.notes["outside_range"] += outside
            ts = page.columns.ts
            self._outside.append(ts[(ts < self.window.first_bucket) | (ts >= self._asked_end)])
        is_unsorted = bool((inside.steps() < 0).any())
        self.notes["points_sorted"] += is_unsorted
        self.before = self.last
        if len(inside):
            tokens = set(inside.tokens)
            if self._filled:
                self.is_ordered &= int(inside.ts.min()) >= self.last
                self._side_by_side += self._is_one or len(tokens & self._tokens) > 1
            else:
                second_bucket = self.window.first_bucket + self.window.resolution.micros
                at_first = inside.between(self.window.first_bucket, second_bucket).tokens
                goes_on = int(inside.ts.max()) >= second_bucket
                self._begins_at_start = (
                    bool(page.next_cursor) and not is_unsorted and goes_on and set(at_first) == tokens
                )
            self._filled, self._tokens, self.last = self._filled + 1, tokens, max(self.last, int(inside.ts.max()))
        self.pages.append(replace(page, columns=inside.between(self.window.first_bucket, self.window.rng.end)))

    def copy(self) -> Received:
        """As it is now, whatever comes later."""
        other = copy(self)
        other.pages, other.notes = [*self.pages], Counter(self.notes)
        return other

    @property
    def is_side_by_side(self) -> bool:
        """Whether the last page has points of two tokens, or there is only one."""
        return self._is_one or len(self._tokens) > 1

    @property
    def reached(self) -> int:
        """The time before which all points have arrived if pages are in order; the start if there are none."""
        (start, end), width = self.window.rng, self.window.resolution.micros
        if self.last < start:
            return start
        labels = max(1, *(len(page.labels) for page in self.pages), 0)
        is_full = self._tokens_at_last >= labels
        return max(start, min(self.last // width * width + width * is_full, end))

    @property
    def proven(self) -> int:
        """That time if the pages prove their order; else the start."""
        is_proven = self.is_trusted or self.follow_each_other or self._is_first_part
        return self.reached if is_proven and self.is_ordered else self.window.rng.start

    @property
    def follow_each_other(self) -> bool:
        """Whether there are two pages or more, in order of time, each with tokens of the one before."""
        return self._filled > 1 and self._side_by_side == self._filled - 1

    @property
    def _is_first_part(self) -> bool:
        """Whether the only page begins with the window, and has all of its tokens at its begin and at its end."""
        if self._filled != 1 or not self._begins_at_start:
            return False
        columns = joined([page.columns for page in self.pages])
        last_two = np.unique(columns.ts)[-2:]
        at_end = columns.take(np.flatnonzero(np.isin(columns.ts, last_two))).tokens
        return self._is_one or len(at_end) == len(self._tokens) > 1

    @property
    def _tokens_at_last(self) -> int:
        """The tokens that have a point of the last time; a bucket may be divided between two pages."""
        pages = (page.columns for page in self.pages[-2:])
        return len(set(chain.from_iterable(page.take(np.flatnonzero(page.ts == self.last)).tokens for page in pages)))

    @property
    def may_lack(self) -> bool:
        """Whether the last page is full, so that others may follow whatever its cursor says."""
        page = self.pages[-1]
        limit = min(self.window.limit, page.limit or self.window.limit)
        return len(page.columns) + max(1, len(page.labels)) > limit

    def again(self) -> list[Window] | None:
        """The ranges to request by time if a cursor fails: the rest, or both halves if no order is proven."""
        (start, end), width = self.window.rng, self.window.resolution.micros
        if (at := self.proven) > start:
            return [self.window.within(at, end)] if at < end else []
        at = min(self.window.first_bucket + self.window.buckets // 2 * width, self.last // width * width)
        return [self.window.within(start, at), self.window.within(at, end)] if at > start else None

    def fetched(self, end: int, *, complete: bool = True) -> Fetched:
        """The points before a time, each once."""
        window, notes = self.window.within(self.window.rng.start, end), +self.notes
        if self._outside and not self._filled:
            gate.outside(np.concatenate(self._outside), window.rng, window.resolution.micros, str(window))
        # A bucket that was open when the first page was sent may have changed on a later one.
        date = self.pages[0].date
        open_from = None if date is None else int(date * SECOND) - window.resolution.micros + 1
        columns = joined([page.columns for page in self.pages]).between(window.first_bucket, end)
        try:
            columns, notes["duplicate_points"], notes["open_bucket_changed"] = deduplicate(columns.sort(), open_from)
        except ContractError as error:
            error.attempts = len(self.pages)
            raise
        labels = max([1, *(len(page.labels) for page in self.pages)])
        complete = complete and not notes["count_mismatch"]
        return Fetched(window, self.pages[0].market_id, columns, complete, len(self.pages), labels, +notes)


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
                error.attempts = error.attempts or max(1, len(received.pages))
                raise
            report.restarts += 1
            todo[:0] = again
            continue
        (start, end), is_open = received.window.rng, received.pages[-1].next_cursor == "" and not is_over
        halves = received.again() if is_open and received.may_lack and received.proven == start else None
        if halves is not None:
            report.restarts += 1
            todo[:0] = halves
            continue
        if is_open and start < received.reached < end:
            todo.insert(0, received.window.within(received.reached, end))
            end = received.reached
        received.notes["cursor_empty"] += is_open
        yield received.fetched(end, complete=not is_open)
        useless = 0
