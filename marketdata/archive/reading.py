"""Reads of an archive as frames: eager, lazy, by SQL and into files; what is missing is said once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from marketdata.adapters.widths import with_width
from marketdata.archive import listings, query, scan, sql
from marketdata.archive.pull import Pull
from marketdata.archive.query import Missing
from marketdata.archive.scan import EngineName, query_of
from marketdata.archive.selection import Selection
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice, names, whole
from marketdata.points.records import RECORD_KINDS
from marketdata.points.views import VIEWS, View
from marketdata.tidy.frames import carry_counts, to_frame
from marketdata.times import Range, TimeLike, to_micros, to_range
from marketdata.typing import FrameKind


@dataclass(frozen=True)
class Reading:
    """Frames of a kind from a store; ``pull`` makes a run of the attached client, for reads that fetch first.

    The arguments are those of the methods of `marketdata.Archive`.
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
    ) -> Any:
        """The tidy points of a range, whose means carry their weights."""
        if levels is not None:
            whole("levels", levels)
        missing: Missing = choice("on_missing", "warn" if on_missing is None else on_missing, get_args(Missing))
        ranges = self._fetched(view, market, start, end) if missing == "fetch" else {}
        store = self.store.opened()
        width, version = store.width(resolution), store.points[view].version()
        if not ranges:
            ids = self._market_ids(market)
            records = store.records(view, ids, version)
            ranges = query.covered_ranges(view, records, ids, start, end, missing, self._active)
        more: dict[str, Any] = {"levels": levels, "version": version, "counts": VIEWS[view].is_mean}
        points, counts = query.apart(query_of(store, view, ranges, ranges, width, **more), store.base)
        return carry_counts(to_frame(points, self.kind, width=width), counts)

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
        ids = self._market_ids(market)
        wanted = query_of(store, view, ids, _range(start, end), resolution, levels=levels, nested=nested)
        if engine in ("polars", "arrow", "duckdb"):
            lazy: Any = {"polars": scan.lazy, "arrow": scan.to_arrow, "duckdb": sql.relation}[engine]
            return with_width(lazy(wanted), wanted.width)
        every = ids if ids is not None else [str(record["id"]) for record in store.catalog["markets"].records()]
        parts = scan.by_market(wanted, every)
        return scan.to_dask(parts) if engine == "dask" else scan.to_spark(parts)

    def answer(
        self, statement: str, stop: threading.Event | None, max_rows: int | None, memory_limit: str | None
    ) -> Any:
        """The rows of a SQL statement."""
        import polars as pl

        most = None if max_rows is None else whole("max_rows", max_rows, 0)
        store, connection = self.store.opened(), sql.connect(memory_limit)
        # Only the tables that the statement names are read; all of them for a statement that names none.
        named = {name for name in sql.TABLES if name in statement.lower()} or set(sql.TABLES)
        views = [view for view in VIEWS if view in named or (view == "books" and "snapshots" in named)]
        points = [query_of(store, view, None, query.ALL_TIME, None, nested=view == "books") for view in views]
        records: dict[str, Any] = {
            kind: listings.records_frame(kind, store.catalog[kind].records(), "polars").to_arrow()
            for kind in RECORD_KINDS
            if kind in named
        }
        if "coverage" in named:
            records["coverage"] = query.coverage_frame(store.coverage, "polars").to_arrow()
        _made = sql.define(connection, points, records)
        return query.in_kind(pl.DataFrame(pl.from_arrow(sql.answer(connection, statement, stop, most))), self.kind)

    def export(
        self, view: View, path: Any, market: Any, start: TimeLike | None, end: TimeLike | None, resolution: Any
    ) -> None:
        """Write the rows of a range to a file."""
        if not isinstance(path, str | os.PathLike):
            raise ConfigError("is refused; pass the path of a file.", argument="path", value=path)
        store, view, wanted = self.store.opened(), choice("view", view, VIEWS), _range(start, end)
        ids = self._market_ids(market)
        records = {} if ids is None else store.records(view, ids)
        ranges = query.covered_ranges(view, records, ids, start, end, "warn", self._active) if ids else None
        scan.export(query_of(store, view, ranges, ranges or wanted, resolution), Path(path))

    def markets(
        self,
        event_slug: str | None,
        search: str | None,
        at: TimeLike | None,
        *,
        is_open: bool,
        keep: str | Iterable[str] = (),
    ) -> Any:
        """Records of markets; with a time, those that existed then, with what was known."""
        from marketdata.tidy.records import without_answers

        records = listings.listed(self.store.opened().catalog["markets"], search, event_slug=event_slug)
        if at is not None:
            began = partial(listings.first_rows, self.store.coverage)
            records = listings.existed(records, to_micros(at, "at"), began, is_open=is_open)
        frame = listings.records_frame("markets", records, self.kind)
        return frame if at is None else without_answers(frame, keep=keep)

    def _fetched(self, view: View, market: Any, start: TimeLike | None, end: TimeLike | None) -> dict[str, Range]:
        """The range of each market, after a pull of it from the attached client."""
        if self.pull is None or start is None or end is None:
            raise ConfigError(
                "on_missing='fetch' needs start= and end=, and a client: use archive.attach(client), or "
                "md.Client(..., archive=archive)."
            )
        run = self.pull()
        markets = run.run(Selection(self.store, run.client, markets=market), [view], start, end)
        return dict.fromkeys(markets, to_range(start, end))

    def _active(self, market: str) -> Range:
        """The buckets in which a market was active, as far as its record tells."""
        return query.active_range(self.store.catalog["markets"].of_id(market) or {}, self.store.base)

    def _market_ids(self, market: Any) -> dict[str, str] | None:
        """Ids of markets, each with the name that was given; None for all."""
        if market is None:
            return None
        catalog, given = self.store.opened().catalog["markets"], names("market", market)
        if not given:
            raise ConfigError("names nothing; leave it out to read all markets.", argument="market", value=market)
        ids, version = {}, catalog.table.version()
        for name in given:
            identity = catalog.find_id(name, version)
            if identity is None:
                raise catalog.unknown(name)
            ids[identity] = name
        return ids


def _range(start: TimeLike | None, end: TimeLike | None) -> Range:
    if start is not None and end is not None:
        return to_range(start, end)
    first = query.ALL_TIME.start if start is None else to_micros(start, "start")
    return Range(first, query.ALL_TIME.end if end is None else to_micros(end, "end"))
