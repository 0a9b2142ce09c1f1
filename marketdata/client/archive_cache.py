"""An archive as a cache: the client fetches only what is missing in it."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any, Protocol, Self

from marketdata.errors import MarketDataError
from marketdata.points.views import View


class HistoryArchive(Protocol):
    """An archive that a client reads through, by its methods of the same names."""

    def attach(self, client: Any, *, progress: bool | None = None) -> Self:
        """The same archive, which fetches what is missing from this client."""


def read_through(
    archive: Any,
    view: View,
    market: Any,
    span: tuple[Any, Any],
    resolution: str | None,
    levels: int | None,
) -> Any:
    """A view from an attached archive, which fetches what is missing; an error has ``.partial`` and no ``.resume``."""
    options: dict[str, Any] = {"levels": levels} if view == "books" else {}
    options |= {} if resolution is None else {"resolution": resolution}
    read = partial(getattr(archive, view), market, *span, **options)
    try:
        return read(on_missing="fetch")
    except MarketDataError as error:
        # Points that arrived are in the archive: the same call continues, and a resume would return less.
        error.resume = None
        with suppress(MarketDataError):
            error.partial = read(on_missing="partial")
        raise
