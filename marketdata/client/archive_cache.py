"""An archive as a cache: the client fetches only what is missing in it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Self

from marketdata.accessor import carry
from marketdata.errors import MarketDataError
from marketdata.fetch.checkpoint import Report
from marketdata.points.views import View


class HistoryArchive(Protocol):
    """An archive that a client reads through, by its methods of the same names."""

    def attach(self, client: Any, *, progress: bool | None = None, clamp: bool = False) -> Self:
        """The same archive, which fetches what is missing from this client."""


def read_through(archive: Any, view: View, market: Any, span: tuple[Any, Any], report: Report, **options: Any) -> Any:
    """A view from an attached archive, which fetches what is missing; an error has ``.partial`` and no ``.resume``."""
    given = {name: value for name, value in options.items() if value is not None}
    read = partial(getattr(archive, view), market, *span, **given)
    try:
        return carry(read(on_missing="fetch"), report)
    except MarketDataError as error:
        # Points that arrived are in the archive: the same call continues, and a resume would return less.
        error.resume = None
        with suppress(MarketDataError):
            error.partial = carry(read(on_missing="partial"), report)
        raise
