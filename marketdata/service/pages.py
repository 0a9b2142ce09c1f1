"""Pages of history: whole buckets in time order up to a number of points, from chunks of the archive in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Condition
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from cachetools import LRUCache, cached
from fastapi import HTTPException

from marketdata.points.columns import Books, Data, Ints
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range

if TYPE_CHECKING:
    from marketdata.archive.reading import Reader

CACHE_BYTES = 256 * 2**20
_LONGEST_IF_EMPTY = 16  # in lengths of a chunk


class Subject(NamedTuple):
    """The history that a request reads; ``token_id`` is None for all tokens of the market."""

    view: View
    market_id: str
    token_id: str | None
    width: BucketWidth
    tokens: int


def limit_too_small(minimum: int) -> HTTPException:
    """400 of a limit below one bucket of the market."""
    return HTTPException(400, f"limit too small for this market. Minimum required: {minimum}")


class CachedChunk:
    """Points of a range of whole buckets, and their time order."""

    def __init__(self, columns: Data) -> None:
        self.columns = columns
        # Positions in ``columns`` by time, and by token within a bucket.
        self.order: Ints = np.argsort(columns.ts, kind="stable")
        # Start of every bucket that has a point; the points of bucket i are ``order[edges[i]:edges[i + 1]]``.
        self.buckets, firsts = np.unique(columns.ts[self.order], return_index=True)
        self.edges: Ints = np.append(firsts, len(columns))
        values = int(columns.counts.sum()) * 2 if isinstance(columns, Books) else len(columns) * len(columns.values)
        self.nbytes = len(columns) * 128 + values * 8 + 2_000  # roughly


@dataclass(slots=True)
class ServedPage:
    """The points of a page, in time order; the next one begins at ``position`` [microseconds], if it is not None."""

    parts: list[Data] = field(default_factory=list)
    count: int = 0
    position: int | None = None


class Pages:
    """Pages of an archive, from the chunks that were used last."""

    def __init__(self, archive: Reader, *, cache_bytes: int = CACHE_BYTES) -> None:
        self._archive = archive
        chunks: LRUCache[Any, CachedChunk] = LRUCache(cache_bytes, getsizeof=attrgetter("nbytes"))
        # With a condition one thread reads a chunk, and the others wait for it.
        self._chunk = cached(chunks, condition=Condition())(self._read_chunk)

    def page(self, subject: Subject, rng: Range, limit: int, position: int | None = None) -> ServedPage:
        """The page from ``position`` (the start of a bucket) on, with at most ``limit`` points.

        ``rng`` selects base points, which are then aggregated. A bucket that it cuts has a part of its points.
        HTTPException 400 if one bucket has more points than the limit.
        """
        width = subject.width.micros
        first = rng.start // width * width if position is None else position
        page = ServedPage()
        for chunk in self._chunks(subject, rng, max(first, rng.start)):
            low, high = np.searchsorted(chunk.buckets, (first, rng.end)).tolist()
            edges = chunk.edges
            fits = int(np.searchsorted(edges, edges[low] + limit - page.count, side="right")) - 1
            stop = min(fits, high)
            if stop > low:
                page.parts.append(chunk.columns.take(np.sort(chunk.order[edges[low] : edges[stop]])))
                page.count += len(page.parts[-1])
                first = int(chunk.buckets[stop - 1]) + width
            if stop < high:
                if not page.count:
                    raise limit_too_small(int(edges[low + 1] - edges[low]))
                page.position = first
                return page
        return page

    def _chunks(self, subject: Subject, rng: Range, start: int) -> Iterator[CachedChunk]:
        """Chunks of a range from ``start`` on, in time order, where points may be stored.

        They begin on a grid, so that other ranges share them. A chunk is cut where the range cuts one of its buckets.
        """
        version, width = self._archive.version(subject.view), subject.width.micros
        shortest = length = chunk_micros(subject, BucketWidth.of(self._archive.base).micros)
        at = start // width * width
        for stored in self._archive.stored_ranges(subject.view, subject.market_id, rng):
            at = max(at, stored.start // width * width)
            while at < min(stored.end, rng.end):
                begin = at // shortest * shortest
                at = begin + length
                chunk_start = max(begin, rng.start) if rng.start % width else begin
                chunk_end = min(at, rng.end) if rng.end % width else at
                chunk = self._chunk(version, subject, Range(chunk_start, chunk_end))
                # A year that is nearly empty must not take a thousand reads.
                length = shortest if len(chunk.columns) else min(2 * length, _LONGEST_IF_EMPTY * shortest)
                yield chunk

    def _read_chunk(self, _version: int, subject: Subject, rng: Range) -> CachedChunk:
        view, market_id, token_id, width, _ = subject
        return CachedChunk(self._archive.columns(view, market_id, rng, width.text, token_id))


def chunk_micros(subject: Subject, base: int) -> int:
    """Length of a chunk [microseconds]: whole buckets, more of them for fewer tokens.

    It has about as many points as a row group of the archive, because reading a part of one decodes all of it. It has
    a limited number of base points, because one request should not read for seconds.
    """
    points, base_points = (4_096, 65_536) if VIEWS[subject.view].columns is Books else (16_384, 1_048_576)
    tokens, width = max(1, subject.tokens), subject.width.micros
    return max(1, min(points // tokens, base_points // tokens * base // width)) * width
