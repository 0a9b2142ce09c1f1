"""Ranges cut into chunks that workers request at once, as wide as the pages received so far suggest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np

from marketdata.fetch.reader import Chunk, Fetched, merged
from marketdata.fetch.windows import MarketInfo, Spans, Window
from marketdata.points.columns import Page
from marketdata.times import Range
from marketdata.wire.models import LARGEST_LIMIT

# A chunk stays in memory, and a failed page costs the whole chunk.
MAX_CHUNK_PAGES = 16


class Stream:
    """The range of one market or token: first one chunk, which idle workers divide.

    ``chunks`` are all that is not yielded, in time order; each waits, is requested, or is fetched. ``spans`` estimates
    how many buckets a page has.
    """

    def __init__(self, window: Window, info: MarketInfo) -> None:
        self.window = window
        self.chunks = [Chunk(window)]
        self._labels = info.labels(window)
        self._active = info.active_range(window)
        self.spans = Spans(self._labels or 2, window.limit)
        self._in_time: bool | None = None  # None until pages show it
        self._overfetched = 0.0  # in pages, by complete chunks

    @property
    def done(self) -> int:
        """The time before which the stream is complete."""
        return next((chunk.window.rng.start for chunk in self.chunks if chunk.fetched is None), self.window.rng.end)

    @property
    def overfetch(self) -> float:
        """Expected partly filled last pages; the end of the range does not count."""
        ends = [chunk.window.rng.end for chunk in self.chunks if chunk.fetched is None]
        return self._overfetched + self.spans.expected_overfetch * sum(end < self.window.rng.end for end in ends)

    def pages(self, rng: Range) -> float:
        """The expected number of pages of a range; only buckets of the active range count."""
        width = self.window.resolution.micros
        start, end = max(rng.start, self._active.start), min(rng.end, self._active.end)
        return max(0, -(-end // width) - start // width) / self.spans.buckets

    def add_page(self, chunk: Chunk) -> bool:
        """Take in the last page of a chunk; whether all points of the chunk have arrived, whatever cursor follows."""
        self._add_span(chunk)
        if chunk.max_pages is None:
            return False
        pages = chunk.pages
        order = _in_time(pages[-2:] if self._in_time else pages, is_one=self._labels == 1)
        self._in_time = order if self._in_time is None else self._in_time
        if self._in_time and order is not False:
            chunk.pages_in_order = len(pages)
            return self._rest(chunk).start == chunk.window.rng.end
        if order is False or (len(pages) > 1 and self.pages(self._rest(chunk)) > MAX_CHUNK_PAGES):
            chunk.max_pages = len(pages)  # without time order, chunks cannot be divided
        return False

    def _add_span(self, chunk: Chunk) -> None:
        """Take in how many buckets the last page of a chunk spans, from the page before or the first point."""
        width, (first, end), ts = self.window.resolution.micros, chunk.window.rng, chunk.pages[-1].columns.ts
        is_full = bool(chunk.pages[-1].next_cursor)
        if len(chunk.pages) > 1:
            first = int(chunk.pages[-2].columns.ts.max(initial=first)) + width
        last = int(ts.max(initial=first)) + width if len(ts) else first
        if not is_full:
            last = min(end, max(last, self._active.end))
        if len(ts) and (first > ts.min() or not self.spans.pages):
            first = int(ts.min())
        self.spans.add(np.unique(ts, return_counts=True)[1], max(1, (last - first) // width), is_full=is_full)

    def remaining_pages(self, chunk: Chunk) -> float:
        """The number of pages of a chunk not received yet; 0 if it is requested and cannot be divided."""
        if chunk.is_requested and (chunk.max_pages is None or chunk.fetched is not None or self._in_time is False):
            return 0
        rest = self._rest(chunk)
        if chunk.pages and rest.start == chunk.window.rng.start:
            return 0
        if chunk.pages and self._in_time is None:
            # Until pages show their order, only a first page with several tokens suggests it.
            is_first = len(chunk.pages) == 1 and chunk.window.rng.start == self.window.rng.start
            if not is_first or len(chunk.pages[0].columns.tokens) < min(2, self._labels or 2):
                return 0
        return self.pages(rest)

    def _rest(self, chunk: Chunk) -> Range:
        """The range of a chunk after its received pages, if they are in time order, from an incomplete bucket on."""
        start, end = chunk.window.rng
        pages = chunk.pages[: chunk.pages_in_order or None]
        last = max((int(page.columns.ts.max(initial=start)) for page in pages), default=start)
        if pages and self._in_time:
            points = np.count_nonzero(pages[-1].columns.ts == last)
            if points == (self._labels or max(2, len(pages[-1].labels))):
                last = chunk.window.first(last, 1).rng.end
        return Range(min(last, end), end)

    def request(self, chunk: Chunk, parts: int) -> None:
        """Mark a chunk as requested; all but the first of ``parts`` is left to other workers."""
        chunk.is_requested = True
        chunk.max_pages = MAX_CHUNK_PAGES if self._in_time is not False else None
        # The first request has no end, so that it finds the first point.
        if self.spans.pages:
            self.divide(chunk, parts)

    def divide(self, chunk: Chunk, parts: int) -> None:
        """Leave all but the first of ``parts`` of a chunk to other workers."""
        rest = self._rest(chunk)
        remaining = self.pages(rest)
        # A cut overfetches half a page on average, so a chunk has at least two.
        pages = max(2, math.ceil(remaining / max(1, parts)))
        if parts > 1 or self._in_time is False:  # without time order, one failed page costs the chunk
            pages = min(pages, MAX_CHUNK_PAGES)
        end = self.window.first(max(rest.start, self._active.start), self.spans.width(pages)).rng.end
        if pages < remaining and end < rest.end:
            self.chunks.insert(self.chunks.index(chunk) + 1, Chunk(replace(self.window, rng=Range(end, rest.end))))
            chunk.window = replace(chunk.window, rng=Range(chunk.window.rng.start, end))

    def receive(self, chunk: Chunk, fetched: Fetched | None) -> Fetched | None:
        """Take in a chunk; if ``fetched`` is None, keep its pages in time order, and request the rest again."""
        (start, end), page = chunk.window.rng, self.spans.page
        if fetched is not None:
            if end < self.window.rng.end and chunk.pages:
                self._overfetched += max(0.0, 1 - np.count_nonzero(chunk.pages[-1].columns.ts < end) / page)
        else:
            received = chunk.collected(chunk.pages[: chunk.pages_in_order]) if chunk.pages_in_order else None
            reached = self._rest(chunk).start if received is not None and received.complete else start
            at, rest = self.chunks.index(chunk), Chunk(replace(chunk.window, rng=Range(reached, end)))
            if received is None or reached == start:
                self._in_time = False
                self.chunks[at] = rest
                return None
            if reached < end:
                self.chunks.insert(at + 1, rest)
            self._overfetched += np.count_nonzero(received.columns.ts >= reached) / page
            fetched = received.within(Range(start, reached))
            chunk.window = fetched.window
        chunk.fetched = fetched
        return fetched

    def pop(self, end: int) -> list[Fetched]:
        """Remove and return the points before ``end``, up to which all is complete."""
        out: list[Fetched] = []
        for chunk in self.chunks:
            start, last = chunk.window.rng
            if chunk.fetched is not None and start < end:
                out.append(chunk.fetched.within(Range(start, min(end, last))))
                chunk.window = replace(chunk.window, rng=Range(min(end, last), last))
        self.chunks = [chunk for chunk in self.chunks if chunk.window.rng.start < chunk.window.rng.end]
        return out

    def stop(self) -> tuple[list[Fetched], list[Window]]:
        """The complete chunks, and the windows that remain to request."""
        done = [chunk.fetched.within(chunk.window.rng) for chunk in self.chunks if chunk.fetched is not None]
        groups = [(is_gap, list(group)) for is_gap, group in groupby(self.chunks, lambda chunk: chunk.fetched is None)]
        gaps = [Range(chunks[0].window.rng.start, chunks[-1].window.rng.end) for is_gap, chunks in groups if is_gap]
        return done, [replace(self.window, rng=rng) for rng in gaps]


class Task:
    """One requested window: one stream, or one per token if a bucket of the market does not fit a page.

    ``window`` shrinks to what is not yielded. A task without a stream waits for the record of its market.
    """

    def __init__(self, index: int, window: Window, info: MarketInfo | None) -> None:
        self.index = index
        self.window = window
        self.points = 0
        self.streams: list[Stream] = []
        # Pages of a market of two tokens, if every bucket has its points.
        self.pages = -(-window.buckets * (MarketInfo().labels(window) or 2) // window.limit)
        # A short fetch is not worth a request to learn the active range.
        if info is not None or self.pages <= 20:
            self.begin(info or MarketInfo())

    @property
    def waiting(self) -> tuple[Stream, Chunk] | None:
        """The earliest chunk that waits, and its stream; None if all is requested."""
        chunks = [(stream, chunk) for stream in self.streams for chunk in stream.chunks if not chunk.is_requested]
        return min(chunks, key=lambda pair: pair[1].window.rng.start, default=None)

    def begin(self, info: MarketInfo) -> bool:
        """Make the streams; return whether there is one per token."""
        is_wide = info.labels(self.window) > LARGEST_LIMIT
        # A token without points takes one request, whenever its market was active.
        windows = [replace(self.window, kind="token", id=token) for token in info.tokens] if is_wide else [self.window]
        self.streams = [Stream(window, MarketInfo() if is_wide else info) for window in windows]
        return is_wide

    def pop(self) -> Fetched | None:
        """Remove and return the complete points at the front."""
        start, last = self.window.rng
        end = min((stream.done for stream in self.streams), default=start)
        if end == start:
            return None
        window = replace(self.window, rng=Range(start, end))
        self.window = replace(self.window, rng=Range(end, last))
        fetched = merged(window, [part for stream in self.streams for part in stream.pop(end)])
        self.points += len(fetched.columns)
        return fetched._replace(request=self.index)

    def stop(self, *, in_order: bool) -> tuple[list[Fetched], list[Window]]:
        """The complete chunks after a gap unless ``in_order``, and the windows that remain to request."""
        stopped = [stream.stop() for stream in self.streams]
        done = [fetched._replace(request=self.index) for complete, _ in stopped for fetched in complete]
        if in_order or not done:
            return [], [self.window]
        return done, [window for _, windows in stopped for window in windows]


def _in_time(pages: Sequence[Page], *, is_one: bool) -> bool | None:
    """Whether consecutive pages are in time order; None if they do not show it.

    In time order, the times of each token rise and no page begins before the previous one ends. A service that sends
    one token after the other can look the same, unless the market ``is_one`` token. Its pages share at most the one
    token that is cut between them.
    """
    filled = [page.columns for page in pages if page.points]
    if not all(bool((columns.steps() > 0).all()) for columns in filled):
        return False
    if any(before.ts.max() > after.ts.min() for before, after in pairwise(filled)):
        return False
    tokens = [token for columns in filled for token in columns.tokens]
    return (len(filled) > 1 and (is_one or len(tokens) >= len(set(tokens)) + len(filled))) or None
