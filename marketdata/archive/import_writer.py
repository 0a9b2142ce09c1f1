"""Writes what an import has placed, and keeps a journal: what is in the archive, and which books are open."""

from __future__ import annotations

import contextlib
import io
import json
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from marketdata.archive import ingest, query
from marketdata.archive.market_ranges import hull_of, times_of
from marketdata.archive.storage import errors
from marketdata.archive.storage.files import Store
from marketdata.archive.store import ArchiveStore
from marketdata.points.columns import Data, Token
from marketdata.points.views import SNAPSHOT_FIELDS, View
from marketdata.recordings.arrivals import VenueClock
from marketdata.recordings.changes import Changes, Rebuilder, no_changes

_NAME = "journal.parquet"
_TEXTS = {name: pl.String for name, kind in SNAPSHOT_FIELDS.items() if kind == "text"}


class Journal:
    """One file of the archive, replaced after each file that was imported."""

    def __init__(self, store: ArchiveStore) -> None:
        self._place = Store(f"{store.root.rstrip('/')}/imports", store.options)
        self._state: dict[str, Any] = {}
        absent = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with errors.reading(f"The journal of imports of {store.root}"), absent, self._place.open(_NAME) as file:
            body = file.read()
            self._open = pl.read_parquet(body)
            self._state = json.loads(pl.read_parquet_metadata(body)["state"])
        self.files: set[str] = set(self._state.get("files", ()))

    def restore(self, feed: Rebuilder, key: str) -> None:
        """The open books of the last import, if it had these options."""
        if self._state.get("key") == key:
            values = {column.name: column.to_numpy(writable=True) for column in self._open}
            arrays = {name: values.pop(name) for name in no_changes().arrays()}
            feed.open = Changes(tuple(Token(*token[:2]) for token in self._state["tokens"]), **arrays, values=values)
            feed.last_seen, feed.last_seen_before = self._state["last_seen"], self._state["last_seen_before"]
            kinds = (np.int64, np.int64, np.bool_)
            feed.clock = VenueClock(*map(np.array, self._state["clock"], kinds))

    def write(self, files: list[str], feed: Rebuilder, key: str) -> None:
        """The files are in the archive, and these books are open."""
        self.files.update(files)
        state = {
            "files": sorted(self.files), "key": key, "tokens": feed.open.tokens, "last_seen": feed.last_seen,
            "last_seen_before": feed.last_seen_before,
            "clock": [values.tolist() for values in (feed.clock.minutes, feed.clock.least, feed.clock.is_told)],
        }  # fmt: skip
        books = pl.DataFrame({**feed.open.arrays(), **feed.open.values}, schema_overrides=_TEXTS)
        books.write_parquet(buffer := io.BytesIO(), metadata={"state": json.dumps(state)})
        with errors.writing(f"Writing the journal of imports to {self._place.uri}"):
            if self._place.remote:
                self._place.write(_NAME, buffer.getvalue())
                return
            # Another name first, so that there is always a whole journal.
            Path(self._place.uri).mkdir(parents=True, exist_ok=True)
            self._place.write(new := f"{uuid.uuid4().hex}.part", buffer.getvalue())
            self._place.files.move(new, _NAME)


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
