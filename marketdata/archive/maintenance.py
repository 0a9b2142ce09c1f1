"""Maintenance: fewer and larger files, no leftovers, verification, and repair of commit logs."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from marketdata.archive.coverage.intervals import CoverageRecord, gaps, union, within
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.ingest import seen_markets
from marketdata.archive.query import ALL_TIME, pruned, read
from marketdata.archive.records import derive
from marketdata.archive.storage import errors
from marketdata.archive.storage.parquet import OURS, DataFile, cuts, file_of, flush, holding
from marketdata.archive.storage.tables import LOG_FOLDER, Plan, Table, Version
from marketdata.archive.store import ArchiveStore, minutes_around, minutes_of, times_of
from marketdata.errors import ArchiveCorruptError, ArchiveError
from marketdata.points.arguments import number
from marketdata.points.records import KINDS
from marketdata.points.views import VIEWS, View, empty
from marketdata.times import Range
from marketdata.wire.arrow import from_tables

# Size of a compacted file [bytes]: at about a byte per level it has some eight million levels.
_FILE_BYTES = 8_000_000
# The name of the table of coverage, beside those of views and records.
_COVERAGE = "coverage"
# A younger file that no commit names may belong to a write in progress [s].
_IN_PROGRESS = 3_600.0
# Longest retention: a thousand years, as the library counts in 64 bits of milliseconds [h].
_LONGEST = 24 * 365 * 1000


class Damage(NamedTuple):
    """Something that is not as it was written; a file of coverage or records has the table as ``view``, no range."""

    view: str
    market_id: str
    start: int | None
    end: int | None
    problem: str


def compact(store: ArchiveStore) -> int:
    """Rewrite small files as large ones in tidy order; returns how many files fewer there are."""
    tables = [*store.points.values(), store.coverage.table]
    before = sum(len(table.version().files) for table in tables)
    for view, table in store.points.items():
        files = pruned(table.version(), None, ALL_TIME).files
        small = [file for file in files if file.size <= _FILE_BYTES // 2]
        for first, end in cuts(np.array([file.size for file in small]), _FILE_BYTES):
            if end - first > 1:
                store.join(view, small[first:end])
    store.coverage.fold(VIEWS, whole=True)
    after = sum(len(table.version().files) for table in tables)
    for table in store.tables.values():
        table.checkpoint()
    return max(0, before - after)


def vacuum(store: ArchiveStore, retention_hours: Any) -> list[str]:
    """Remove files that no version of the last hours names; returns their names."""
    # Delta counts whole hours: one file too many is better than one too few.
    hours = math.ceil(min(number("retention_hours", retention_hours, least=0), _LONGEST))
    gone = []
    for table in store.tables.values():
        if table.version().number >= 0:
            table.create()  # not where the log is damaged: what looks replaced may be all there is
            gone += table.vacuum(hours)
            gone += _sweep(table)
    return gone


def _sweep(table: Table) -> list[str]:
    """Remove files of writers that were killed before they committed, or in it. Foreign files stay."""
    if table.remote:
        return []
    gone, log = list[str](), Path(table.uri, LOG_FOLDER)
    with errors.writing(f"Vacuuming {table.uri}"):
        named = {file.path for file in table.version().files} | set(table.vacuum(0, dry_run=True))
        for path in (*(path for path in _own_files(table) if path.name not in named), *log.glob("*.json#*")):
            if not path.is_symlink() and time.time() - path.stat().st_mtime > _IN_PROGRESS:
                path.unlink(missing_ok=True)
                gone.append(path.name)
    return gone


def _own_files(table: Table) -> list[Path]:
    """The data files in the folder of a table that are from this library."""
    return [path for path in Path(table.uri).iterdir() if OURS.fullmatch(path.name) and not path.is_symlink()]


def verify(store: ArchiveStore) -> list[Damage]:
    """All damage: what differs from what was written, by the coverage; ArchiveError if the storage failed."""
    lost = []
    for name in (*KINDS, _COVERAGE):
        table = store.tables[name]
        broken = [found for file in table.version().files for _, found in _pieces(table, file)]
        lost += [Damage(name, "", None, None, one.problem) for one in broken if isinstance(one, ArchiveCorruptError)]
    for view in VIEWS:
        try:
            store.coverage.refresh(view)
        except ArchiveCorruptError as problem:
            lost.append(Damage(_COVERAGE, "", None, None, problem.problem))
    is_known = all(one.view != _COVERAGE for one in lost)
    return [*lost, *(damage for view in VIEWS for damage in _check(store, view, is_known=is_known))]


def _pieces(table: Table, file: DataFile) -> Iterator[tuple[DataFile, pa.Table | ArchiveCorruptError]]:
    """The rows of a file as they are stored now; of a damaged one those of each row group, or what is wrong there."""
    try:
        footer = table.footer(file, fresh=True, whole=True)
    except ArchiveCorruptError as problem:
        yield file, problem
        return
    try:
        yield file, table.read(file)
    except ArchiveCorruptError:
        for group in footer.groups:
            try:
                yield group, table.read(file, [group.number])
            except ArchiveCorruptError as problem:
                yield group, problem


def _check(store: ArchiveStore, view: View, *, is_known: bool) -> Iterator[Damage]:
    """Compare the files and, where the coverage is known, the numbers of points of a view."""
    table = store.points[view]
    records = store.coverage.of(view, store.coverage.markets(view)) if is_known else {}
    counts = {market: np.zeros(len(some), dtype=np.int64) for market, some in records.items()}
    broken = list[tuple[DataFile, str]]()
    for file in table.version().files:
        for part, found in _pieces(table, file):
            if isinstance(found, ArchiveCorruptError):
                broken.append((part, str(found)))
                if part is file:
                    around = minutes_around(file.span.start, file.span.end - 1)
                    yield Damage(view, file.market_min, *around, str(found))
                continue
            with errors.parsing(f"The {view} table"):
                times = times_of(from_tables(view, [found]).sort())
            for market in times.keys() & records.keys():
                edges = np.array([record.range for record in records[market]]).reshape(-1, 2)
                counts[market] += np.diff(np.searchsorted(np.sort(times[market]), edges))[:, 0]
    for market, some in records.items():
        for record, count in zip(some, counts[market].tolist(), strict=True):
            wrong = [text for part, text in broken if holding([part], [market], record.range)]
            if record.rows not in (None, count):
                wrong.append(f"{count} points are stored where {record.rows} were written")
            if wrong and record.state != CoverageState.MISSING:
                yield Damage(view, market, *record.range, wrong[0])


def repair(store: ArchiveStore) -> list[Damage]:
    """Make what is surely damaged missing, for a pull to fill; ArchiveError, and no change, if the storage failed.

    Coverage and records that are damaged, or wrong, are made again from the points.
    """
    damage = verify(store)
    names = {one.view for one in damage}
    store.coverage.skips_damaged = is_lost = _COVERAGE in names
    try:
        for name in store.tables if is_lost else names:
            for file in store.tables[name].version().files:
                _salvage(store, name, file)
        _add_records(store, names)
        for view in VIEWS:
            wrong = dict[str, list[Range]]()
            for one in damage:
                if one.view == view and one.start is not None and one.end is not None:
                    wrong.setdefault(one.market_id, []).append(Range(one.start, one.end))
            for market, ranges in dict.fromkeys(_stored_markets(store, view), ()).items() if is_lost else wrong.items():
                _mend(store, view, market, ranges)
        if is_lost:
            store.coverage.fold(VIEWS)
    finally:
        store.coverage.skips_damaged = False
    return damage


def _salvage(store: ArchiveStore, name: str, file: DataFile) -> None:
    """Replace a damaged file by those of its row groups that can still be read."""
    table = store.tables[name]
    found = [rows for _, rows in _pieces(table, file)]
    kept = [rows for rows in found if isinstance(rows, pa.Table)]

    def make(version: Version) -> Plan | None:
        made = table.put(pa.concat_tables(kept).unify_dictionaries()) if kept else []
        return (made, [file]) if file in version.files else None

    if len(kept) < len(found):
        table.plan(make, store.writer(name))


def _add_records(store: ArchiveStore, lost: Container[str]) -> None:
    """Add what points, and records of markets, know of records that are lost; a pull knows the rest."""
    markets = store.catalog["markets"]
    for view, table in store.points.items() if "markets" in lost else ():
        for file in table.version().files:
            markets.upsert(seen_markets(from_tables(view, [table.read(file)]), markets))
    for kind in ("events", "series"):
        if kind in lost:
            store.catalog[kind].upsert(derive(kind, every := markets.records(), every))


def _stored_markets(store: ArchiveStore, view: View) -> list[str]:
    """The markets with points or with a coverage record."""
    table = store.points[view]
    some = (table.read(file, names=["market_id"]) for file in table.version().files)
    return sorted({*store.coverage.markets(view), *(name for rows in some for name in rows[0].unique().to_pylist())})


def _mend(
    store: ArchiveStore,
    view: View,
    market: str,
    damaged: Iterable[Range] = (),
    state: CoverageState = CoverageState.RECORDED,
) -> None:
    """Make damaged ranges of a market missing; points that no record of its coverage fits get one of the ``state``."""
    now = time.time_ns() // 1000
    known = [record for one in union(damaged) for record in within(store.coverage.records(view, market), one)]
    lost = [CoverageRecord(*record.range, CoverageState.MISSING, None, now) for record in known if record.rows != 0]
    if lost:
        store.commit(view, empty(view), {market: lost})

    def again(version: Version) -> dict[str, list[CoverageRecord]]:
        points = read(store.points[view], view, market, version=version)
        known, wrong, gone = store.coverage.records(view, market), list[Range](), list[Range]()
        for record in known:
            count = len(points.between(*record.range))
            if (0 if record.state == CoverageState.MISSING else record.rows) not in (None, count):
                (wrong if count else gone).append(record.range)
        wrong += gaps((record.range for record in known), minutes_of(points.ts)) if len(points) else []
        out = [CoverageRecord(*one, state, len(points.between(*one)), now) for one in union(wrong)]
        return {market: [*out, *(CoverageRecord(*one, CoverageState.MISSING, None, now) for one in gone)]}

    store.record(view, again)


def rebuild(store: ArchiveStore) -> None:
    """Recreate damaged or missing commit logs of a folder from the data files; old logs are set aside."""
    unnamed, metadata = dict[str, list[DataFile]](), store.metadata_of(store.base)
    for name, table in store.tables.items():
        if table.remote:
            raise ArchiveError(f"{table.uri} is in an object store; only archives in a folder are rebuilt.")
        version = table.version()
        if table.damage is None:
            continue
        with errors.writing(f"Rebuilding {table.uri}"):
            files = _data_files(table)
            times = [at for file, _ in files for at in (file.ts_min, file.ts_max)]
            if name in VIEWS and not store.is_made and any(at % store.base.micros for at in times):
                raise ArchiveError(
                    f"No commit log of {store.root} says at which base its points are, and some lie between "
                    "minutes. Open it with base='1s' to rebuild it."
                )
            # The order of records of coverage does not matter; others are added again, the oldest first.
            named = {file.path for file in version.files}
            first = [one for one in files if name == _COVERAGE or one[0].path in named]
            unnamed[name] = [file for file, _ in files if file.path not in named]
            _new_log(table, first, metadata if name not in KINDS else {})
    if not unnamed:
        return
    store.fix_base(store.base)
    # Versions count from the start again, and later records have to be ordered after these.
    store.coverage.restart([view for view in VIEWS if view in unnamed])
    for kind in KINDS:
        for file in unnamed.get(kind, ()):
            texts = store.tables[kind].read(file, names=["record"])["record"].to_pylist()
            store.catalog[kind].upsert(json.loads(text) for text in texts)
    for view in VIEWS:
        _add_again(store, view, unnamed.get(view, ()))


def _add_again(store: ArchiveStore, view: View, files: Sequence[DataFile]) -> None:
    """Add the points of files that no commit names any more; what has no record is for a pull to fetch."""
    known = store.coverage.of(view, store.coverage.markets(view)) if files else {}
    for file in files:
        store.upsert(view, from_tables(view, [store.points[view].read(file)]).sort(), CoverageState.UNPROVEN)
    # What was known stays: its rows tell which ranges are as they were written; others become missing.
    store.record(view, lambda _: known)
    for market in sorted({*_stored_markets(store, view)} - {*store.coverage.markets(view)}):
        _mend(store, view, market, state=CoverageState.UNPROVEN)


def _data_files(table: Table) -> list[tuple[DataFile, pa.Schema]]:
    """The data files of a folder that can be read, the oldest first, without those that a readable commit dropped."""
    dropped = set(table.vacuum(0, dry_run=True)) if table.version().number >= 0 else set()
    named = {file.path for file in table.version().files}
    found = []
    for path in sorted(_own_files(table), key=lambda path: path.stat().st_mtime_ns):
        if path.name in named or path.name not in dropped:
            with contextlib.suppress(ArchiveCorruptError):
                found.append(file_of(table.store, path.name))
    return found


def _new_log(table: Table, files: Sequence[tuple[DataFile, pa.Schema]], metadata: dict[bytes, bytes]) -> None:
    """Write a log that names these files beside the old one, then put it in its place."""
    root = Path(table.uri)
    beside = root / "_rebuilt"
    shutil.rmtree(beside, ignore_errors=True)
    known = table.version().schema
    extra = {f.name: f for _, schema in files for f in schema if f.name not in known.names}
    fresh = Table(str(beside), pa.schema([*known, *(extra[n].with_type(pa.float64()) for n in sorted(extra))]))
    fresh.create(metadata)
    fresh.plan(lambda _: ([file for file, _ in files], []))
    for path in (beside / LOG_FOLDER).iterdir():
        flush(path)
    if (root / LOG_FOLDER).exists():
        (root / LOG_FOLDER).rename(root / f"{LOG_FOLDER}.damaged-{time.time_ns()}")
    (beside / LOG_FOLDER).rename(root / LOG_FOLDER)
    flush(root)
    shutil.rmtree(beside)
    table.reopen()
