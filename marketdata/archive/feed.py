"""What an archive asks of a client, and the clock by which it judges the answers."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from marketdata.archive.coverage.policy import MINUTE, ServerTime
from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, MarketDataError, ServiceOddityWarning, warn
from marketdata.points.columns import Data
from marketdata.points.views import INTERFACE_VIEWS, View
from marketdata.stream.channel import Channel
from marketdata.times import SECOND, Range, to_micros, to_text
from marketdata.typing import FrameKind


class Feed(Protocol):
    """What pulls ask; `marketdata.Client` has one. A source of your own that derives from this has the defaults."""

    @property
    def frame(self) -> FrameKind | None:
        """The kind of its frames; None if it does not say."""
        return None

    @property
    def views(self) -> tuple[str, ...]:
        """The views with a history."""
        return INTERFACE_VIEWS

    @property
    def live_views(self) -> tuple[str, ...]:
        """The views without a history."""
        return ()

    @property
    def is_sparse(self) -> bool:
        """Whether there is no point of a bucket in which nothing changed."""
        return False

    def resolutions(self) -> Sequence[str]:
        """What service and plan have, the finest first; empty if that is not known."""
        return ()

    def history_start(self) -> int | None:
        """The first time that the plan allows [microseconds]; None if that is not known."""
        return None

    def server_time(self) -> dt.datetime | None:
        """The clock of the service by an answer; None if none has a date."""
        return None

    def health(self) -> Mapping[str, Any]:
        """``timestamp`` of the service, which may be older than its clock."""

    def market(self, id_or_slug: str) -> Mapping[str, Any]:
        """The record of a market; NotFoundError."""

    def market_records(self, names: Iterable[str]) -> Sequence[Mapping[str, Any]]:
        """The records of several markets, without the unknown ones."""

    def markets(self, *args: Any, **filters: Any) -> Any:
        """A frame or records of the markets that pass filters."""

    def events(self, *args: Any, **filters: Any) -> Any:
        """The same of events."""

    def iter_columns(
        self,
        requests: Iterable[tuple[View, str, Range]],
        resolution: str,
        *,
        progress: Callable[[int], object] | None = None,
    ) -> Generator[tuple[int, Range, Data, bool], None, None]:
        """Points as they arrive: the index of the request, the range, its points, and whether all of them came."""

    def stream(self) -> Channel:
        """How its stream is subscribed; ConfigError without one."""
        raise ConfigError("This client has no stream.")

    def live_columns(self, view: View, tokens: Sequence[str]) -> Iterator[Data]:  # noqa: ARG002 nothing
        """The points of tokens at this moment, in parts as they arrive."""
        return iter(())


class HasFeed(Protocol):
    """A client, as far as an archive needs it; see `marketdata.Client`."""

    @property
    def feed(self) -> Feed:
        """What an archive asks."""


def feed_of(client: HasFeed | Feed) -> Feed:
    """The feed of a client, or a feed itself; anything else is a ConfigError."""
    feed = getattr(client, "feed", client)
    if not hasattr(feed, "iter_columns"):
        raise ConfigError(f"client is {type(client).__name__}; pass md.Client(base_url, api_key).")
    return cast("Feed", feed)


def clock_of(feed: Feed) -> ServerTime:
    """The server's time, or the local time if earlier; without a server's time nothing of the last day is final."""
    here = round(SYSTEM.time() * SECOND)
    try:
        # The Date of an answer is the server's clock; the timestamp of health may be older.
        date = feed.server_time()
        there = to_micros(feed.health()["timestamp"] if date is None else date, "timestamp")
    except (MarketDataError, KeyError, TypeError):
        return ServerTime(here, is_known=False)
    ahead = max(0, there - here)
    if ahead > MINUTE:
        warn(
            f"The clock of the service ({to_text(there)}) is {ahead // SECOND} s ahead of the clock of this "
            "machine. The earlier one decides what is final.",
            ServiceOddityWarning,
            hint="Set the clock that is wrong; ranges between the two are requested again.",
        )
    return ServerTime(there - ahead, ahead)
