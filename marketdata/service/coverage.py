"""The ranges of markets with points, by the coverage of the archive, as the start page shows them."""

from __future__ import annotations

import threading
from functools import lru_cache

import polars as pl

from marketdata.archive import Archive
from marketdata.archive.coverage.intervals import union
from marketdata.points.views import VIEWS, View
from marketdata.times import Range


class CoverageCache:
    """The ranges with points by the coverage, as of the newest commit of points, which has their coverage too."""

    def __init__(self, source: Archive) -> None:
        self._source = source
        self._lock = threading.Lock()
        # Not by way of pandas.
        self._read = lru_cache(len(VIEWS))(lambda view, _: covered_intervals(source.coverage(frame="polars"), view))

    def by_market(self, view: View) -> dict[str, list[Range]]:
        """The covered intervals of every market that has some."""
        with self._lock:
            return self._read(view, self._source.version(view))


def covered_intervals(coverage: pl.DataFrame, view: View) -> dict[str, list[Range]]:
    """Disjoint intervals, in order, that may have rows per market."""
    may_have = pl.when(pl.col("rows").is_null()).then(pl.col("state") != "missing").otherwise(pl.col("rows") > 0)
    ranges = coverage.filter(may_have, view=view).select("market_id", pl.col("start", "end").dt.epoch("us"))
    found: dict[str, list[Range]] = {}
    for market, start, end in ranges.iter_rows():
        found.setdefault(market, []).append(Range(start, end))
    return {market: union(ranges) for market, ranges in found.items()}
