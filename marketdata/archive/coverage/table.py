"""Coverage: records in the notes of commits of points, which are moved into the coverage table from time to time."""

from __future__ import annotations

import binascii
import json
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import polars as pl
import pyarrow as pa

from marketdata.archive.coverage.intervals import CoverageRecord, overlay
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import DataFile
from marketdata.archive.storage.tables import Table, Version
from marketdata.errors import ArchiveCorruptError
from marketdata.times import SECOND

CoverageKey = tuple[str, str]
_Row = tuple[str, str, int, int, str, int | None, int, int, int, int]
Records = Mapping[str, Sequence[CoverageRecord]]
# Times as files have them.
_TS = pa.timestamp("us", "UTC")
# The columns of the table; ``seq`` and ``commit`` order the records of equal ranges.
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
# Columns that identify the records of a market, and the columns of times.
_KEY, _TIMES = ["view", "market_id"], ["start", "end", "fetched_at"]
# The order of rows: of records that begin together the newest is last.
_ORDER = [*_KEY, "start", "seq", "commit"]
# No records; times are microseconds. Nothing is computed here: a process that is forked later cannot use the threads of
# polars that would do it.
_NONE = pl.DataFrame(schema={f.name: pl.String if pa.types.is_string(f.type) else pl.Int64 for f in SCHEMA})
# A state of format 1: a range without points, which counted the answers before.
_EMPTY = "empty_observed"
# At least this many files, in a folder or an object store, are joined.
_MANY_FILES, _MANY_REMOTE = 16, 4
# After so many notes that it has read, a process looks whether the table has them.
_MANY_NOTES = 32
# Ranges that wait to be fetched again are one record if they came in the same half hour [microseconds].
_APART = 1800 * SECOND


