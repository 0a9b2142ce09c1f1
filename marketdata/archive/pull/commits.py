"""Commits of what arrives in a pull, each with the coverage that the answers show."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Self

import numpy as np

from marketdata.archive.coverage import policy
from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, within
from marketdata.archive.coverage.policy import Gap, ServerTime
from marketdata.archive.store import ArchiveStore
from marketdata.decimals import to_number
from marketdata.points.columns import Books, Data, Ints, joined
from marketdata.points.probability import no_probability
from marketdata.points.views import VIEWS, View
from marketdata.times import Range

# A commit has so many levels, or so many seconds: there are few commits, and little is lost in a crash.
_BATCH_LEVELS = 2_000_000
_BATCH_SECONDS = 3.0
_NO_TIMES = np.empty(0, np.int64)


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


@dataclass
class PullReport:
    """What a pull did: its ranges, and how many points of the archive are new; others were fetched again."""

    fetched: list[FetchedRange] = field(default_factory=list)
    added: int = 0


class Missing(NamedTuple):
    """A gap of a market's view."""

    view: View
    market: str
    gap: Gap


class _Window(NamedTuple):
    """A part of a gap that arrived."""

    of: Missing
    complete: bool
    rng: Range
    times: Ints
    columns: Data


class Commits:
    """Takes in what arrives, and commits it when it is much or old; at its end, what is left."""

    def __init__(self, store: ArchiveStore, clock: ServerTime, report: PullReport, *, is_sparse: bool) -> None:
        self._store, self._clock, self._report, self._is_sparse = store, clock, report, is_sparse
        self._arrived: list[_Window] = []
        self._levels, self._since = 0, time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._commit()

    def add(self, of: Missing, rng: Range, columns: Data, *, complete: bool) -> None:
        """Take in a part of a gap. A part that comes again belongs to another commit."""
        if any(one.of == of and one.rng.start < rng.end and rng.start < one.rng.end for one in self._arrived):
            self._commit()
        width = self._store.base.micros
        self._arrived.append(_Window(of, complete, rng, columns.ts // width * width, columns))
        self._levels += int(columns.counts.sum()) if isinstance(columns, Books) else len(columns)
        if self._levels >= _BATCH_LEVELS or time.monotonic() - self._since >= _BATCH_SECONDS:
            self._commit()
            self._levels, self._since = 0, time.monotonic()

    def _commit(self) -> None:
        """Commit what arrived, of any market and view, each view at once."""
        windows, self._arrived = sorted(self._arrived, key=lambda window: window[:3]), []
        for view, group in itertools.groupby(windows, key=lambda window: window.of.view):
            self._commit_view(view, list(group))

    def _commit_view(self, view: View, windows: list[_Window]) -> None:
        columns: Data = joined([window.columns for window in windows]).sort()
        odd, base = _odd_times(columns), self._store.base.text
        records, fetched = dict[str, list[CoverageRecord]](), list[FetchedRange]()
        for market, answers in itertools.groupby(_together(windows), key=lambda window: window.of.market):
            records[market] = []
            for entry, rows in self._coverage_after(view, market, list(answers)):
                records[market].append(entry)
                count = _count(odd.get(market, _NO_TIMES), entry)
                fetched.append(FetchedRange(view, market, *entry.range, entry.state, rows, base, count))
        self._report.added += self._store.commit(view, columns, records)
        self._report.fetched += fetched

    def _coverage_after(self, view: View, market: str, answers: list[_Window]) -> Iterator[tuple[CoverageRecord, int]]:
        """The ranges of a market for which there is an answer, and how many points each range has."""
        beside = self._stored_beside(view, market, [one.rng for one in answers])
        for one in answers:
            beside += policy.answered(one.rng, one.times, self._clock.width) if one.complete else []
        is_traded, is_sparse = self._is_traded(market), self._is_sparse or not VIEWS[view].is_grid
        for one in answers:
            judged = partial(policy.coverage_after, complete=one.complete, tries=one.of.gap.tries, is_sparse=is_sparse)
            for entry in judged(one.rng, one.times, self._clock, beside=beside, is_traded=is_traded):
                yield entry, _count(one.times, entry)

    def _stored_beside(self, view: View, market: str, fetched: list[Range]) -> list[CoverageRecord]:
        """Stored records near fetched ranges, and outside of them."""
        reach = 2 * policy.SHORTEST_GAP
        near = Range(min(rng.start for rng in fetched) - reach, max(rng.end for rng in fetched) + reach)
        return [
            record
            for record in within(self._store.coverage[view].records(market), near)
            if not any(record.start < rng.end and rng.start < record.end for rng in fetched)
        ]

    def _is_traded(self, market: str) -> bool:
        """Whether the market has a volume, or points of any view, so that an empty answer is not believed."""
        volume = (self._store.catalog["markets"].find(market) or {}).get("volume")
        with contextlib.suppress(ValueError):  # a number of 400 digits tells nothing
            if to_number(volume) > 0:
                return True
        return any(record.rows for stored in self._store.coverage.values() for record in stored.records(market))


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


def _count(times: Ints, entry: CoverageRecord) -> int:
    return int(((times >= entry.start) & (times < entry.end)).sum())


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
