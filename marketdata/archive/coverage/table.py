"""The coverage table: records are appended after their points are committed, and read as coverage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import polars as pl
import pyarrow as pa

from marketdata.archive.coverage.intervals import CoverageRecord, overlay
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import DataFile
from marketdata.archive.storage.tables import Table, Version
from marketdata.times import SECOND

CoverageKey = tuple[str, str]
_Row = tuple[str, str, int, int, str, int | None, int, int, int, int]
_TS = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [
        ("view", pa.string()),
        ("market_id", pa.string()),
        ("start", _TS),
        ("end", _TS),
        ("state", pa.string()),
        ("rows", pa.int64()),
        ("fetched_at", _TS),
        ("seq", pa.int64()),
        ("tries", pa.int64()),
        ("commit", pa.int64()),
    ]
)
_KEY, _TIMES = ["view", "market_id"], ["start", "end", "fetched_at"]
_ORDER = [*_KEY, "start", "seq", "commit"]
# No records; times are microseconds.
_NONE = pl.DataFrame(pl.from_arrow(SCHEMA.empty_table())).with_columns(pl.col(_TIMES).dt.epoch("us"))
# Of format 1: a range without points had a state of its own, and counted the answers before.
_EMPTY = "empty_observed"
# From so many files on, in a folder or an object store, a commit joins them.
_MANY_FILES, _MANY_REMOTE = 64, 4
_FEW = 16
# In an object store, where there are no locks, a writer that has committed points but not yet their coverage is at
# most so old; what is younger is not merged, because such a writer's record would have to go between.
_IN_FLIGHT = 600 * SECOND
_APART = 1800 * SECOND


class CoverageTable:
    """Which ranges of which market and view are stored."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._lock = threading.RLock()
        self._shown = -2
        self._files: dict[str, pl.DataFrame] = {}
        self._rows = _NONE
        self._known: dict[CoverageKey, list[CoverageRecord]] = {}

    def records(self, view: str, market_id: str) -> list[CoverageRecord]:
        """Disjoint records of one market's view in time order."""
        with self._lock:
            self._refresh()
            key = (view, market_id)
            if key not in self._known:
                self._known[key] = overlay(_records(self._of(key)))
            return self._known[key]

    def _of(self, key: CoverageKey) -> list[_Row]:
        if len(self._known) < _FEW and "_index" not in self.__dict__:
            # A process that reads few markets does not look at the others one by one.
            view, market_id = key
            return self._rows.filter(pl.col("market_id") == market_id, pl.col("view") == view).rows()
        at, count = self._index[1].get(key, (0, 0))
        return self._sorted[at : at + count]

    @cached_property
    def _index(self) -> tuple[pl.DataFrame, dict[CoverageKey, tuple[int, int]]]:
        """All records, sorted by view and market, and where those of each begin and how many there are."""
        rows = self._rows.sort(_ORDER)
        places = rows.with_row_index().group_by(_KEY, maintain_order=True).agg(pl.first("index"), count=pl.len())
        return rows, {(view, market): (at, count) for view, market, at, count in places.iter_rows()}

    @cached_property
    def _sorted(self) -> list[_Row]:
        return self._index[0].rows()

    def keys(self) -> list[CoverageKey]:
        """Every (view, market_id) with a record, sorted."""
        with self._lock:
            self._refresh()
            return list(self._index[1])

    def all(self, *, merge: bool = True) -> pl.DataFrame:
        """All disjoint records, sorted by view, market and time; with ``merge`` touching ones of a state as one."""
        with self._lock:
            self._refresh()
            rows, _ = self._index
            # Few markets have records that overlap: only of those is the overlay made.
            is_cut = (pl.col("start") < pl.col("end").shift()) & _same(_KEY)
            mixed = rows.filter(is_cut).select(_KEY).unique(maintain_order=True)
            if len(mixed):
                laid = [(key, record) for key in mixed.iter_rows() for record in self.records(*key)]
                rows = pl.concat([rows.join(mixed, on=_KEY, how="anti"), record_rows(laid)]).sort(_ORDER)
            return _merged(rows) if merge else rows

    def _refresh(self) -> None:
        self._show(self.table.version())

    def _show(self, version: Version) -> None:
        if version.number == self._shown:
            return
        paths = {f.path: f for f in version.files}
        self._files = {path: rows for path, rows in self._files.items() if path in paths}
        for path, file in paths.items():
            if path not in self._files:
                with errors.repairable():
                    self._files[path] = _plain(self.table.read(file))
        self._rows = pl.concat([_NONE, *self._files.values()])
        self._known = {}
        for name in ("_index", "_sorted"):
            self.__dict__.pop(name, None)
        self._shown = version.number

    def append(self, records: Mapping[CoverageKey, Sequence[CoverageRecord]]) -> None:
        """Write records; those of points after these are committed."""
        if not any(records.values()):
            return

        def make(version: Version) -> tuple[list[DataFile], list[DataFile]]:
            new = [(key, r._replace(commit=version.number + 1)) for key, some in records.items() for r in some]
            if len(version.files) < (_MANY_REMOTE if self.table.remote else _MANY_FILES):
                return self._put(record_rows(new)), []
            # In the same commit the others become one file: this one starts with what it read.
            return self._put(pl.concat([self._joined(version), record_rows(new)])), list(version.files)

        self.table.plan(make)

    def _put(self, rows: pl.DataFrame) -> list[DataFile]:
        files = self.table.put(_to_arrow(rows), np.ones(len(rows), dtype=np.int64)) if len(rows) else []
        if len(files) == 1:
            with self._lock:
                self._files[files[0].path] = rows
        return files

    def renumber(self) -> None:
        """Order all records before those of the first version of any table."""

        def make(version: Version) -> tuple[list[DataFile], list[DataFile]] | None:
            rows = self.all(merge=False).with_columns(seq=0, commit=0).cast(_NONE.schema)
            return self._put(rows), list(version.files)

        self.table.plan(make)

    def compact(self) -> None:
        """All records in one file, and touching ones of one state as one."""
        self.table.plan(lambda version: (self._put(self._joined(version)), list(version.files)), data_change=False)

    def _joined(self, version: Version) -> pa.Table:
        """The records of a version, touching ones of a state as one."""
        with self._lock:
            self._show(version)
            rows = self.all(merge=False)
            if not self.table.remote:
                return _merged(rows)
            is_old = pl.col("fetched_at") < time.time_ns() // 1000 - _IN_FLIGHT
            return pl.concat([_merged(rows.filter(is_old)), rows.filter(~is_old)]).sort(_ORDER)


