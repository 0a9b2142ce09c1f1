"""Records a stream into an archive: what was seen is committed, and what turned out to be wrong is removed."""

from __future__ import annotations

import datetime as dt
import queue
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from marketdata.archive.coverage.intervals import subtract, union
from marketdata.archive.feed import Feed
from marketdata.archive.market_ranges import inside
from marketdata.archive.pull.rounds import LISTED_AGAIN
from marketdata.archive.selection import Selection
from marketdata.archive.store import ArchiveStore
from marketdata.clock import SYSTEM
from marketdata.errors import ArchiveError, ConfigError, MarketDataError, NotFoundError
from marketdata.points.columns import Data, Token, joined, missing
from marketdata.points.prints import distinct
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.stream.channel import Channel
from marketdata.stream.connection import Connections, Event
from marketdata.stream.raw import RawFiles
from marketdata.stream.recorder import Recorded, Recorder
from marketdata.times import SECOND, to_datetime

# A commit after so long, or of so many levels; what was not committed is lost in a crash.
COMMIT_EVERY = 15.0
_MOST_LEVELS = 3_000_000
# Frames are decoded together: each time costs some calls.
_DECODE_EVERY = 0.5
_OVER = ("closed", "resolved")


class Recording(NamedTuple):
    """The report of a commit of `Archive.record`.

    Everything of the stream before ``at`` [UTC, the venue's clock] is stored or known to be missing; it is ``lag`` [s]
    behind now. Of the ``markets`` that are to be recorded, the books of ``known`` are known at this moment.
    ``messages`` are those a second since the last report. ``gaps``, ``books`` and ``trades`` count from the beginning,
    ``disk`` are the bytes of all of these in the archive. ``error`` is one that is tried again.
    """

    at: dt.datetime | None
    lag: float | None
    markets: int
    known: int
    messages: float
    gaps: int
    books: int
    trades: int
    disk: int
    error: str | None = None

    def __str__(self) -> str:
        at = "-" if self.at is None else f"{self.at:%Y-%m-%dT%H:%M:%SZ}"
        lag = "" if self.lag is None else f", {self.lag:.0f} s behind"
        problem = f"; {self.error}" if self.error else ""
        return (
            f"{at} {self.known} of {self.markets} markets, {self.messages:,.0f} messages a second, {self.gaps:,} gaps, "
            f"{self.books:,} books, {self.trades:,} trades, {self.disk / 1e6:,.1f} MB{lag}{problem}"
        )


