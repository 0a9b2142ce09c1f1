"""Ranges cut into chunks that workers request at once, as wide as the pages received so far suggest."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from marketdata.fetch.reader import Chunk, Fetched, in_time, merged
from marketdata.fetch.windows import MarketInfo, Spans, Window
from marketdata.points.columns import Data
from marketdata.times import Range
from marketdata.wire.models import LARGEST_LIMIT

# A chunk is in memory as a whole, and is fetched again if a page fails.
MAX_CHUNK_PAGES = 16


class Stream:
    """The range of one market or token: first one chunk, which idle workers divide.

    ``chunks`` are requested or wait to be yielded, in time order; ``unrequested_ranges`` are in no chunk yet. All
    before ``yielded_until`` was yielded. ``labels`` is the number of tokens of the market, 0 if unknown. ``spans``
    estimates how many buckets a page has.
    """

    def __init__(self, window: Window, info: MarketInfo) -> None:
        self.window = window
        self.chunks: list[Chunk] = []
        self.unrequested_ranges = [window.rng]
        self.yielded_until = window.rng.start
        self.labels = info.labels(window)
        self._info = info
        self.spans = Spans(self.labels or 2, window.limit)
        self._received_before: list[Data] = []  # points that are requested again
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
    def is_blocked(self) -> bool:
        """Whether the next chunk must be requested before anything can be yielded."""
        at = self.yielded_until
        for chunk in self.chunks:
            if chunk.window.rng.start == at and chunk.fetched is not None:
                at = chunk.window.rng.end
        return self.next == at

    @property
    def done(self) -> int:
        """The time before which the stream is complete."""
        at = self.yielded_until
        for chunk in self.chunks:
            if chunk.window.rng.start == at and chunk.fetched is not None and not chunk.awaits_order:
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
        ends = [rng.end for rng in (*self.unrequested_ranges, *in_flight)]
        return self._overfetched + self.spans.expected_overfetch * sum(end not in self._ends for end in ends)

    def split_cost(self, chunk: Chunk) -> float:
        """Expected overfetch [pages] of a cut: a partly filled page, and the last bucket again."""
        again = np.count_nonzero(chunk.pages[-1].columns.ts >= self._remaining_range(chunk).start)
        return self.spans.expected_overfetch + again / self.spans.page

    def add_page(self, chunk: Chunk) -> None:
        """Take in the last page of a chunk; end the chunk if its pages are not in time order."""
        self._add_span(chunk)
        if chunk.max_pages is None:
            return
        pages = [page.columns for page in chunk.pages]
        order = in_time(pages[-2:] if self._in_time else pages, is_one=self.labels == 1)
        if self._in_time is None:
            self._in_time = order
        if self._in_time and order is not False:
            chunk.pages_in_order = len(pages)
        elif order is False or (len(pages) > 1 and self.pages(self._remaining_range(chunk)) > MAX_CHUNK_PAGES):
            chunk.max_pages = len(pages)  # without time order, chunks cannot be divided

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
        """The number of pages of a chunk not received yet; 0 if a cut could keep none of its pages."""
        rng, start = self._remaining_range(chunk), chunk.window.rng.start
        if chunk.max_pages is None or chunk.fetched is not None or self._in_time is False:
            return 0
        # Until pages show their order, trust the first page of the stream alone.
        is_unsure = self._in_time is None and (len(chunk.pages) > 1 or start > self.yielded_until)
        if chunk.pages and (rng.start == start or is_unsure):
            return 0
        return self.pages(rng)

    def _remaining_range(self, chunk: Chunk) -> Range:
        """The range of a chunk after its received pages."""
        start, end = chunk.window.rng
        for page in chunk.pages[-1:]:
            start = self._reached(chunk, page.columns, len(page.labels))
        return Range(min(start, end - 1), end)

    def _reached(self, chunk: Chunk, columns: Data, labels: int) -> int:
        """The time before which a chunk is complete: a page may end within its last bucket."""
        start, end = chunk.window.rng
        last = max(start, int(columns.ts.max(initial=start)))
        is_full = np.count_nonzero(columns.ts == last) == (self.labels or max(2, labels))
        if self._in_time and len(columns) and is_full:
            return min(chunk.window.first(last, 1).rng.end, end)
        return last

    def pages(self, rng: Range) -> float:
        """The expected number of pages of a range; only buckets of the active range count."""
        width = self.window.resolution.micros
        start, end = max(rng.start, self._active_range.start), min(rng.end, self._active_range.end)
        return max(0, -(-end // width) - start // width) / self.spans.buckets

    def next_chunk(self, windows: int, longest: int | None = None) -> Chunk:
        """The next chunk, if the rest may become ``windows`` chunks of at most ``longest`` pages."""
        rest = replace(self.window, rng=self.unrequested_ranges.pop(0))
        # The first request has no end, so that it finds the first point.
        window = self._cut(rest, windows, longest) if self.spans.is_known else rest
        if window.rng.end < rest.rng.end:
            self.unrequested_ranges.insert(0, Range(window.rng.end, rest.rng.end))
        most = MAX_CHUNK_PAGES if self._in_time is not False else None
        chunk = Chunk(window, most, list(self._received_before), labels=self.labels)
        insort(self.chunks, chunk, key=_start)
        return chunk

    def _cut(self, rest: Window, windows: int, longest: int | None) -> Window:
        """The first window of an unrequested range, as wide as received pages suggest."""
        # Data may exist outside the active range, so that range is requested too, in one window.
        rng, is_active = self._info.active_ranges(rest)[0]
        if not is_active:
            return replace(rest, rng=rng)
        remaining = self.pages(rng)
        # A cut overfetches half a page on average, so a chunk has at least two.
        pages = max(2, math.ceil(remaining / max(1, windows)))
        if longest is not None or self._in_time is False:  # without time order, one failed page costs the chunk
            pages = min(pages, MAX_CHUNK_PAGES)
        if pages >= remaining or (windows < 2 and self._in_time is not False):
            return rest
        return rest.first(rng.start, self.spans.width(pages))

    def receive(self, chunk: Chunk, fetched: Fetched | None) -> Iterator[Fetched]:
        """Take in a chunk, or its first pages if ``fetched`` is None; yield chunks that this shows to be complete."""
        chunk.fetched = fetched
        if fetched is None:
            chunk = self._divide(chunk)
        elif chunk.window.rng.end not in self._ends and chunk.pages:
            self._overfetched += max(0.0, 1 - chunk.pages[-1].points / self.spans.page)
        yield from self._settle(chunk)

    def _divide(self, chunk: Chunk) -> Chunk:
        """Replace a chunk by its received pages in time order, and requeue the rest."""
        # One page shows no order, so it awaits the next one.
        keeps = chunk.pages_in_order or int(self._in_time is None and len(chunk.pages) == 1)
        received = chunk.received(keeps or len(chunk.pages))
        start, rng = chunk.window.rng.start, chunk.window.rng
        end = self._reached(chunk, received.columns, received.labels) if keeps and received.complete else start
        self.chunks.remove(chunk)
        self._requeue(Range(end, rng.end), received.columns)
        self._overfetched += np.count_nonzero(received.columns.ts >= end) / self.spans.page
        if end == start:
            self._in_time = False
            return chunk
        window = replace(chunk.window, rng=Range(start, end))
        first = Chunk(window, fetched=_cut_off(window, received, end), awaits_order=True)
        insort(self.chunks, first, key=_start)
        return first

    def _requeue(self, rng: Range, received: Data) -> None:
        """Requeue a range; points already received must reappear."""
        if rng.start < rng.end:
            insort(self.unrequested_ranges, rng)
        width, end = self.window.resolution.micros, self.window.rng.end
        again = [received.between(rng.start // width * width, rng.end), *self._received_before]
        inside = [columns.between(self.yielded_until // width * width, end) for columns in again]
        self._received_before = [columns for columns in inside if len(columns)]

    def _settle(self, chunk: Chunk) -> Iterator[Fetched]:
        """Yield chunks that await the order of pages, or requeue them, once the next chunk shows the order."""
        start, end = chunk.window.rng
        waiting = [(one, one.fetched) for one in self.chunks if one.awaits_order and one.fetched is not None]
        for before, received in waiting:
            if self._in_time is None and before.window.rng.end == start and chunk.fetched is not None:
                later = chunk.fetched.columns.between(chunk.window.first(start, 1).rng.end, end)
                self._in_time = bool(in_time([received.columns, later], is_one=self.labels == 1))
        for before, received in waiting if self._in_time is not None else ():
            before.awaits_order = False
            if self._in_time:
                yield received
            else:
                self.chunks.remove(before)
                self._requeue(before.window.rng, received.columns)

    def keep(self) -> Iterator[Fetched]:
        """Keep received pages of chunks in flight when a fetch ends, if pages are in time order."""
        for chunk in list(self.chunks):
            if chunk.fetched is None and chunk.pages:
                yield from self.receive(chunk, None)

    def pop(self, end: int) -> list[Fetched]:
        """Remove and return the points before ``end``, up to which all is complete."""
        out: list[Fetched] = []
        for chunk in self.chunks:
            if chunk.window.rng.start < end and chunk.fetched is not None:
                out.append(_cut_off(chunk.window, chunk.fetched, end))
                chunk.window = replace(chunk.window, rng=Range(out[-1].window.rng.end, chunk.window.rng.end))
        self.chunks = [chunk for chunk in self.chunks if chunk.window.rng.start < chunk.window.rng.end]
        self.yielded_until = end
        return out

    def stop(self) -> tuple[list[Fetched], list[Window]]:
        """The complete chunks after a gap, and the windows that remain to request."""
        complete = [
            (one.window, one.fetched) for one in self.chunks if one.fetched is not None and not one.awaits_order
        ]
        done = [_cut_off(window, fetched, window.rng.end) for window, fetched in complete]
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
        # A short fetch is not worth a request to learn the active range.
        self.needs_info = info is None and self.pages > 20
        if not self.needs_info:
            self.begin(info or MarketInfo())

    @property
    def pages(self) -> int:
        """Pages of a market of two tokens, if every bucket has its points."""
        labels = MarketInfo().labels(self.window) or 2
        return -(-self.window.buckets * labels // self.window.limit)

    @property
    def is_done(self) -> bool:
        """Whether the whole window was yielded."""
        return self.yielded_until >= self.window.rng.end

    @property
    def open(self) -> list[Stream]:
        """Streams with ranges to request, the earliest first."""
        return sorted((one for one in self.streams if one.next is not None), key=lambda one: one.next or 0)

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
            got = merged(window, [fetched for stream in self.streams for fetched in stream.pop(end)])
            self.points += len(got.columns)
            yield got._replace(request=self.index)

    def stop(self, *, in_order: bool) -> tuple[list[Fetched], list[Window]]:
        """The complete chunks after a gap unless ``in_order``, and the windows that remain to request."""
        stopped = [stream.stop() for stream in self.streams]
        done = [fetched._replace(request=self.index) for complete, _ in stopped for fetched in complete]
        if in_order or not done:
            return [], [replace(self.window, rng=Range(self.yielded_until, self.window.rng.end))]
        return done, [window for _, windows in stopped for window in windows]


def _start(chunk: Chunk) -> int:
    return chunk.window.rng.start


def _cut_off(window: Window, fetched: Fetched, end: int) -> Fetched:
    """The points of a window before a time."""
    window = replace(window, rng=Range(window.rng.start, min(end, window.rng.end)))
    columns: Data = fetched.columns.between(window.first_bucket, window.rng.end)
    return fetched._replace(window=window, columns=columns)
