"""Fill an archive from a service: fetch only what is missing, and commit what arrives, also before an error."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from marketdata.archive.coverage import policy
from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, within
from marketdata.archive.coverage.policy import MINUTE, Gap, ServerTime
from marketdata.archive.query import ALL_TIME
from marketdata.archive.selection import Selection
from marketdata.archive.store import ArchiveStore
from marketdata.clock import SYSTEM
from marketdata.display import progress_bar
from marketdata.errors import ConfigError, MarketDataError, NotFoundError, ServiceOddityWarning, warn
from marketdata.points.columns import Books, Data, Ints, joined
from marketdata.points.views import View
from marketdata.times import SECOND, Range, TimeLike, to_micros, to_text

# Points that arrived are committed at this many levels, or after this time [s].
_BATCH_LEVELS = 2_000_000
_BATCH_SECONDS = 3.0
# Unknown names that are looked up for similar ones, and named in a message.
_LOOKED_UP = 10
_LISTED = 50


class FetchedRange(NamedTuple):
    """A range [microseconds] that was, or with ``dry_run`` would be, fetched."""

    view: View
    market_id: str
    start: int
    end: int
    state: CoverageState
    rows: int | None


@dataclass
class Pull:
    """One run over some markets and views."""

    store: ArchiveStore
    client: Any
    dry_run: bool = False
    refresh: bool = False
    progress: bool | None = None
    stop: threading.Event | None = None
    fetched: list[FetchedRange] = field(default_factory=list)
    # Points by which the archive has grown: others were fetched again.
    added: int = 0

    def run(self, selection: Selection, views: Sequence[View], wanted: Range) -> list[str]:
        """Fill the gaps of these markets, then NotFoundError for those that the service does not know."""
        markets = selection.ids()
        self.fill(markets, views, wanted)
        self.raise_unknown(markets)
        return markets

    def fill(self, markets: Sequence[str], views: Sequence[View], wanted: Range) -> None:
        """Fill the gaps of the known markets, or with ``dry_run`` list them."""
        known = [m for m in markets if self.store.catalog["markets"].find(m) is not None]
        todo = [(v, m, gap) for m in known for v in views for gap in self._gaps(v, m, wanted)]
        if self.dry_run:
            self.fetched += [
                FetchedRange(view, m, gap.start, gap.end, CoverageState.MISSING, None) for view, m, gap in todo
            ]
        elif todo:
            self._fetch(todo)

    def raise_unknown(self, markets: Sequence[str]) -> None:
        """NotFoundError for names that were not found, with the service's message and similar names."""
        names = [m for m in markets if self.store.catalog["markets"].find(m) is None]
        unknown: list[NotFoundError] = []
        for name in names[:_LOOKED_UP]:
            try:
                self.client.market(name)
            except NotFoundError as problem:
                unknown.append(problem)
        if len(unknown) == 1 == len(names):
            raise unknown[0]
        if unknown:
            more = (
                f" And {len(names) - _LOOKED_UP} more: {', '.join(names[_LOOKED_UP:_LISTED])}."
                if len(names) > _LOOKED_UP
                else ""
            )
            found = " ".join(problem.problem for problem in unknown)
            raise NotFoundError(f"{len(names)} names are not known; the others were pulled. {found}{more}")

    def _fetch(self, todo: Sequence[tuple[View, str, Gap]]) -> None:
        self.store.fix_base()  # before another program, while this one waits for answers
        total = sum(gap.end - gap.start for *_, gap in todo) // MINUTE
        look: dict[str, Any] = {"desc": "pull", "unit": "min", "unit_scale": True, "leave": False, "delay": 1.0}
        sink = _Sink(self, todo)
        arriving = self.client.iter_columns(
            [(view, market, gap.range) for view, market, gap in todo], self.store.base.text
        )
        with contextlib.closing(arriving), progress_bar(self.progress, total=total, **look) as bar:
            try:
                for k, done, columns, complete in arriving:
                    sink.take(k, done, columns, complete=complete)
                    bar.update((done.end - done.start) // MINUTE)
                    if self.stop is not None and self.stop.is_set():
                        break
            finally:
                sink.commit()

    def _gaps(self, view: View, market: str, wanted: Range) -> list[Gap]:
        records = self.store.coverage[view].records(market)
        # The server's time is requested only if there may be something to fetch.
        late = ServerTime(max(time.time_ns() // 1000, wanted.end), width=self.store.base.micros)
        if "clock" not in self.__dict__ and not policy.gaps_to_fetch(records, wanted, late, refresh=self.refresh):
            return []
        return policy.gaps_to_fetch(records, wanted, self.clock, refresh=self.refresh)

    @cached_property
    def clock(self) -> ServerTime:
        """The server's clock, requested once."""
        return server_clock(self.client, self.store.base.micros)


class _Sink:
    """Windows of a pull that arrived, of any market and view, committed together every few seconds or some levels."""

    def __init__(self, run: Pull, todo: Sequence[tuple[View, str, Gap]]) -> None:
        self._run = run
        self._todo = todo
        self._arrived: dict[View, list[tuple[int, bool, Range, Data]]] = {}
        self._levels = 0
        self._since = time.monotonic()

    def take(self, k: int, done: Range, columns: Data, *, complete: bool) -> None:
        """All points of the part ``done`` of the ``k``-th gap."""
        self._arrived.setdefault(self._todo[k][0], []).append((k, complete, done, columns))
        self._levels += int(columns.counts.sum()) if isinstance(columns, Books) else len(columns)
        if self._levels >= _BATCH_LEVELS or time.monotonic() - self._since >= _BATCH_SECONDS:
            self.commit()

    def commit(self) -> None:
        arrived, self._arrived, self._levels = self._arrived, {}, 0
        for view, windows in arrived.items():
            records, fetched = dict[str, list[CoverageRecord]](), list[FetchedRange]()
            # Windows that touch are one interval: their edge means nothing to the service.
            windows.sort(key=lambda w: w[:3])
            ranges: dict[str, list[Range]] = {}
            for k, _, done, _ in windows:
                ranges.setdefault(self._todo[k][1], []).append(done)
            beside = {market: self._beside(view, market, done) for market, done in ranges.items()}
            answers = list(_together(windows))
            for k, complete, done, times in answers:
                if complete:
                    beside[self._todo[k][1]] += policy.answered(done, times, self._run.store.base.micros)
            for k, complete, done, times in answers:
                _, market, gap = self._todo[k]
                for entry in policy.coverage_after(
                    done, times, self._run.clock, complete=complete, tries=gap.tries, beside=beside[market]
                ):
                    records.setdefault(market, []).append(entry)
                    rows = int(((times >= entry.start) & (times < entry.end)).sum())
                    fetched.append(FetchedRange(view, market, *entry.range, entry.state, rows))
            columns: Data = joined([w[3] for w in windows]).sort()
            self._run.added += self._run.store.commit(view, columns, records)
            self._run.fetched += fetched
        self._since = time.monotonic()

    def _beside(self, view: View, market: str, fetched: Sequence[Range]) -> list[CoverageRecord]:
        """Stored records of a market near the fetched ranges, and outside them."""
        first, last = min(r.start for r in fetched), max(r.end for r in fetched)
        near = within(
            self._run.store.coverage[view].records(market),
            Range(first - 2 * policy.SHORTEST_GAP, last + 2 * policy.SHORTEST_GAP),
        )
        return [p for p in near if not any(p.start < r.end and r.start < p.end for r in fetched)]


def _together(windows: Iterable[tuple[int, bool, Range, Data]]) -> Iterator[tuple[int, bool, Range, Ints]]:
    """Sorted windows, those that touch as one, with the times of their points."""
    for (k, complete), group in itertools.groupby(windows, key=lambda w: w[:2]):
        done, times = Range(0, 0), list[Ints]()
        for _, _, rng, columns in group:
            if times and rng.start != done.end:
                yield k, complete, done, np.concatenate(times)
                times = []
            done = Range(done.start if times else rng.start, rng.end)
            times.append(columns.ts)
        yield k, complete, done, np.concatenate(times)


def server_clock(client: Any, width: int = MINUTE) -> ServerTime:
    """The server's time, or the local one if that is earlier; without the server's nothing of the last day is final."""
    here = round(SYSTEM.time() * SECOND)
    try:
        # The Date of an answer is the server's clock; the timestamp of health may be older.
        date = client.server_time() if hasattr(client, "server_time") else None
        there = to_micros(client.health()["timestamp"] if date is None else date, "timestamp")
    except (MarketDataError, KeyError, TypeError):
        return ServerTime(here, width=width, is_known=False)
    ahead = max(0, there - here)
    if ahead > MINUTE:
        warn(
            f"The clock of the service ({to_text(there)}) is {ahead // SECOND} s ahead of the clock of this machine. "
            "The earlier one decides what is final.",
            ServiceOddityWarning,
            hint="Set the clock that is wrong; ranges between the two are requested again.",
        )
    return ServerTime(there - ahead, ahead, width)


def wanted_range(start: TimeLike | None, end: TimeLike | None, width: int = MINUTE) -> Range:
    """The range to fill, in whole buckets; without an end, up to now by the server's clock."""
    first = to_micros(start, "start")
    last = time.time_ns() // 1000 if end is None else to_micros(end, "end")
    if first >= last:
        shown = f"the present ({to_text(last)})" if end is None else f"the end, {to_text(last)}"
        problem = f"is not before {shown}; the start is inclusive and the end exclusive."
        raise ConfigError(problem, argument="start", value=start)
    return policy.whole_buckets(Range(first, ALL_TIME.end if end is None else last), width)
