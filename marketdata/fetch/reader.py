"""One part of a range, read whole: its pages, verified complete, without duplicates, inside its range."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Literal, NamedTuple

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
from marketdata.times import SECOND, to_text
from marketdata.wire.decode import decode_page
from marketdata.wire.models import LARGEST_LIMIT

# Requests of one bucket, and halvings of a part whose count stays wrong.
_MOST_TRIES = 3
# Pages of a part that came in vain, over the pages that it can have, at which it is given up.
_BUDGET = 2


class Fetched(NamedTuple):
    """The points of a window that came: all if ``complete``, on ``pages`` pages of a market of ``labels`` tokens.

    ``notes`` are oddities by name; ``request`` is the place of the range among those that were asked for.
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
        """Count it in a report; ``strict``: ContractError for a repair or an oddity."""
        report.pages += self.pages
        report.points += len(self.columns)
        if (refused := report.note(self.notes)) and strict:
            raise ContractError(f"{self.window}: strict mode refuses {', '.join(sorted(refused))}.")


@dataclass(eq=False)
class Part:
    """A part of a range: it is requested by one thread, which follows its cursor for ``most`` pages.

    ``labels``: tokens of the market by its record, 0 if that is not known.
    ``seen``: what came of it before; all of that must come again. ``pages``: what has come so far, of which the first
    ``kept`` are known to be in order of time. ``fetched``: what came in all; if it ``waits``, that is complete only if
    pages turn out to be in that order.
    """

    window: Window
    most: int | None = None
    seen: list[Data] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)
    kept: int = 0
    date: float | None = None
    fetched: Fetched | None = None
    waits: bool = False
    tries: int = 1
    bound: int = 1
    labels: int = 0

    @property
    def has_all(self) -> bool:
        """Whether every token of the market has a point in every bucket: there is no other, whatever a page says."""
        most, width = self.window.buckets * self.labels, self.window.resolution.micros
        if not most or sum(page.points for page in self.pages) < most or _labels(self.pages) > self.labels:
            return False
        inside = (page.columns.between(self.window.first_bucket, self.window.rng.end) for page in self.pages)
        return len({(label, t // width) for columns in inside for label, t in _keys(columns)}) == most

    def halves(self, tries: int) -> list[Part]:
        """Both halves, or the part itself if it is one bucket; requested for the ``tries``-th time."""
        windows = self.window.halves() if self.window.buckets > 1 else [self.window]
        return [Part(window, seen=self.seen, tries=tries, bound=self.bound, labels=self.labels) for window in windows]

    def advances(self) -> bool:
        """Whether it may end here, as pages in order of time came of it: more than its first bucket."""
        came = self.came(self.kept) if self.kept else None
        start = self.window.rng.start
        return came is not None and came.complete and int(came.columns.ts.max(initial=start)) > start

    def came(self, pages: int) -> Fetched:
        """What came on so many first pages; what follows shows whether it was the end."""
        fetched = collected(self.window, self.pages[:pages], self.date)
        fetched.notes.pop("cursor_empty", None)
        return fetched

    def restart(self) -> None:
        """Forget the pages that came: they are requested again."""
        self.pages, self.kept, self.date = [], 0, None


class Reader:
    """Reads parts of windows, for all fetches of a client, which share what it learns of the service."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._limits: dict[tuple[View, str], int] = {}  # the least limit that a market needs
        self._largest_limit = LARGEST_LIMIT  # that the service takes
        self._markets: dict[tuple[IdKind, str], str] = {}  # the market that an id or slug names
        self._tokens: dict[str, dict[str, str | None]] = {}  # the token that a label of a market names
        self._lock = threading.Lock()
        self._counts_otherwise = False  # metadata.count is no number of points, however counted
        self._empty_cursors: set[Literal["end", "more"]] = set()  # what was seen to follow an empty next_cursor

    def read(
        self,
        part: Part,
        report: Report,
        stop: threading.Event | None = None,
        came: Callable[[Part], object] = lambda _: None,
    ) -> Fetched | None:
        """All points of a part; None if it has more than ``part.most`` pages, or what came before a fault is kept.

        ``came`` is called for each page. Errors have ``.attempts``.
        """
        try:
            fetched = self._read(part, partial(self._follow, report=report, stop=stop, came=came), report)
            return _with_all(part, fetched) if fetched is not None else None
        except MarketDataError as error:
            if error.attempts is None:
                error.attempts = max(1, len(part.pages))
            raise

    def _read(self, part: Part, follow: Callable[[Part], Fetched | None], report: Report) -> Fetched | None:
        """All points of a part: of its halves, where its pages do not end, or points may be missing.

        A smaller window needs fewer cursors, and one that fits a page none. One bucket has no halves: it is requested
        again.
        """
        is_one, lacks, fetched = part.window.buckets == 1, "end", part.fetched
        try:
            if fetched is None and (fetched := follow(part)) is None:
                return None
            lacks = self._lacks(part, fetched)
            if not lacks:
                return fetched
            if lacks == "cursor" and part.advances():
                return None
            if is_one and (lacks == "cursor" or part.tries == _MOST_TRIES):
                return fetched._replace(complete=False)
            part.seen.append(fetched.columns)
        except PaginationStalledError:
            if part.advances():
                return None
            if part.seen and len(part.pages) > 1 and same(part.pages[-2].columns, part.pages[-1].columns):
                raise  # the same page for ever, also in a smaller window
            part.seen += [page.columns for page in part.pages]
            if len(part.seen) >= _BUDGET * part.bound or (is_one and part.tries == _MOST_TRIES):
                raise
        with self._lock:
            report.restarts += 1
        part.restart()
        halves = part.halves(part.tries + (is_one or lacks == "count"))
        for half in halves if fetched is not None else ():
            with suppress(PaginationStalledError):
                half.fetched = follow(half)
        came = [half.fetched for half in halves if half.fetched is not None]
        if fetched is not None and len(came) == len(halves) and self._learn(lacks, part, fetched, came):
            return merged(part.window, came)
        parts = [self._read(half, follow, report) for half in halves]
        return merged(part.window, [fetched for fetched in parts if fetched is not None])

    def _lacks(self, part: Part, fetched: Fetched) -> str:
        """The reason to doubt that all points came, if smaller windows can show it."""
        if fetched.notes["count_mismatch"] and part.tries <= _MOST_TRIES and not self._counts_otherwise:
            return "count"
        if not fetched.notes["cursor_empty"] or len(fetched.columns) >= part.window.buckets * fetched.labels:
            return ""
        # An empty cursor is believed if it always was the end, and the page has room for one bucket more.
        last = part.pages[-1]
        has_room = last.points + fetched.labels <= min(part.window.limit, last.limit or LARGEST_LIMIT)
        return "" if has_room and self._empty_cursors == {"end"} else "cursor"

    def _learn(self, lacks: str, part: Part, fetched: Fetched, halves: Sequence[Fetched]) -> bool:
        """Whether the halves of a part show that all came; and what the service means by a count or an empty cursor."""
        if lacks == "cursor":
            is_end = sum(len(half.columns) for half in halves) == len(fetched.columns)
            self._empty_cursors.add("end" if is_end else "more")
            return is_end
        if part.tries == 1 and len(halves) == 2 and not any(half.complete for half in halves):
            self._counts_otherwise = True
        return False

    def _follow(
        self, part: Part, report: Report, stop: threading.Event | None, came: Callable[[Part], object]
    ) -> Fetched | None:
        """The points of a part, page after page; None if there are more than ``part.most``."""
        part.restart()
        name = part.window.view, part.window.id
        limit = max(min(part.window.limit, self._largest_limit), self._limits.get(name, 1))
        window = replace(part.window, limit=limit)

        def bound(page: Page) -> int:
            least = page.limit if page.limit and 1 <= page.limit < window.limit else window.limit
            part.bound = max(part.bound, -(-window.buckets * _labels(part.pages) // least) * 2 + 50)
            return part.bound

        read = partial(self._page, part, window, [])
        get = partial(self.transport.get, window.segments, read=read, stop=stop, counts=report)
        try:
            for page in paginate(lambda cursor: get({**window.params, "cursor": cursor}), keys_of, window, bound):
                part.pages.append(page)
                came(part)
                if page.next_cursor and part.has_all:
                    break  # some services give a cursor behind every full page
                if page.next_cursor and part.most is not None and len(part.pages) >= part.most:
                    return None
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
            return self._follow(part, report, stop, came)
        return collected(window, part.pages, part.date)

    def check(self, window: Window, page: Page) -> None:
        """ContractError for an answer about something else than was requested, or than the answers before."""
        if not _is_width(page.resolution, window.resolution):
            raise ContractError(f"{window}: the answer has the resolution {page.resolution!r}.")
        known = self._markets.setdefault((window.kind, window.id), page.market_id)
        if page.market_id != known:
            raise ContractError(f"{window}: the answer is about market {page.market_id!r}, before it was {known!r}.")
        tokens = self._tokens.setdefault(page.market_id, {})
        for label, token in page.labels.items():
            if tokens.setdefault(label, token) != token:
                raise ContractError(f"{window}: token {label!r} was {tokens[label]!r} and is now {token!r}.")
        if window.kind == "token" and page.labels and set(page.labels.values()) != {window.id}:
            raise ContractError(f"{window}: the answer is about the tokens {list(page.labels.values())[:3]}.")

    def _page(self, part: Part, window: Window, miscounted: list[Data], answer: Answer) -> Page:
        """The page of an answer; ContractError if it is invalid; see `check`."""
        before = miscounted.pop() if miscounted else None
        page = decode_page(window.view, answer.body)
        self.transport.check_cursor(page.next_cursor)
        self.check(window, page)
        per_token = np.diff(page.columns.bounds).max(initial=0)
        if page.count not in (page.points, len(np.unique(page.columns.ts)), per_token):
            # The same answer twice: the service counts otherwise. A different one: points get lost on the way.
            if not self._counts_otherwise and (before is None or not same(before, page.columns)):
                miscounted += [page.columns] if before is None else []
                raise ContractError(f"{window}: metadata.count is {page.count}, not {page.points}.")
            page.notes["count_mismatch"] += 1
        page.notes.update(answer.notes)
        if page.limit is not None and page.limit < window.limit:
            page.notes["limit_clamped"] += 1
        part.date = part.date or answer.date
        return page


def collected(window: Window, pages: Sequence[Page], date: float | None) -> Fetched:
    """The points of pages, each once and inside a window; ``date`` is the time when the first one was sent [Unix s]."""
    notes = sum((page.notes for page in pages), Counter())
    notes["cursor_empty"] += pages[-1].next_cursor == ""
    every: Data = joined([page.columns for page in pages])
    columns = every.between(window.first_bucket, window.rng.end)
    notes["outside_range"] += len(every) - len(columns)
    if (columns.steps() <= 0).any():
        notes["points_sorted"] += sum(bool((page.columns.steps() < 0).any()) for page in pages)
        # A bucket that was open when the first page was sent may have changed on a later one.
        open_from = int(date * SECOND) - window.resolution.micros + 1 if date is not None else None
        columns, notes["duplicate_points"], notes["open_bucket_changed"] = deduplicate(columns.sort(), open_from)
    complete, market_id = not notes["count_mismatch"], pages[0].market_id
    return Fetched(window, market_id, columns, complete, len(pages), _labels(pages), +notes)


def merged(window: Window, parts: Sequence[Fetched]) -> Fetched:
    """The parts of a window, in order of time or of several tokens, as one."""
    if len(parts) == 1:
        return parts[0]._replace(window=window)
    return Fetched(
        window=window,
        market_id=parts[0].market_id,
        columns=joined([part.columns for part in parts]).sort(),
        complete=all(part.complete for part in parts),
        pages=sum(part.pages for part in parts),
        labels=max(part.labels for part in parts),
        notes=sum((part.notes for part in parts), Counter()),
    )


def in_time(pages: Iterable[Data], *, is_one: bool) -> bool | None:
    """Whether pages that follow each other show that points come in order of time; None: they do not tell.

    The points of each token rise, and no page begins before the end of another. That could be all the same where
    tokens come one after the other, unless there ``is_one`` alone; but then two pages share the token that is cut
    between them, and no other.
    """
    some = [page for page in pages if len(page)]
    if not all(bool((page.steps() > 0).all()) for page in some):
        return False
    if any(before.ts.max() > after.ts.min() for before, after in pairwise(some)):
        return False
    tokens = [token for page in some for token in page.tokens]
    return (len(some) > 1 and (is_one or len(tokens) >= len(set(tokens)) + len(some))) or None


def _is_width(said: str, requested: BucketWidth) -> bool:
    """Whether the resolution of an answer is the one that was requested, in any spelling: "60s" is "1m"."""
    with suppress(ConfigError):
        return BucketWidth.of(said) == requested
    return False


def keys_of(page: Page) -> Iterable[tuple[str | None, int]]:
    """(label, t) of each point of a page."""
    return _keys(page.columns)


def same(first: Data, second: Data) -> bool:
    """Whether both have the same points with the same values."""
    again, is_equal = repeated(joined([first, second]).sort())
    return len(again) == len(first) == len(second) and bool(is_equal.all())


def _with_all(part: Part, fetched: Fetched) -> Fetched:
    """The points of a part, if they include all that came before; else a ContractError."""
    window = part.window
    inside = (columns.between(window.first_bucket, window.rng.end) for columns in part.seen)
    before = {key for columns in inside for key in _keys(columns)}
    if lost := sorted(before - set(_keys(fetched.columns) if before else ()), key=str):
        label, t = lost[0]
        raise ContractError(
            f"{window}: {len(lost)} points came once and not again, such as {label!r} at {to_text(t)}: the service "
            "lost them, or should not have sent them."
        )
    return fetched


def _labels(pages: Iterable[Page]) -> int:
    """Tokens of the market, as its pages name them."""
    return max([1, *(len(page.labels) for page in pages)])


def _keys(columns: Data) -> Iterable[tuple[str | None, int]]:
    labels = [token.token_label for token in columns.tokens]
    return ((labels[c], t) for c, t in zip(columns.token.tolist(), columns.ts.tolist(), strict=True))
