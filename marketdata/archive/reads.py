"""The reading half of an archive: frames at any resolution, columns, scans, and what is held."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, overload

from marketdata.archive import points
from marketdata.archive.catalog import KINDS, Kind
from marketdata.archive.holdings import Holdings
from marketdata.archive.imports import write
from marketdata.archive.reading import (
    Missing,
    checked_levels,
    checked_markets,
    checked_missing,
    checked_view,
    coarser,
    coverage_frame,
    held_range,
)
from marketdata.archive.scan import scan, within
from marketdata.errors import ConfigError
from marketdata.resolution import Resolution
from marketdata.times import Range, to_micros
from marketdata.typing import Frame, FrameKind
from marketdata.wire.columns import AnyColumns, BookColumns, View, concat, empty

if TYPE_CHECKING:
    from marketdata.typing import PandasFrame, PolarsFrame, PolarsLazyFrame


class Reads(Generic[Frame]):
    """What an archive answers."""

    _holdings: Holdings
    _frame: FrameKind

    @property
    def simulated(self) -> bool:
        """Whether any market in it is simulated; shown wherever its data is shown."""
        return any(record.get("simulated") is True for record in self.records("markets"))

    def version(self, view: View) -> int:
        """Number of the newest commit of a view's table; -1 before the first. It changes when data does."""
        return self._holdings.points[checked_view(view)].state().version

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
        """
        width = Resolution.of(resolution)
        table = self._holdings.points[checked_view(view)]
        return coarser(points.read(table, view, market_id, rng, token_id), width)

    def records(self, kind: Kind) -> list[dict[str, Any]]:
        """Records of ``"series"``, ``"events"`` or ``"markets"`` in the shape of the wire, by id."""
        if kind not in KINDS:
            raise ConfigError(f"records of {kind!r} do not exist; allowed are {', '.join(KINDS)}.")
        return [dict(record) for record in self._holdings.catalog[kind].records()]

    def find_market(self, id_or_slug: str) -> dict[str, Any] | None:
        """The record of the market with this id, else with this slug."""
        found = self._holdings.catalog["markets"].find(id_or_slug)
        return None if found is None else dict(found)

    def find_token(self, token_id: str) -> tuple[dict[str, Any], str | None] | None:
        """The record of the market that has this token, and the token's label."""
        found = self._holdings.catalog["markets"].token(token_id)
        return None if found is None else (dict(found[0]), found[1])

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
        on_missing : {"warn", "raise", "partial"}, optional
            When only a part of the range is held: warn (default), raise, or stay silent.

        Returns
        -------
        frame
            ``ts market_id token_id token_label side level price size``.

        Raises
        ------
        NotArchivedError
            For an unknown market, or a range that is not held; ``.range`` says which.
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

        Parameters, errors and ``on_missing`` are those of ``books``.

        Returns
        -------
        frame
            ``ts market_id token_id token_label price``.
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

        Parameters, errors and ``on_missing`` are those of ``books``.

        Returns
        -------
        frame
            ``ts market_id volume liquidity spread`` and further metrics.
        """
        return self._to_frame(self._read("metrics", market, start, end, resolution, on_missing), frame)

    def _read(
        self, view: View, market: str | Sequence[str], start: Any, end: Any, resolution: str, on_missing: Missing | None
    ) -> AnyColumns:
        Resolution.of(resolution)
        missing = checked_missing(on_missing)
        parts = []
        for market_id in dict.fromkeys(map(self._market_id, checked_markets(market))):
            wanted = held_range(self._holdings.ledger, view, market_id, start, end, missing)
            parts.append(self.columns(view, market_id, wanted, resolution))
        return concat(parts).sort() if parts else empty(view)  # type: ignore[type-var]

    def _market_id(self, id_or_slug: str) -> str:
        catalog = self._holdings.catalog["markets"]
        found = catalog.find(id_or_slug)
        if found is None:
            raise catalog.unknown(id_or_slug)
        return str(found["id"])

    def scan(self, view: View) -> PolarsLazyFrame:
        """A lazy polars frame of a view at 1m: tidy rows, one marker row per empty side of a book.

        Predicates on ``ts`` and ids, the choice of columns and limits reach the files, so an archive larger than
        memory can be filtered, aggregated and written with ``sink_parquet``. Ids are plain text here.
        Rows stand by market, token and time within each file. The frame shows one committed version.
        """
        rows = scan(self._holdings.points[checked_view(view)], view, self._holdings.options)
        return cast("PolarsLazyFrame", rows)

    def export(
        self,
        view: View,
        path: str | os.PathLike[str],
        market: str | Sequence[str] | None = None,
        start: Any = None,
        end: Any = None,
        resolution: str = "1m",
    ) -> None:
        """Write tidy rows to a Parquet, CSV or JSON lines file.

        Without ``market``, all of the view is streamed at 1m in bounded memory.

        Raises
        ------
        ConfigError
            If the end of the name is not known, or all markets are asked at another resolution than 1m.
        NotArchivedError
            As ``books``.
        """
        if market is not None:
            frame = getattr(self, checked_view(view))(market, start, end, resolution, frame="polars")
            return write(frame, Path(path))
        if Resolution.of(resolution) is not Resolution.M1:
            raise ConfigError("Without market= a view is exported at 1m; name the markets for a coarser resolution.")
        rows = self.scan(view)
        return write(within(rows, start, end), Path(path))

    def files(self, view: View, market: str | None = None, start: Any = None, end: Any = None) -> list[str]:
        """Parquet files that hold a view (of one market, in a range), for engines that take file lists.

        A file may hold more than was asked: filter again. Books lie one row per snapshot, with the list
        columns ``bid_price bid_size ask_price ask_size``.
        """
        table = self._holdings.points[checked_view(view)]
        market_id = None if market is None else self._market_id(market)
        first = points.ALL_TIME.start if start is None else to_micros(start, "start")
        last = points.ALL_TIME.end if end is None else to_micros(end, "end")
        return [table.store.uri(f.path) for f in table.state().files if f.may_hold(market_id, first, last)]

    @overload
    def coverage(self, *, frame: None = None) -> Frame: ...

    @overload
    def coverage(self, *, frame: Literal["pandas"]) -> PandasFrame: ...

    @overload
    def coverage(self, *, frame: Literal["polars"]) -> PolarsFrame: ...

    def coverage(self, *, frame: FrameKind | None = None) -> Any:
        """What is held: one row per range of a market's view.

        Returns
        -------
        frame
            ``view market_id start end state rows content_hash fetched_at``: [start, end) in UTC; ``state`` is
            final, provisional, empty_observed, unproven or missing; ``rows`` and ``content_hash`` of the
            points at 1m (null where a later write has cut the range).
        """
        return coverage_frame(self._holdings.ledger, frame or self._frame)

    def _to_frame(self, columns: AnyColumns, frame: FrameKind | None) -> Any:
        from marketdata.accessor import to_frame

        return to_frame(columns, frame or self._frame)