def record_rows(records: Iterable[tuple[CoverageKey, CoverageRecord]]) -> pl.DataFrame:
    """Records as rows of the coverage table."""
    rows = [(*key, start, end, str(state), *more) for key, (start, end, state, *more) in records]
    return pl.DataFrame(rows, schema=_NONE.schema, orient="row")


def _records(rows: Iterable[_Row]) -> list[CoverageRecord]:
    return [
        CoverageRecord(start, end, CoverageState(state), count, *more) for _, _, start, end, state, count, *more in rows
    ]


def _plain(table: pa.Table) -> pl.DataFrame:
    """Rows of a file, times as microseconds."""
    with errors.parsing("The coverage table"):
        rows = pl.DataFrame(pl.from_arrow(pa.table({f.name: table[f.name].cast(f.type) for f in SCHEMA})))
    rows = rows.with_columns(pl.col(_TIMES).dt.epoch("us"))
    was_empty = pl.col("state") == _EMPTY
    if not rows.select(was_empty.any()).item():
        return rows
    return rows.with_columns(
        pl.when(was_empty).then(pl.lit(str(CoverageState.PROVISIONAL))).otherwise("state").alias("state"),
        pl.when(was_empty).then(pl.col("rows").fill_null(0)).otherwise("rows").alias("rows"),
        tries=pl.col("tries") + was_empty,
    )


def _to_arrow(rows: pl.DataFrame) -> pa.Table:
    """Rows as those of a file."""
    return rows.to_arrow(compat_level=pl.CompatLevel.oldest()).cast(SCHEMA)


def _same(columns: Iterable[str]) -> pl.Expr:
    """Whether columns are as in the row before."""
    return pl.all_horizontal(pl.col(name).eq_missing(pl.col(name).shift()) for name in columns)


def _merged(rows: pl.DataFrame) -> pl.DataFrame:
    """Touching records of one state as one; their rows add up."""
    waits = pl.col("state") == str(CoverageState.PROVISIONAL)
    told_apart = rows.with_columns(
        is_known=pl.col("rows").is_not_null(),
        # Ranges that are due at different times stay apart.
        due=pl.when(waits).then(pl.col("fetched_at") // _APART),
        # What is empty says how long there was no point: what has some is not added to it.
        is_empty=pl.when(waits).then(pl.col("rows").eq_missing(0)),
    )
    alike = (pl.col("start") == pl.col("end").shift()) & _same([*_KEY, "state", "tries", "is_known", "due", "is_empty"])
    runs = told_apart.group_by((~alike).fill_null(value=True).cum_sum().alias("run"), maintain_order=True)
    return runs.agg(
        pl.first(*_KEY, "start"),
        pl.last("end"),
        pl.first("state"),
        pl.when(pl.first("is_known")).then(pl.sum("rows")).alias("rows"),
        pl.min("fetched_at"),
        pl.max("seq"),
        pl.first("tries"),
        pl.max("commit"),
    ).drop("run")
