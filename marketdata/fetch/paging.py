"""Pages of one request, in order, to a proven end.

Never lose a point silently, never invent one, never call a range complete unless its end was proven.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from marketdata.errors import (
    BadRequestError,
    ContractError,
    LimitTooSmallError,
    MarketDataError,
    PaginationStalledError,
    TooManyTokensError,
)
from marketdata.fetch.answers import Answer, ask_twice
from marketdata.fetch.arrivals import Fresh, Key, hold, join, keep, sift
from marketdata.fetch.position import LARGEST_LIMIT, Kind, Position, Report, Request, Resume, digests
from marketdata.times import Range, to_text
from marketdata.wire.columns import Page, View
from marketdata.wire.decode import decode_page

GetPage = Callable[[Sequence[str], Mapping[str, str]], Answer]
_FRUITLESS = 3
_EMPTY_PAGES = 50
_REPEATED_PAGES = 3
_DOUBTS = 3
_LONGEST_CURSOR = 8192


@dataclass
class Memory:
    """What walks learn for those after them: the least limit of a market, and which market a slug names."""

    minimums: dict[tuple[View, str], int] = field(default_factory=dict)
    markets: dict[tuple[Kind, str], str] = field(default_factory=dict)


def walk(
    get_page: GetPage,
    request: Request | Position,
    *,
    report: Report | None = None,
    strict: bool = False,
    memory: Memory | None = None,
) -> Iterator[Page]:
    """The pages of a request, without duplicates, inside of its range.

    Parameters
    ----------
    get_page : callable
        ``get_page(segments, params) -> Answer``, as ``Transport.get``.
    request : Request or Position
        A position goes on where an earlier walk ended (``error.resume.positions``).
    report : Report, optional
        Repairs, warnings and requests are counted here.
    strict : bool
        A repair or warning is a ContractError.
    memory : Memory, optional
        Shared between walks of one client.

    Yields
    ------
    Page
        At least one; points of a bucket that is still open come with the last one.

    Raises
    ------
    MarketDataError
        With ``.attempts`` and ``.resume``.

    Source: interface 4.1.
    """
    out = Walk(get_page, request, strict=strict, memory=memory)
    out.report = report if report is not None else out.report
    return out.pages()


class Walk:
    """One walk: ``pages`` goes, ``snapshot`` says how far it has come."""

    def __init__(
        self, get_page: GetPage, request: Request | Position, *, strict: bool = False, memory: Memory | None = None
    ) -> None:
        position = deepcopy(request) if isinstance(request, Position) else Position.start(request)
        position.pages = 0  # the bound is on one walk: who resumes one that it ended wants what is left
        memory = memory if memory is not None else Memory()
        self.report = Report()
        self._get = get_page
        self._at = position
        self._strict = strict
        self._memory = memory
        self._empty, self._repeated = 0, 0
        self._reached: Range | None = None  # least and greatest time of this pass
        self._probing = self._raised = False
        self._warned: set[str] = set()
        self._miscounts: set[bool] = set()
        self._doubts = 0
        least = memory.minimums.get((position.request.view, position.request.id), 1)
        if position.cursor is None and position.limit < least:
            position.limit = least

    def snapshot(self) -> Position:
        """A copy of the position, to be taken while no page is being read."""
        return deepcopy(self._at)

    def pages(self) -> Iterator[Page]:
        """The pages that are left."""
        done = False
        while not done:
            try:
                step = self._step()
            except (MarketDataError, KeyboardInterrupt) as error:
                error.resume = Resume((self.snapshot(),))  # type: ignore[union-attr]
                if isinstance(error, MarketDataError) and error.attempts is None:
                    error.attempts = self.report.requests
                raise
            if step is None:
                continue
            page, done = step
            if page.points or self._at.pages == 1 or done:
                yield page

    def _step(self) -> tuple[Page, bool] | None:
        """One page and whether it is the last; None where the walk was mended instead."""
        at = self._at
        if at.pages >= at.page_bound:
            raise PaginationStalledError(
                f"{at.request}: {at.pages} pages, more than the range can have; the walk was ended."
            )
        try:
            answer, page = self._ask()
        except MarketDataError as error:
            self._count(error.attempts or 1)
            if not self._mend(error):
                raise
            return None
        self._count(answer.attempts)
        notes = Counter(page.notes)
        self._check_identity(page)
        if self._doubt(page):
            return None
        fresh = sift(at, page, answer.date, notes)
        self._refuse(notes, answer.notes, page)
        before = copy(at)
        new: list[Key] = []
        try:
            new = keep(at, fresh)
            self._learn(page)
            settled = hold(at, fresh, answer.date)
            done = self._advance(page, len(new))
        except BaseException:
            # Points that were not handed out did not arrive: the position must not know them.
            self._take_back(before, fresh)
            raise
        if done and at.held is not None:
            settled, at.held = join(settled, at.held), None
        self.report.pages += 1
        self.report.points += len(settled)
        return replace(page, columns=settled, notes=notes), done

    def _doubt(self, page: Page) -> bool:
        """Whether points get lost on the way: then what may lack some is asked for anew.

        A service counts in one way. Right counts and wrong ones in one walk are no other way of counting.
        """
        wrong = page.notes["count_mismatch"] > 0
        if not page.count:
            return False
        mixed = (not wrong) in self._miscounts
        self._miscounts.add(wrong)
        if not mixed or self._doubts >= _DOUBTS:
            return False
        self._doubts += 1
        self.report.restarts += 1
        self._miscounts = {False}
        self._ask_anew(self._at.safe_start if wrong else self._at.request.rng.start)
        return True

    def _learn(self, page: Page) -> None:
        at = self._at
        at.pages += 1
        at.page_limit = page.limit
        at.market_id = page.market_id
        at.labels = {**at.labels, **page.labels}
        self._memory.markets[at.request.kind, at.request.id] = page.market_id

    def _take_back(self, before: Position, fresh: Fresh) -> None:
        for (label, t), mark in zip(fresh.keys, fresh.digests, strict=True):
            if before.seen.get(label, {}).get(t) == mark:
                del before.seen[label][t]
        self._at = before

    def _count(self, attempts: int) -> None:
        self.report.requests += attempts
        self.report.retries += attempts - 1

    # -- asking

    def _ask(self) -> tuple[Answer, Page]:
        at, request = self._at, self._at.request
        params = {
            "start_ts": to_text(at.asked.start),
            "end_ts": to_text(at.asked.end),
            "resolution": str(request.resolution),
            "limit": str(at.limit),
        }
        if at.cursor is not None:
            params["cursor"] = at.cursor
        miscounted: list[bytes] = []

        def read(answer: Answer) -> Page:
            page = decode_page(request.view, answer.body, rng=Range(request.first_bucket, request.rng.end))
            if page.next_cursor is not None and len(page.next_cursor) > _LONGEST_CURSOR:
                raise ContractError(f"next_cursor has {len(page.next_cursor)} characters; no cursor is that long.")
            if page.count not in (page.points, len(np.unique(page.columns.ts))):
                before, miscounted[:] = list(miscounted), digests(page.columns)
                # The same answer twice: the service counts otherwise. Another one: points get lost on the way.
                if before != miscounted:
                    raise ContractError(f"{request}: metadata.count is {page.count}, there are {page.points} points.")
                page.notes["count_mismatch"] += 1
            return page

        return ask_twice(self._get, request.segments, params, read)

    def _mend(self, error: MarketDataError) -> bool:
        """Whether the walk can go on after an error, with a larger limit or without its cursor."""
        at = self._at
        if isinstance(error, LimitTooSmallError):
            least = error.minimum
            if self._raised or least is None or not at.limit < least <= LARGEST_LIMIT:
                return False
            self._raised = True
            self._memory.minimums[at.request.view, at.request.id] = at.limit = least
            self.report.note({"limit_raised": 1})
            self._ask_anew(at.safe_start)
            return True
        if isinstance(error, BadRequestError) and not isinstance(error, TooManyTokensError) and at.cursor is not None:
            # The same question passed without a cursor before, so it is the cursor that was refused.
            self._restart()
            return True
        return False

    def _restart(self) -> None:
        """Drop the cursor and ask by time; an error after three restarts that brought nothing."""
        at = self._at
        if at.fruitless >= _FRUITLESS:
            raise PaginationStalledError(f"{at.request}: asked anew {_FRUITLESS} times without a new point.")
        at.fruitless += 1
        self.report.restarts += 1
        self._ask_anew(at.safe_start)

    def _ask_anew(self, start: int) -> None:
        at = self._at
        at.asked = Range(start, at.request.rng.end)
        at.cursor = None
        at.cursors = set()
        self._reached = None
        self._empty = self._repeated = 0

    # -- reading

    def _check_identity(self, page: Page) -> None:
        """Refuse a page about something else than what was asked, or than the pages before."""
        at, request = self._at, self._at.request
        if page.resolution != request.resolution:
            raise ContractError(f"{request}: the answer has the resolution {page.resolution!r}.")
        known = at.market_id or self._memory.markets.get((request.kind, request.id))
        if known is not None and page.market_id != known:
            raise ContractError(f"{request}: the answer is about market {page.market_id!r}, before it was {known!r}.")
        for label, token_id in page.labels.items():
            if at.labels.get(label, token_id) != token_id:
                raise ContractError(f"{request}: token {label!r} was {at.labels[label]!r} and is now {token_id!r}.")
        if request.kind == "token" and page.labels and set(page.labels.values()) != {request.id}:
            raise ContractError(f"{request}: the answer is about the tokens {list(page.labels.values())[:3]}.")

    def _refuse(self, notes: Counter[str], more: Sequence[str], page: Page) -> None:
        """Count the oddities of a page; in strict mode they are errors."""
        at = self._at
        once = [*more, *(["limit_clamped"] if page.limit is not None and page.limit < at.limit else [])]
        if page.next_cursor == "":
            once.append("cursor_empty")
        for name in once:
            if name not in self._warned:
                self._warned.add(name)
                notes[name] += 1
        refused = self.report.note(notes)
        if self._strict and refused:
            raise ContractError(f"{at.request}: strict mode refuses {', '.join(sorted(refused))}.")

    # -- going on

    def _advance(self, page: Page, new_rows: int) -> bool:
        """Choose what to ask next; True at the proven end."""
        at, cursor = self._at, page.next_cursor
        had_rows = page.points > 0
        further = had_rows and self._goes_further(page)
        if new_rows:
            at.fruitless = at.stalls = 0
        if cursor is None:
            return True
        if cursor == "":
            return self._probe(page, new_rows)
        self._probing = False
        mark = hashlib.blake2b(cursor.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self._empty = 0 if had_rows else self._empty + 1
        self._repeated = 0 if new_rows or further or not had_rows else self._repeated + 1
        if mark in at.cursors or self._empty > _EMPTY_PAGES or self._repeated >= _REPEATED_PAGES:
            at.stalls += 1
            if at.stalls > 1:
                raise PaginationStalledError(f"{at.request}: the cursor repeats or brings nothing ({at.pages} pages).")
            self._restart()
            return False
        at.cursors = at.cursors | {mark}
        at.cursor = cursor
        return False

    def _goes_further(self, page: Page) -> bool:
        """Whether a page has times before or behind all of this pass: then it moves, though its points be known."""
        least, most = int(page.columns.ts.min()), int(page.columns.ts.max())
        before = self._reached
        self._reached = Range(least, most) if before is None else Range(min(least, before[0]), max(most, before[1]))
        return self._reached != before

    def _probe(self, page: Page, new_rows: int) -> bool:
        """An empty cursor proves nothing: ask once for what lies behind the last point."""
        at = self._at
        if self._probing and not new_rows:
            return True
        if not at.in_time_order or (at.falls and not at.risen and page.points >= at.limit):
            raise PaginationStalledError(f"{at.request}: next_cursor is empty, and points do not come in time order.")
        self._probing = True
        start = at.request.rng.start
        if at.last is not None:
            # A page may end inside of a bucket; then other labels of the last one are still to come.
            split = len(np.unique(page.columns.ts)) > 1 and any(at.last not in points for points in at.seen.values())
            start = max(start, at.last if split else at.last + at.request.resolution.micros)
        if start >= at.request.rng.end:
            return True
        self.report.restarts += 1
        self._ask_anew(start)
        return False
