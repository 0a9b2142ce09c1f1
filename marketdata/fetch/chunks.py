"""Ranges cut into chunks that workers request at once, as wide as the pages received so far suggest."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from marketdata.fetch.reader import Chunk, Fetched, cut_off, in_time, merged
from marketdata.fetch.windows import MarketInfo, Spans, Window
from marketdata.times import Range
from marketdata.wire.models import LARGEST_LIMIT

# A chunk stays in memory, and a failed page costs the whole chunk.
MAX_CHUNK_PAGES = 16


class Stream:
    """The range of one market or token: first one chunk, which idle workers divide.

    ``chunks`` are requested or wait to be yielded, in time order; ``unrequested_ranges`` are in no chunk yet. All
    before ``yielded_until`` was yielded. ``spans`` estimates how many buckets a page has.
    """

    def __init__(self, window: Window, info: MarketInfo) -> None:
        self.window = window
        self.chunks: list[Chunk] = []
        self.unrequested_ranges = [window.rng]
        self.yielded_until = window.rng.start
        self._labels = info.labels(window)
        self._info = info
        self.spans = Spans(self._labels or 2, window.limit)
        self._in_time: bool | None = None  # None until pages show it
        ranges = info.active_ranges(window)
        self._ends = {rng.end for rng, _ in ranges}  # ends that no cut causes
        self._active_range = next((rng for rng, is_active in ranges if is_active), window.rng)
        self._overfetched = 0.0  # in pages, by complete chunks

    @property
    def next(self) -> int | None:
        """The start of the next chunk; None if all is requested."""
        return self.unrequested_ranges[0].start if self.unrequested_ranges else None

    @property
    def pages_to_request(self) -> float:
        """The number of pages in no chunk yet."""
        return sum(map(self.pages, self.unrequested_ranges))

    @property
    def done(self) -> int:
        """The time before which the stream is complete."""
        at = self.yielded_until
        for chunk in self.chunks:
            if chunk.window.rng.start == at and chunk.fetched is not None:
                at = chunk.window.rng.end
        return at

    @property
    def is_short(self) -> bool:
        """Whether the stream surely has few pages, so that overfetch does not matter."""
        return self.spans.is_regular and self.pages(self.window.rng) < 20

    @property
    def overfetch(self) -> float:
        """Expected partly filled last pages; the ends of the range and of the market's active range do not count."""
        in_flight = [chunk.window.rng for chunk in self.chunks if chunk.fetched is None]
        cuts = [rng for rng in (*self.unrequested_ranges, *in_flight) if rng.end not in self._ends]
        return self._overfetched + self.spans.expected_overfetch * len(cuts)

    def add_page(self, chunk: Chunk) -> bool:
        """Take in the last page of a chunk; whether all points of the chunk have arrived, whatever cursor follows."""
        self._add_span(chunk)
        if chunk.max_pages is None:
            return False
        pages = [page.columns for page in chunk.pages]
        order = in_time(pages[-2:] if self._in_time else pages, is_one=self._labels == 1)
        if self._in_time is None:
            self._in_time = order
        if self._in_time and order is not False:
            chunk.pages_in_order = len(pages)
            return self._reached(chunk) == chunk.window.rng.end
        if order is False or (len(pages) > 1 and self.pages(self._remaining_range(chunk)) > MAX_CHUNK_PAGES):
            chunk.max_pages = len(pages)  # without time order, chunks cannot be divided
        return False

    def _add_span(self, chunk: Chunk) -> None:
        """Take in how many buckets the last page of a chunk spans, from the page before or the first point."""
        width, (start, end), ts = self.window.resolution.micros, chunk.window.rng, chunk.pages[-1].columns.ts
        is_full = bool(chunk.pages[-1].next_cursor)
        active_range, is_active = self._info.active_ranges(chunk.window)[0]
        if not is_full and not is_active:
            return  # no points outside the active range say nothing about density
        first = int(chunk.pages[-2].columns.ts.max(initial=start)) + width if len(chunk.pages) > 1 else start
        if int(ts.max(initial=first)) < active_range.end:
            end = active_range.end
        last = int(ts.max()) + width if is_full and len(ts) else end
        if len(ts) and (first > ts.min() or not self.spans.is_known):
            first = int(ts.min())
        self.spans.add(np.unique(ts, return_counts=True)[1], max(1, (last - first) // width), is_full=is_full)

    def remaining_pages(self, chunk: Chunk) -> float:
        """The number of pages of a chunk not received yet; 0 if it cannot be divided."""
        if chunk.max_pages is None or chunk.fetched is not None or self._in_time is False:
            return 0
        remaining = self._remaining_range(chunk)
        if chunk.pages and remaining.start == chunk.window.rng.start:
            return 0
        if chunk.pages and self._in_time is None:
            # Until pages show their order, only a first page with several tokens suggests it.
            is_first = len(chunk.pages) == 1 and chunk.window.rng.start == self.window.rng.start
            if not is_first or len(chunk.pages[0].columns.tokens) < min(2, self._labels or 2):
                return 0
        return self.pages(remaining)

    def _remaining_range(self, chunk: Chunk) -> Range:
        """The range of a chunk after its received pages."""
        return Range(self._reached(chunk), chunk.window.rng.end)

    def _reached(self, chunk: Chunk) -> int:
        """The time before which a chunk is complete if pages are in time order; its last bucket may lack points."""
        start, end = chunk.window.rng
        pages = chunk.pages[: chunk.pages_in_order or None]
        last = max((int(page.columns.ts.max(initial=start)) for page in pages), default=start)
        if pages and self._in_time:
            points = np.count_nonzero(pages[-1].columns.ts == last)
            if points == (self._labels or max(2, len(pages[-1].labels))):
                last = chunk.window.first(last, 1).rng.end
        return min(last, end)

    def pages(self, rng: Range) -> float:
        """The expected number of pages of a range; only buckets of the active range count."""
        width = self.window.resolution.micros
        start, end = max(rng.start, self._active_range.start), min(rng.end, self._active_range.end)
        return max(0, -(-end // width) - start // width) / self.spans.buckets

    def next_chunk(self, parts: int, longest: int | None) -> Chunk:
        """The next chunk: one of ``parts`` of the rest, with at most ``longest`` pages."""
        rest = self.unrequested_ranges.pop(0)
        # The first request has no end, so that it finds the first point.
        end = self._cut(rest, parts, longest) if self.spans.is_known else rest.end
        if end < rest.end:
            self.unrequested_ranges.insert(0, Range(end, rest.end))
        window = replace(self.window, rng=Range(rest.start, end))
        chunk = Chunk(window, MAX_CHUNK_PAGES if self._in_time is not False else None)
        insort(self.chunks, chunk, key=lambda chunk: chunk.window.rng.start)
        return chunk

    def divide(self, chunk: Chunk, parts: int) -> None:
        """Leave all but the first of ``parts`` of a chunk to other workers."""
        rest = self._remaining_range(chunk)
        end = self._cut(rest, parts, None)
        if end < rest.end:
            insort(self.unrequested_ranges, Range(end, rest.end))
            chunk.window = replace(chunk.window, rng=Range(chunk.window.rng.start, end))

    def _cut(self, rest: Range, parts: int, longest: int | None) -> int:
        """The end of the first part of a range, as wide as received pages suggest."""
        window = replace(self.window, rng=rest)
        # Data may exist outside the active range, so that range is requested too, in one chunk.
        rng, is_active = self._info.active_ranges(window)[0]
        if not is_active:
            return rng.end
        remaining = self.pages(rng)
        # A cut overfetches half a page on average, so a chunk has at least two.
        pages = max(2, math.ceil(remaining / max(1, parts)))
        if longest is not None or self._in_time is False:  # without time order, one failed page costs the chunk
            pages = min(pages, MAX_CHUNK_PAGES)
        if pages >= remaining or (parts < 2 and self._in_time is not False):
            return rest.end
        return window.first(rng.start, self.spans.width(pages)).rng.end

    def receive(self, chunk: Chunk, fetched: Fetched | None) -> Fetched | None:
        """Take in a chunk; if ``fetched`` is None, keep its pages in time order, and request the rest again."""
        (start, end), page = chunk.window.rng, self.spans.page
        if fetched is not None:
            if end not in self._ends and chunk.pages:
                self._overfetched += max(0.0, 1 - np.count_nonzero(chunk.pages[-1].columns.ts < end) / page)
        else:
            received = chunk.collected(chunk.pages[: chunk.pages_in_order]) if chunk.pages_in_order else None
            reached = self._reached(chunk) if received is not None and received.complete else start
            if received is None or reached == start:
                self._in_time = False
                self.chunks.remove(chunk)
            else:
                self._overfetched += np.count_nonzero(received.columns.ts >= reached) / page
                fetched = cut_off(chunk.window, received, reached)
                chunk.window = fetched.window
            if reached < end:
                insort(self.unrequested_ranges, Range(reached, end))
        chunk.fetched = fetched
        return fetched

    def pop(self, end: int) -> list[Fetched]:
        """Remove and return the points before ``end``, up to which all is complete."""
        out: list[Fetched] = []
        for chunk in self.chunks:
            if chunk.window.rng.start < end and chunk.fetched is not None:
                out.append(cut_off(chunk.window, chunk.fetched, end))
                chunk.window = replace(chunk.window, rng=Range(out[-1].window.rng.end, chunk.window.rng.end))
        self.chunks = [chunk for chunk in self.chunks if chunk.window.rng.start < chunk.window.rng.end]
        self.yielded_until = end
        return out

    def stop(self) -> tuple[list[Fetched], list[Window]]:
        """The complete chunks after a gap, and the windows that remain to request."""
        complete = [(chunk.window, chunk.fetched) for chunk in self.chunks if chunk.fetched is not None]
        done = [cut_off(window, fetched, window.rng.end) for window, fetched in complete]
        edges = [self.yielded_until, *(edge for window, _ in complete for edge in window.rng), self.window.rng.end]
        gaps = [Range(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
        return done, [replace(self.window, rng=rng) for rng in gaps]


class Task:
    """One requested window: one stream, or one per token if a bucket of the market does not fit a page."""

    def __init__(self, index: int, window: Window, info: MarketInfo | None) -> None:
        self.index = index
        self.window = window
        self.yielded_until = window.rng.start
        self.points = 0
        self.streams: list[Stream] = []
        # Pages of a market of two tokens, if every bucket has its points.
        self.pages = -(-window.buckets * (MarketInfo().labels(window) or 2) // window.limit)
        # A short fetch is not worth a request to learn the active range.
        self.needs_info = info is None and self.pages > 20
        if not self.needs_info:
            self.begin(info or MarketInfo())

    @property
    def is_done(self) -> bool:
        """Whether the whole window was yielded."""
        return self.yielded_until >= self.window.rng.end

    @property
    def next_stream(self) -> Stream | None:
        """The stream whose next chunk is the earliest; None if all is requested."""
        streams = [stream for stream in self.streams if stream.next is not None]
        return min(streams, key=lambda stream: stream.next or 0, default=None)

    def begin(self, info: MarketInfo) -> bool:
        """Make the streams; return whether there is one per token."""
        is_wide = info.labels(self.window) > LARGEST_LIMIT
        # A token without points takes one request, whenever its market was active.
        windows = [replace(self.window, kind="token", id=token) for token in info.tokens] if is_wide else [self.window]
        stream_info = MarketInfo() if is_wide else info
        self.streams = [Stream(window, stream_info) for window in windows]
        return is_wide

    def pop(self) -> Iterator[Fetched]:
        """Remove and return the complete points at the front."""
        end = min((stream.done for stream in self.streams), default=self.yielded_until)
        if end > self.yielded_until:
            window = replace(self.window, rng=Range(self.yielded_until, end))
            self.yielded_until = end
            fetched = merged(window, [part for stream in self.streams for part in stream.pop(end)])
            self.points += len(fetched.columns)
            yield fetched._replace(request=self.index)

    def stop(self, *, in_order: bool) -> tuple[list[Fetched], list[Window]]:
        """The complete chunks after a gap unless ``in_order``, and the windows that remain to request."""
        stopped = [stream.stop() for stream in self.streams]
        done = [fetched._replace(request=self.index) for complete, _ in stopped for fetched in complete]
        if in_order or not done:
            return [], [replace(self.window, rng=Range(self.yielded_until, self.window.rng.end))]
        return done, [window for _, windows in stopped for window in windows]
