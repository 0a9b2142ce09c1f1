"""Fill an archive from a service, once or round after round: fetch what is missing, and commit what arrives."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from marketdata import errors
from marketdata.archive.coverage import policy
from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, within
from marketdata.archive.coverage.policy import MINUTE, Gap, ServerTime
from marketdata.archive.feed import Feed
from marketdata.archive.query import ALL_TIME
from marketdata.archive.selection import Selection
from marketdata.archive.store import ArchiveStore
from marketdata.clock import SYSTEM
from marketdata.decimals import to_number
from marketdata.display import BUCKETS, progress_bar
from marketdata.errors import ConfigError, ExpiredError, MarketDataError, NotFoundError, PlanError, PlanWarning, warn
from marketdata.points.columns import Books, Data, Ints, Token, joined, no_probability
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, SECOND, Range, TimeLike, first_time, to_datetime, to_micros, to_range, to_text

# One commit per this many levels, or after this time [s]: few commits, and little is lost in a crash.
_BATCH_LEVELS = 2_000_000
_BATCH_SECONDS = 3.0
_NO_TIMES = np.empty(0, np.int64)


_LASTING_ERRORS = (errors.ArchiveError, errors.AuthenticationError, ConfigError, NotFoundError, PlanError)
# Requests stay few: a listing of markets is valid for ten minutes of the server's clock [microseconds].
LISTED_AGAIN = 600 * SECOND


class FetchedRange(NamedTuple):
    """A range [microseconds] that was fetched (with ``dry_run``: would be fetched), or that the plan refused.

    ``odd`` counts its prices outside of 0 to 1, which were kept as they came.
    """

    view: View
    market_id: str
    start: int
    end: int
    state: CoverageState
    rows: int | None
    resolution: str
    odd: int | None = None


class Round(NamedTuple):
    """The report of a round of `Archive.follow`. ``points`` counts new ones; ``at`` may be unknown (None)."""

    at: dt.datetime | None
    markets: int
    ranges: int
    points: int
    error: MarketDataError | None = None


Missing = tuple[View, str, Gap]  # a gap of a market's view


class _Window(NamedTuple):
    """A part of a gap that arrived."""

    of: Missing
    complete: bool
    rng: Range
    times: Ints
    columns: Data


@dataclass
class Pull:
    """One run over some markets and views, with the options of `Archive.pull`."""

    store: ArchiveStore
    client: Feed
    resolution: str | None = None
    clamp: bool = False
    dry_run: bool = False
    refresh: bool = False
    progress: bool | None = None
    stop: threading.Event | None = None
    must_have_views: bool = False
    fetched: list[FetchedRange] = field(default_factory=list, init=False)
    # New points of the archive; other points were fetched again.
    added: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        # Whether the base of a new archive may follow what the plan allows.
        self._is_base_open = self.store.stored_base is None and self.store.given_base is None
        if self.resolution is not None:
            width = BucketWidth.of(self.resolution)
            if self._is_base_open:
                self.store.given_base = width
                self._is_base_open = False
            elif width != self.store.base:
                problem = f"is refused. {self._stored_base} Leave it out, or pull into a new archive."
                raise ConfigError(problem, argument="resolution", value=self.resolution)

    @property
    def _stored_base(self) -> str:
        return f"The archive {self.store.root!r} has base={self.store.base.text!r}."

    @property
    def width(self) -> int:
        """Width of the base [microseconds]."""
        return self.store.base.micros

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
        """Fill the gaps of the known markets, or with ``dry_run`` list them; what the plan refuses is left out.

        What ``usage`` does not say, such as the views, is learned from refusals, and the plan may change meanwhile.
        Each refusal takes something away from the request, so that there are few.
        """
        stored = list(filter(self.is_stored, markets))
        if stored and self._may_choose_base and not self.dry_run:
            widths = map(BucketWidth.of, self.client.resolutions())
            self._choose_base(next((width for width in widths if width.micros >= self.width), self.store.base))
        allowed = dict.fromkeys(views, wanted)
        refused: list[tuple[dict[View, Range], PlanError]] = []
        while todo := self._missing(stored, allowed):
            if self.dry_run:
                self.fetched += [self._row(view, m, gap.range, CoverageState.MISSING) for view, m, gap in todo]
                return
            try:
                self._fetch(todo)
                break
            except PlanError as problem:
                refused.append((self._refused_by(problem, allowed), problem))
        # Recorded at the end, because a record fixes the base of a new archive.
        for ranges, refusal in refused:
            self._leave_out(self._missing(stored, ranges), refusal)

    def record_now(self, markets: Sequence[str], views: Sequence[View]) -> None:
        """Store the points of this moment in the present bucket, for views without a history at the venue.

        A bucket that lacks a token is ``recorded``, not final. A moment without an answer leaves a gap for ever.
        """
        known = [token for market in filter(self.is_stored, markets) for token in self._tokens(market)]
        tokens = {str(token.token_id): token for token in known}
        for view in views if tokens else ():
            arrived, at = defaultdict[int, list[Data]](list), 0
            try:
                for part in self.client.live_columns(view, list(tokens)):
                    # By the clock of the venue after the answer, so that no book is in a bucket that ended before it.
                    clock = self._read_clock()
                    at = clock.now + clock.ahead
                    arrived[at // self.width * self.width].append(part)
            finally:  # what has come is stored
                for start, parts in arrived.items():
                    self._record(view, joined(parts), Range(start, start + self.width), tokens, at)

    def _record(self, view: View, points: Data, bucket: Range, tokens: Mapping[str, Token], at: int) -> None:
        """Store points that arrived together in the bucket of their arrival."""
        named = [tokens[str(one.token_id)] for one in points.tokens]
        points = replace(points.with_tokens(named, points.bounds), ts=np.full(len(points), bucket.start)).sort()
        expected = Counter(token.market_id for token in tokens.values())
        self.added += self.store.record(view, points, bucket, expected, at)
        for market, rows in Counter(points.tokens[code].market_id for code in points.token.tolist()).items():
            state = CoverageState.FINAL if rows == expected[market] else CoverageState.RECORDED
            self.fetched.append(self._row(view, market, bucket, state, rows))

    def _tokens(self, market: str) -> list[Token]:
        """The tokens of a stored market."""
        record = self.store.catalog["markets"].find(market) or {}
        return [Token(market, str(token["id"]), token.get("label")) for token in record.get("tokens") or ()]

    def _refused_by(self, problem: PlanError, allowed: dict[View, Range]) -> dict[View, Range]:
        """The ranges that an error refuses, which are taken from those that are ``allowed``; else the error itself.

        A plan may lack a view, or the base of a new archive, which is then the finest that it has. A part of a range is
        left out if the venue no longer keeps it, or with ``clamp``.
        """
        view: Any = problem.view
        is_expired = isinstance(problem, ExpiredError)
        if view in allowed and not is_expired and not self.must_have_views:
            return {view: allowed.pop(view)}
        if (finest := self._finest_allowed(problem)) is not None:
            self._choose_base(finest)
            return {}
        chosen = [view] if is_expired and view in allowed else list(allowed)
        earliest = self._earliest_allowed(problem, allowed[chosen[0]])
        if earliest is None:
            raise problem
        out = {one: Range(allowed[one].start, earliest) for one in chosen}
        allowed.update({one: Range(earliest, allowed[one].end) for one in chosen})
        return out

    def _missing(self, markets: Sequence[str], wanted: Mapping[View, Range]) -> list[Missing]:
        return [(view, m, gap) for m in markets for view, rng in wanted.items() for gap in self._gaps(view, m, rng)]

    def _row(
        self, view: View, market: str, rng: Range, state: CoverageState, rows: int | None = None, odd: int | None = None
    ) -> FetchedRange:
        return FetchedRange(view, market, *rng, state, rows, self.store.base.text, odd)

    @property
    def _may_choose_base(self) -> bool:
        """Whether nothing is stored yet, and nobody has said at which base."""
        return self._is_base_open and self.store.stored_base is None

    def _choose_base(self, finest: BucketWidth) -> None:
        """Take the finest width that the plan allows as the base of the new archive, if it has another one."""
        if finest != self.store.base:
            self.store.given_base = finest
            self.__dict__.pop("clock", None)
            warn(f"The plan allows {finest} at finest, so that is the base of the new archive.", PlanWarning)

    def _finest_allowed(self, problem: PlanError) -> BucketWidth | None:
        """The base for a new archive after a refused resolution; an existing archive gives the error a hint."""
        if problem.minimum_resolution is None:
            return None
        finest = BucketWidth.of(problem.minimum_resolution)
        if finest.micros <= self.width:
            return None
        if self._may_choose_base:
            return finest
        _give_hint(problem, f"{self._stored_base} Pull with resolution={finest.text!r} into a new archive.")
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
        if not (self.clamp or isinstance(problem, ExpiredError)):
            _give_hint(problem, f"Pull with clamp=True to start at {to_text(start)}, the earliest time it allows.")
            return None
        if isinstance(problem, ExpiredError) and start >= wanted.end > wanted.start:
            return wanted.end
        return start if wanted.start < start < wanted.end else None

    def _leave_out(self, refused: Sequence[Missing], problem: PlanError) -> None:
        """Record ranges that the plan refused, or the venue no longer keeps, where nothing is stored; report them."""
        if not refused:
            return
        is_expired = isinstance(problem, ExpiredError)
        state = CoverageState.EXPIRED if is_expired else CoverageState.NOT_ALLOWED
        views = sorted({view for view, _, _ in refused})
        self.fetched += [self._row(view, m, gap.range, state) for view, m, gap in refused]
        # A record would fix the base of a new archive before the plan has said which it allows.
        for view in views if not self._may_choose_base else ():
            ranges: dict[str, list[Range]] = defaultdict(list)
            for _, market, gap in (one for one in refused if one[0] == view):
                ranges[market].append(gap.range)
            self.store.refuse(view, ranges, state, self.clock.now)
        why = "The venue no longer keeps" if is_expired else "The plan does not allow"
        warn(f"{why} {', '.join(views)} of a part of this pull: {problem.problem}", PlanWarning)

    def raise_unknown(self, markets: Sequence[str]) -> None:
        """NotFoundError for names that were not found, with the service's message and similar names."""
        names = [name for name in markets if not self.is_stored(name)]
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

    def _fetch(self, todo: Sequence[Missing]) -> None:
        if not self._is_base_open:
            self.store.fix_base()  # before another program, while this one waits for answers
        total = sum(gap.end - gap.start for *_, gap in todo) // self.width
        requests = [(view, market, gap.range) for view, market, gap in todo]
        arrived: list[_Window] = []
        levels, since = 0, time.monotonic()
        with contextlib.ExitStack() as stack:
            bar = stack.enter_context(progress_bar(self.progress, total=total, desc="pull", **BUCKETS))
            arriving = self.client.iter_columns(requests, self.store.base.text, progress=bar.update)
            stack.enter_context(contextlib.closing(arriving))
            try:
                for k, rng, columns, complete in arriving:
                    window = _Window(todo[k], complete, rng, columns.ts // self.width * self.width, columns)
                    again = (one for one in arrived if one.of == window.of)
                    if any(one.rng.start < rng.end and rng.start < one.rng.end for one in again):
                        batch, arrived = arrived, []  # what comes again is of another commit
                        self._commit(batch)
                    arrived.append(window)
                    levels += int(columns.counts.sum()) if isinstance(columns, Books) else len(columns)
                    if levels >= _BATCH_LEVELS or time.monotonic() - since >= _BATCH_SECONDS:
                        batch, arrived = arrived, []
                        self._commit(batch)
                        levels, since = 0, time.monotonic()
                    if self.stop is not None and self.stop.is_set():
                        break
            finally:
                self._commit(arrived)

    def _commit(self, windows: list[_Window]) -> None:
        """Commit windows of any market and view, each view at once."""
        windows.sort(key=lambda window: window[:3])
        for view, group in itertools.groupby(windows, key=lambda window: window.of[0]):
            several, records, fetched = list(group), dict[str, list[CoverageRecord]](), list[FetchedRange]()
            columns: Data = joined([window.columns for window in several]).sort()
            odd = _odd_times(columns)
            for market, answers in itertools.groupby(_together(several), key=lambda window: window.of[1]):
                records[market] = []
                for entry, rows in self._coverage_after(view, market, list(answers)):
                    records[market].append(entry)
                    times = odd.get(market, _NO_TIMES)
                    count = int(((times >= entry.start) & (times < entry.end)).sum())
                    fetched.append(self._row(view, market, entry.range, entry.state, rows, count))
            self.added += self.store.commit(view, columns, records)
            self.fetched += fetched

    def _coverage_after(self, view: View, market: str, answers: list[_Window]) -> Iterator[tuple[CoverageRecord, int]]:
        """The ranges of a market for which there is an answer, and how many points each range has."""
        first, last = min(one.rng.start for one in answers), max(one.rng.end for one in answers)
        near = Range(first - 2 * policy.SHORTEST_GAP, last + 2 * policy.SHORTEST_GAP)
        # Stored records near the fetched ranges, and outside them.
        beside = [
            record
            for record in within(self.store.coverage[view].records(market), near)
            if not any(record.start < one.rng.end and one.rng.start < record.end for one in answers)
        ]
        for one in answers:
            beside += policy.answered(one.rng, one.times, self.width) if one.complete else []
        is_traded, is_sparse = self._is_traded(market), self.client.is_sparse or not VIEWS[view].is_grid
        for one in answers:
            judged = partial(policy.coverage_after, complete=one.complete, tries=one.of[2].tries, is_sparse=is_sparse)
            for entry in judged(one.rng, one.times, self.clock, beside=beside, is_traded=is_traded):
                yield entry, int(((one.times >= entry.start) & (one.times < entry.end)).sum())

    def _gaps(self, view: View, market: str, wanted: Range) -> list[Gap]:
        records, wanted = self.store.coverage[view].records(market), policy.whole_buckets(wanted, self.width)
        # Nothing comes after the close: a range beyond it would be asked for again and again, and never be final.
        wanted = Range(wanted.start, min(wanted.end, self._closed_before(market)))
        if wanted.start >= wanted.end:
            return []
        # The server's time is requested only if there may be something to fetch.
        late = ServerTime(max(time.time_ns() // 1000, wanted.end), width=self.width)
        if "clock" not in self.__dict__ and not policy.gaps_to_fetch(records, wanted, late, refresh=self.refresh):
            return []
        return policy.gaps_to_fetch(records, wanted, self.clock, refresh=self.refresh)

    def _closed_before(self, market: str) -> int:
        """The end of the last bucket of a market that is over, by the record of the pull; else the end of time."""
        record = self.store.catalog["markets"].find(market) or {}
        times = [first_time(record, name) for name in ("closed_at", "resolved_at")]
        known = [at for at in times if at is not None]
        if record.get("status") not in ("closed", "resolved") or not known:
            return ALL_TIME.end
        return int(self.store.base.floor(max(known) - 1)) + self.width

    def _is_traded(self, market: str) -> bool:
        """Whether the market has a volume, or points of any view, so that an empty answer is not believed."""
        volume = (self.store.catalog["markets"].find(market) or {}).get("volume")
        with contextlib.suppress(ValueError):  # a number of 400 digits tells nothing
            if to_number(volume) > 0:
                return True
        return any(record.rows for stored in self.store.coverage.values() for record in stored.records(market))

    @cached_property
    def clock(self) -> ServerTime:
        """The server's time at the beginning of the run."""
        return self._read_clock()

    def _read_clock(self) -> ServerTime:
        """The server's time, or the local time if earlier; without a server's time nothing of the last day is final."""
        here = round(SYSTEM.time() * SECOND)
        try:
            # The Date of an answer is the server's clock; the timestamp of health may be older.
            date = self.client.server_time()
            there = to_micros(self.client.health()["timestamp"] if date is None else date, "timestamp")
        except (MarketDataError, KeyError, TypeError):
            return ServerTime(here, width=self.width, is_known=False)
        ahead = max(0, there - here)
        if ahead > MINUTE:
            warn(
                f"The clock of the service ({to_text(there)}) is {ahead // SECOND} s ahead of the clock of this "
                "machine. The earlier one decides what is final.",
                errors.ServiceOddityWarning,
                hint="Set the clock that is wrong; ranges between the two are requested again.",
            )
        return ServerTime(there - ahead, ahead, self.width)


def _give_hint(problem: PlanError, hint: str) -> None:
    """Say what to do at the end of the message."""
    problem.args = (f"{problem.problem} {hint}",)
    problem.hint = hint


def _together(windows: Iterable[_Window]) -> Iterator[_Window]:
    """Sorted windows. Touching ones are joined, because their edge means nothing to the service."""
    runs: list[list[_Window]] = []
    for window in windows:
        if not runs or runs[-1][-1][:2] != window[:2] or runs[-1][-1].rng.end != window.rng.start:
            runs.append([])
        runs[-1].append(window)
    for run in runs:
        rng = Range(run[0].rng.start, run[-1].rng.end)
        yield run[0]._replace(rng=rng, times=np.concatenate([window.times for window in run]))


def _odd_times(columns: Data) -> dict[str, Ints]:
    """By market the times of points with a price outside of 0 to 1; of books, at any level."""
    if isinstance(columns, Books):
        price, _ = columns.levels()
        of_book = np.repeat(np.arange(len(columns)), columns.counts.reshape(-1, 2).sum(axis=1))
        at = np.unique(of_book[no_probability(price)])
    else:
        prices = [columns.values[name] for name in ("price", "best_bid", "best_ask") if name in columns.values]
        at = np.flatnonzero(np.any([no_probability(price) for price in prices], axis=0)) if prices else np.empty(0, int)
    odd = columns.take(at)
    markets = np.array([odd.tokens[code].market_id for code in odd.token.tolist()], object)
    return {market: odd.ts[markets == market] for market in set(markets.tolist())}


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


def rounds(
    pull: Pull, selection: Selection, views: Sequence[View], wanted: Range, every: int, stop: threading.Event
) -> Iterator[Round]:
    """One report per round ``every`` [microseconds] until it is stopped; raises what waiting cannot cure."""
    markets: list[str] = []
    listed: int | None = None
    live = [view for view in views if view in pull.client.live_views]
    while not stop.is_set():
        began, run, error, at = SYSTEM.monotonic(), replace(pull, stop=stop), None, None
        there = round(SYSTEM.time() * SECOND)
        try:
            now = run.clock.now
            there = now + run.clock.ahead
            at = to_datetime(now + run.clock.ahead) if run.clock.is_known else None
            # Time may seem to go back: a Date has whole seconds, and servers behind one address may differ by some.
            is_due = listed is None or abs(now - listed) >= LISTED_AGAIN
            if is_due:
                markets, listed = selection.ids(), now
            run.record_now(markets, live)  # first, as its moment passes
            run.fill(markets, [view for view in views if view not in live], wanted)
            if is_due:
                run.raise_unknown(markets)
        except MarketDataError as problem:
            # A market that disappears does not end the others; a name that never existed is an error at once.
            may_pass = not isinstance(problem, _LASTING_ERRORS) or isinstance(problem, errors.ArchiveBusyError)
            is_known = isinstance(problem, NotFoundError) and any(map(run.is_stored, markets))
            if not (may_pass or is_known):
                raise
            error = problem
        yield Round(at, len(markets), len(run.fetched), run.added, error)
        wait = began + every / SECOND - SYSTEM.monotonic()
        if live:  # in the middle of a period: near its end a slow answer would leave one bucket out and fill one twice
            # But not twice in one: a sleep may end a little early.
            there += round((SYSTEM.monotonic() - began) * SECOND)
            wait = (every - there % every + (every // 2)) / SECOND
        if isinstance(error, errors.RateLimitError) and error.retry_at is not None:
            wait = max(wait, error.retry_at - SYSTEM.time())
        SYSTEM.sleep(wait, stop)
