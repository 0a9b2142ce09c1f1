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
from marketdata.errors import (
    ConfigError,
    MarketDataError,
    NotFoundError,
    PlanError,
    PlanWarning,
    ServiceOddityWarning,
    warn,
)
from marketdata.points.columns import Books, Data, Ints, joined
from marketdata.points.views import View
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, SECOND, Range, TimeLike, to_micros, to_text

# A commit is worth its time, and little is lost in a crash: one per so many levels, or after this time [s].
_BATCH_LEVELS = 2_000_000
_BATCH_SECONDS = 3.0


class FetchedRange(NamedTuple):
    """A range [microseconds] that was, or with ``dry_run`` would be, fetched, or that the plan refused."""

    view: View
    market_id: str
    start: int
    end: int
    state: CoverageState
    rows: int | None
    resolution: str


class PullOptions(NamedTuple):
    """How to pull; see `Archive.pull`."""

    resolution: str | None = None
    clamp: bool = False
    dry_run: bool = False
    refresh: bool = False
    progress: bool | None = None
    stop: threading.Event | None = None
    must_have_views: bool = False


@dataclass
class Pull:
    """One run over some markets and views."""

    store: ArchiveStore
    client: Any
    options: PullOptions = PullOptions()  # noqa: RUF009  never changed
    fetched: list[FetchedRange] = field(default_factory=list)
    # Points by which the archive has grown: others were fetched again.
    added: int = 0

    def __post_init__(self) -> None:
        # Whether the base of a new archive may follow what the plan allows.
        self._is_base_open = self.store.stored_base is None and self.store.given_base is None
        if self.options.resolution is not None:
            width = BucketWidth.of(self.options.resolution)
            if self._is_base_open:
                self.store.given_base = width
                self._is_base_open = False
            elif width != self.store.base:
                has = f"is refused: the archive {self.store.root!r} has base={self.store.base.text!r}."
                problem = f"{has} Leave it out, or pull into a new archive."
                raise ConfigError(problem, argument="resolution", value=self.options.resolution)

    @property
    def width(self) -> int:
        """Width of the base [microseconds]."""
        return self.store.base.micros

    def run(self, selection: Selection, views: Sequence[View], start: TimeLike, end: TimeLike | None) -> list[str]:
        """Fill the gaps of these markets, then NotFoundError for those that the service does not know."""
        wanted = wanted_range(start, end)
        markets = selection.ids()
        self.fill(markets, views, wanted)
        self.raise_unknown(markets)
        return markets

    def fill(self, markets: Sequence[str], views: Sequence[View], wanted: Range) -> None:
        """Fill the gaps of the known markets, or with ``dry_run`` list them; what the plan refuses is left out."""
        stored = [market for market in markets if self.store.catalog["markets"].find(market) is not None]
        chosen, whole_range = list(views), wanted
        refused_views: dict[View, PlanError] = {}
        refusals: list[tuple[list[tuple[View, str, Gap]], PlanError]] = []
        while todo := [
            (view, market, gap) for market in stored for view in chosen for gap in self._gaps(view, market, wanted)
        ]:
            if self.options.dry_run:
                missing = CoverageState.MISSING
                self.fetched += [
                    FetchedRange(view, m, *gap.range, missing, None, self.store.base.text) for view, m, gap in todo
                ]
                return
            try:
                self._fetch(todo)
            except PlanError as problem:
                if problem.view in chosen and not self.options.must_have_views:
                    chosen.remove(problem.view)
                    refused_views[problem.view] = problem
                elif (finest := self._finest_allowed(problem)) is not None:
                    self.store.given_base = finest
                    self.__dict__.pop("clock", None)
                    warn(f"The plan allows {finest} at finest, so that is the base of the new archive.", PlanWarning)
                elif (earliest := self._earliest_allowed(problem, wanted)) is not None:
                    early = [(v, m, g._replace(end=min(g.end, earliest))) for v, m, g in todo if g.start < earliest]
                    refusals.append((early, problem))
                    wanted = Range(earliest, wanted.end)
                else:
                    raise
                continue
            break
        # Recorded at the end, because a record fixes the base of a new archive.
        for view, refusal in refused_views.items():
            gaps = [(view, market, gap) for market in stored for gap in self._gaps(view, market, whole_range)]
            refusals.append((gaps, refusal))
        for refused, refusal in refusals:
            self._leave_out(refused, refusal)

    def _finest_allowed(self, problem: PlanError) -> BucketWidth | None:
        """The base for a new archive after a refused resolution; PlanError that says what to do for another archive."""
        if problem.minimum_resolution is None:
            return None
        finest = BucketWidth.of(problem.minimum_resolution)
        if finest.micros <= self.width:
            return None
        if self._is_base_open and self.store.stored_base is None:
            return finest
        _give_hint(
            problem,
            f"The archive {self.store.root!r} has base={self.store.base.text!r}. Pull with resolution="
            f"{finest.text!r} into a new archive.",
        )
        return None

    def _earliest_allowed(self, problem: PlanError, wanted: Range) -> int | None:
        """The start that the plan allows, with ``clamp``; None if the service does not say."""
        if problem.earliest is not None:
            earliest = to_micros(problem.earliest, "earliest")
        elif problem.history_days is not None:
            earliest = self.clock.now - round(problem.history_days * DAY)
        else:
            return None
        start = policy.whole_buckets(Range(earliest, earliest), self.width).start
        if not self.options.clamp:
            _give_hint(problem, f"Pull with clamp=True to start at {to_text(start)}, the earliest time it allows.")
            return None
        return start if wanted.start < start < wanted.end else None

    def _leave_out(self, refused: Sequence[tuple[View, str, Gap]], problem: PlanError) -> None:
        """Record ranges that the plan refused, where nothing is stored, and report them."""
        views = sorted({view for view, _, _ in refused})
        now, width = self.clock.now, self.store.base.text
        for view in views:
            ranges: dict[str, list[Range]] = {}
            for _, market, gap in (one for one in refused if one[0] == view):
                end = min(gap.end, self.clock.edge)
                ranges.setdefault(market, []).append(Range(gap.start, end))
                self.fetched.append(FetchedRange(view, market, gap.start, end, CoverageState.NOT_ALLOWED, None, width))
            # A record would fix the base of a new archive before the plan has said which it allows.
            if not self._is_base_open or self.store.stored_base is not None:
                self.store.refuse(view, ranges, now)
        warn(f"The plan does not allow {', '.join(views)} of a part of this pull: {problem.problem}", PlanWarning)

    def raise_unknown(self, markets: Sequence[str]) -> None:
        """NotFoundError for names that were not found, with the service's message and similar names."""
        names = [m for m in markets if self.store.catalog["markets"].find(m) is None]
        unknown: list[NotFoundError] = []
        most_lookups = 10  # each is a request
        for name in names[:most_lookups]:
            try:
                self.client.market(name)
            except NotFoundError as problem:
                unknown.append(problem)
        if len(unknown) == 1 == len(names):
            raise unknown[0]
        if unknown:
            problems = " ".join(problem.problem for problem in unknown)
            others = f" And {len(names) - most_lookups} more." if len(names) > most_lookups else ""
            raise NotFoundError(f"{len(names)} names are not known; the others were pulled. {problems}{others}")

    def _fetch(self, todo: Sequence[tuple[View, str, Gap]]) -> None:
        if not self._is_base_open:
            self.store.fix_base()  # before another program, while this one waits for answers
        total = sum(gap.end - gap.start for *_, gap in todo) // self.width
        look: dict[str, Any] = {"desc": "pull", "unit": "bucket", "unit_scale": True, "leave": False, "delay": 1.0}
        sink = _Sink(self, todo)
        requests = [(view, market, gap.range) for view, market, gap in todo]
        arriving = self.client.iter_columns(requests, self.store.base.text)
        with contextlib.closing(arriving), progress_bar(self.options.progress, total=total, **look) as bar:
            try:
                for k, done, columns, complete in arriving:
                    sink.add(k, done, columns, complete=complete)
                    bar.update((done.end - done.start) // self.width)
                    if self.options.stop is not None and self.options.stop.is_set():
                        break
            finally:
                sink.commit()

    def _gaps(self, view: View, market: str, wanted: Range) -> list[Gap]:
        records, wanted = self.store.coverage[view].records(market), policy.whole_buckets(wanted, self.width)
        # The server's time is requested only if there may be something to fetch.
        late = ServerTime(max(time.time_ns() // 1000, wanted.end), width=self.width)
        refresh = self.options.refresh
        if "clock" not in self.__dict__ and not policy.gaps_to_fetch(records, wanted, late, refresh=refresh):
            return []
        return policy.gaps_to_fetch(records, wanted, self.clock, refresh=refresh)

    def is_traded(self, market: str) -> bool:
        """Whether the market has a volume, or points of any view: such a market is not believed to be empty."""
        volume = (self.store.catalog["markets"].find(market) or {}).get("volume")
        with contextlib.suppress(TypeError, ValueError):
            if float(volume or 0) > 0:
                return True
        return any(record.rows for stored in self.store.coverage.values() for record in stored.records(market))

    @cached_property
    def clock(self) -> ServerTime:
        """The server's clock, requested once."""
        return server_clock(self.client, self.width)


def _give_hint(problem: PlanError, hint: str) -> None:
    """Say what to do at the end of the message."""
    problem.args = (f"{problem.problem} {hint}",)
    problem.hint = hint


class _Sink:
    """Windows of a pull that arrived, of any market and view, committed together every few seconds or some levels."""

    def __init__(self, run: Pull, todo: Sequence[tuple[View, str, Gap]]) -> None:
        self._run = run
        self._todo = todo
        self._arrived: dict[View, list[tuple[int, bool, Range, Data]]] = {}
        self._levels = 0
        self._since = time.monotonic()

    def add(self, k: int, done: Range, columns: Data, *, complete: bool) -> None:
        """All points of the part ``done`` of the ``k``-th gap."""
        self._arrived.setdefault(self._todo[k][0], []).append((k, complete, done, columns))
        self._levels += int(columns.counts.sum()) if isinstance(columns, Books) else len(columns)
        if self._levels >= _BATCH_LEVELS or time.monotonic() - self._since >= _BATCH_SECONDS:
            self.commit()

    def commit(self) -> None:
        arrived, self._arrived, self._levels = self._arrived, {}, 0
        base = self._run.store.base.text
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
                    beside[self._todo[k][1]] += policy.answered(done, times, self._run.width)
            for k, complete, done, times in answers:
                _, market, gap = self._todo[k]
                for entry in policy.coverage_after(
                    done,
                    times,
                    self._run.clock,
                    complete=complete,
                    tries=gap.tries,
                    beside=beside[market],
                    is_traded=self._run.is_traded(market),
                ):
                    records.setdefault(market, []).append(entry)
                    rows = int(((times >= entry.start) & (times < entry.end)).sum())
                    fetched.append(FetchedRange(view, market, *entry.range, entry.state, rows, base))
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


def wanted_range(start: TimeLike | None, end: TimeLike | None) -> Range:
    """The range to fill; without an end, up to now by the server's clock."""
    first = to_micros(start, "start")
    last = time.time_ns() // 1000 if end is None else to_micros(end, "end")
    if first >= last:
        shown = f"the present ({to_text(last)})" if end is None else f"the end, {to_text(last)}"
        problem = f"is not before {shown}; the start is inclusive and the end exclusive."
        raise ConfigError(problem, argument="start", value=start)
    return Range(first, ALL_TIME.end if end is None else last)
