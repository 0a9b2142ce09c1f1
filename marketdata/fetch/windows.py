"""Windows to request, and what discovery knows of their market."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range, to_text
from marketdata.wire.models import LARGEST_LIMIT

IdKind = Literal["market", "token"]
# A cut costs part of a request, so fewer remaining pages than this are not divided.
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

    def within(self, start: int, end: int) -> Window:
        """A part of the window."""
        return replace(self, rng=Range(start, end))

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
