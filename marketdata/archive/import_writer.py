"""Writes what an import has placed: into its archive, or into a temporary one that tells what an import would do."""

from __future__ import annotations

from typing import Any

from marketdata.archive import ingest, query
from marketdata.archive.import_journal import Journal
from marketdata.archive.market_ranges import hull_of, times_of
from marketdata.archive.store import ArchiveStore
from marketdata.points.columns import Data
from marketdata.points.views import View
from marketdata.recordings.changes import Rebuilder


class Writer:
    """Adds points to an archive, and keeps in its journal which files are in it."""

    def __init__(self, store: ArchiveStore) -> None:
        self.store = store
        self.journal = Journal(store)

    def add(self, view: View, data: Any, grid: int = 0) -> tuple[Data, int]:
        """Add points as `ingest.add_points` does; returns those at the base, and how many replace others."""
        columns, growth = ingest.add_points(self.store, view, data, grid=grid)
        return columns, len(columns) - growth

    def imported(self, files: list[str], feed: Rebuilder, key: str) -> None:
        """Note that the files are in the archive, and which books are open."""
        self.journal.write(files, feed, key)


class Trial(Writer):
    """Adds points to an empty archive that has the base and the records of the ``real`` one, which stays as it is."""

    def __init__(self, store: ArchiveStore, real: ArchiveStore) -> None:
        self.store, self._real = store, real
        self.journal = Journal(real)

    def add(self, view: View, data: Any, grid: int = 0) -> tuple[Data, int]:
        """Add points; those that the real archive has count as replaced."""
        columns, replaced = super().add(view, data, grid)
        ranges = {market: hull_of(times, self._real.base.micros) for market, times in times_of(columns).items()}
        stored = query.read(self._real.points[view], view, ranges)
        keys = [
            {(points.tokens[code][:2], ts) for code, ts in zip(points.token.tolist(), points.ts.tolist(), strict=True)}
            for points in (columns, stored)
        ]
        return columns, min(len(columns), replaced + len(keys[0] & keys[1]))

    def imported(self, files: list[str], feed: Rebuilder, key: str) -> None:
        """Note nothing."""
