"""Keep an archive up to date: repeated pulls until stopped."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from marketdata.archive.pull import Pull, PullOptions, wanted_range
from marketdata.archive.selection import Selection
from marketdata.archive.store import ArchiveStore
from marketdata.clock import SYSTEM
from marketdata.errors import (
    ArchiveBusyError,
    ArchiveError,
    AuthenticationError,
    ConfigError,
    MarketDataError,
    NotFoundError,
    PlanError,
    RateLimitError,
)
from marketdata.points.views import View
from marketdata.times import SECOND, Range, TimeLike, to_datetime

# Requests stay few: a listing of markets is valid for ten minutes of the server's clock [microseconds].
LISTED_AGAIN = 600 * SECOND


class Round(NamedTuple):
    """The report of a round of `Archive.follow`. ``points`` counts new ones; ``at`` may be unknown (None)."""

    at: dt.datetime | None
    markets: int
    ranges: int
    points: int
    error: MarketDataError | None = None


class Follower:
    """Rounds of a pull without an end."""

    def __init__(
        self, store: ArchiveStore, client: Any, selection: Selection, views: Sequence[View], options: PullOptions
    ) -> None:
        self._store = store
        self._client = client
        self._selection = selection
        self._views = views
        self._options = options
        self._stop = options.stop or threading.Event()
        self._markets: list[str] = []
        self._listed: int | None = None

    def rounds(self, start: TimeLike, every: int) -> Iterator[Round]:
        """One report per round ``every`` [microseconds] until it is stopped; raises what waiting cannot cure."""
        return self._rounds(wanted_range(start, None), every)

    def _rounds(self, wanted: Range, every: int) -> Iterator[Round]:
        while not self._stop.is_set():
            began = SYSTEM.monotonic()
            done = self._round(wanted)
            yield done
            wait = began + every / SECOND - SYSTEM.monotonic()
            if isinstance(done.error, RateLimitError) and done.error.retry_at is not None:
                wait = max(wait, done.error.retry_at - SYSTEM.time())
            SYSTEM.sleep(wait, self._stop)

    def _round(self, wanted: Range) -> Round:
        run, error, at = Pull(self._store, self._client, self._options), None, None
        try:
            at = to_datetime(run.clock.now + run.clock.ahead) if run.clock.is_known else None
            is_new = self._list(run)
            run.fill(self._markets, self._views, wanted)
            if is_new:
                run.raise_unknown(self._markets)
        except MarketDataError as problem:
            if not self._may_pass(problem):
                raise
            error = problem
        return Round(at, len(self._markets), len(run.fetched), run.added, error)

    def _list(self, run: Pull) -> bool:
        """List the markets if that is due; whether it was."""
        now = run.clock.now
        # Time may seem to go back: a Date has whole seconds, and servers behind one address may differ by some.
        is_due = self._listed is None or abs(now - self._listed) >= LISTED_AGAIN
        if is_due:
            self._markets = self._selection.ids()
            self._listed = now
        return is_due

    def _may_pass(self, problem: MarketDataError) -> bool:
        """Whether the next round may do better."""
        if isinstance(problem, NotFoundError):
            # A market that disappears does not end the others; a name that never existed is an error at once.
            return any(self._store.catalog["markets"].find(market) for market in self._markets)
        if isinstance(problem, AuthenticationError | PlanError | ConfigError):
            return False
        return isinstance(problem, ArchiveBusyError) or not isinstance(problem, ArchiveError)
