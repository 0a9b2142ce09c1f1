"""Read all pages of a chunk; the points are verified complete, without duplicates and inside the range."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from marketdata.errors import (
    BadRequestError,
    ContractError,
    LimitTooSmallError,
    MarketDataError,
    PaginationStalledError,
)
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Answer, Transport
from marketdata.fetch.pagination import paginate
from marketdata.fetch.windows import Window
from marketdata.points.columns import Data, Page, joined
from marketdata.points.duplicates import deduplicate, repeated
from marketdata.points.views import View
from marketdata.resolution import micros_of
from marketdata.times import SECOND, Range, to_text
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT


class Fetched(NamedTuple):
    """The received points of a window: all if ``complete``, on ``pages`` pages of a market of ``labels`` tokens.

    ``notes`` counts diagnostics by name; ``request`` is the index of the requested range.
    """

    window: Window
    market_id: str
    columns: Data
    complete: bool
    pages: int
    labels: int
    notes: Counter[str]
    request: int = 0

    def within(self, rng: Range) -> Fetched:
        """The points of a part of the window."""
        window = replace(self.window, rng=rng)
        return self._replace(window=window, columns=self.columns.between(window.first_bucket, rng.end))

    def note(self, report: Report, *, strict: bool = False) -> None:
        """Count pages, points and diagnostics in a report; ``strict`` makes a repair or diagnostic a ContractError."""
        report.pages += self.pages
        report.points += len(self.columns)
        if (refused := report.note(self.notes)) and strict:
            raise ContractError(f"{self.window}: strict mode refuses {', '.join(sorted(refused))}.")


@dataclass(eq=False)
class Chunk:
    """A chunk of a range: one thread requests it and follows its cursor for ``max_pages`` pages.

    The end of its ``window`` may move to an earlier time meanwhile. ``pages`` has the received pages; the first
    ``pages_in_order`` are known to be in time order. ``fetched`` has all points. Points in ``received_before`` must
    reappear.
    """

    window: Window
    is_requested: bool = False
    max_pages: int | None = None
    pages: list[Page] = field(default_factory=list)
    pages_in_order: int = 0
    date: float | None = None
    miscounted: Data | None = None
    fetched: Fetched | None = None
    received_before: list[Page] = field(default_factory=list)
    tries: int = 1
    bound: int = 1

    @property
    def advances(self) -> bool:
        """Whether pages in time order reach beyond the first bucket, so that the rest can be requested by time."""
        start = self.window.rng.start
        return any(page.columns.ts.max(initial=start) > start for page in self.pages[: self.pages_in_order])

    def collected(self, pages: Sequence[Page]) -> Fetched:
        """The points of pages, each once and inside the window."""
        notes = sum((page.notes for page in pages), Counter())
        notes["cursor_empty"] += pages[-1].next_cursor == ""
        # A bucket that was open when the first page was sent may have changed on a later one.
        open_from = None if self.date is None else int(self.date * SECOND) - self.window.resolution.micros + 1
        columns = joined([page.columns for page in pages]).between(self.window.first_bucket, self.window.rng.end)
        columns, notes["duplicate_points"], notes["open_bucket_changed"] = deduplicate(columns.sort(), open_from)
        complete, market_id = not notes["count_mismatch"], pages[0].market_id
        return Fetched(self.window, market_id, columns, complete, len(pages), _labels(pages), +notes)


class Reader:
    """Reads chunks for all fetches of a client, which share what the reader learns about the service."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._limits: dict[tuple[View, str], int] = {}  # the smallest limit that a market needs
        self._largest_limit = LARGEST_LIMIT  # that the service takes
        self._facts: dict[str, str | None] = {}  # the market that an id or slug names, the token that a label names
        self._lock = threading.Lock()

    def read(
        self,
        chunk: Chunk,
        report: Report,
        stop: threading.Event | None = None,
        on_page: Callable[[Chunk], bool] = lambda _: False,
    ) -> Fetched | None:
        """All points of a chunk; None if only its first pages were read, to ``max_pages`` or a refused cursor.

        ``on_page`` is called for each page, and returns whether all points of the chunk have arrived. Errors have
        ``.attempts``. If pages do not end, or end with an empty cursor, the rest is requested by time. Without time
        order both halves are requested: a smaller window needs fewer cursors, and one that fits a page needs none. A
        single bucket is requested again. An empty cursor is the end if a half ends with it again and has no further
        point.
        """
        window, before = chunk.window, chunk.received_before
        buckets, is_one = window.buckets, window.buckets == 1
        try:
            if (fetched := self._follow(chunk, report, stop, on_page)) is None:
                return None
            first, end = window.first_bucket, window.rng.end
            expected = {(label, t) for page in before for label, t in keys_of(page) if first <= t < end}
            if lost := expected - set(keys_of(fetched) if before else ()):
                label, t = min(lost, key=str)
                raise ContractError(
                    f"{window}: {len(lost)} points came once and not again, such as {label!r} at {to_text(t)}: the "
                    "service lost them, or should not have sent them."
                )
            points = len(fetched.columns)
            is_again = bool(before) and before[-1].next_cursor == "" and points == len(expected)
            if not fetched.notes["cursor_empty"] or points >= buckets * fetched.labels or is_again:
                return fetched
            if is_one:
                return fetched._replace(complete=False)
            if points:  # the second half begins among them, so that another page ends elsewhere
                buckets = (int(fetched.columns.ts.max()) - first) // window.resolution.micros + 1
        except MarketDataError as error:
            if error.attempts is None:
                error.attempts = max(1, len(chunk.pages))
            # Give up once twice the pages that the chunk can have were of no use, or three tries of a single bucket.
            is_useless = len(before) + len(chunk.pages) >= 2 * chunk.bound or chunk.tries == 3
            if not isinstance(error, PaginationStalledError) or (is_useless and not chunk.advances):
                raise
        if chunk.advances:
            return None
        with self._lock:
            report.restarts += 1
        middle = window.first(window.rng.start, max(1, buckets // 2)).rng.end
        ranges = [window.rng] if is_one else [Range(window.rng.start, middle), Range(middle, window.rng.end)]
        again = replace(chunk, max_pages=None, received_before=before + chunk.pages, tries=chunk.tries + is_one)
        chunks = [replace(again, window=replace(window, rng=rng)) for rng in ranges]
        batches = [self.read(part, report, stop, on_page) for part in chunks]
        return merged(window, [batch for batch in batches if batch is not None])

    def _follow(
        self, chunk: Chunk, report: Report, stop: threading.Event | None, on_page: Callable[[Chunk], bool]
    ) -> Fetched | None:
        """The points of a chunk, page after page; None if there are more than ``chunk.max_pages``."""
        chunk.pages, chunk.pages_in_order, chunk.date = [], 0, None
        name = chunk.window.view, chunk.window.id
        limit = max(min(chunk.window.limit, self._largest_limit), self._limits.get(name, 1))
        window = replace(chunk.window, limit=limit)

        def bound(page: Page) -> int:
            least = page.limit if page.limit and 1 <= page.limit < limit else limit
            chunk.bound = max(chunk.bound, -(-window.buckets * _labels(chunk.pages) // least) * 2 + 50)
            return chunk.bound

        read = partial(self._page, chunk, window)
        get = partial(self.transport.get, window.segments, read=read, stop=stop, counts=report)
        try:
            for page in paginate(lambda cursor: get({**window.params, "cursor": cursor}), keys_of, window, bound):
                chunk.pages.append(page)
                if on_page(chunk):
                    break
                if page.next_cursor and len(chunk.pages) == chunk.max_pages:
                    return None
        except BadRequestError as error:
            is_small = isinstance(error, LimitTooSmallError)
            if is_small and error.minimum is not None and limit < error.minimum <= LARGEST_LIMIT:
                self._limits[name] = error.minimum
            elif not is_small and error.maximum is not None and 1 <= error.maximum < limit:
                self._largest_limit = error.maximum
            else:
                raise
            with self._lock:
                report.note({"limit_raised" if is_small else "limit_lowered": 1})
            return self._follow(chunk, report, stop, on_page)
        return chunk.collected(chunk.pages)

    def _page(self, chunk: Chunk, window: Window, answer: Answer) -> Page:
        """The page of an answer, with the points in the window; ContractError if it is invalid."""
        page = decode_page(window.view, answer.body)
        self.transport.check_cursor(page.next_cursor)
        self._check(window, page)
        before, chunk.miscounted = chunk.miscounted, None
        per_token = np.diff(page.columns.bounds).max(initial=0)
        if page.count not in (page.points, len(np.unique(page.columns.ts)), per_token):
            # The same answer twice means that the service counts otherwise; another answer means that points get lost.
            if before is None or not _are_same(before, page.columns):
                chunk.miscounted = page.columns
                raise ContractError(f"{window}: metadata.count is {page.count}, not {page.points}.")
            page.notes["count_mismatch"] += 1
        inside = page.columns.between(window.first_bucket, window.rng.end)
        page.notes.update(answer.notes)
        page.notes["limit_clamped"] += page.limit is not None and page.limit < window.limit
        page.notes["outside_range"] += page.points - len(inside)
        page.notes["points_sorted"] += bool((inside.steps() < 0).any())
        chunk.date = chunk.date or answer.date
        return replace(page, columns=inside)

    def _check(self, window: Window, page: Page) -> None:
        """ContractError for an answer about another resolution, market or token than requested or answered before."""
        if micros_of(page.resolution) != window.resolution.micros:  # in any spelling: "60s" is "1m"
            raise ContractError(f"{window}: the answer has the resolution {page.resolution!r}.")
        facts: dict[str, str | None] = {f"the market of {window.kind} {window.id!r}": page.market_id}
        facts |= {f"token {label!r} of market {page.market_id!r}": token for label, token in page.labels.items()}
        for what, value in facts.items():
            if (before := self._facts.setdefault(what, value)) != value:
                raise ContractError(f"{window}: {what} was {before!r} and is now {value!r}.")
        if window.kind == "token" and page.labels and set(page.labels.values()) != {window.id}:
            raise ContractError(f"{window}: the answer is about the tokens {list(page.labels.values())[:3]}.")


def merged(window: Window, batches: Sequence[Fetched]) -> Fetched:
    """Batches of a window as one, whether they follow in time or have other tokens."""
    return Fetched(
        window=window,
        market_id=batches[0].market_id,
        columns=joined([batch.columns for batch in batches]).sort(),
        complete=all(batch.complete for batch in batches),
        pages=sum(batch.pages for batch in batches),
        labels=max(batch.labels for batch in batches),
        notes=sum((batch.notes for batch in batches), Counter()),
    )


def keys_of(page: Page | Fetched) -> Iterable[tuple[str | None, int]]:
    """(label, t) of each point."""
    columns = page.columns
    labels = [token.token_label for token in columns.tokens]
    return ((labels[c], t) for c, t in zip(columns.token.tolist(), columns.ts.tolist(), strict=True))


def _are_same(first: Data, second: Data) -> bool:
    """Whether both have the same points with the same values."""
    again, is_equal = repeated(joined([first, second]).sort())
    return len(again) == len(first) == len(second) and bool(is_equal.all())


def _labels(pages: Iterable[Page]) -> int:
    """Tokens of the market, as its pages name them."""
    return max([1, *(len(page.labels) for page in pages)])
