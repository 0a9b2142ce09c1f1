"""The ranges of markets with points, by the coverage of the archive, as the start page shows them."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import narwhals.stable.v2 as nw

from marketdata.archive import Archive
from marketdata.archive.coverage.intervals import union
from marketdata.points.views import VIEWS, View
from marketdata.times import Range


class CoverageCache:
    """The ranges with points by the coverage, as of the newest commit of points, which has their coverage too."""

    def __init__(self, source: Archive) -> None:
        self._source: Any = source
        self._lock = threading.Lock()
        self._read = lru_cache(len(VIEWS))(lambda view, _: covered_intervals(self._frame(), view))

    def by_market(self, view: View) -> dict[str, list[Range]]:
        """The covered intervals of every market that has some."""
        with self._lock:
            return self._read(view, self._source.version(view))

    def _frame(self) -> Any:
        """The coverage, of an archive not by way of pandas; other sources need not know kinds of frames."""
        return self._source.coverage(frame="polars") if isinstance(self._source, Archive) else self._source.coverage()


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
