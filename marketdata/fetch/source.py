"""The members of a venue with which client, archive, plans, pacing and resume work."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, Protocol

from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.plans import PlanLimits
from marketdata.fetch.windows import IdKind, Window
from marketdata.points.columns import Data, Page, Series, Trades
from marketdata.points.views import View
from marketdata.resolution import BucketWidth
from marketdata.times import Range
from marketdata.vendors import Service


class Source(Protocol):
    """A venue that can be asked for records and histories.

    All requests go through ``pacer`` and are retried inside. Errors are classes of `marketdata.errors`. A request for
    something that the venue lacks is a ConfigError before anything is sent. A source can be pickled.
    """

    @property
    def base_url(self) -> str:
        """Its address, for messages."""

    @property
    def service(self) -> Service:
        """Its name, views, resolutions and filters."""

    @property
    def limits(self) -> PlanLimits:
        """The limits of the key, as far as they are known."""

    @property
    def stream_address(self) -> str | None:
        """Where its stream is; None without one."""

    @property
    def pacer(self) -> Pacer:
        """Spaces its requests."""

    @property
    def latency(self) -> float | None:
        """The smoothed time from request to answer [s]; None before the first."""

    @property
    def server_time(self) -> float | None:
        """The venue's clock [Unix s]; None before the first answer that has a date."""

    def pages(
        self, window: Window, report: Report | None = None, stop: threading.Event | None = None
    ) -> Iterator[Page]:
        """All points of a window, page after page, in any order; points beyond the window are allowed.

        ``ts`` is the start of a bucket of the window's resolution. ``next_cursor`` is None on the last page only, and
        empty if nothing says whether a page follows. PaginationStalledError: the rest is requested by time.
        """

    def requests(self, window: Window, tokens: int) -> float:
        """The requests that a window takes if each bucket has the points of this many tokens.

        Windows of several markets may share requests.
        """

    def record(self, market: str) -> dict[str, Any]:
        """The record of a market by its id or slug, in the fields of the interface."""

    def records(
        self,
        kind: str,
        filters: Mapping[str, str | None],
        max_rows: int | None = None,
        page_size: int | None = None,
        report: Report | None = None,
    ) -> list[dict[str, Any]]:
        """Records of the listing ``series``, ``events`` or ``markets``, each id once.

        A record that cannot be read, or that the venue refuses, is left out and noted in ``report``.
        """

    def similar(self, name: str) -> Iterator[list[str]]:
        """Slugs of markets among which an unknown name may be meant, a request each."""

    def tags(self) -> list[str]:
        """Every tag in use."""

    def trades(self, market: str, rng: Range, kind: IdKind = "market") -> Iterator[Trades]:
        """Prints of a market in a range, each fill once, in any order."""

    def prints(self, market: str, rng: Range) -> Generator[tuple[Range, Trades], None, None]:
        """The same for writing: parts from the newest to the oldest, each with the range that it completes.

        The ranges touch, and the last begins where ``rng`` does. A part that ends after the one before it began has
        prints that came later than they should.
        """

    def candles(self, market: str, rng: Range, resolution: BucketWidth, report: Report | None = None) -> Series:
        """The candles of the tokens of a market that begin in a range; see `marketdata.points.candles`."""

    def now(self, view: View, tokens: Sequence[str]) -> Iterator[Data]:
        """The points of tokens at this moment, with the venue's times, in parts as they arrive."""

    def usage(self) -> dict[str, Any]:
        """Plan of the key and what is left of it; fills ``limits`` and tells the pacer."""

    def learn_limits(self) -> None:
        """Calls ``usage`` if the limits are unknown; never raises an error."""

    def health(self) -> dict[str, Any]:
        """``status`` and ``timestamp`` of the venue."""

    def close(self) -> None:
        """Close idle connections."""
