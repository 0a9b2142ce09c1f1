"""Windows, the unit of work of a fetch: at most ``limit`` points, so one request returns all of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, pstdev
from typing import Literal

from marketdata.points.views import VIEWS, View
from marketdata.resolution import Resolution
from marketdata.times import Range, to_text
from marketdata.wire.models import LARGEST_LIMIT

IdKind = Literal["market", "token"]
# A range of so few pages is requested as it is; of a wider one, its first page says how wide windows may be.
AT_ONCE = 3
# Windows, and pages, that say how wide the next windows may be; so many pages say how much they differ.
_RECENT = 16
_ENOUGH = 8
# Standard deviations by which a window is narrower than its pages, unless it is this part of a page or more.
_MARGIN = 1.2
_WORTH = 0.5
# Pages of a window where there are as many as this, and they differ.
_LONG, _CHAIN = 20, 10


@dataclass(frozen=True, slots=True)
class Window:
    """A range of one market's or token's view (interface 4.1), half-open in microseconds UTC: a request, or a part.

    ``id`` is the id or slug of the market, or the id of the token; ``limit`` the points per page, 1 to 200.
    """

    view: View
    kind: IdKind
    id: str
    rng: Range
    resolution: Resolution
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
        """So many buckets from ``start`` on, cut at a bucket edge and at the end of the range."""
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
    """What discovery says of a market: its tokens, and when it was active [microseconds UTC]."""

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
    """How many buckets the pages of one market span, as they came, and how wide its windows may be."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=_RECENT)  # points and buckets of windows
        self._pages: deque[tuple[int, int]] = deque(maxlen=_RECENT)  # and of full pages
        self._share, self._per_bucket = 1.0, 1

    @property
    def known(self) -> bool:
        """Whether anything was seen."""
        return bool(self._seen)

    def see(self, points: int, buckets: int, per_bucket: int, pages: Iterable[tuple[int, int]]) -> None:
        """A window of so many points in so many buckets, which may have ``per_bucket`` each; and its full pages."""
        self._seen.append((points, buckets))
        self._pages.extend(pages)
        every, seen = self._sums(self._seen)
        self._share, self._per_bucket = min(1.0, every / seen / max(1, per_bucket)), max(1, per_bucket)

    def width(
        self, left: int, workers: int, limit: int, most: int = 1, *, whole: int = 0, busy: int = 0, many: bool = False
    ) -> tuple[int, int]:
        """Buckets of the next window, of ``left`` buckets of ``whole``, and how many pages that should be.

        ``most`` pages a window, for so many ``workers`` at once, of which some are ``busy``; ``many``: other markets
        keep them busy, so that windows may be long.
        """
        points, buckets = self._sums(self._seen)
        page = self._sums(self._pages)[0] / len(self._pages) if self._pages else limit
        span = page * buckets / max(1, points)
        deviation = self._deviation(page)
        every = max(left, whole) / span
        if many or every >= _LONG:
            workers = min(workers, int(every / _CHAIN))  # the last page of a window is seldom full
        pages = math.ceil(left / span / max(1, workers - busy))
        if not deviation and (not many or len(self._seen) >= _ENOUGH):
            pages = 1  # every bucket has its points, so that each window is one full page
        pages = max(1, min(most, pages))
        if pages * span >= left:
            return left, pages
        # Narrower by what chance adds, so that the last page does not run over; where that is much, it may.
        margin = _MARGIN * deviation * math.sqrt(pages * (1 + pages / max(1, len(self._pages))))
        return max(1, min(left, int(span * (pages - (margin if margin < _WORTH else 0))))), pages

    def _deviation(self, page: float) -> float:
        """By how much the spans of pages differ from their mean."""
        spans = [span for _, span in self._pages]
        if len(spans) >= _ENOUGH:
            return pstdev(spans) / fmean(spans)
        return math.sqrt((1 - self._share) * self._per_bucket / page)

    @staticmethod
    def _sums(pairs: Iterable[tuple[int, int]]) -> tuple[int, int]:
        first, second = zip(*pairs, strict=True)
        return sum(first), sum(second)
