"""The one scheduler: windows of any number of markets, requested concurrently under one pacer.

It cuts ranges into windows as their density becomes known, keeps as many requests in flight as the key's rate and the
latency need, and yields results in order or as they come. After its stop flag is set nothing more is sent.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Protocol

from marketdata.errors import ContractError, MarketDataError, NetworkError, NotFoundError, TooManyTokensError
from marketdata.fetch.checkpoint import Report, Resume
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.http.workers import STOP, Stop, start
from marketdata.fetch.reader import Chunk, Memory, Prefix, Reader, Received, TooWideError, same, with_all
from marketdata.fetch.windows import AT_ONCE, MarketInfo, Spans, Window
from marketdata.points.columns import Data, joined
from marketdata.points.views import VIEWS
from marketdata.times import Range
from marketdata.wire.models import LARGEST_LIMIT

THREAD = "marketdata-fetch"
# Windows on their way at once: where the plan is unknown, at least, and at most.
_FEWEST_UNKNOWN, _FEWEST, _MOST = 8, 16, 96
# From so many pages on, a request to learn the rate is worth its cost; in one market, one to learn when it was active.
_WORTH_USAGE, _WORTH_INFO = 8, 20
# Pages of a window: in memory at once, and fetched again if one of them fails.
_CHAIN = 16
# Pages beyond twice the expected ones before a window is cut anew.
_SLACK = 2
_STUCK = "The fetch has windows left, and none of them can be requested: this is an error in marketdata."
# Of a market that is requested token by token, so many tokens show how wide its windows may be.
_SAMPLES = 8


class Markets(Protocol):
    """Where the active range and the tokens of markets are looked up."""

    def known(self, id_or_slug: str) -> MarketInfo | None:
        """What is known without a request."""

    def look_up(self, id_or_slug: str) -> MarketInfo:
        """What the service says; an empty record where it says nothing."""


class Arrival(NamedTuple):
    """A window whose points have all arrived: index of its request, and whether its pages are known to be complete."""

    request: int
    window: Window
    market_id: str
    columns: Data
    complete: bool


@dataclass(eq=False)
class _Slot:
    """A place in the order of answers: a window, requested by token if its market is wider than a page."""

    window: Window
    parts: list[Window]
    most: int | None = None
    pending: tuple[Chunk, Chunk] | None = None  # a page, and what of it is complete if what follows says so
    chunks: dict[int, Chunk] = field(default_factory=dict)
    received: Received | None = None  # of a window that is on its way: its pages so far

    @property
    def is_complete(self) -> bool:
        return len(self.chunks) == len(self.parts)


class _Task(NamedTuple):
    """A request for a part of a slot, or for what is known of a market, or (no source) for the rate of the key."""

    source: _Source | None = None
    slot: _Slot | None = None
    part: int = 0


class _Source:
    """One window as requested, and how far it has been cut."""

    def __init__(self, index: int, window: Window, markets: Markets, *, is_one_of_many: bool) -> None:
        self.index = index
        self.is_one_of_many = is_one_of_many
        self.window = window
        self.at = window.rng.start
        self.slots: deque[_Slot] = deque()
        self.todo: deque[_Task] = deque()
        self.points = 0
        self.is_looking_up = False
        self._opening: _Slot | None = None
        self.info = markets.known(window.id) if window.kind == "market" else MarketInfo()
        self.is_missing = False
        self._spans = Spans()
        self._limit = window.limit
        self._first = window.rng.start
        self._evidence: list[Data] = []
        self._rises = False  # whether the order of its pages was seen to be that of time

    @property
    def _has_tokens(self) -> bool:
        """Whether a bucket has a point of each token of a market."""
        return self.window.kind == "market" and VIEWS[self.window.view].has_tokens

    @property
    def _labels(self) -> int:
        """Tokens of the market, as its record says; 0: not known. A page may name only those that it has points of."""
        return len((self.info or MarketInfo()).tokens) if self._has_tokens else 1

    @property
    def _full(self) -> int:
        """Buckets of a page whose every bucket has all its points."""
        if not self._has_tokens or self.is_wide:
            return self._limit
        return max(1, self._limit // (len(self.info.tokens) if self.info is not None and self.info.tokens else 2))

    @property
    def is_wide(self) -> bool:
        """Whether the market has more tokens than a page has points."""
        many = self.info is not None and len(self.info.tokens) > LARGEST_LIMIT
        return many and self._has_tokens

    @property
    def is_open(self) -> bool:
        """Whether a slot is not requested yet, or waits for what follows it."""
        waits = any(slot.pending is not None and slot.window.rng.end == self.at for slot in self.slots)
        return bool(self.todo) or self._opening is not None or waits

    @property
    def is_cut(self) -> bool:
        return self.at >= self.window.rng.end and not self.todo

    @property
    def pages(self) -> int:
        """Pages that it has if every bucket has its points."""
        return -(-self.window.buckets // self._full)

    @property
    def rest(self) -> Window:
        return replace(self.window, rng=Range(self.at, self.window.rng.end))

    def take(self, workers: int) -> _Task | None:
        """What to request next, as one of so many at once; None: nothing before something arrives."""
        if self.todo:
            return self.todo.popleft()
        if self._opening is not None:
            return self._opened(self._opening)
        if self.is_cut or (self.is_looking_up and self.at > self.window.rng.start):
            return None
        if self.is_wide:
            return self._take_wide()
        if self.info is None and not self.is_looking_up and self.rest.buckets > _WORTH_INFO * self._full:
            self.is_looking_up = True
            return _Task(self)
        parts = (self.info or MarketInfo()).parts(self.window)
        whole, is_active = next((rng, active) for rng, active in parts if rng.end > self.at)
        part, most = replace(self.rest, rng=Range(self.at, whole.end)), None
        # Data may lie outside the active range of a market; where there is none, one request says so.
        if is_active and (self._spans.known or part.buckets > AT_ONCE * self._full):
            if self._spans.known:
                part, most = self._cut(part, workers)
            elif any(slot.most for slot in self.slots):
                return None
            else:
                most = 1
        self.at = part.rng.end
        self.slots.append(self._slot(part, most))
        return self.todo.popleft()

    def _take_wide(self) -> _Task:
        """The next slot of a market requested by token; the first one by a few tokens, where that may do."""
        slot = self._slot(self._wide_part(), None)
        if not self._spans.known and slot.window.rng.end < self.window.rng.end:
            few = -(-len(slot.parts) // _SAMPLES)
            self.todo = deque(task for task in self.todo if task.part % few == 0)
            self._opening = slot
        self.at = slot.window.rng.end
        self.slots.append(slot)
        return self.todo.popleft()

    def _opened(self, slot: _Slot) -> _Task | None:
        """Widen the first slot by what its sample shows, once that has arrived, and request the rest of it."""
        sample = range(0, len(slot.parts), -(-len(slot.parts) // _SAMPLES))
        if len(slot.chunks) < len(sample):
            return None
        self._opening, self.at = None, slot.window.rng.start
        whole = replace(slot.window, rng=Range(self.at, max(slot.window.rng.end, self._wide_part().rng.end)))
        self.at = whole.rng.end
        for k, part in enumerate(slot.parts[:]):
            if k not in slot.chunks:
                slot.parts[k] = replace(part, rng=whole.rng)
                self.todo.append(_Task(self, slot, k))
            elif part.rng.end < whole.rng.end:
                self.todo.append(_Task(self, slot, len(slot.parts)))
                slot.parts.append(replace(part, rng=Range(part.rng.end, whole.rng.end)))
        slot.window = whole
        return self.todo.popleft()

    def _wide_part(self) -> Window:
        """The next range of a market that is requested token by token."""
        # A request per token is dear: what lies outside the active range is part of the first and the last window.
        active = [rng for rng, is_active in (self.info or MarketInfo()).parts(self.rest) if is_active]
        if not active:
            return self.rest
        rest = replace(self.rest, rng=active[0])
        known = self._spans.known
        buckets = self._spans.width(rest.buckets, 1, self._limit)[0] if known else min(rest.buckets, self._full)
        end = self.window.rng.end if buckets >= rest.buckets else rest.part(rest.rng.start, buckets).rng.end
        return replace(self.window, rng=Range(self.at, end))

    def _active_buckets(self, window: Window) -> int:
        """Buckets of a window in which its market was active."""
        parts = (self.info or MarketInfo()).parts(window)
        return sum(replace(window, rng=rng).buckets for rng, is_active in parts if is_active)

    def _slot(self, window: Window, most: int | None) -> _Slot:
        """A slot of at most so many pages, whose parts are requested before all others."""
        tokens = self.info.tokens if self.info is not None and self.is_wide else ()
        parts = [replace(window, kind="token", id=token) for token in tokens] or [window]
        if tokens or (most is not None and window.buckets <= most * self._full):
            most = None  # it ends by itself
        slot = _Slot(window, parts, most)
        self.todo.extend(_Task(self, slot, k) for k in range(len(parts)))
        return slot

    def see(self, part: Window, chunk: Chunk) -> None:
        """Learn from a part of a slot how many buckets a page spans; ContractError if it lacks what came before."""
        with_all(part, self._evidence, chunk)
        self._forget(part)
        self.points += len(chunk.columns)
        self._limit = chunk.limit
        if active := self._active_buckets(part):
            self._spans.see(len(chunk.columns), active, chunk.labels, chunk.full)

    def _forget(self, part: Window) -> None:
        """Drop the evidence of a part, which has arrived."""
        sides = (Range(self.window.first_bucket, part.rng.start), Range(part.rng.end, self.window.rng.end))
        some = [columns.between(*side) for columns in self._evidence for side in sides]
        self._evidence = [columns for columns in some if len(columns)]

    def cut_anew(self, slot: _Slot, wide: Prefix, workers: int) -> None:
        """Request a slot of more pages than it should have in windows, as wide as those pages say."""
        came, window = wide.chunk, slot.window
        times = came.columns.ts
        self._evidence.append(came.columns)
        points, buckets = (sum(column) for column in zip(*came.full, strict=True)) if came.full else (0, window.buckets)
        # Pages that are not in time order span more, together, than the window has.
        self._spans.see(points, min(buckets, window.buckets), came.labels, came.full)
        self._first = int(times.min()) if len(times) else window.rng.start
        place = self.slots.index(slot)
        del self.slots[place]
        if wide.end > window.rng.start and came.complete:
            # What came is complete up to here, if the next window brings its last bucket again, and later ones.
            window, first = (
                replace(window, rng=Range(wide.end, window.rng.end)),
                replace(window, rng=Range(window.rng.start, wide.end)),
            )
            columns: Data = came.columns.between(first.first_bucket, first.rng.end)
            self.slots.insert(place, _Slot(first, [first], pending=(came, came._replace(columns=columns))))
            place += 1
        if slot.window.rng.end == self.at:
            self.at = window.rng.start  # windows are cut as they are requested
            return
        before, self.todo, rest = self.todo, deque(), window
        while rest.rng.start < rest.rng.end:
            part, most = self._cut(rest, workers)
            self.slots.insert(place, self._slot(part, most))
            rest, place = replace(rest, rng=Range(part.rng.end, rest.rng.end)), place + 1
        self.todo.extend(before)

    def confirm(self, part: Window, chunk: Chunk) -> Iterator[Chunk]:
        """What came before a part and waits for it, if the part says that it is complete; else it is requested."""
        for slot in self.slots:
            if slot.pending is None or slot.window.rng.end != part.rng.start:
                continue
            page, before = slot.pending
            bucket = Range(part.rng.start, part.rng.start + part.resolution.micros)
            both = [c.columns.between(*bucket) for c in (page, chunk)]
            labels = self._labels or max(2, page.labels)  # a market has two tokens or more
            if (
                chunk.labels == page.labels == labels
                and chunk.columns.ts.max(initial=0) > page.columns.ts.max()
                and same(*both)
            ):
                self._rises = True
                yield self._accept(slot, before)
                yield from self.confirm(slot.window, before)
            else:
                slot.pending = None
                self.todo.append(_Task(self, slot))
            return

    def _accept(self, slot: _Slot, chunk: Chunk) -> Chunk:
        """Complete a slot with what waited."""
        slot.pending, slot.chunks[0] = None, chunk
        self.points += len(chunk.columns)
        self._forget(slot.window)
        return chunk

    def keep(self, prefix: Callable[[Window, Received], Prefix]) -> Iterator[Chunk]:
        """What came of windows that are on their way when a fetch ends, where pages were seen to be in time order."""
        for slot in list(self.slots) if self._labels else ():
            if slot.received is not None and slot.received.pages:
                came = prefix(slot.window, slot.received)
                self.cut_anew(slot, came, 1)
                yield from self.confirm(slot.window, came.chunk)
        for slot in self.slots if self._rises else ():
            if slot.pending is not None and slot.pending[0].labels == self._labels:
                yield self._accept(slot, slot.pending[1])

    def _cut(self, rest: Window, workers: int) -> tuple[Window, int]:
        """The next window of a range, and how many pages it may have before it is cut anew."""
        begin = max(rest.rng.start, min(self._first, rest.rng.end - 1))
        left = replace(rest, rng=Range(begin, rest.rng.end))
        free = workers - sum(slot.most is not None for slot in self.slots)
        buckets, pages = self._spans.width(left.buckets, max(1, free), self._limit, _CHAIN, many=self.is_one_of_many)
        return replace(rest, rng=Range(rest.rng.start, left.part(begin, buckets).rng.end)), 2 * pages + _SLACK

    def learn(self, info: MarketInfo) -> None:
        """Apply what is known of the market: when it was active, and whether it is requested by token."""
        was_wide, self.is_looking_up = self.is_wide, False
        if was_wide:
            return
        self.info = info
        if is_wide := self.is_wide:
            # Its whole windows are refused: they are requested again, once for each token.
            while any(not slot.chunks for slot in self.slots):
                self.at = self.slots.pop().window.rng.start
            self.todo.clear()
        if is_wide or (info.start is not None and self.at <= info.start):
            self._spans = Spans()

    def drop(self) -> None:
        """Request nothing more: there is no such market."""
        self.is_missing = True
        self.at = self.window.rng.end
        self._opening = None
        self.slots.clear()
        self.todo.clear()

    def left(self, *, in_order: bool) -> list[Window]:
        """What has not arrived, as few windows; in order, all from the first gap on."""
        if self.is_missing:
            return [self.window]
        if in_order and self.slots:
            return [replace(self.window, rng=Range(self.slots[0].window.rng.start, self.window.rng.end))]
        whole = [s.window for s in self.slots if not s.chunks]
        if self.at < self.window.rng.end:
            whole.append(self.rest)
        out: list[Window] = []
        for window in whole:
            if out and out[-1].rng.end == window.rng.start:
                out[-1] = replace(out[-1], rng=Range(out[-1].rng.start, window.rng.end))
            else:
                out.append(window)
        return out + [p for s in self.slots if s.chunks for k, p in enumerate(s.parts) if k not in s.chunks]


def worker_count(pacer: Pacer, latency: float | None) -> int:
    """Concurrent requests that use up the key's rate at this latency."""
    rate = pacer.requests_per_minute
    if rate is None:
        return _FEWEST_UNKNOWN
    return min(_MOST, max(_FEWEST, math.ceil(rate / 60 * (latency or 0.3) * 1.3) + 2))


