"""A range cut into parts: by the pages that came, from the front, and by token where a market is too wide."""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from marketdata.fetch.reader import Fetched, Part, in_time, merged
from marketdata.fetch.windows import MarketInfo, Spans, Window
from marketdata.points.columns import Data
from marketdata.times import Range
from marketdata.wire.models import LARGEST_LIMIT

# With at least this many pages, a request to learn when a market was active is worth its cost.
_WORTH_INFO = 20
# Pages of a part: in memory at once, and fetched again if one of them fails.
LONGEST = 16
# Pages of a window at least: each window but the last costs half a page, where pages may end anywhere.
_FEWEST = 2

# A range of fewer pages than this, if it is known how many, is requested at once.
_SHORT = 20


class Track:
    """The range of one market or token: one part, which is divided where workers have nothing else to do.

    ``parts``, in order of time, are requested or wait to be yielded; ``rest`` is in no part yet; ``at`` is how far the
    track was yielded. ``labels``: tokens of the market, 0 if that is not known; ``spans``: how many buckets pages span.
    """

    def __init__(self, window: Window, info: MarketInfo) -> None:
        self.window = window
        self.parts: list[Part] = []
        self.rest = [window.rng]
        self.at = window.rng.start
        self.labels = info.labels(window)
        self._info = info
        self.spans = Spans(self.labels or 2, window.limit)
        self._seen: list[Data] = []  # what came and is requested again
        self._in_time: bool | None = None  # whether the order of its pages was seen to be that of time
        parts = info.parts(window)
        self._ends = {rng.end for rng, _ in parts}  # where a window ends whatever is cut
        self._life = next((rng for rng, is_active in parts if is_active), window.rng)
        self._wasted = 0.0  # pages that complete windows lacked which end anywhere else

    @property
    def next(self) -> int | None:
        """The start of the part that is requested next; None: all is requested."""
        return self.rest[0].start if self.rest else None

    @property
    def unrequested(self) -> float:
        """The number of pages that are in no part yet."""
        return sum(map(self.pages, self.rest))

    @property
    def waits(self) -> bool:
        """Whether nothing can be yielded before the next part is requested."""
        at = self.at
        for part in self.parts:
            if part.window.rng.start == at and part.fetched is not None:
                at = part.window.rng.end
        return self.next == at

    @property
    def done(self) -> int:
        """The time before which it is complete."""
        at = self.at
        for part in self.parts:
            if part.window.rng.start == at and part.fetched is not None and not part.waits:
                at = part.window.rng.end
        return at

    @property
    def is_short(self) -> bool:
        """Whether it has few pages, and it is known how many."""
        return self.spans.is_regular and self.pages(self.window.rng) < _SHORT

    @property
    def waste(self) -> float:
        """Pages that its windows wasted or may waste at their ends; its own end and that of a life waste none."""
        on_way = [part.window.rng for part in self.parts if part.fetched is None]
        ends = [rng.end for rng in (*self.rest, *on_way)]
        return self._wasted + self.spans.cost * sum(end not in self._ends for end in ends)

    def cost(self, part: Part) -> float:
        """Pages that dividing a part may waste: at the end of a window, and as its last bucket is requested again."""
        again = np.count_nonzero(part.pages[-1].columns.ts >= self._to_come(part).start)
        return self.spans.cost + again / self.spans.page

    def see(self, part: Part) -> None:
        """Take in the last page of a part, and end the part if it follows the others in no order."""
        self._see_span(part)
        if part.most is None:
            return
        pages = [page.columns for page in part.pages]
        order = in_time(pages[-2:] if self._in_time else pages, is_one=self.labels == 1)
        if self._in_time is None:
            self._in_time = order
        if self._in_time and order is not False:
            part.kept = len(pages)
        elif order is False or (len(pages) > 1 and self.pages(self._to_come(part)) > LONGEST):
            part.most = len(pages)  # what is in no order is requested in windows that are not divided

    def _see_span(self, part: Part) -> None:
        """Take in the buckets that the last page of a part spans: from the page before it on, or the first point."""
        width, (start, end), ts = self.window.resolution.micros, part.window.rng, part.pages[-1].columns.ts
        is_full = bool(part.pages[-1].next_cursor)
        life, is_active = self._info.parts(part.window)[0]
        if not is_full and not is_active:
            return  # silence outside of the life of a market
        first = int(part.pages[-2].columns.ts.max(initial=start)) + width if len(part.pages) > 1 else start
        if int(ts.max(initial=first)) < life.end:
            end = life.end
        last = int(ts.max()) + width if is_full and len(ts) else end
        if len(ts) and (first > ts.min() or not self.spans.known):
            first = int(ts.min())
        self.spans.see(np.unique(ts, return_counts=True)[1], max(1, (last - first) // width), is_full=is_full)

    def left(self, part: Part) -> float:
        """The number of pages of a part still to come; 0 if it cannot be divided, as nothing of it could be kept."""
        rng, start = self._to_come(part), part.window.rng.start
        if part.most is None or part.fetched is not None or self._in_time is False:
            return 0
        # Before order is known the first page alone is taken on trust.
        if part.pages and (rng.start == start or (self._in_time is None and (len(part.pages) > 1 or start > self.at))):
            return 0
        return self.pages(rng)

    def _to_come(self, part: Part) -> Range:
        """The range of a part behind the pages that came."""
        start, end = part.window.rng
        for page in part.pages[-1:]:
            start = self._reached(part, page.columns, len(page.labels))
        return Range(min(start, end - 1), end)

    def _reached(self, part: Part, columns: Data, labels: int) -> int:
        """Before what time all points of a part came, by those that did: a page may end within its last bucket."""
        start, end = part.window.rng
        last = max(start, int(columns.ts.max(initial=start)))
        is_full = np.count_nonzero(columns.ts == last) == (self.labels or max(2, labels))
        if self._in_time and len(columns) and is_full:
            return min(part.window.part(last, 1).rng.end, end)
        return last

    def pages(self, rng: Range) -> float:
        """The number of pages of a range, by those that came: outside of the life of a market there are few."""
        width = self.window.resolution.micros
        start, end = max(rng.start, self._life.start), min(rng.end, self._life.end)
        return max(0, -(-end // width) - start // width) / self.spans.buckets

    def take(self, windows: int, longest: int | None = None) -> Part:
        """The next part, where what is left may become so many windows, each of at most so many pages."""
        rest = replace(self.window, rng=self.rest.pop(0))
        # The first request reads on to the first point, whenever that is.
        window = self._cut(rest, windows, longest) if self.spans.known else rest
        if window.rng.end < rest.rng.end:
            self.rest.insert(0, Range(window.rng.end, rest.rng.end))
        most = LONGEST if self._in_time is not False else None
        part = Part(window, most, list(self._seen), labels=self.labels)
        insort(self.parts, part, key=_start)
        return part

    def _cut(self, rest: Window, windows: int, longest: int | None) -> Window:
        """The first window of a range that is in no part, as wide as the pages that came say."""
        # Data may lie outside the active range of a market; where there is none behind it, its last window says so.
        rng, is_active = self._info.parts(rest)[0]
        if not is_active:
            return replace(rest, rng=rng)
        left = self.pages(rng)
        pages = max(_FEWEST, math.ceil(left / max(1, windows)))
        if longest is not None or self._in_time is False:  # what is in no order is requested again if any page fails
            pages = min(pages, LONGEST)
        if pages >= left or (windows < 2 and self._in_time is not False):
            return rest
        return rest.part(rng.start, self.spans.width(pages))

    def receive(self, part: Part, fetched: Fetched | None) -> Iterator[Fetched]:
        """Take in what came of a part; None: of its first pages. Yields what came before and is complete by that."""
        part.fetched = fetched
        if fetched is None:
            part = self._divide(part)
        elif part.window.rng.end not in self._ends and part.pages:
            self._wasted += max(0.0, 1 - part.pages[-1].points / self.spans.page)
        yield from self._settle(part)

    def _divide(self, part: Part) -> Part:
        """Replace a part by what has come in order of time; what is left of it is cut again."""
        # A page alone shows no order: it waits for what follows.
        keeps = part.kept or int(self._in_time is None and len(part.pages) == 1)
        came = part.came(keeps or len(part.pages))
        start, rng = part.window.rng.start, part.window.rng
        end = self._reached(part, came.columns, came.labels) if keeps and came.complete else start
        self.parts.remove(part)
        self._ask_again(Range(end, rng.end), came.columns)
        self._wasted += np.count_nonzero(came.columns.ts >= end) / self.spans.page
        if end == start:
            self._in_time = False
            return part
        window = replace(part.window, rng=Range(start, end))
        first = Part(window, fetched=_cut_off(window, came, end), waits=True)
        insort(self.parts, first, key=_start)
        return first

    def _ask_again(self, rng: Range, came: Data) -> None:
        """Request a range later; what came of it must come again."""
        if rng.start < rng.end:
            insort(self.rest, rng)
        width, end = self.window.resolution.micros, self.window.rng.end
        again = [came.between(rng.start // width * width, rng.end), *self._seen]
        self._seen = [columns for each in again if len(columns := each.between(self.at // width * width, end))]

    def _settle(self, part: Part) -> Iterator[Fetched]:
        """Decide on what waits, once it is known whether pages are in order of time: the part behind it says so."""
        start, end = part.window.rng
        waiting = [(before, before.fetched) for before in self.parts if before.waits and before.fetched is not None]
        for before, came in waiting:
            if self._in_time is None and before.window.rng.end == start and part.fetched is not None:
                later = part.fetched.columns.between(part.window.part(start, 1).rng.end, end)
                self._in_time = bool(in_time([came.columns, later], is_one=self.labels == 1))
        for before, came in waiting if self._in_time is not None else ():
            before.waits = False
            if self._in_time:
                yield came
            else:
                self.parts.remove(before)
                self._ask_again(before.window.rng, came.columns)

    def keep(self) -> Iterator[Fetched]:
        """Keep what came of parts on their way when a fetch ends, where pages were seen to be in time order."""
        for part in list(self.parts):
            if part.fetched is None and part.pages:
                yield from self.receive(part, None)

    def pop(self, end: int) -> list[Fetched]:
        """Take what came before a time up to which all is complete."""
        out: list[Fetched] = []
        for part in self.parts:
            if part.window.rng.start < end and part.fetched is not None:
                out.append(_cut_off(part.window, part.fetched, end))
                part.window = replace(part.window, rng=Range(out[-1].window.rng.end, part.window.rng.end))
        self.parts = [part for part in self.parts if part.window.rng.start < part.window.rng.end]
        self.at = end
        return out

    def leave(self) -> tuple[list[Fetched], list[Window]]:
        """Take what is complete behind a gap, and the windows that are left to request."""
        ends = [(part.window, part.fetched) for part in self.parts if part.fetched is not None and not part.waits]
        done = [_cut_off(window, fetched, window.rng.end) for window, fetched in ends]
        edges = [self.at, *(edge for window, _ in ends for edge in window.rng), self.window.rng.end]
        left = [Range(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True) if start < end]
        return done, [replace(self.window, rng=rng) for rng in left]


class Job:
    """One window as requested: a track, or one for each token of a market that has more than a page has points."""

    def __init__(self, index: int, window: Window, info: MarketInfo | None) -> None:
        self.index = index
        self.window = window
        self.at = window.rng.start
        self.points = 0
        self.tracks: list[Track] = []
        self.needs_info = info is None and self.pages > _WORTH_INFO
        if not self.needs_info:
            self.begin(info or MarketInfo())

    @property
    def pages(self) -> int:
        """Pages of a market of two tokens, if every bucket has its points."""
        labels = MarketInfo().labels(self.window) or 2
        return -(-self.window.buckets * labels // self.window.limit)

    @property
    def is_done(self) -> bool:
        """Whether all of it was yielded."""
        return self.at >= self.window.rng.end

    @property
    def open(self) -> list[Track]:
        """Tracks that have something to request, the one that is behind first."""
        return sorted((track for track in self.tracks if track.next is not None), key=lambda track: track.next or 0)

    def begin(self, info: MarketInfo) -> bool:
        """Begin with what is known of the market, and say whether it is requested by token."""
        is_wide = info.labels(self.window) > LARGEST_LIMIT
        # A token without points takes one request, whenever its market was active.
        windows = [replace(self.window, kind="token", id=token) for token in info.tokens] if is_wide else [self.window]
        known = MarketInfo() if is_wide else info
        self.tracks = [Track(window, known) for window in windows]
        return is_wide

    def pop(self) -> Iterator[Fetched]:
        """Take what is complete from the front on."""
        end = min((track.done for track in self.tracks), default=self.at)
        if end > self.at:
            window = replace(self.window, rng=Range(self.at, end))
            self.at = end
            got = merged(window, [fetched for track in self.tracks for fetched in track.pop(end)])
            self.points += len(got.columns)
            yield got._replace(request=self.index)

    def leave(self, *, in_order: bool) -> tuple[list[Fetched], list[Window]]:
        """Take what is complete behind a gap, if order does not matter, and the windows that are left to request."""
        both = [track.leave() for track in self.tracks]
        done = [fetched._replace(request=self.index) for some, _ in both for fetched in some]
        if in_order or not done:
            return [], [replace(self.window, rng=Range(self.at, self.window.rng.end))]
        return done, [window for _, windows in both for window in windows]


def _start(part: Part) -> int:
    return part.window.rng.start


def _cut_off(window: Window, fetched: Fetched, end: int) -> Fetched:
    """The points of a window before a time."""
    window = replace(window, rng=Range(window.rng.start, min(end, window.rng.end)))
    columns: Data = fetched.columns.between(window.first_bucket, window.rng.end)
    return fetched._replace(window=window, columns=columns)
