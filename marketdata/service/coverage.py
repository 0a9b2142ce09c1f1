"""Which ranges of markets have points by the coverage of the archive, as the start page shows them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals.stable.v2 as nw

from marketdata.archive.coverage.intervals import union
from marketdata.points.views import View
from marketdata.times import Range

if TYPE_CHECKING:
    from marketdata.archive import Archive

# How long coverage is used before it is read again: at least [s], and as a multiple of the time that reading took.
RECHECK_SECONDS, RECHECK_FACTOR = 2.0, 50


class _Known(NamedTuple):
    version: int
    good_until: float
    ranges: dict[str, list[Range]]


class CoverageCache:
    """Which ranges have points by the coverage."""

    # Coverage may change without a commit of points, as by a repair: it is read again a little later.

    def __init__(self, source: Archive, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._by_view: dict[View, _Known] = {}

    def by_market(self, view: View, version: int) -> dict[str, list[Range]]:
        """The covered intervals of every market that has some."""
        with self._lock:
            found = self._by_view.get(view)
            if found is None or found.version != version or self._clock() > found.good_until:
                begun = self._clock()
                ranges = covered_intervals(self._source.coverage(), view)
                good_until = self._clock() + max(RECHECK_SECONDS, RECHECK_FACTOR * (self._clock() - begun))
                found = self._by_view[view] = _Known(version, good_until, ranges)
        return found.ranges


def covered_intervals(coverage: Any, view: View) -> dict[str, list[Range]]:
    """Disjoint intervals, in order, that may have rows per market, from a coverage frame of any kind."""
    rows = nw.col("rows")
    may_have = (rows.fill_null(0) > 0) | (rows.is_null() & (nw.col("state").cast(nw.String) != "missing"))
    frame = nw.from_native(coverage, eager_only=True).filter((nw.col("view").cast(nw.String) == view) & may_have)
    columns = frame["market_id"].cast(nw.String), *(frame[name].dt.timestamp("us") for name in ("start", "end"))
    found: dict[str, list[Range]] = {}
    for market, start, end in zip(*(column.to_list() for column in columns), strict=True):
        found.setdefault(market, []).append(Range(start, end))
    return {market: union(ranges) for market, ranges in found.items()}
