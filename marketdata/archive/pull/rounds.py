"""Pulls round after round, and the points of each moment of views that have no history."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from marketdata import errors
from marketdata.archive.coverage.intervals import CoverageState
from marketdata.archive.feed import Feed, clock_of
from marketdata.archive.pull.commits import FetchedRange, PullReport
from marketdata.archive.pull.run import Pull
from marketdata.archive.selection import Selection
from marketdata.archive.store import ArchiveStore
from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, MarketDataError, NotFoundError, PlanError
from marketdata.points.columns import Data, Token, joined
from marketdata.points.views import View
from marketdata.times import SECOND, Range, to_datetime

_LASTING_ERRORS = (errors.ArchiveError, errors.AuthenticationError, ConfigError, NotFoundError, PlanError)
# Requests stay few: a listing of markets is valid for ten minutes of the server's clock [microseconds].
LISTED_AGAIN = 600 * SECOND


class Round(NamedTuple):
    """The report of a round of `Archive.follow`. ``points`` counts new ones; ``at`` may be unknown (None)."""

    at: dt.datetime | None
    markets: int
    ranges: int
    points: int
    error: MarketDataError | None = None


def rounds(
    pull: Pull, selection: Selection, views: Sequence[View], wanted: Range, every: int, stop: threading.Event
) -> Iterator[Round]:
    """One report per round ``every`` [microseconds] until it is stopped; raises what waiting cannot cure."""
    markets: list[str] = []
    listed: int | None = None
    live = [view for view in views if view in pull.feed.live_views]
    while not stop.is_set():
        began, run, error, at = SYSTEM.monotonic(), pull.anew(stop), None, None
        there = round(SYSTEM.time() * SECOND)
        try:
            now = run.clock.now
            there = now + run.clock.ahead
            at = to_datetime(there) if run.clock.is_known else None
            # Time may seem to go back: a Date has whole seconds, and servers behind one address may differ by some.
            is_due = listed is None or abs(now - listed) >= LISTED_AGAIN
            if is_due:
                markets, listed = selection.ids(), now
            # First, as its moment passes.
            record_present(run.store, run.feed, list(filter(run.is_stored, markets)), live, run.report)
            run.fill(markets, [view for view in views if view not in live], wanted)
            if is_due:
                run.raise_unknown(markets)
        except MarketDataError as problem:
            if not _may_pass(problem, run, markets):
                raise
            error = problem
        yield Round(at, len(markets), len(run.report.fetched), run.report.added, error)
        since = round((SYSTEM.monotonic() - began) * SECOND)
        wait = _until_next(every, there + since) if live else (every - since) / SECOND
        if isinstance(error, errors.RateLimitError) and error.retry_at is not None:
            wait = max(wait, error.retry_at - SYSTEM.time())
        SYSTEM.sleep(wait, stop)


def _may_pass(problem: MarketDataError, run: Pull, markets: Sequence[str]) -> bool:
    """Whether the next round may repair an error."""
    if isinstance(problem, NotFoundError):  # a market that disappears does not end the others
        return any(map(run.is_stored, markets))
    return not isinstance(problem, _LASTING_ERRORS) or isinstance(problem, errors.ArchiveBusyError)


def _until_next(every: int, now: int) -> float:
    """Time to the middle of the next period [s].

    Near the end of a period a slow answer would leave one bucket out and fill one twice.
    """
    return (every - now % every + every // 2) / SECOND


def record_present(
    store: ArchiveStore, feed: Feed, markets: Sequence[str], views: Sequence[View], report: PullReport
) -> None:
    """Store the points of this moment in the present bucket, for views without a history at the venue.

    A bucket that lacks a token is ``recorded``, not final. A moment without an answer leaves a gap for ever.
    """
    width = store.base.micros
    tokens = {str(token.token_id): token for market in markets for token in _tokens(store, market)}
    for view in views if tokens else ():
        arrived, at = defaultdict[int, list[Data]](list), 0
        try:
            for part in feed.live_columns(view, list(tokens)):
                # By the clock of the venue after the answer, so that no book is in a bucket that ended before it.
                clock = clock_of(feed)
                at = clock.now + clock.ahead
                arrived[at // width * width].append(part)
        finally:  # what has come is stored
            for start, parts in arrived.items():
                _record(store, view, joined(parts), Range(start, start + width), tokens, at, report)


def _record(
    store: ArchiveStore,
    view: View,
    points: Data,
    bucket: Range,
    tokens: Mapping[str, Token],
    at: int,
    report: PullReport,
) -> None:
    """Store points that arrived together in the bucket of their arrival."""
    named = [tokens[str(one.token_id)] for one in points.tokens]
    points = replace(points.with_tokens(named, points.bounds), ts=np.full(len(points), bucket.start)).sort()
    expected = Counter(token.market_id for token in tokens.values())
    report.added += store.record(view, points, bucket, expected, at)
    for market, rows in Counter(points.tokens[code].market_id for code in points.token.tolist()).items():
        state = CoverageState.FINAL if rows == expected[market] else CoverageState.RECORDED
        report.fetched.append(FetchedRange(view, market, *bucket, state, rows, store.base.text))


def _tokens(store: ArchiveStore, market: str) -> list[Token]:
    """The tokens of a stored market."""
    record = store.catalog["markets"].find(market) or {}
    return [Token(market, str(token["id"]), token.get("label")) for token in record.get("tokens") or ()]
