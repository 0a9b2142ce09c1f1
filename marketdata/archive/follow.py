"""Keep an archive up to date: repeated pulls until stopped."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from marketdata.archive.pull import Pull
from marketdata.archive.selection import Selection
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
from marketdata.times import SECOND, Range, to_datetime

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
    while not stop.is_set():
        began, run, error, at = SYSTEM.monotonic(), replace(pull, stop=stop), None, None
        try:
            now = run.clock.now
            at = to_datetime(now + run.clock.ahead) if run.clock.is_known else None
            # Time may seem to go back: a Date has whole seconds, and servers behind one address may differ by some.
            is_due = listed is None or abs(now - listed) >= LISTED_AGAIN
            if is_due:
                markets, listed = selection.ids(), now
            run.fill(markets, views, wanted)
            if is_due:
                run.raise_unknown(markets)
        except MarketDataError as problem:
            if not _may_pass(problem, any(map(run.is_stored, markets))):
                raise
            error = problem
        yield Round(at, len(markets), len(run.fetched), run.added, error)
        wait = began + every / SECOND - SYSTEM.monotonic()
        if isinstance(error, RateLimitError) and error.retry_at is not None:
            wait = max(wait, error.retry_at - SYSTEM.time())
        SYSTEM.sleep(wait, stop)


def _may_pass(problem: MarketDataError, any_stored: bool) -> bool:
    """Whether the next round may do better."""
    # A market that disappears does not end the others; a name that never existed is an error at once.
    if isinstance(problem, NotFoundError):
        return any_stored
    if isinstance(problem, AuthenticationError | PlanError | ConfigError):
        return False
    return isinstance(problem, ArchiveBusyError) or not isinstance(problem, ArchiveError)
