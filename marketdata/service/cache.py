"""Ranges of history in memory, so that consecutive pages do not read the archive again."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Data, Ints
from marketdata.points.views import VIEWS, View
from marketdata.resolution import Resolution
from marketdata.times import MINUTE, Range

# Points of one chunk, and base points (1m) that one chunk may be made from.
_IS_BOOKS = {view: spec.columns is Books for view, spec in VIEWS.items()}
POINTS = {view: 2_048 if books else 16_384 for view, books in _IS_BOOKS.items()}
BASE_POINTS = {view: 65_536 if books else 1_048_576 for view, books in _IS_BOOKS.items()}
# Memory that the chunks take at most.
CACHE_BYTES = 256 * 2**20
RECHECK_SECONDS = 2.0
Index = NDArray[np.int64]
Intervals = tuple[Ints, Ints]


class ServedArchive(Protocol):
    """What the service requires of an archive."""

    @property
    def location(self) -> str:
        """Folder or address."""
        ...

    @property
    def simulated(self) -> bool:
        """Whether the data is simulated."""
        ...

    def columns(
        self, view: View, market_id: str, rng: Range | None, resolution: Any, token_id: str | None = None
    ) -> Data:
        """Points of a market, sorted."""
        ...

    def stored_ranges(self, view: View, market_id: str, rng: Range) -> list[Range]:
        """Disjoint ranges, in order, outside of which a market has no points."""
        ...

    def records(self, kind: Any) -> list[dict[str, Any]]:
        """Series, events or markets as the interface has them."""
        ...

    def find_market(self, id_or_slug: str) -> dict[str, Any] | None:
        """The record of a market."""
        ...

    def find_token(self, token_id: str) -> tuple[dict[str, Any], str | None] | None:
        """The record of the market of a token, and the token's label."""
        ...

    def version(self, view: Any) -> int:
        """A number that changes with the content."""
        ...

    def coverage(self) -> Any:
        """Which ranges are covered."""
        ...

    def final_stamp(self, view: View, market_id: str, rng: Range) -> str | None:
        """A text that changes with the points of a range that is final, None for one that is not."""
        ...


class Subject(NamedTuple):
    """The history that a series of chunks is of."""

    view: View
    market_id: str
    token_id: str | None
    resolution: Resolution
    tokens: int

    @property
    def chunk_micros(self) -> int:
        """Length of a chunk [microseconds]: whole buckets, more of them for fewer tokens."""
        width = self.resolution.micros
        each = max(1, self.tokens)
        by_points = POINTS[self.view] // each
        by_base = BASE_POINTS[self.view] // each * MINUTE // width
        return max(1, min(by_points, by_base)) * width


@dataclass(frozen=True)
class CachedChunk:
    """Points of a range of whole buckets on a grid from the epoch, of one version, with their time order."""

    columns: Data

    @cached_property
    def order(self) -> Ints:
        """Positions in ``columns`` by time, and by token within a bucket."""
        return np.argsort(self.columns.ts, kind="stable")

    @cached_property
    def _by_bucket(self) -> tuple[Ints, Ints]:
        return np.unique(self.columns.ts[self.order], return_index=True)

    @cached_property
    def buckets(self) -> Ints:
        """Start of every bucket that has a point, rising [microseconds]."""
        return self._by_bucket[0]

    @cached_property
    def edges(self) -> Ints:
        """Bucket i is ``order[edges[i]:edges[i + 1]]``."""
        return np.append(self._by_bucket[1], len(self.columns))

    @cached_property
    def texts(self) -> list[Any]:
        """JSON of each entry once it was served, before that None."""
        return [None] * len(self.columns)

    @property
    def nbytes(self) -> int:
        """Memory with all texts, roughly [bytes]."""
        columns = self.columns
        size = len(columns) * 248 + 2_000
        if isinstance(columns, Books):
            return size + int(columns.counts.sum()) * 32
        return size + sum(v.nbytes for v in columns.values.values())


