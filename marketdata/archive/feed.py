"""The requests of an archive to a client."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from marketdata.errors import ConfigError
from marketdata.points.columns import Data
from marketdata.points.views import INTERFACE_VIEWS, View
from marketdata.stream.channel import Channel
from marketdata.times import Range
from marketdata.typing import FrameKind


class Feed(Protocol):
    """A client, as far as pulls need it; see `marketdata.Client`. One that derives from this has the defaults."""

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
