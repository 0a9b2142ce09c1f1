"""Read all pages of a chunk; the points are verified complete, without duplicates and inside the range."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from marketdata.errors import (
    BadRequestError,
    ConfigError,
    ContractError,
    LimitTooSmallError,
    MarketDataError,
    PaginationStalledError,
)
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Answer, Transport
from marketdata.fetch.pagination import paginate
from marketdata.fetch.windows import IdKind, Window
from marketdata.points.columns import Data, Page, joined
from marketdata.points.duplicates import deduplicate, repeated
from marketdata.points.views import View
from marketdata.resolution import BucketWidth
from marketdata.times import SECOND, Range, to_text
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT

# A single bucket whose pages do not end is requested so often.
_MAX_TRIES = 3


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

    def note(self, report: Report, *, strict: bool = False) -> None:
        """Count pages, points and diagnostics in a report; ``strict`` makes a repair or diagnostic a ContractError."""
        report.pages += self.pages
        report.points += len(self.columns)
        if (refused := report.note(self.notes)) and strict:
            raise ContractError(f"{self.window}: strict mode refuses {', '.join(sorted(refused))}.")


@dataclass(eq=False)
class Chunk:
    """A chunk of a range: one thread requests it and follows its cursor for ``max_pages`` pages.

    The end of its ``window`` may move to an earlier time than that of the ``requested`` one meanwhile. ``pages`` has
    the received pages; the first ``pages_in_order`` are known to be in time order. ``fetched`` has all points. Points
    in ``received_before`` must reappear.
    """

    window: Window
    max_pages: int | None = None
    requested: Window | None = None
    received_before: list[Page] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    pages_in_order: int = 0
    date: float | None = None
    fetched: Fetched | None = None
    tries: int = 1
    bound: int = 1

    @property
    def advances(self) -> bool:
        """Whether pages in time order reach beyond the first bucket, so that the rest can be requested by time."""
        start = self.window.rng.start
        return any(page.columns.ts.max(initial=start) > start for page in self.pages[: self.pages_in_order])

    def halves(self) -> list[Chunk]:
        """Both halves, or the chunk itself if it is one bucket, to request them again."""
        is_one = self.window.buckets == 1
        windows = [self.window] if is_one else self.window.halves()
        return [
            Chunk(window, received_before=self.received_before, tries=self.tries + is_one, bound=self.bound)
            for window in windows
        ]

    def collected(self, pages: Sequence[Page]) -> Fetched:
        """The points of pages, each once and inside the window."""
        window = self.requested or self.window
        notes = sum((page.notes for page in pages), Counter())
        notes["cursor_empty"] += pages[-1].next_cursor == ""
        every: Data = joined([page.columns for page in pages])
        columns = every.between(window.first_bucket, window.rng.end)
        notes["outside_range"] += len(every) - len(columns)
        if (columns.steps() <= 0).any():
            notes["points_sorted"] += sum(bool((page.columns.steps() < 0).any()) for page in pages)
            # A bucket that was open when the first page was sent may have changed on a later one.
            open_from = None if self.date is None else int(self.date * SECOND) - window.resolution.micros + 1
            columns, notes["duplicate_points"], notes["open_bucket_changed"] = deduplicate(columns.sort(), open_from)
        complete, market_id = not notes["count_mismatch"], pages[0].market_id
        fetched = Fetched(window, market_id, columns, complete, len(pages), _labels(pages), +notes)
        return cut_off(self.window, fetched, self.window.rng.end)


class Reader:
    """Reads chunks for all fetches of a client, which share what the reader learns about the service."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._limits: dict[tuple[View, str], int] = {}  # the smallest limit that a market needs
        self._largest_limit = LARGEST_LIMIT  # that the service takes
        self._markets: dict[tuple[IdKind, str], str] = {}  # the market that an id or slug names
        self._tokens: dict[str, dict[str, str | None]] = {}  # the token that a label of a market names
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
        ``.attempts``.
        """
        try:
            follow = partial(self._follow, report=report, stop=stop, on_page=on_page)
            fetched = self._read_or_halve(chunk, follow, report)
            return _require_received_before(chunk, fetched) if fetched is not None else None
        except MarketDataError as error:
            if error.attempts is None:
                error.attempts = max(1, len(chunk.pages))
            raise

    def _read_or_halve(self, chunk: Chunk, follow: Callable[[Chunk], Fetched | None], report: Report) -> Fetched | None:
        """All points of a chunk; if its pages do not end, or end with an empty cursor, the rest is requested by time.

        Without time order both halves are requested: a smaller window needs fewer cursors, and one that fits a page
        needs none. A single bucket is requested again.
        """
        is_one = chunk.window.buckets == 1
        try:
            fetched = chunk.fetched if chunk.fetched is not None else follow(chunk)
            if fetched is None or not fetched.notes["cursor_empty"]:
                return fetched
            if len(fetched.columns) >= chunk.window.buckets * fetched.labels:
                return fetched
            if chunk.advances:
                return None
            if is_one:
                return fetched._replace(complete=False)
        except PaginationStalledError:
            if chunk.advances:
                return None
            fetched = None
            chunk.received_before += chunk.pages
            # Give up once twice the pages that the chunk can have were of no use.
            if len(chunk.received_before) >= 2 * chunk.bound or (is_one and chunk.tries == _MAX_TRIES):
                raise
        with self._lock:
            report.restarts += 1
        halves = chunk.halves()
        if fetched is not None:
            for half in halves:
                with suppress(PaginationStalledError):
                    half.fetched = follow(half)
            received = [half.fetched for half in halves if half.fetched is not None]
            points = sum(len(half.columns) for half in received)
            if len(received) == len(halves) and points == len(fetched.columns):
                return merged(chunk.window, received)  # the empty cursor was the end
        batches = [self._read_or_halve(half, follow, report) for half in halves]
        return merged(chunk.window, [batch for batch in batches if batch is not None])

    def _follow(
        self, chunk: Chunk, report: Report, stop: threading.Event | None, on_page: Callable[[Chunk], bool]
    ) -> Fetched | None:
        """The points of a chunk, page after page; None if there are more than ``chunk.max_pages``."""
        chunk.pages, chunk.pages_in_order, chunk.date = [], 0, None
        name = chunk.window.view, chunk.window.id
        limit = max(min(chunk.window.limit, self._largest_limit), self._limits.get(name, 1))
        window = chunk.requested = replace(chunk.window, limit=limit)

        def bound(page: Page) -> int:
            least = page.limit if page.limit and 1 <= page.limit < window.limit else window.limit
            chunk.bound = max(chunk.bound, -(-window.buckets * _labels(chunk.pages) // least) * 2 + 50)
            return chunk.bound

        read = partial(self._page, chunk, window, [])
        get = partial(self.transport.get, window.segments, read=read, stop=stop, counts=report)
        try:
            for page in paginate(lambda cursor: get({**window.params, "cursor": cursor}), keys_of, window, bound):
                chunk.pages.append(page)
                is_complete = on_page(chunk)
                if page.next_cursor and not is_complete and len(chunk.pages) == chunk.max_pages:
                    return None
                if is_complete:
                    break
        except BadRequestError as error:
            if isinstance(error, LimitTooSmallError):
                if error.minimum is None or not window.limit < error.minimum <= LARGEST_LIMIT:
                    raise
                self._limits[name] = error.minimum
            elif error.maximum is not None and 1 <= error.maximum < window.limit:
                self._largest_limit = error.maximum
            else:
                raise
            with self._lock:
                report.note({"limit_raised" if isinstance(error, LimitTooSmallError) else "limit_lowered": 1})
            return self._follow(chunk, report, stop, on_page)
        return chunk.collected(chunk.pages)

    def check(self, window: Window, page: Page) -> None:
        """ContractError for an answer about another resolution, market or token than requested or answered before."""
        if not _is_width(page.resolution, window.resolution):
            raise ContractError(f"{window}: the answer has the resolution {page.resolution!r}.")
        earlier_id = self._markets.setdefault((window.kind, window.id), page.market_id)
        if page.market_id != earlier_id:
            raise ContractError(
                f"{window}: the answer is about market {page.market_id!r}, before it was {earlier_id!r}."
            )
        tokens = self._tokens.setdefault(page.market_id, {})
        for label, token in page.labels.items():
            if tokens.setdefault(label, token) != token:
                raise ContractError(f"{window}: token {label!r} was {tokens[label]!r} and is now {token!r}.")
        if window.kind == "token" and page.labels and set(page.labels.values()) != {window.id}:
            raise ContractError(f"{window}: the answer is about the tokens {list(page.labels.values())[:3]}.")

    def _page(self, chunk: Chunk, window: Window, miscounted: list[Data], answer: Answer) -> Page:
        """The page of an answer; ContractError if it is invalid; see `check`."""
        page = decode_page(window.view, answer.body)
        self.transport.check_cursor(page.next_cursor)
        self.check(window, page)
        before = miscounted.pop() if miscounted else None
        per_token = np.diff(page.columns.bounds).max(initial=0)
        if page.count not in (page.points, len(np.unique(page.columns.ts)), per_token):
            # The same answer twice means that the service counts otherwise; another answer means that points get lost.
            if before is None or not same(before, page.columns):
                miscounted += [page.columns] if before is None else []
                raise ContractError(f"{window}: metadata.count is {page.count}, not {page.points}.")
            page.notes["count_mismatch"] += 1
        page.notes.update(answer.notes)
        if page.limit is not None and page.limit < window.limit:
            page.notes["limit_clamped"] += 1
        chunk.date = chunk.date or answer.date
        return page


def cut_off(window: Window, fetched: Fetched, end: int) -> Fetched:
    """The points of a window before a time."""
    window = replace(window, rng=Range(window.rng.start, min(end, window.rng.end)))
    return fetched._replace(window=window, columns=fetched.columns.between(window.first_bucket, window.rng.end))


def merged(window: Window, batches: Sequence[Fetched]) -> Fetched:
    """Batches of a window as one, whether they follow in time or have other tokens."""
    if len(batches) == 1:
        return batches[0]._replace(window=window)
    return Fetched(
        window=window,
        market_id=batches[0].market_id,
        columns=joined([batch.columns for batch in batches]).sort(),
        complete=all(batch.complete for batch in batches),
        pages=sum(batch.pages for batch in batches),
        labels=max(batch.labels for batch in batches),
        notes=sum((batch.notes for batch in batches), Counter()),
    )


def in_time(pages: Iterable[Data], *, is_one: bool) -> bool | None:
    """Whether consecutive pages are in time order; None if they do not show it.

    In time order, the times of each token rise and no page begins before the previous one ends. A service that sends
    one token after the other can look the same, unless the market ``is_one`` token. Its pages share at most the one
    token that is cut between them.
    """
    filled = [page for page in pages if len(page)]
    if not all(bool((page.steps() > 0).all()) for page in filled):
        return False
    if any(before.ts.max() > after.ts.min() for before, after in pairwise(filled)):
        return False
    tokens = [token for page in filled for token in page.tokens]
    return (len(filled) > 1 and (is_one or len(tokens) >= len(set(tokens)) + len(filled))) or None


def _is_width(said: str, requested: BucketWidth) -> bool:
    """Whether the resolution of an answer is the one that was requested, in any spelling: "60s" is "1m"."""
    with suppress(ConfigError):
        return BucketWidth.of(said) == requested
    return False


def keys_of(page: Page | Fetched) -> Iterable[tuple[str | None, int]]:
    """(label, t) of each point."""
    columns = page.columns
    labels = [token.token_label for token in columns.tokens]
    return ((labels[c], t) for c, t in zip(columns.token.tolist(), columns.ts.tolist(), strict=True))


def same(first: Data, second: Data) -> bool:
    """Whether both have the same points with the same values."""
    again, is_equal = repeated(joined([first, second]).sort())
    return len(again) == len(first) == len(second) and bool(is_equal.all())


def _require_received_before(chunk: Chunk, fetched: Fetched) -> Fetched:
    """The points of a chunk; ContractError if points received before are missing."""
    first, end = chunk.window.first_bucket, chunk.window.rng.end
    before = {(label, t) for page in chunk.received_before for label, t in keys_of(page) if first <= t < end}
    if lost := sorted(before - set(keys_of(fetched) if before else ()), key=str):
        label, t = lost[0]
        raise ContractError(
            f"{chunk.window}: {len(lost)} points came once and not again, such as {label!r} at {to_text(t)}: the "
            "service lost them, or should not have sent them."
        )
    return fetched


def _labels(pages: Iterable[Page]) -> int:
    """Tokens of the market, as its pages name them."""
    return max([1, *(len(page.labels) for page in pages)])