class Scheduler:
    """Requests windows of any width concurrently; iterate over it once for the results.

    ``memory`` is shared by the fetches of a client, ``report`` is filled in; ``strict``: repairs and oddities are
    errors; ``in_order``: yield in the order of the windows, else as they come; ``buffer``: most windows in memory
    before that; ``workers``: concurrent requests, by default what the rate and the latency need.
    """

    def __init__(
        self,
        transport: Transport,
        windows: Sequence[Window],
        markets: Markets,
        *,
        memory: Memory | None = None,
        report: Report | None = None,
        strict: bool = False,
        in_order: bool = False,
        buffer: int | None = None,
        workers: int | None = None,
    ) -> None:
        self._transport = transport
        self._markets = markets
        self._in_order = in_order
        self._buffer = buffer
        self._fixed = workers
        self._strict = strict
        self._change = threading.Condition()
        self._stop = Stop(STOP.get())
        self.report = report if report is not None else Report()
        self._reader = Reader(
            transport, memory if memory is not None else Memory(), self.report, strict=strict, stop=self._stop
        )
        many = len(windows) > 1
        self._waiting = deque(_Source(k, w, markets, is_one_of_many=many) for k, w in enumerate(windows))
        self._many = len({w.id for w in windows}) > 1
        self._begun: list[_Source] = []
        self._ready: deque[Arrival] = deque()
        self._active = 0
        self._error: BaseException | None = None
        self._missing: dict[_Source, NotFoundError] = {}
        self._usage = sum(s.pages for s in self._waiting) > _WORTH_USAGE
        self.empty: list[Window] = []  # requested, and without a point

    def __iter__(self) -> Iterator[Arrival]:
        try:
            while True:
                with self._change:
                    self._fill()
                    while not (self._ready or self._error or self._stop.is_set() or self._is_over):
                        if not self._active:
                            raise RuntimeError(_STUCK)
                        # A timeout, so that Ctrl-C is seen on every system, and a stop soon.
                        self._change.wait(0.1)
                        self._fill()
                    if self._error or not self._ready:
                        break
                    arrival = self._ready.popleft()
                yield arrival
            if not (self._error or self._is_over):
                self._error = NetworkError("The fetch was given up.")
            if self._error is not None:
                rest, resume = self.leave()
                yield from rest
                if isinstance(self._error, MarketDataError):
                    self._error.resume = resume
                raise self._error
            if self._missing:
                raise self._of_the_missing()
        finally:
            self.close()

    def leave(self) -> tuple[list[Arrival], Resume]:
        """Send nothing more; returns what had arrived and was not yielded, and what is left to request."""
        self.close()
        with self._change:
            for source in list(self._begun):
                # What cannot be read as it came is requested again.
                with suppress(MarketDataError):
                    for chunk in source.keep(self._reader.prefix):
                        self._reader.note(chunk)
                self._release(source)
            rest = list(self._ready)
            self._ready.clear()
            left: list[Window] = []
            for source in sorted({*self._begun, *self._waiting, *self._missing}, key=lambda s: s.index):
                if not self._in_order:
                    rest += [
                        Arrival(source.index, slot.parts[k], chunk.market_id, chunk.columns, chunk.complete)
                        for slot in source.slots
                        for k, chunk in slot.chunks.items()
                    ]
                left += source.left(in_order=self._in_order)
            return rest, Resume(tuple(left))

    @property
    def _pending(self) -> int:
        """Slots that were requested or arrived, and are not yielded."""
        return len(self._ready) + sum(len(source.slots) for source in self._begun)

    @property
    def _is_over(self) -> bool:
        return not self._begun and not self._waiting

    def _fill(self) -> None:
        """Start threads up to what the rate needs, while there are requests; called under the lock."""
        while self._active < self._workers() and not self._stop.is_set():
            task = self._take()
            if task is None:
                return
            self._active += 1
            start(partial(self._work, task), THREAD)

    def _workers(self) -> int:
        return self._fixed or worker_count(self._transport.pacer, self._transport.latency)

    def _share(self) -> int:
        """Workers for one of the windows that have more to request."""
        open_ = sum(not source.is_cut for source in self._begun) + len(self._waiting)
        return max(1, self._workers() // max(1, open_))

    def _take(self) -> _Task | None:
        if self._usage:
            self._usage = False
            if not self._transport.pacer.known:
                return _Task()
        has_room = self._buffer is None or self._pending < max(self._buffer, 0 if self._fixed else 2 * self._workers())
        for source in self._begun:
            # Arrivals are yielded behind the first slot, where nothing can arrive: it may always be requested.
            first = self._in_order and source is self._begun[0] and not (source.slots or self._ready)
            if (has_room or source.is_open or first) and (task := source.take(self._share())) is not None:
                return task
        while self._waiting and has_room:
            self._begun.append(self._waiting.popleft())
            if (task := self._begun[-1].take(self._share())) is not None:
                return task
        return None

    def _work(self, task: _Task | None) -> None:
        while task is not None:
            source, slot = task.source, task.slot
            outcome: Chunk | BaseException | None = None
            info: MarketInfo | None = None
            try:
                if source is None:
                    self._transport.learn_limits()
                elif slot is None:
                    info = self._markets.look_up(source.window.id)
                else:
                    try:
                        received = slot.received = Received() if len(slot.parts) == 1 else None
                        outcome = self._reader.read(slot.parts[task.part], slot.most, received)
                    except TooManyTokensError as error:
                        if not source.is_wide:
                            info = self._markets.look_up(source.window.id)
                        outcome = error
            except BaseException as error:  # whatever it is, it is raised in the thread that iterates
                outcome = error
            with self._change:
                try:
                    if source is not None and info is not None:
                        source.learn(info)
                    self._receive(source, slot, task.part, outcome)
                except BaseException as error:
                    self._fail(error)
                task = self._take() if not self._stop.is_set() and self._active <= self._workers() else None
                if task is None:
                    self._active -= 1
                self._fill()
                self._change.notify_all()

    def _receive(
        self, source: _Source | None, slot: _Slot | None, part: int, outcome: Chunk | BaseException | None
    ) -> None:
        """Take in the outcome of a request; called under the lock."""
        if source is None or slot is None:
            if isinstance(outcome, BaseException):
                self._fail(outcome)
            return
        if slot not in source.slots:
            return  # of a market that does not exist, or of a window that is requested in other parts now
        if isinstance(outcome, Chunk):
            source.see(slot.parts[part], outcome)
            slot.chunks[part], slot.received = outcome, None
            for before in source.confirm(slot.parts[part], outcome):
                if (refused := self._reader.note(before)) and self._strict:
                    self._fail(ContractError(f"{slot.window}: strict mode refuses {', '.join(sorted(refused))}."))
        elif isinstance(outcome, TooWideError):
            source.cut_anew(slot, outcome.prefix, self._share())
        elif isinstance(outcome, NotFoundError) and self._many:
            self._missing[source] = outcome
            source.drop()
        elif isinstance(outcome, BaseException):
            self._fail(outcome)
        self._release(source)

    def _release(self, source: _Source) -> None:
        """Let what is complete be yielded: in order, up to the first gap; called under the lock."""
        while source in self._begun:
            for done in [s for s in source.slots if s.is_complete]:
                if self._in_order and (source is not self._begun[0] or done is not source.slots[0]):
                    break
                source.slots.remove(done)
                chunks = [done.chunks[k] for k in range(len(done.parts))]
                columns: Data = joined([c.columns for c in chunks])
                complete = all(c.complete for c in chunks)
                self._ready.append(Arrival(source.index, done.window, chunks[0].market_id, columns, complete))
            if source.slots or not source.is_cut or (self._in_order and source is not self._begun[0]):
                return
            self._begun.remove(source)
            if not source.points and not source.is_missing:
                self.empty.append(source.window)
            if self._in_order and self._begun:
                source = self._begun[0]

    def _fail(self, error: BaseException) -> None:
        if self._error is None and not self._stop.is_set():
            self._error = error
            self._stop.set()

    def _of_the_missing(self) -> NotFoundError:
        """The error about the markets that do not exist, once the others have arrived."""
        error = next(iter(self._missing.values()))
        missing = sorted(self._missing, key=lambda source: source.index)
        names = ", ".join(map(repr, list(dict.fromkeys(source.window.id for source in missing))[:10]))
        hint = f"The rows of the others are in .partial. {error.hint}".rstrip()
        problem = f"{error.problem} Not found: {names}."
        out = NotFoundError(problem, status=error.status, detail=error.detail, url=error.url, hint=hint)
        out.attempts, out.resume = error.attempts, Resume(tuple(source.window for source in missing))
        return out

    def close(self) -> None:
        """Send nothing more."""
        self._stop.set()
        with self._change:
            self._change.notify_all()


def run_all(transport: Transport, calls: Sequence[Callable[[], object]]) -> None:
    """Make calls concurrently, as many at once as the key's rate needs; the first error ends them."""
    todo, errors, lock = deque(calls), [], threading.Lock()
    stop = Stop(STOP.get())

    def work() -> None:
        STOP.set(stop)
        while not stop.is_set():
            with lock:
                if not todo:
                    return
                call = todo.popleft()
            try:
                call()
            except BaseException as error:
                errors.append(error)
                stop.set()

    many = min(len(todo), worker_count(transport.pacer, transport.latency))
    threads: list[threading.Thread] = []
    try:
        threads += (start(work, THREAD) for _ in range(many))
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)
    finally:
        stop.set()
    if errors:
        raise errors[0]
