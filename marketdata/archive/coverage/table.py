"""The coverage table: records are appended after their points are committed, and read as coverage."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from marketdata.archive.coverage.intervals import CoverageRecord, overlay
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import DataFile
from marketdata.archive.storage.tables import Table, Version
from marketdata.points.columns import Ints
from marketdata.times import SECOND

CoverageKey = tuple[str, str]
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
        self._files: dict[str, pa.Table] = {}
        self._rows: pa.Table = SCHEMA.empty_table()
        self._known: dict[CoverageKey, list[CoverageRecord]] = {}

    def records(self, view: str, market_id: str) -> list[CoverageRecord]:
        """Disjoint records of one market's view in time order."""
        with self._lock:
            self._refresh()
            key = (view, market_id)
            if key not in self._known:
                self._known[key] = overlay(_records(self._of(key)))
            return self._known[key]

    def _of(self, key: CoverageKey) -> pa.Table:
        if len(self._known) < _FEW and "_index" not in self.__dict__:
            # A process that reads few markets does not look at the others one by one.
            same = [pc.equal(self._rows[name], value) for name, value in zip(("view", "market_id"), key, strict=True)]
            return self._rows.filter(pc.and_(*same))
        rows, places = self._index
        start, end = places.get(key, (0, 0))
        return rows.slice(start, end - start)

    @cached_property
    def _index(self) -> tuple[pa.Table, dict[CoverageKey, tuple[int, int]]]:
        """All records, sorted by view and market, and where those of each begin and end."""
        rows = _sorted(self._rows)
        return rows, _places(rows)

    def keys(self) -> list[CoverageKey]:
        """Every (view, market_id) with a record, sorted."""
        with self._lock:
            self._refresh()
            return list(self._index[1])

    def all(self, *, merge: bool = True) -> pa.Table:
        """All disjoint records, sorted by view, market and time; with ``merge`` touching ones of a state as one."""
        with self._lock:
            self._refresh()
            rows, places = self._index
            if not rows.num_rows:
                return rows
            # Few markets have records that overlap: only of those is the overlay made.
            start, end = _ints(rows, "start"), _ints(rows, "end")
            group = _groups(places, rows.num_rows)
            clash = np.flatnonzero((group[1:] == group[:-1]) & (start[1:] < end[:-1]))
            mixed = {group[i] for i in clash.tolist()}
            if mixed:
                keys = list(places)
                keep = pa.array(~np.isin(group, list(mixed)))
                laid = [(keys[g], record) for g in sorted(mixed) for record in self.records(*keys[g])]
                rows = _sorted(pa.concat_tables([rows.filter(keep), record_table(laid)]))
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
        self._rows = pa.concat_tables([SCHEMA.empty_table(), *self._files.values()])
        self._known = {}
        self.__dict__.pop("_index", None)
        self._shown = version.number

    def append(self, records: Mapping[CoverageKey, Sequence[CoverageRecord]]) -> None:
        """Write records; those of points after these are committed."""
        if not any(records.values()):
            return

        def make(version: Version) -> tuple[list[DataFile], list[DataFile]]:
            new = [(key, r._replace(commit=version.number + 1)) for key, some in records.items() for r in some]
            if len(version.files) < (_MANY_REMOTE if self.table.remote else _MANY_FILES):
                return self._put(record_table(new)), []
            # In the same commit the others become one file: this one starts with what it read.
            rows = self._joined(version)
            return self._put(pa.concat_tables([rows, record_table(new)])), list(version.files)

        self.table.plan(make)

    def _put(self, rows: pa.Table) -> list[DataFile]:
        files = self.table.put(rows, np.ones(rows.num_rows, dtype=np.int64)) if rows.num_rows else []
        if len(files) == 1:
            with self._lock:
                self._files[files[0].path] = rows
        return files

    def renumber(self) -> None:
        """Order all records before those of the first version of any table."""

        def make(version: Version) -> tuple[list[DataFile], list[DataFile]] | None:
            rows = self.all(merge=False)
            for name in ("seq", "commit"):
                zeros = pa.array(np.zeros(rows.num_rows, dtype=np.int64))
                rows = rows.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), zeros)
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
            old = pa.array(_ints(rows, "fetched_at") < time.time_ns() // 1000 - _IN_FLIGHT)
            return _sorted(pa.concat_tables([_merged(rows.filter(old)), rows.filter(pc.invert(old))]))


def record_table(records: Iterable[tuple[CoverageKey, CoverageRecord]]) -> pa.Table:
    """Records as rows of the coverage table."""
    rows = []
    for key, (start, end, state, *more) in records:
        rows.append((*key, start, end, str(state), *more))
    columns = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def _records(rows: pa.Table) -> list[CoverageRecord]:
    columns = [
        _ints(rows, name).tolist() if pa.types.is_timestamp(rows.schema.field(name).type) else rows[name].to_pylist()
        for name in ("start", "end", "state", "rows", "fetched_at", "seq", "tries", "commit")
    ]
    return [
        CoverageRecord(start, end, CoverageState(state), *more)
        for start, end, state, *more in zip(*columns, strict=True)
    ]


def _plain(rows: pa.Table) -> pa.Table:
    """Rows with ids as plain text, in the order of the schema."""
    with errors.parsing("The coverage table"):
        out = pa.table({f.name: rows[f.name].cast(f.type) for f in SCHEMA}, schema=SCHEMA)
        was_empty = pc.equal(out["state"], _EMPTY)
        if not pc.any(was_empty).as_py():
            return out
        now = {
            "state": str(CoverageState.PROVISIONAL),
            "rows": pc.fill_null(out["rows"], 0),
            "tries": pc.add(out["tries"], 1),
        }
        for name, value in now.items():
            values = pc.if_else(was_empty, value, out[name])
            out = out.set_column(SCHEMA.get_field_index(name), SCHEMA.field(name), values)
        return out


def _sorted(rows: pa.Table) -> pa.Table:
    by = [(name, "ascending") for name in ("view", "market_id", "start", "seq", "commit")]
    return rows.sort_by(by).combine_chunks() if rows.num_rows else rows


def _ints(rows: pa.Table, name: str) -> Ints:
    values: Ints = rows[name].cast(pa.int64()).to_numpy()
    return values


def _places(rows: pa.Table) -> dict[CoverageKey, tuple[int, int]]:
    if not rows.num_rows:
        return {}
    changed = np.zeros(rows.num_rows, dtype=bool)
    changed[0] = True
    for name in ("view", "market_id"):
        values = rows[name].combine_chunks()
        different = pc.not_equal(values.slice(1), values.slice(0, len(values) - 1))
        changed[1:] |= different.to_numpy(zero_copy_only=False)
    starts = np.flatnonzero(changed)
    names = (rows[name].take(pa.array(starts)).to_pylist() for name in ("view", "market_id"))
    bounds = zip(starts.tolist(), np.append(starts[1:], rows.num_rows).tolist(), strict=True)
    return dict(zip(zip(*names, strict=True), bounds, strict=True))


def _groups(places: Mapping[CoverageKey, tuple[int, int]], count: int) -> Ints:
    """The number of its (view, market) for each row."""
    starts = np.array([start for start, _ in places.values()])
    return np.repeat(np.arange(len(starts)), np.diff(np.append(starts, count)))


def _merged(rows: pa.Table) -> pa.Table:
    """Touching records of one state as one; their rows add up."""
    if not rows.num_rows:
        return rows
    start, end = _ints(rows, "start"), _ints(rows, "end")
    known = rows["rows"].is_valid().to_numpy(zero_copy_only=False)
    begins = np.ones(rows.num_rows, dtype=bool)
    same = (start[1:] == end[:-1]) & (known[1:] == known[:-1])
    # Ranges that are due at different times stay apart.
    waits = pc.equal(rows["state"], str(CoverageState.PROVISIONAL))
    fetched = np.where(waits, _ints(rows, "fetched_at") // _APART, 0)
    # What is empty says how long there was no point: what has some is not added to it.
    empty = np.where(waits, pc.equal(pc.fill_null(rows["rows"], -1), 0), fetched == -1)
    same &= (fetched[1:] == fetched[:-1]) & (empty[1:] == empty[:-1])
    for name in ("view", "market_id", "state", "tries"):
        values = rows[name].combine_chunks()
        same &= pc.equal(values.slice(1), values.slice(0, len(values) - 1)).to_numpy(zero_copy_only=False)
    begins[1:] = ~same
    at = np.flatnonzero(begins)
    if len(at) == rows.num_rows:
        return rows
    first = rows.take(pa.array(at))
    last = np.append(at[1:], rows.num_rows) - 1
    count = np.add.reduceat(pc.fill_null(rows["rows"], 0).to_numpy(), at)
    columns = {
        "end": pa.array(end[last]).cast(_TS),
        "rows": pa.array(count, mask=~known[at]),
        "fetched_at": pa.array(np.minimum.reduceat(_ints(rows, "fetched_at"), at)).cast(_TS),
        "seq": pa.array(np.maximum.reduceat(_ints(rows, "seq"), at)),
        "tries": pa.array(np.minimum.reduceat(_ints(rows, "tries"), at)),
        "commit": pa.array(np.maximum.reduceat(_ints(rows, "commit"), at)),
    }
    for name, values in columns.items():
        field = SCHEMA.field(name)
        first = first.set_column(SCHEMA.get_field_index(name), field, values.cast(field.type))
    return first
