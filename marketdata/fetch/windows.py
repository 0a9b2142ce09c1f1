"""Windows, the unit of work of a fetch: at most ``limit`` points, so one request returns all of it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Literal

from marketdata.points.columns import Ints
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_text
from marketdata.wire.models import LARGEST_LIMIT

IdKind = Literal["market", "token"]
# Pages that are left of a part when workers without work may divide it.
WORTH_DIVIDING = 3
# Pages by which the width of windows is estimated.
_RECENT = 16
# One page may be fuller than another by this factor by chance alone; standard deviations that a window leaves free.
_EVEN, _DEVIATIONS = 2.0, 1.7
# The variance of the points of a bucket over their mean where it hardly matters: nine of ten buckets of two tokens.
_REGULAR = 0.2
# Pages that a window may waste at its end: at least, as pages may differ, and for each deviation of so many pages.
_LEAST_COST, _COST_OF_CHANCE, _TYPICAL = 0.25, 1.2, 4


@dataclass(frozen=True, slots=True)
class Window:
    """A range of one market's or token's view (interface 4.1), half-open in microseconds UTC: a request, or a part.

    ``id`` is the id or slug of the market, or the id of the token; ``limit`` the points per page, 1 to 200.
    """

    view: View
    kind: IdKind
    id: str
    rng: Range
    resolution: BucketWidth
    limit: int = LARGEST_LIMIT

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

    def part(self, start: int, buckets: int) -> Window:
        """The first ``buckets`` from ``start`` on, cut at a bucket edge and at the end of the range."""
        width = self.resolution.micros
        end = start // width * width + buckets * width
        return replace(self, rng=Range(start, min(end, self.rng.end)))

    def halves(self) -> tuple[Window, Window]:
        """Both halves, cut at a bucket edge; for windows of two buckets or more."""
        left = self.part(self.rng.start, self.buckets // 2)
        return left, replace(self, rng=Range(left.rng.end, self.rng.end))

    def __str__(self) -> str:
        return f"{self.view} of {self.kind} {self.id} at {self.resolution} in {self.rng}"


@dataclass(frozen=True, slots=True)
class MarketInfo:
    """The record of a market by discovery: its tokens, and when it was active [microseconds UTC]."""

    tokens: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None

    def labels(self, window: Window) -> int:
        """Tokens that a bucket of a window can have points of; 0: not known."""
        return len(self.tokens) if window.kind == "market" and VIEWS[window.view].has_tokens else 1

    def parts(self, window: Window) -> list[tuple[Range, bool]]:
        """The range cut where the market begins and ends, and whether each part lies inside."""
        width, (start, end) = window.resolution.micros, window.rng
        first = start if self.start is None else self.start // width * width
        last = end if self.end is None else -(-self.end // width) * width
        edges = sorted({start, end, *(e for e in (first, last) if start < e < end)})
        return [(Range(a, b), first <= a < last) for a, b in pairwise(edges)]


class Spans:
    """The mean number of ``buckets`` of the pages of a market that came, and ``page``, the points of a full one.

    Both are asked for far more often than a page comes.
    """

    def __init__(self, labels: int, limit: int) -> None:
        self._labels, self._limit = labels, limit
        self._seen: deque[tuple[int, int]] = deque(maxlen=_RECENT)  # points and buckets of pages
        self._full: deque[int] = deque(maxlen=_RECENT)  # points of pages behind which another one came
        self._count, self._emptiest, self._fullest = 0, math.inf, 0.0  # full pages, and points a bucket of them
        self._variance = 0.0  # of the points of a bucket over their mean, on the page where that is most
        self.page: float = limit
        self.buckets = limit / labels

    def see(self, points: Ints, buckets: int, *, is_full: bool) -> None:
        """A page of so many buckets, of which some have points; behind a full one another one follows."""
        came = int(points.sum())
        self._seen.append((came, buckets))
        if is_full and came:
            mean = came / buckets
            self._full.append(came)
            self._count += 1
            self._emptiest, self._fullest = min(self._emptiest, mean), max(self._fullest, mean)
            self._variance = max(self._variance, float((points**2).sum()) / came - mean)
            self.page = fmean(self._full)
        every, of_all = (sum(pair[k] for pair in self._seen) for k in (1, 0))
        self.buckets = self.page * every / max(1, of_all)

    @property
    def known(self) -> bool:
        """Whether anything was seen."""
        return bool(self._seen)

    @property
    def is_even(self) -> bool:
        """Whether pages differ by no more than chance."""
        return self._fullest <= _EVEN * self._emptiest

    @property
    def is_regular(self) -> bool:
        """Whether it is known of pages to come how many points they have, but for a few."""
        return self._count > 0 and self.is_even and self._variance < _REGULAR

    @property
    def cost(self) -> float:
        """Pages that a window may waste at its end: one, or less the more pages were alike, and the fuller they are."""
        if not self.is_even:
            return 1.0
        return min(1.0, max(1 / (1 + self._count), _LEAST_COST + _COST_OF_CHANCE * self._deviation(_TYPICAL)))

    def _deviation(self, pages: float) -> float:
        """Standard deviation of the pages of a window that should have this many, by the pages that came."""
        return math.sqrt(self._variance / self._limit * pages * (1 + pages / max(1, len(self._full))))

    def width(self, pages: int) -> int:
        """Buckets of a window of so many pages: narrower by what chance adds, so that the last does not run over."""
        chance = _DEVIATIONS * self._deviation(pages) if self.is_even else 0
        # With few points of many tokens, chance would leave nothing of the window.
        return max(1, round(self.buckets * max(pages / 2, pages - chance)))
