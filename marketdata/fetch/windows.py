"""Windows, the unit of work of a fetch: at most ``limit`` points, so one request returns all of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean
from typing import Literal

from marketdata.points.views import VIEWS, View
from marketdata.resolution import Resolution
from marketdata.times import Range, to_text
from marketdata.wire.models import LARGEST_LIMIT

IdKind = Literal["market", "token"]
# Pages that are left of a part when workers without work may divide it.
WORTH_DIVIDING = 3
# Windows, and pages, by which the width of the next ones is estimated.
_RECENT = 16
# Share of points that the emptiest page has where chance alone says how many a window has, and the margin for that.
_EVEN, _DEVIATIONS = 0.6, 1.2


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
    """How many buckets the pages of one market span, as they came."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque(maxlen=_RECENT)  # points and buckets of windows
        self._full: deque[int] = deque(maxlen=_RECENT)  # points of full pages
        self._share, self._labels = 1.0, 1

    def see(self, points: int, buckets: int, labels: int, full: Iterable[tuple[int, int]]) -> None:
        """A window of so many points in so many buckets of so many tokens; and the same of its full pages."""
        self._seen.append((points, buckets))
        for in_page, spanned in full:
            self._full.append(in_page)
            self._share, self._labels = min(self._share, in_page / (spanned * labels)), labels

    @property
    def known(self) -> bool:
        """Whether anything was seen."""
        return bool(self._seen)

    @property
    def is_even(self) -> bool:
        """Whether few buckets of any page lacked a point, so that it is known where pages end."""
        return self._share >= _EVEN

    def width(self, pages: int, limit: int, labels: int) -> int:
        """Buckets of a window of so many pages: narrower by what chance adds, so that the last does not run over."""
        seen = max(1, len(self._full))
        chance = (1 - self._share) * self._labels / limit * pages * (1 + pages / seen) if self.is_even else 0
        return max(1, round(self.buckets(limit, labels) * (pages - _DEVIATIONS * math.sqrt(chance))))

    def buckets(self, limit: int, labels: int) -> float:
        """How many buckets a page of the market spans."""
        if not self.known:
            return limit / labels
        every, points = (sum(pair[k] for pair in self._seen) for k in (1, 0))
        return self.page(limit) * every / max(1, points)

    def page(self, limit: int) -> float:
        """How many points a full page has."""
        return fmean(self._full) if self._full else limit
