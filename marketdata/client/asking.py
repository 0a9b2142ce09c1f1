"""What every call of the client shares: who is asked, how, and with which walk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, Self

from marketdata.accessor import to_frame
from marketdata.client.history import History, Options
from marketdata.client.targets import wanted
from marketdata.client.through import KeepsHistory, read_through
from marketdata.fetch.position import Kind, Report, Request
from marketdata.fetch.transport import Transport
from marketdata.resolution import Resolution
from marketdata.times import Range, to_range
from marketdata.typing import Frame, FrameKind
from marketdata.wire.columns import View

Markets = str | Iterable[str]


class Asking(Generic[Frame]):
    """A connection with its options."""

    frame: FrameKind
    _transport: Transport
    _options: Options
    _history: History
    _archive: KeepsHistory | None

    def close(self) -> None:
        """Close idle connections; the end of a ``with md.Client(...)`` block does it too.

        Examples
        --------
        >>> import marketdata as md
        >>> with md.serve(md.simulate(events=1, days=1)) as service:
        ...     client = md.Client(service.base_url, service.api_key)
        ...     client.close()
        ...     client.health().status  # opens a connection again
        'ok'
        """
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_transport"):
            return "Client(not made)"
        return f"Client({self._transport.base_url!r}, {self._transport.keys!r}, frame={self.frame!r})"

    def __getstate__(self) -> dict[str, Any]:
        names = ("_transport", "frame", "_options", "_archive")
        return {name: getattr(self, name) for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._history = History(self._transport, self._options)

    def _get(
        self, view: View, kind: Kind, ids: Any, span: tuple[Any, Any], resolution: str, levels: int | None, report: bool
    ) -> Any:
        account = Report()
        if self._archive is not None and kind == "market":
            frame = read_through(
                self._archive, self, view, ids, span, resolution, levels, account, self._options.progress
            )
            return (frame, account) if report else frame
        requests = self._requests(view, kind, ids, to_range(*span), resolution)
        frame = to_frame(self._history.columns(requests, account, levels, self.frame), self.frame)
        return (frame, account) if report else frame

    def _iter(
        self, view: View, market: Any, span: tuple[Any, Any], resolution: str, levels: int | None
    ) -> Iterator[Frame]:
        requests = self._requests(view, "market", market, to_range(*span), resolution, bounded=True)
        return self._history.frames(requests, Report(), levels, self.frame)

    def _requests(
        self, view: View, kind: Kind, ids: Any, rng: Range, resolution: str, *, bounded: bool = False
    ) -> list[Request]:
        asked = wanted(view, kind, ids, rng, Resolution.of(resolution), self._options.page_limit)
        return self._history.catalogue.requests(asked, bounded=bounded)
