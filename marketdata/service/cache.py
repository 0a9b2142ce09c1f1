"""Ranges of history and pages in memory, so that the archive is not read, and no page made, again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from marketdata.points.columns import Books, Data, Ints
from marketdata.points.views import VIEWS, View
from marketdata.resolution import Resolution
from marketdata.times import MINUTE, Range

# Points (token x bucket) of one chunk, as many as some row groups of the archive have: reading a part of one decodes
# all of it. And base points (1m) that one chunk may be made from: one request reads no more at a time.
_IS_BOOKS = {view: spec.columns is Books for view, spec in VIEWS.items()}
POINTS = {view: 4_096 if books else 16_384 for view, books in _IS_BOOKS.items()}
BASE_POINTS = {view: 65_536 if books else 1_048_576 for view, books in _IS_BOOKS.items()}
# Memory that chunks and pages take at most [bytes]: some 30 chunks of books, so of as many markets at once.
CACHE_BYTES = 256 * 2**20


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


class CachedChunk:
    """Points of a range of whole buckets on a grid from the epoch, of one version, with their time order."""

    def __init__(self, columns: Data) -> None:
        self.columns = columns
        # Positions in ``columns`` by time, and by token within a bucket.
        self.order: Ints = np.argsort(columns.ts, kind="stable")
        # Start of every bucket that has a point, rising [microseconds]; bucket i is ``order[edges[i]:edges[i + 1]]``.
        self.buckets, firsts = np.unique(columns.ts[self.order], return_index=True)
        self.edges: Ints = np.append(firsts, len(columns))
        # Memory, roughly [bytes].
        self.nbytes = len(columns) * 128 + 2_000
        if isinstance(columns, Books):
            self.nbytes += int(columns.counts.sum()) * 16
        else:
            self.nbytes += sum(values.nbytes for values in columns.values.values())


class Sized(Protocol):
    """A value of a cache."""

    @property
    def nbytes(self) -> int:
        """Memory [bytes]."""
        ...


S = TypeVar("S", bound=Sized)


class Cache:
    """The values used last, up to ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[Hashable, tuple[Sized, int]] = OrderedDict()
        self._making: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()
        self.nbytes = 0

    def find(self, key: Hashable) -> Any:
        """The value of a key, or None."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def get(self, key: Hashable, make: Callable[[], S]) -> tuple[S, bool]:
        """The value of a key, and whether it had to be made: by one thread, while others wait for it."""
        found = self.find(key)
        if found is not None:
            return found, False
        with self._lock:
            waiting = self._making.get(key)
            if waiting is None:
                own = self._making[key] = Future()
        if waiting is not None:
            return waiting.result(), False
        try:
            made = make()
            self.keep(key, made)
            own.set_result(made)
        except BaseException as problem:
            own.set_exception(problem)
            raise
        finally:
            with self._lock:
                del self._making[key]
        return made, True

    def keep(self, key: Hashable, value: Sized) -> None:
        """Keep a value, and let go of those that were used longest ago."""
        size = value.nbytes
        with self._lock:
            self.nbytes += size - self._kept.pop(key, (value, 0))[1]
            self._kept[key] = value, size
            while self.nbytes > self._max_bytes and len(self._kept) > 1:
                self.nbytes -= self._kept.popitem(last=False)[1][1]


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
