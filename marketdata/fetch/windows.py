"""Windows to request, and what discovery knows of their market."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_text
from marketdata.wire.models import LARGEST_LIMIT

T = TypeVar("T")
IdKind = Literal["market", "token"]
# A cut costs part of a request, so fewer remaining pages than this are not divided.
WORTH_DIVIDING = 3
# Answers that are kept for other windows of their group; each has some thousand points.
_MOST_SHARED = 100


@dataclass(frozen=True, slots=True)
class Window:
    """A range of one market's or token's view (interface 4.1), half-open in microseconds UTC.

    ``id`` is the id or slug of the market, or the id of the token; ``limit`` the points per page, 1 to 200. ``group``
    has the windows of the same fetch.
    """

    view: View
    kind: IdKind
    id: str
    rng: Range
    resolution: BucketWidth
    limit: int = LARGEST_LIMIT
    group: Group | None = field(default=None, compare=False, repr=False)

    @property
    def segments(self) -> tuple[str, str, str]:
        """Path below ``/v1``."""
        return f"{self.kind}s", self.id, self.view

    @property
    def params(self) -> dict[str, str]:
        """Parameters of the request for its first page."""
        start, end = to_text(self.rng.start), to_text(self.rng.end)
        return {"start_ts": start, "end_ts": end, "resolution": str(self.resolution), "limit": str(self.limit)}

    @property
    def first_bucket(self) -> int:
        """Start of the bucket of the start of the range [microseconds UTC]."""
        return self.rng.start // self.resolution.micros * self.resolution.micros

    @property
    def buckets(self) -> int:
        """Buckets that the range touches."""
        return -(-(self.rng.end - self.first_bucket) // self.resolution.micros)

    def within(self, start: int, end: int) -> Window:
        """A part of the window."""
        return replace(self, rng=Range(start, end))

    def __str__(self) -> str:
        return f"{self.view} of {self.kind} {self.id} at {self.resolution} in {self.rng}"


class Group:
    """The windows of a fetch, for a source that answers several by one request. Answers are kept as long."""

    def __init__(self, windows: Sequence[Window] = ()) -> None:
        self.windows = [replace(window, group=self) for window in windows]
        self._uses = Counter((window.id, window.rng, window.resolution) for window in windows)
        self._ranges: dict[Hashable, list[Range]] = {}
        for window in windows:
            ranges = self._ranges.setdefault((window.id, window.resolution), [])
            ranges += [] if window.rng in ranges else [window.rng]
        self._lock = threading.Lock()
        self._beside: dict[Hashable, dict[str, tuple[str, ...]]] = {}
        self._shared: dict[Hashable, _Shared] = {}

    def whole(self, window: Window) -> Range:
        """The range of the window of this fetch of which a window is a part."""
        ranges = self._ranges.get((window.id, window.resolution), ())
        (start, end), own = window.rng, window.rng
        return next((rng for rng in ranges if rng.start <= start and end <= rng.end), own)

    def beside(self, window: Window, most: int) -> tuple[str, ...]:
        """Ids of windows with the same whole range and resolution, including this window's, up to a number."""
        span = self.whole(window), window.resolution
        with self._lock:
            if (*span, most) not in self._beside:
                ids = [*dict.fromkeys(one.id for one in self.windows if (one.rng, one.resolution) == span)]
                some = (tuple(ids[first : first + most]) for first in range(0, len(ids), most))
                self._beside[(*span, most)] = {name: part for part in some for name in part}
            return self._beside[(*span, most)].get(window.id, (window.id,))

    def once(self, key: Hashable, ids: Iterable[str], window: Window, ask: Callable[[], T]) -> T:
        """The answer of ``ask`` for a key. The first window beside this one of these ids asks, and the last forgets."""
        span = self.whole(window), window.resolution
        with self._lock:
            shared = self._shared.setdefault(key, _Shared(sum(self._uses[(one, *span)] for one in ids)))
            while len(self._shared) > _MOST_SHARED:
                del self._shared[next(iter(self._shared))]
        with shared.lock:
            if not shared.answers:
                shared.answers.append(ask())
            shared.uses -= 1
            if shared.uses <= 0:
                with self._lock:
                    self._shared.pop(key, None)
            answer: T = shared.answers[0]
            return answer

    def __reduce__(self) -> tuple[type[Group], tuple[()]]:
        return Group, ()


class _Shared:
    def __init__(self, uses: int) -> None:
        self.uses, self.lock, self.answers = uses, threading.Lock(), list[Any]()


@dataclass(frozen=True, slots=True)
class MarketInfo:
    """The record of a market by discovery: its tokens, and when it was active [microseconds UTC].

    ``volume`` is that of a market that is over.
    """

    tokens: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    volume: float = 0.0

    def labels(self, window: Window) -> int:
        """The most points that a bucket can have; 0 if unknown."""
        return len(self.tokens) if window.kind == "market" and VIEWS[window.view].has_tokens else 1

    def active_range(self, window: Window) -> Range:
        """The part of a window's range in which the market was active, by whole buckets; empty if it was not."""
        width, (start, end) = window.resolution.micros, window.rng
        first = start if self.start is None else max(start, self.start // width * width)
        last = end if self.end is None else min(end, -(-self.end // width) * width)
        return Range(first, last)