@dataclass
class Run:
    """One recording, with the options of `Archive.record`."""

    store: ArchiveStore
    feed: Feed
    channel: Channel
    selection: Selection
    stop: threading.Event
    keep: Sequence[str] = ("tick_size",)
    commit_every: float = COMMIT_EVERY
    raw: RawFiles | None = None
    counts: Counter[str] = field(default_factory=Counter, init=False)

    def __post_init__(self) -> None:
        self.recorder = Recorder(self.channel, self.store.base, self.keep)
        self.error: str | None = None
        self._connections: Connections | None = None
        self._asked: list[tuple[list[str], int, Future[list[Any]]]] = []
        self._listing: Future[list[str]] | None = None
        self._listed = 0.0
        self._uncommitted: Recorded | None = None

    def reports(self) -> Iterator[Recording]:
        """Record until it is stopped, or until all markets have ended; a report for each commit."""
        self._choose(self.selection.ids())
        if not self.recorder.markets:
            raise NotFoundError("None of these markets is open: a stream has only the present.")
        connections = self._connections = Connections(self.channel)
        committed, is_refused = SYSTEM.monotonic(), False
        pool = ThreadPoolExecutor(1, "marketdata-compare")
        try:
            while not self.stop.is_set() and self.recorder.markets:
                if connections.refused is not None:
                    raise connections.refused
                for number, tokens in self.recorder.connections(_now()):
                    connections.open(number, tokens)
                self._take_events(SYSTEM.monotonic() + _DECODE_EVERY)
                self._end([*self.recorder.work(_now()), *((n, "few markets") for n in self.recorder.surplus())])
                self._ask(pool)
                is_due = SYSTEM.monotonic() - committed >= self.commit_every
                if is_due or self.recorder.levels >= _MOST_LEVELS:
                    since, committed = committed, SYSTEM.monotonic()
                    self._commit(self.recorder.take())
                    yield self._report(committed - since)
        except ArchiveError:
            is_refused = True  # the next commit would fail too
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            connections.close()
            if not is_refused:
                self._finish()
            if self.raw is not None:
                self.raw.close()

    def _finish(self) -> None:
        if self._uncommitted is not None:  # a commit was interrupted
            self._commit(self._uncommitted)
        self._take_events(SYSTEM.monotonic())
        for number in [*self.recorder.lines]:
            self.recorder.end(number, _now(), "stopped")
        self._commit(self.recorder.take())

    # Markets

    def _choose(self, ids: Sequence[str]) -> None:
        """Record these markets; of an event or another group, those that are open. A mirror plays closed ones too."""
        chosen = {}
        for market in ids:
            record = self.store.catalog["markets"].find(market)
            is_chosen = self.selection.is_named or (record or {}).get("status") not in _OVER
            if record is not None and is_chosen and record.get("tokens"):
                name = str(record["id"])
                chosen[name] = [Token(name, str(t["id"]), t.get("label")) for t in record["tokens"]]
        lacking = [name for name in ids if self.store.catalog["markets"].find(name) is None]
        if lacking and not chosen:
            self.feed.market(lacking[0])  # says what is wrong
        largest = max((len(tokens) for tokens in chosen.values()), default=0)
        if largest > self.channel.most_tokens:
            raise ConfigError(f"A market has {largest} tokens; a connection takes {self.channel.most_tokens}.")
        self.recorder.choose(chosen, _now())
        self._listed = SYSTEM.monotonic()

    # What comes

    def _take_events(self, until: float) -> None:
        """Take what the connections have, and wait for more until a time."""
        assert self._connections is not None
        events = self._connections.events
        while True:
            wait = until - SYSTEM.monotonic()
            try:
                event = events.get(timeout=max(wait, 0)) if wait > 0 else events.get_nowait()
            except queue.Empty:
                return
            self._take(event)
            if wait <= 0 and events.qsize() == 0:
                return

    def _take(self, event: Event) -> None:
        number, kind, at, body = event
        if kind == "frame":
            self.counts["frames"] += 1
            if (why := self.recorder.frame(number, body, at)) is not None:
                self._end([(number, why)])
                return
        elif kind == "pong":
            self.recorder.answered(number, at, _now())
        else:
            self._end([(number, body.decode(errors="replace"))])
            return
        if self.raw is not None and number in self.recorder.lines:
            self.raw.write(event)

    def _end(self, over: Sequence[tuple[int, str]]) -> None:
        assert self._connections is not None
        for number, why in over:
            self._connections.end(number)
            if self.raw is not None:
                self.raw.end(number)
            self.recorder.end(number, _now(), why)
            self.error = why

    def _ask(self, pool: ThreadPoolExecutor) -> None:
        """Compare books with those that the venue gives, and list markets again, beside the stream."""
        if tokens := self.recorder.questions(_now()):
            self._asked.append((tokens, _now(), pool.submit(lambda: [*self.feed.live_columns("books", tokens)])))
        waiting = []
        for tokens, asked, answer in self._asked:
            if not answer.done():
                waiting.append((tokens, asked, answer))
                continue
            problem = answer.exception()
            if problem is None:
                parts = answer.result()
                if parts:
                    self.recorder.compare(tokens, joined(parts), asked, _now())
            elif isinstance(problem, MarketDataError):
                self.counts["comparisons that failed"] += 1
            else:
                raise problem
        self._asked = waiting
        if self._listing is None and SYSTEM.monotonic() - self._listed >= LISTED_AGAIN / SECOND:
            self._listing = pool.submit(self.selection.ids)
        if self._listing is not None and self._listing.done():
            listing, self._listing = self._listing, None
            if listing.exception() is None:
                self._choose(listing.result())
            elif isinstance(listing.exception(), MarketDataError):
                self.error, self._listed = str(listing.exception()), SYSTEM.monotonic()
            else:
                listing.result()

    # What is stored

    def _commit(self, got: Recorded) -> None:
        self._uncommitted = got
        if self.raw is not None:
            self.raw.flush()
        withdrawn = {market: union(ranges) for market, ranges in got.withdrawn.items()}
        seen = {market: subtract(ranges, withdrawn.get(market, ())) for market, ranges in got.seen.items()}
        seen = {market: union(ranges) for market, ranges in seen.items() if ranges}
        known = {n: v for n, v in got.prints.values.items() if n in VIEWS["trades"].names or not missing(v).all()}
        parts: dict[View, Data] = {"books": got.books, "trades": distinct(replace(got.prints, values=known))}
        for view, data in parts.items():
            kept = inside(data, seen)
            data = data if kept.all() else data.take(np.flatnonzero(kept))  # noqa: PLW2901
            if withdrawn:
                self.counts[view] += self.store.withdraw(view, withdrawn)
            if seen:
                self.counts[view] += self.store.observe(view, data, seen)
        self._uncommitted = None

    def _report(self, seconds: float) -> Recording:
        messages, self.counts["frames"] = self.counts["frames"] / max(seconds, 1e-3), 0
        at, error, self.error = self.recorder.at, self.error, None
        views: tuple[View, ...] = ("books", "trades")
        disk = sum(file.size for view in views for file in self.store.points[view].version().files)
        return Recording(
            None if at is None else to_datetime(at),
            None if at is None else (_now() - (self.recorder.offset or 0) - at) / SECOND,
            len(self.recorder.markets), self.recorder.known_markets, messages, self.recorder.counts["gaps"],
            self.counts["books"], self.counts["trades"], disk, error,
        )  # fmt: skip


def store_for(store: ArchiveStore, every: str | None) -> ArchiveStore:
    """A store whose base is the width of recorded buckets: that of the archive, by default 1s for a new one."""
    if store.stored_base is None and store.given_base is None:
        store = store.at_base(BucketWidth.of("1s" if every is None else every, "every"))
    base = store.base
    if every is not None and BucketWidth.of(every, "every") != base:
        problem = f"is refused: the archive has base={base.text!r}. Leave it out, or record into a new archive."
        raise ConfigError(problem, argument="every", value=every)
    if base.micros < SECOND:
        raise ConfigError(f"The archive has base={base.text!r}; a stream is recorded at 1s or coarser.")
    return store


def _now() -> int:
    return int(SYSTEM.time() * SECOND)
