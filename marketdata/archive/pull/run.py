"""A pull: what is missing of a range is planned, fetched, and committed as it arrives."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from marketdata.archive.coverage import policy
from marketdata.archive.coverage.intervals import CoverageState
from marketdata.archive.coverage.policy import Gap, ServerTime
from marketdata.archive.feed import Feed, clock_of
from marketdata.archive.pull.commits import Commits, FetchedRange, Missing, PullReport
from marketdata.archive.pull.plan import LeftOut, PullOptions, PullPlan
from marketdata.archive.query import ALL_TIME
from marketdata.archive.selection import Selection
from marketdata.archive.store import ArchiveStore
from marketdata.display import BUCKETS, progress_bar
from marketdata.errors import ConfigError, NotFoundError, PlanError
from marketdata.points.views import View
from marketdata.times import Range, TimeLike, first_time, to_micros, to_range, to_text

_MOST_LOOKUPS = 10  # each is a request


class Pull:
    """One run over some markets and views; its ``report`` says what it did."""

    def __init__(
        self, store: ArchiveStore, feed: Feed, options: PullOptions, stop: threading.Event | None = None
    ) -> None:
        self.store = self._origin = store
        self.feed, self.options, self.stop = feed, options, stop
        self.report = PullReport()
        self._clock: ServerTime | None = None
        self._plan = self._follow(PullPlan.of(store, options))

    def anew(self, stop: threading.Event) -> Pull:
        """Another run with the same options."""
        return Pull(self._origin, self.feed, self.options, stop)

    @property
    def clock(self) -> ServerTime:
        """The server's time at the beginning of the run, which is asked for once it is needed."""
        if self._clock is None:
            self._clock = clock_of(self.feed)
        return self._clock._replace(width=self.store.base.micros)

    def is_stored(self, market: str) -> bool:
        """Whether the archive has the record of a market."""
        return self.store.catalog["markets"].find(market) is not None

    def run(self, selection: Selection, views: Sequence[View], start: TimeLike, end: TimeLike | None) -> list[str]:
        """Fill the gaps of these markets, then raise NotFoundError if the service does not know some."""
        wanted = wanted_range(start, end)
        markets = selection.ids()
        self.fill(markets, views, wanted)
        self.raise_unknown(markets)
        return markets

    def fill(self, markets: Sequence[str], views: Sequence[View], wanted: Range) -> None:
        """Fill the gaps of the known markets, or with ``dry_run`` list them; what the plan refuses is left out."""
        known = list(filter(self.is_stored, markets))
        plan = self._follow(self._plan._replace(ranges=dict.fromkeys(views, wanted)))
        todo = self._missing(known, plan.ranges)
        if self.options.dry_run:
            self._list(todo, CoverageState.MISSING)
            return
        if todo and (allowed := self._follow(plan.allowed(self.feed, self.options))) != plan:
            plan, todo = allowed, self._missing(known, allowed.ranges)
        while todo:
            try:
                self._fetch(todo, is_base_known=not plan.is_base_open)
                break
            except PlanError as refusal:
                plan = self._follow(self._follow(plan).after(refusal, self.options, self.clock.now))
                todo = self._missing(known, plan.ranges)
        # Recorded at the end, because a record fixes the base of a new archive.
        for left_out in plan.left_out:
            self._leave_out(known, left_out, is_recorded=not self._follow(plan).is_base_open)

    def _follow(self, plan: PullPlan) -> PullPlan:
        """Work at the base of a plan; once something is stored, no plan has another one."""
        if plan.base != self.store.base:
            self.store = self.store.at_base(plan.base)
        return plan._replace(is_base_open=plan.is_base_open and self.store.stored_base is None)

    def raise_unknown(self, markets: Sequence[str]) -> None:
        """NotFoundError for names that were not found, with the service's message and similar names."""
        names = [name for name in markets if not self.is_stored(name)]
        unknown: list[NotFoundError] = []
        for name in names[:_MOST_LOOKUPS]:
            try:
                self.feed.market(name)
            except NotFoundError as problem:
                unknown.append(problem)
        if len(unknown) == 1 == len(names):
            raise unknown[0]
        if unknown:
            problems = " ".join(problem.problem for problem in unknown)
            others = f" And {len(names) - _MOST_LOOKUPS} more." if len(names) > _MOST_LOOKUPS else ""
            raise NotFoundError(f"{len(names)} names are not known; the others were pulled. {problems}{others}")

    def _missing(self, markets: Sequence[str], wanted: Mapping[View, Range]) -> list[Missing]:
        return [
            Missing(view, m, gap) for m in markets for view, rng in wanted.items() for gap in self._gaps(view, m, rng)
        ]

    def _gaps(self, view: View, market: str, wanted: Range) -> list[Gap]:
        width, refresh = self.store.base.micros, self.options.refresh
        records, wanted = self.store.coverage[view].records(market), policy.whole_buckets(wanted, width)
        # Nothing comes after the close: a range beyond it would be asked for again and again, and never be final.
        wanted = Range(wanted.start, min(wanted.end, self._closed_before(market)))
        if wanted.start >= wanted.end:
            return []
        # The server's time is requested only if there may be something to fetch.
        late = ServerTime(max(time.time_ns() // 1000, wanted.end), width=width)
        if self._clock is None and not policy.gaps_to_fetch(records, wanted, late, refresh=refresh):
            return []
        return policy.gaps_to_fetch(records, wanted, self.clock, refresh=refresh)

    def _closed_before(self, market: str) -> int:
        """The end of the last bucket of a market that is over, by the record of the pull; else the end of time."""
        record = self.store.catalog["markets"].find(market) or {}
        times = [first_time(record, name) for name in ("closed_at", "resolved_at")]
        known = [at for at in times if at is not None]
        if record.get("status") not in ("closed", "resolved") or not known:
            return ALL_TIME.end
        return int(self.store.base.floor(max(known) - 1)) + self.store.base.micros

    def _fetch(self, todo: Sequence[Missing], *, is_base_known: bool) -> None:
        if is_base_known:
            self.store.fix_base()  # before another program, while this one waits for answers
        total = sum(gap.end - gap.start for *_, gap in todo) // self.store.base.micros
        requests = [(view, market, gap.range) for view, market, gap in todo]
        with (
            progress_bar(self.options.progress, total=total, desc="pull", **BUCKETS) as bar,
            contextlib.closing(self.feed.iter_columns(requests, self.store.base.text, progress=bar.update)) as arriving,
            Commits(self.store, self.clock, self.report, is_sparse=self.feed.is_sparse) as commits,
        ):
            for k, rng, columns, complete in arriving:
                commits.add(todo[k], rng, columns, complete=complete)
                if self.stop is not None and self.stop.is_set():
                    break

    def _list(self, ranges: Sequence[Missing], state: CoverageState) -> None:
        """Report ranges of which nothing was fetched."""
        base = self.store.base.text
        self.report.fetched += [FetchedRange(view, m, *gap.range, state, None, base) for view, m, gap in ranges]

    def _leave_out(self, markets: Sequence[str], left_out: LeftOut, *, is_recorded: bool) -> None:
        """Report what is left out, and record it where nothing is stored."""
        refused = self._missing(markets, left_out.ranges)
        if not refused:
            return
        self._list(refused, left_out.state)
        ranges: dict[View, dict[str, list[Range]]] = defaultdict(lambda: defaultdict(list))
        for view, market, gap in refused:
            ranges[view][market].append(gap.range)
        for view in sorted(ranges) if is_recorded else ():
            self.store.refuse(view, ranges[view], left_out.state, self.clock.now)
        left_out.warn_of(ranges)


def wanted_range(start: TimeLike | None, end: TimeLike | None = None) -> Range:
    """The range to fill; without a start from now on, without an end up to now by the server's clock."""
    now = time.time_ns() // 1000
    if start is None:
        return Range(now, ALL_TIME.end)
    if end is not None:
        return to_range(start, end)
    first = to_micros(start, "start")
    if first >= now:
        raise ConfigError(f"is not before the present, {to_text(now)}.", argument="start", value=start)
    return Range(first, ALL_TIME.end)
