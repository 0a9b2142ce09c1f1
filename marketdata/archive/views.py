"""The views of an archive as tidy frames, at any resolution, and what is fetched for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, overload

from marketdata.archive import points
from marketdata.archive.asking import whole_minutes
from marketdata.archive.holdings import Holdings
from marketdata.archive.pull import Pull, chosen
from marketdata.archive.reading import (
    Missing,
    checked_levels,
    checked_markets,
    checked_missing,
    checked_view,
    coarser,
    held_range,
)
from marketdata.errors import ConfigError
from marketdata.resolution import Resolution
from marketdata.times import Range, to_range
from marketdata.typing import Frame, FrameKind
from marketdata.wire.columns import AnyColumns, BookColumns, View, concat, empty

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame


class Views(Generic[Frame]):
    """The history half of an archive, with the client's names."""

    _holdings: Holdings
    _frame: FrameKind
    _client: Any = None
    _progress: bool | None = None

    @overload
    def books(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        levels: int | None = None,
        frame: None = None,
        on_missing: Missing | None = None,
    ) -> Frame: ...

    @overload
    def books(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        levels: int | None = None,
        frame: Literal["pandas"],
        on_missing: Missing | None = None,
    ) -> PandasFrame: ...

    @overload
    def books(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        levels: int | None = None,
        frame: Literal["polars"],
        on_missing: Missing | None = None,
    ) -> PolarsFrame: ...

    def books(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        levels: int | None = None,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Any:
        """Order books: one row per level of a side, the last book of each bucket (interface 4.2).

        Parameters
        ----------
        market : str or list of str
            Id or slug.
        start, end : time, optional
            Start inclusive, end exclusive [UTC]; without one, as far as the archive reaches.
        resolution : {"1m", "10m", "1h", "6h", "1d"}
        levels : int, optional
            At most so many best levels of each side.
        frame : {"pandas", "polars"}, optional
        on_missing : {"warn", "raise", "partial", "fetch"}, optional
            When only a part of the range is held: warn (default), raise, stay silent, or fetch the rest (at 1m, as
            ``pull`` does) from the client that is attached.

        Returns
        -------
        frame
            ``ts market_id token_id token_label side level price size``.

        Raises
        ------
        NotArchivedError
            For an unknown market, or a range that is not held; ``.range`` says which.
        ConfigError
            If an argument is refused, or there is no client to fetch from.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> market = archive.records("markets")[0]["slug"]
        >>> archive.books(market, "2025-12-31", "2025-12-31T06:00", "1h", levels=1)["ts"].nunique()
        6
        """
        levels = checked_levels(levels)
        columns = self._read("books", market, start, end, resolution, on_missing)
        if levels is not None and isinstance(columns, BookColumns):
            columns = columns.cut(levels)
        return self._to_frame(columns, frame)

    @overload
    def prices(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: None = None,
        on_missing: Missing | None = None,
    ) -> Frame: ...

    @overload
    def prices(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: Literal["pandas"],
        on_missing: Missing | None = None,
    ) -> PandasFrame: ...

    @overload
    def prices(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: Literal["polars"],
        on_missing: Missing | None = None,
    ) -> PolarsFrame: ...

    def prices(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Any:
        """Prices [probability 0 to 1]: one row per token and bucket, the mean of the bucket (interface 4.3).

        Parameters
        ----------
        market, start, end, resolution, frame, on_missing
            As in ``books``.

        Returns
        -------
        frame
            ``ts market_id token_id token_label price``; ``ts`` is the start of the bucket [UTC].

        Raises
        ------
        NotArchivedError, ConfigError
            As ``books``.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> prices = archive.prices(archive.records("markets")[0]["id"], resolution="6h")
        >>> len(prices), bool(prices["price"].between(0, 1).all())
        (8, True)
        """
        return self._to_frame(self._read("prices", market, start, end, resolution, on_missing), frame)

    @overload
    def metrics(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: None = None,
        on_missing: Missing | None = None,
    ) -> Frame: ...

    @overload
    def metrics(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: Literal["pandas"],
        on_missing: Missing | None = None,
    ) -> PandasFrame: ...

    @overload
    def metrics(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: Literal["polars"],
        on_missing: Missing | None = None,
    ) -> PolarsFrame: ...

    def metrics(
        self,
        market: str | Sequence[str],
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
        *,
        frame: FrameKind | None = None,
        on_missing: Missing | None = None,
    ) -> Any:
        """Market metrics: one row per market and bucket, the mean of the bucket (interface 4.4).

        Parameters
        ----------
        market, start, end, resolution, frame, on_missing
            As in ``books``.

        Returns
        -------
        frame
            ``ts market_id volume liquidity spread`` and further metrics; ``ts`` is the start of the bucket [UTC].

        Raises
        ------
        NotArchivedError, ConfigError
            As ``books``.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> archive.metrics(archive.records("markets")[0]["id"], resolution="6h")["ts"].dt.hour.tolist()
        [0, 6, 12, 18]
        """
        return self._to_frame(self._read("metrics", market, start, end, resolution, on_missing), frame)

    def columns(
        self,
        view: View,
        market_id: str,
        rng: Range | None = None,
        resolution: str = "1m",
        token_id: str | None = None,
    ) -> AnyColumns:
        """Points of one market as columns, sorted by token and time.

        Parameters
        ----------
        view : {"books", "prices", "metrics"}
        market_id : str
            The id, never a slug.
        rng : Range, optional
            Selects base points (1m) with start <= ts < end [microseconds UTC], which are then aggregated.
        resolution : str
        token_id : str, optional
            One token only.

        Returns
        -------
        BookColumns, PriceColumns or MetricColumns
            Empty where nothing is held; coverage is not looked at.

        Raises
        ------
        ConfigError
            If ``view`` or ``resolution`` does not exist.

        Examples
        --------
        >>> import marketdata as md
        >>> archive = md.simulate(events=1, days=1)
        >>> points = archive.columns("prices", archive.records("markets")[0]["id"], resolution="6h")
        >>> [token.token_label for token in points.tokens], len(points.ts)
        (['No', 'Yes'], 8)
        """
        width = Resolution.of(resolution)
        table = self._holdings.points[checked_view(view)]
        return coarser(points.read(table, view, market_id, rng, token_id), width)

    def _read(
        self, view: View, market: str | Sequence[str], start: Any, end: Any, resolution: str, on_missing: Missing | None
    ) -> AnyColumns:
        Resolution.of(resolution)
        missing = checked_missing(on_missing)
        if missing == "fetch":
            wanted = self._span(start, end)
            parts = [self.columns(view, m, wanted, resolution) for m in self._fill(view, market, wanted)]
            return concat(parts).sort() if parts else empty(view)  # type: ignore[type-var]
        parts = []
        for market_id in dict.fromkeys(map(self._market_id, checked_markets(market))):
            wanted = held_range(self._holdings.ledger, view, market_id, start, end, missing)
            parts.append(self.columns(view, market_id, wanted, resolution))
        return concat(parts).sort() if parts else empty(view)  # type: ignore[type-var]

    def _span(self, start: Any, end: Any) -> Range:
        if self._client is None:
            raise ConfigError(
                "on_missing='fetch' needs a client: use archive.attach(client), or md.Client(..., archive=archive)."
            )
        if start is None or end is None:
            raise ConfigError("on_missing='fetch' needs start= and end=.")
        return to_range(start, end)

    def _fill(self, view: View, market: str | Sequence[str], wanted: Range) -> list[str]:
        """Fetch what is missing; the ids of the markets."""
        run = Pull(self._holdings, self._client, dry_run=False, refresh=False, progress=self._progress)
        ids = chosen(self._holdings, self._client, market, None, None, refresh=False)
        run.run(ids, [view], whole_minutes(wanted))
        return ids

    def _market_id(self, id_or_slug: str) -> str:
        catalog = self._holdings.catalog["markets"]
        found = catalog.find(id_or_slug)
        if found is None:
            raise catalog.unknown(id_or_slug)
        return str(found["id"])

    def _to_frame(self, columns: AnyColumns, frame: FrameKind | None) -> Any:
        from marketdata.accessor import to_frame

        return to_frame(columns, frame or self._frame)
