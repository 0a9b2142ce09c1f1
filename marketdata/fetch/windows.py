"""Windows, the unit of work of a fetch: at most ``limit`` points, so one request returns all of it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from marketdata.resolution import Resolution
from marketdata.times import Range, to_text
from marketdata.wire.views import View

IdKind = Literal["market", "token"]
LARGEST_LIMIT = 200
# Windows whose density is remembered: the densest of them decides how wide the next ones are.
_RECENT = 16
# At most so many times what was seen may be guessed at once.
_GROWTH = 16
_FAR = 2
# Where windows would fill pages to less than this share, wider ones that follow a cursor cost fewer requests.
_UNEVEN = 0.85
_SPARSE = 0.8
_CHAIN = 8
_PARALLEL = 2
# Windows that tell how much density differs.
_ENOUGH = 4


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

    def parts(self, window: Window) -> list[tuple[Range, bool]]:
        """The range cut where the market begins and ends, and whether each part lies inside."""
        width, (start, end) = window.resolution.micros, window.rng
        first = start if self.start is None else self.start // width * width
        last = end if self.end is None else -(-self.end // width) * width
        edges = sorted({start, end, *(e for e in (first, last) if start < e < end)})
        return [(Range(a, b), first <= a < last) for a, b in pairwise(edges)]


class Density:
    """How many points the buckets of one market have, as the service counts them, and how wide a window may be."""

    def __init__(self, limit: int, per_bucket: int, parallel: int = _PARALLEL) -> None:
        self.limit = limit
        self._parallel = parallel
        self._guess = max(1, per_bucket)
        self._recent: deque[tuple[int, int]] = deque(maxlen=_RECENT)
        self._span = 0  # buckets seen

    @property
    def known(self) -> bool:
        """Whether anything was seen."""
        return self._span > 0

    @property
    def is_empty(self) -> bool:
        """Whether all that was seen was empty."""
        return self.known and not any(units for units, _ in self._recent)

    @property
    def full(self) -> int:
        """Buckets of a page whose every bucket has all its points."""
        return max(1, self.limit // self._guess)

    def see(self, units: int, buckets: int, per_bucket: int) -> None:
        """A window of so many buckets had so many points, and may have so many in each bucket."""
        self._recent.append((units, buckets))
        self._span += buckets
        self._guess = max(1, per_bucket)

    def width(self, left: int) -> tuple[int, int]:
        """Buckets of the next window, of ``left``, and how many pages that should be."""
        if not self.known:
            return min(left, self.full), 1
        most = min(left, _GROWTH * self._span)
        units, buckets = (sum(column) for column in zip(*self._recent, strict=True))
        if not units:
            return most, 1
        mean, each = units / buckets, buckets / len(self._recent)
        share = min(1.0, mean / self._guess)
        spread = self._guess * math.sqrt(share * (1 - share) / each)
        if len(self._recent) >= _ENOUGH:
            spread = math.sqrt(sum((u / b - mean) ** 2 for u, b in self._recent) / len(self._recent))
        dense = min(mean + 2 * spread, max(self._guess, mean))
        pages = 1
        if mean < _UNEVEN * dense and (share < _SPARSE or len(self._recent) >= _ENOUGH):
            # As wide as that many points are expected: those too many for a page follow behind its cursor.
            pages, dense = min(_CHAIN, max(1, int(left * mean / self.limit / self._parallel))), mean
        return max(1, min(most, int(pages * self.limit / dense))), pages

    def is_guess(self, buckets: int) -> bool:
        """Whether a window is so wide that what was seen says little of it."""
        return self.known and buckets > _FAR * self._span


def cut(window: Window, buckets: int) -> Iterator[Window]:
    """The window in parts of so many buckets."""
    at = window.rng.start
    while at < window.rng.end:
        part = window.part(at, buckets)
        yield part
        at = part.rng.end
