"""Reads of an archive.

`Reading` gives frames, eager, lazy, by SQL and into files. One warning names everything that is missing. `Reader` gives
columns and records as they are stored, for a service and for tests.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, cast, get_args

from marketdata.adapters.names import names
from marketdata.adapters.widths import with_width
from marketdata.addresses import name_in
from marketdata.archive import listings, query, scan, sql
from marketdata.archive.pull.run import Pull
from marketdata.archive.query import Missing
from marketdata.archive.record_columns import Listing
from marketdata.archive.scan import EngineName, query_of
from marketdata.archive.selection import Selection
from marketdata.archive.sources import Sources
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice, whole
from marketdata.points.columns import Data
from marketdata.points.records import RECORD_KINDS, RecordKind
from marketdata.points.views import VIEWS, View
from marketdata.tidy.frames import carry_counts, to_frame
from marketdata.times import Range, TimeLike, to_micros, to_range
from marketdata.typing import Frame, FrameKind

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Reading(Generic[Frame]):
    """Frames of a kind from a store; ``pull`` makes a run of the attached client, for reads that fetch first.

    The methods take the arguments of `marketdata.Archive`.
    """

    store: ArchiveStore
    kind: FrameKind
    pull: Callable[[], Pull] | None = None

    def frame(
        self,
        view: View,
        market: Any,
        start: TimeLike | None,
        end: TimeLike | None,
        resolution: Any,
        on_missing: Missing | None,
        levels: int | None = None,
    ) -> Frame:
        """The tidy points of a range, whose means carry their weights."""
        if levels is not None:
            whole("levels", levels)
        missing: Missing = choice("on_missing", "warn" if on_missing is None else on_missing, get_args(Missing))
        ranges = self._fetched(view, market, start, end) if missing == "fetch" else {}
        store = self.store.opened()
        spec, version = VIEWS[view], store.points[view].version()
        if not ranges:
            ids = self.market_ids(market)
            records = store.records(view, ids, version)
            ranges = query.covered_ranges(view, records, ids, start, end, missing, self._active)
        more: dict[str, Any] = {"levels": levels, "version": version, "counts": spec.is_mean}
        wanted_points = query_of(store, view, ranges, ranges, resolution, **more)
        points, counts = query.apart(wanted_points, store.base)
        width = wanted_points.width if spec.is_grid or wanted_points.as_bars else None
        return cast("Frame", carry_counts(to_frame(points, self.kind, width=width), counts))

    def lazy(
        self,
        view: View,
        market: Any,
        start: TimeLike | None,
        end: TimeLike | None,
        resolution: Any,
        engine: EngineName,
        *,
        levels: int | None,
        nested: bool,
    ) -> Any:
        """The rows of a range as the lazy frame of an engine."""
        store, view = self.store.opened(), choice("view", view, VIEWS)
        engine = choice("engine", engine, get_args(EngineName))
        ids = self.market_ids(market)
        wanted = query_of(store, view, ids, _range(start, end), resolution, levels=levels, nested=nested)
        if engine in ("polars", "arrow", "duckdb"):
            lazy: Any = {"polars": scan.lazy, "arrow": scan.to_arrow, "duckdb": sql.relation}[engine]
            is_prints = wanted.is_stored and not VIEWS[view].is_grid
            return lazy(wanted) if is_prints else with_width(lazy(wanted), wanted.width)
        every = ids if ids is not None else store.catalog["markets"].listing().ids
        parts = scan.by_market(wanted, every)
        return scan.to_dask(parts) if engine == "dask" else scan.to_spark(parts)

    def answer(
        self, statement: str, stop: threading.Event | None, max_rows: int | None, memory_limit: str | None
    ) -> Frame:
        """The rows of a SQL statement."""
        import polars as pl

        most = None if max_rows is None else whole("max_rows", max_rows, 0)
        store, connection = self.store.opened(), sql.connect(memory_limit)
        # Only the tables that the statement names are read; all of them for a statement that names none.
        named = {name for name in sql.TABLES if name in statement.lower()} or set(sql.TABLES)
        views: list[View] = [view for view in VIEWS if view in named or (view == "books" and "snapshots" in named)]
        points = [query_of(store, view, None, query.ALL_TIME, None, nested=view == "books") for view in views]
        records: dict[str, Any] = {
            kind: store.catalog[kind].listing().frame("polars").to_arrow() for kind in RECORD_KINDS if kind in named
        }
        if "coverage" in named:
            records["coverage"] = query.coverage_frame(store.coverage, "polars").to_arrow()
        return self.of(pl.DataFrame(pl.from_arrow(sql.answer(connection, statement, points, records, stop, most))))

    def export(
        self, view: View, path: Any, market: Any, start: TimeLike | None, end: TimeLike | None, resolution: Any
    ) -> None:
        """Write the rows of a range to a file."""
        if not isinstance(path, str | os.PathLike):
            raise ConfigError("is refused; pass the path of a file.", argument="path", value=path)
        store, view, wanted = self.store.opened(), choice("view", view, VIEWS), _range(start, end)
        ids = self.market_ids(market)
        records = {} if ids is None else store.records(view, ids)
        ranges = query.covered_ranges(view, records, ids, start, end, "warn", self._active) if ids else None
        scan.export(query_of(store, view, ranges, ranges or wanted, resolution), Path(path))
        if text := Sources(store).citations():
            Path(f"{os.fspath(path)}.citation.txt").write_text(text, encoding="utf-8")

    def markets(
        self,
        chosen: listings.Chosen,
        at: TimeLike | None,
        *,
        is_open: bool,
        keep: str | Iterable[str] = (),
    ) -> Frame:
        """Records of markets; with a time, the markets that existed then, with the columns that were known."""
        from marketdata.tidy.records import without_answers

        records = chosen.of(self.store.opened().catalog["markets"])
        if at is not None:
            began = partial(listings.first_rows, self.store.coverage)
            records = listings.existed(records, to_micros(at, "at"), began, is_open=is_open)
        frame = records.frame(self.kind)
        return cast("Frame", frame if at is None else without_answers(frame, keep=keep))

    def records(self, kind: RecordKind, search: str | None, **filters: str | None) -> Frame:
        """Records of a kind, see `listings.listed`."""
        return cast("Frame", listings.listed(self.store.opened().catalog[kind], search, **filters).frame(self.kind))

    def coverage(self) -> Frame:
        """The stored ranges."""
        return cast("Frame", query.coverage_frame(self.store.opened().coverage, self.kind))

    def report(self, kind: type[tuple[Any, ...]], rows: Iterable[tuple[Any, ...]]) -> Frame:
        """Named tuples as rows."""
        return cast("Frame", query.report(kind, rows, self.kind))

    def of(self, rows: pl.DataFrame) -> Frame:
        """A polars frame as the kind that was chosen."""
        return cast("Frame", query.in_kind(rows, self.kind))

    def _fetched(self, view: View, market: Any, start: TimeLike | None, end: TimeLike | None) -> dict[str, Range]:
        """The range of each market, after a pull of it from the attached client."""
        if self.pull is None or start is None or end is None:
            raise ConfigError(
                "on_missing='fetch' needs start= and end=, and a client: use archive.attach(client), or "
                "md.Client(..., archive=archive)."
            )
        run = self.pull()
        markets = run.run(Selection(self.store, run.feed, market), [view], start, end)
        return dict.fromkeys(markets, to_range(start, end))

    def _active(self, market: str) -> Range:
        """The buckets in which a market was active, as far as its record tells."""
        return query.active_range(self.store.catalog["markets"].of_id(market) or {}, self.store.base)

    def market_ids(self, market: Any) -> dict[str, str] | None:
        """Ids of markets, each with the name that was given; None for all."""
        if market is None:
            return None
        catalog, given = self.store.opened().catalog["markets"], names("market", market)
        if not given:
            raise ConfigError("names nothing; leave it out to read all markets.", argument="market", value=market)
        ids, version = {}, catalog.table.version()
        for name in given:
            identity = catalog.named(name, version)
            if identity is None:
                raise catalog.unknown(name)
            ids[identity] = name
        return ids


class _HasStore(Protocol):
    """An archive, as far as `Reader` needs it."""

    _store: ArchiveStore


class Reader:
    """Points and records of an archive, as they are stored."""

    def __init__(self, archive: _HasStore) -> None:
        self._store = archive._store  # noqa: SLF001  the archive has no public name for it

    @property
    def base(self) -> str:
        """Width of the stored points, such as "1m"."""
        return self._store.base.text

    def columns(
        self, view: View, market_id: str, rng: Range | None = None, resolution: Any = None, token_id: str | None = None
    ) -> Data:
        """Points of one market as Books or Series, sorted by token and time, whatever the coverage says.

        ``rng`` [microseconds UTC] selects base points, which are then aggregated; ``token_id`` selects one token.
        """
        view, wanted = choice("view", view, VIEWS), rng or query.ALL_TIME
        points = query_of(self._store, view, [market_id], wanted, resolution, token_id=token_id, counts=False)
        return points.columns()

    def stored_ranges(self, view: View, market_id: str, rng: Range) -> list[Range]:
        """Ranges [microseconds UTC] that may have points of a market, whatever the coverage says.

        ArchiveCorruptError if the coverage is damaged, as where frames are read: nobody can tell then what is missing.
        """
        self._store.coverage[view].records(market_id)
        return query.stored_ranges(self._store.points[view], market_id, rng)

    def version(self, table: View | RecordKind) -> int:
        """Number of the newest commit to a view or to records, from 0; -1 before it."""
        return self._store.tables[choice("view", table, (*VIEWS, *RECORD_KINDS))].version().number

    def listing(self, kind: RecordKind) -> Listing:
        """Records of a kind, by id."""
        return self._store.catalog[choice("kind", kind, RECORD_KINDS)].listing()

    def find_market(self, id_or_slug: str) -> dict[str, Any] | None:
        """The record of the market that a user names by id, slug, or address, or None."""
        catalog = self._store.catalog["markets"]
        identity = catalog.named(name_in(id_or_slug))
        return None if identity is None else catalog.of_id(identity)

    def find_token(self, token_id: str) -> tuple[dict[str, Any], str | None] | None:
        """The record of the market that has this token, and the token's label, or None."""
        return self._store.catalog["markets"].token(token_id)

    def coverage(self) -> Any:
        """The stored ranges as a polars frame."""
        return query.coverage_frame(self._store.coverage, "polars")


def _range(start: TimeLike | None, end: TimeLike | None) -> Range:
    if start is not None and end is not None:
        return to_range(start, end)
    first = query.ALL_TIME.start if start is None else to_micros(start, "start")
    return Range(first, query.ALL_TIME.end if end is None else to_micros(end, "end"))