def note_of(records: Records) -> str:
    """Records by market as the note of a commit; a flipped bit does not pass for another record."""
    if not any(records.values()):
        return ""
    plain = {market: [(*r[:2], str(r.state), *r[3:5], r.tries) for r in some] for market, some in records.items()}
    body = zlib.compress(json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return binascii.b2a_base64(body, newline=False).decode()


def records_of(note: str, number: int) -> dict[str, list[CoverageRecord]]:
    """The records of the note of a commit of this number; ArchiveCorruptError if it is damaged."""
    if not note:
        return {}
    with errors.parsing(f"The coverage of commit {number}"):
        try:
            body = zlib.decompress(binascii.a2b_base64(note, strict_mode=True))
        except zlib.error as problem:
            raise ValueError(str(problem)) from problem
        plain = json.loads(body.decode("utf-8", "surrogatepass"))
        return {m: [_record(2 * number, *values) for values in some] for m, some in plain.items()}


def _record(
    seq: int, start: int, end: int, state: str, rows: int | None, fetched_at: int, tries: int
) -> CoverageRecord:
    return CoverageRecord(start, end, CoverageState(state), rows, fetched_at, seq, tries)


class _File:
    """The records of one file of the table, which never changes."""

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows.sort(_KEY, maintain_order=True)

    @cached_property
    def newest(self) -> dict[str, int]:
        """The version up to which it has the notes, by view."""
        return dict(self.rows.group_by("view").agg(pl.max("seq") // 2).iter_rows())

    @cached_property
    def places(self) -> dict[CoverageKey, tuple[int, int]]:
        """The first record of each market's view, and the number of its records."""
        found = self.rows.with_row_index().group_by(_KEY, maintain_order=True).agg(pl.first("index"), count=pl.len())
        return {(view, market): (at, count) for view, market, at, count in found.iter_rows()}

    def of(self, key: CoverageKey) -> list[_Row]:
        """The rows of a market's view."""
        return self.rows.slice(*self.places[key]).rows() if key in self.places else []


class CoverageTable:
    """The ranges of each market and view that are stored.

    A commit of points has their coverage in its note, so that there is never one without the other. The table has what
    the notes said up to a version of the points, which is half of the largest ``seq`` of the view.
    """

    def __init__(self, table: Table, points: Mapping[str, Table]) -> None:
        self.table = table
        # Whether notes that are damaged are left out, as while they are repaired.
        self.skips_damaged = False
        self._points = points
        self._lock = threading.RLock()
        # The version of the table that was read, and its files.
        self._number = -2
        self._files: dict[str, _File] = {}
        # By view: what the notes say that the table does not have, and the version up to which they were read.
        self._notes: dict[str, list[Records]] = defaultdict(list)
        self._read: dict[str, int] = {}
        self._known: dict[CoverageKey, list[CoverageRecord]] = {}

    def records(self, view: str, market_id: str) -> list[CoverageRecord]:
        """Disjoint records of one market's view in time order."""
        return self.of(view, [market_id])[market_id]

    def of(self, view: str, markets: Iterable[str]) -> dict[str, list[CoverageRecord]]:
        """Disjoint records of each of some markets."""
        with self._lock:
            self.refresh(view)
            for key in ((view, market) for market in markets):
                if key not in self._known:
                    noted = [record for some in self._notes[view] for record in some.get(key[1], ())]
                    rows = [row for file in self._files.values() for row in file.of(key)]
                    self._known[key] = overlay([*_records(rows), *noted])
            return {market: self._known[view, market] for market in markets}

    def markets(self, view: str) -> list[str]:
        """The markets with a record of a view, sorted."""
        with self._lock:
            self.refresh(view)
            stored = {market for file in self._files.values() for v, market in file.places if v == view}
            return sorted(stored.union(*self._notes[view]))

    def all(self, *, merge: bool = True) -> pl.DataFrame:
        """All disjoint records, sorted by view, market and time; with ``merge`` touching ones of a state as one."""
        with self._lock:
            rows = _disjoint(pl.concat([self._noted(self._points), *(file.rows for file in self._files.values())]))
            return _merged(rows) if merge else rows

    def _noted(self, views: Iterable[str]) -> pl.DataFrame:
        """The records of the notes of views, all as of the last one that was read."""
        out = []
        for view in views:
            self.refresh(view)
            found: dict[str, list[CoverageRecord]] = {}
            for some in self._notes[view]:
                for market, records in some.items():
                    found.setdefault(market, []).extend(records)
            seq = 2 * self._read[view]
            out += [((view, m), r._replace(seq=seq)) for m, some in found.items() for r in overlay(some)]
        return record_rows(out)

    def refresh(self, view: str) -> None:
        """Read the notes of newer commits of the points of a view; of no view of points, the table."""
        points = self._points.get(view)
        if points is None or self._number < -1 or len(self._notes[view]) >= _MANY_NOTES:
            self._show(self.table.version())
        newest = -1 if points is None else points.version().number
        while points is not None and (number := self._read[view] + 1) <= newest:
            note = points.note(number)
            if note is None:  # the log is cut off only behind what the table has by now
                self.table.look_again()
                self._show(self.table.version())
                if self._read[view] >= number:
                    continue
            found: Records = {}
            try:
                with errors.repairable():
                    found = records_of(note or "", number)
            except ArchiveCorruptError:
                if not self.skips_damaged:
                    raise
            self._notes[view] += [found] if found else []
            self._read[view] = number
            for key in ((view, market) for market in found):
                if key in self._known:
                    self._known[key] = overlay(found[key[1]], self._known[key])

    def _show(self, version: Version) -> None:
        """Use the rows of a version of the table; what they do not have is read from the notes again."""
        if version.number == self._number:
            return
        files = {}
        for file in version.files:
            with errors.repairable():
                files[file.path] = self._files.get(file.path) or _File(_plain(self.table.read_small(file)))
        self._read = {v: max([-1, *(file.newest.get(v, -1) for file in files.values())]) for v in self._points}
        self._notes, self._known = defaultdict(list), {}
        self._number, self._files = version.number, files

    def append(self, key: CoverageKey, record: CoverageRecord) -> None:
        """Write a record of what has no points, such as a listing."""
        self.table.plan(lambda v: (self._put(record_rows([(key, record._replace(commit=v.number + 1))])), []))

    def fold(self, views: Iterable[str], *, whole: bool = False) -> None:
        """Write what the notes of views say to the table; ``whole``: as one file, with touching records as one."""

        def make(version: Version) -> tuple[list[DataFile], list[DataFile]] | None:
            with self._lock:
                self._show(version)
                noted = _merged(self._noted(views).sort(_ORDER))
                if not len(noted) and not (whole and len(version.files) > 1):
                    return None
                if whole or len(version.files) >= (_MANY_REMOTE if self.table.remote else _MANY_FILES):
                    rows = pl.concat([noted, *(file.rows for file in self._files.values())])
                    return self._put(_merged(_disjoint(rows))), list(version.files)
                return self._put(noted), []

        if self.table.version().number >= 0:
            self.table.plan(make)

    def _put(self, rows: pl.DataFrame) -> list[DataFile]:
        return self.table.put(_to_arrow(rows)) if len(rows) else []

    def restart(self, views: Iterable[str]) -> None:
        """Order the records of views before those of the first version of a new log of their points."""

        def make(version: Version) -> tuple[list[DataFile], list[DataFile]]:
            self._show(version)
            rows = _disjoint(pl.concat([_NONE, *(file.rows for file in self._files.values())]))
            is_later = ~pl.col("view").is_in(list(views))
            rows = rows.with_columns(pl.when(is_later).then(n).otherwise(0).alias(n) for n in ("seq", "commit"))
            return self._put(rows.cast(_NONE.schema)), list(version.files)

        with self._lock:
            self.table.plan(make)
            self._number = -2


def _disjoint(rows: pl.DataFrame) -> pl.DataFrame:
    """Sorted rows, of each view and market those of `overlay`."""
    rows = rows.sort(_ORDER)
    # Few markets have records that overlap: only of those is the overlay made.
    is_cut = (pl.col("start") < pl.col("end").shift()) & _same(_KEY)
    mixed = rows.filter(is_cut).select(_KEY).unique(maintain_order=True)
    if not len(mixed):
        return rows
    clashing = rows.join(mixed, on=_KEY, how="semi").partition_by(_KEY, as_dict=True)
    laid = [
        ((str(v), str(m)), record) for (v, m), some in clashing.items() for record in overlay(_records(some.rows()))
    ]
    return pl.concat([rows.join(mixed, on=_KEY, how="anti"), record_rows(laid)]).sort(_ORDER)


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
        # An empty range tells how long there was no point, so that one with points is not merged with it.
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