class ChunkCache:
    """The chunks used last, up to ``max_bytes``; a chunk is read by one thread while others wait for it."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._chunks: OrderedDict[Any, tuple[CachedChunk, int]] = OrderedDict()
        self._loading: dict[Any, Future[CachedChunk]] = {}
        self._lock = threading.Lock()
        self.nbytes = 0
        self.reads = 0

    def get(self, key: Any, read: Callable[[], Data]) -> tuple[CachedChunk, bool]:
        """The chunk of this key, and whether it had to be read."""
        with self._lock:
            if key in self._chunks:
                self._chunks.move_to_end(key)
                return self._chunks[key][0], False
            waiting = self._loading.get(key)
            if waiting is None:
                mine = self._loading[key] = Future()
        if waiting is not None:
            return waiting.result(), False
        try:
            chunk = CachedChunk(read())
        except BaseException as problem:
            mine.set_exception(problem)
            with self._lock:
                del self._loading[key]
            raise
        with self._lock:
            del self._loading[key]
            self._keep(key, chunk)
        mine.set_result(chunk)
        return chunk, True

    def _keep(self, key: Any, chunk: CachedChunk) -> None:
        self.reads += 1
        size = chunk.nbytes
        self._chunks[key] = chunk, size
        self.nbytes += size
        while self.nbytes > self._max_bytes and len(self._chunks) > 1:
            self.nbytes -= self._chunks.popitem(last=False)[1][1]


class _Known(NamedTuple):
    version: int
    good_until: float
    ranges: dict[str, Intervals]


class CoverageCache:
    """Which ranges have points by the coverage, as the start page shows them."""

    # Coverage may change without a commit of points, as by a repair: it is read again a little later.

    def __init__(self, source: ServedArchive, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._clock = clock
        self._lock = threading.Lock()
        self._by_view: dict[View, _Known] = {}

    def warm(self) -> None:
        """Read the coverage for the first request."""
        for view in VIEWS:
            self.by_market(view, self._source.version(view))

    def by_market(self, view: View, version: int) -> dict[str, Intervals]:
        """The covered intervals of every market that has some."""
        with self._lock:
            found = self._by_view.get(view)
            if found is None or found.version != version or self._clock() > found.good_until:
                begun = self._clock()
                ranges = covered_intervals(self._source.coverage(), view)
                took = self._clock() - begun
                good_until = self._clock() + max(RECHECK_SECONDS, 50 * took)
                found = self._by_view[view] = _Known(version, good_until, ranges)
        return found.ranges


def covered_intervals(coverage: Any, view: View) -> dict[str, Intervals]:
    """Merged intervals that may have rows per market, from a coverage frame of any kind."""
    import narwhals.stable.v2 as nw

    frame = nw.from_native(coverage, eager_only=True)
    if not len(frame):
        return {}
    rows = nw.col("rows")
    may_hold = (rows.fill_null(0) > 0) | (rows.is_null() & (nw.col("state").cast(nw.String) != "missing"))
    frame = frame.filter((nw.col("view").cast(nw.String) == view) & may_hold)
    markets = frame["market_id"].cast(nw.String).to_list()
    starts, ends = (_micros(frame[name]) for name in ("start", "end"))
    spans: dict[str, list[tuple[int, int]]] = {}
    for market, start, end in zip(markets, starts.tolist(), ends.tolist(), strict=True):
        spans.setdefault(market, []).append((start, end))
    return {market: _merged(found) for market, found in spans.items()}


def _micros(series: Any) -> Ints:
    values = series.dt.convert_time_zone("UTC").dt.replace_time_zone(None).to_numpy()
    out: Ints = values.astype("datetime64[us]").astype(np.int64)
    return out


def _merged(spans: list[tuple[int, int]]) -> Intervals:
    out: list[list[int]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([start, end])
    pairs = np.array(out, dtype=np.int64)
    return pairs[:, 0], pairs[:, 1]


def chunk_ranges(stored: Sequence[Range], subject: Subject, rng: Range, start: int) -> Iterator[Range]:
    """Chunks that may have points of a range from ``start`` on, in time order; ``stored`` is disjoint and sorted.

    Cells of a grid, so that other ranges have the same; but one whose bucket the range cuts is cut too.
    """
    length, width = subject.chunk_micros, subject.resolution.micros
    at = start // width * width
    for one in stored:
        at = max(at, one.start // width * width)
        while at < min(one.end, rng.end):
            begin = at // length * length
            at = end = begin + length
            if begin < rng.start < end and rng.start % width:
                begin = rng.start
            if begin < rng.end < end and rng.end % width:
                end = rng.end
            yield Range(begin, end)
