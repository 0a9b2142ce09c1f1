"""Windows to request, the active ranges of markets, and estimates of how many buckets a page spans."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, replace
from typing import Literal

from marketdata.points.columns import Ints
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_text
from marketdata.wire.models import LARGEST_LIMIT

IdKind = Literal["market", "token"]
# A cut costs a request, so fewer remaining pages than this are not divided.
WORTH_DIVIDING = 3


@dataclass(frozen=True, slots=True)
class Window:
    """A range of one market's or token's view (interface 4.1), half-open in microseconds UTC.

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

    def first(self, start: int, buckets: int) -> Window:
        """The window of the first ``buckets`` from ``start``, cut at a bucket edge and at the end of the range."""
        width = self.resolution.micros
        end = start // width * width + buckets * width
        return replace(self, rng=Range(start, min(end, self.rng.end)))

    def __str__(self) -> str:
        return f"{self.view} of {self.kind} {self.id} at {self.resolution} in {self.rng}"


@dataclass(frozen=True, slots=True)
class MarketInfo:
    """The record of a market by discovery: its tokens, and when it was active [microseconds UTC]."""

    tokens: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None

    def labels(self, window: Window) -> int:
        """The most points that a bucket can have; 0 if unknown."""
        return len(self.tokens) if window.kind == "market" and VIEWS[window.view].has_tokens else 1

    def active_range(self, window: Window) -> Range:
        """The part of a window's range in which the market was active, by whole buckets; empty if it was not."""
        width, (start, end) = window.resolution.micros, window.rng
        first = start if self.start is None else max(start, self.start // width * width)
        last = end if self.end is None else min(end, -(-self.end // width) * width)
        return Range(first, last)


class Spans:
    """Estimates from the recent ``pages`` of a market: ``buckets`` per page, and ``page``, the points of a full one."""

    def __init__(self, labels: int, limit: int) -> None:
        self._limit = limit
        self.pages: deque[tuple[int, int]] = deque(maxlen=16)  # points and buckets
        self._full_pages: deque[tuple[int, int]] = deque(maxlen=16)  # those that another page follows
        self._variance = 0.0  # of points per bucket over their mean, the largest of all pages
        self.page: float = limit
        self.buckets = limit / labels

    def add(self, points: Ints, buckets: int, *, is_full: bool) -> None:
        """Take in a page: ``points`` of each filled bucket, and all ``buckets``; another page follows a full one."""
        received = int(points.sum())
        self.pages.append((received, buckets))
        if is_full and received:
            self._full_pages.append((received, buckets))
            self._variance = max(self._variance, float((points**2).sum()) / received - received / buckets)
            self.page = sum(points for points, _ in self._full_pages) / len(self._full_pages)
        all_points, all_buckets = map(sum, zip(*self.pages, strict=True))
        self.buckets = self.page * all_buckets / max(1, all_points)

    @property
    def is_even(self) -> bool:
        """Whether full pages differ by no more than chance."""
        densities = [points / buckets for points, buckets in self._full_pages]
        return bool(densities) and max(densities) <= 2 * min(densities)

    @property
    def is_regular(self) -> bool:
        """Whether pages have a predictable number of points, such as two tokens with nine of ten buckets filled."""
        return self.is_even and self._variance < 0.2

    @property
    def expected_overfetch(self) -> float:
        """Pages that a cut overfetches: half a page where pages are alike, else a whole one."""
        return 0.5 if self.is_even else 1.0

    def width(self, pages: int) -> int:
        """Buckets of a window of ``pages``, narrower by a margin so that it rarely needs one page more."""
        margin = 2.4 * math.sqrt(self._variance / self._limit * pages) if self.is_even else 0.0
        # With few points of many tokens, the margin would leave nothing of the window.
        return max(1, round(self.buckets * max(pages / 2, pages - margin)))
