"""Maintenance: fewer and larger files, no leftovers, and a comparison of the files with the coverage."""

from __future__ import annotations

import math
import time
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from marketdata.archive.arrow import dictionary_of, from_tables, to_table
from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, subtract
from marketdata.archive.ingest import seen_markets
from marketdata.archive.market_ranges import hull_of, times_of
from marketdata.archive.query import cut_keys
from marketdata.archive.record_columns import rows_again
from marketdata.archive.records import derive
from marketdata.archive.storage import errors
from marketdata.archive.storage.files import COMPACT_EFFORT, FAR, LAST_NAME, OURS, DataFile, cuts
from marketdata.archive.storage.tables import Plan, Table, Version
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ArchiveCorruptError
from marketdata.points.arguments import number
from marketdata.points.columns import Ints, Series
from marketdata.points.records import RECORD_KINDS, RecordKind
from marketdata.points.views import VIEWS, View
from marketdata.times import SECOND, Range

_FILE_BYTES = 8_000_000
# The rows of one market may lie in so many row groups, on average; in more, the files are rewritten.
_DEEPEST = 2.5
_NONE = np.empty(0, np.int64)
_HOUR = 3600 * SECOND
_IN_PROGRESS = 24 * _HOUR  # a younger file may belong to a write that is not committed


class Damage(NamedTuple):
    """Something that is not as it was written; damage of whole files has no market, or no range."""

    view: str
    market_id: str
    start: int | None
    end: int | None
    problem: str


def compact(store: ArchiveStore) -> int:
    """Rewrite small files as large ones in tidy order, and put the rows of each market together.

    Returns how many files fewer there are.
    """
    fewer = 0
    for view, table in store.points.items():
        before = table.version()
        small = sorted((f for f in before.files if f.size <= _FILE_BYTES // 2), key=lambda f: (f.market_min, f.ts_min))
        for first, end in cuts(np.array([file.size for file in small]), _FILE_BYTES):
            store.join(view, small[first:end], COMPACT_EFFORT)
        _bring_together(store, view)
        fewer += len(before.files) - len(table.version().files)
    for table in store.tables.values():
        table.checkpoint()
    return max(0, fewer)


def _bring_together(store: ArchiveStore, view: View) -> None:
    """Write the rows of each market side by side, where its rows lie among those of others in many files."""
    table = store.points[view]

    def plan(version: Version) -> Plan | None:
        files = [file for file in version.files if OURS.fullmatch(file.path)]
        groups = {file.path: table.footer(file).groups for file in files}
        every = [group for of_file in groups.values() for group in of_file]
        if _depth(every) <= _DEEPEST:
            return None
        added = list[DataFile]()
        for first, last in cut_keys([(group.market_min, group.size) for group in every], LAST_NAME, 2 * _FILE_BYTES):
            parts = list[pa.Table]()
            for file in files:
                of_file = groups[file.path]
                numbers = [g.number for g in of_file if g.market_min < last and g.market_max >= first]
                if numbers:
                    rows = table.read(file, numbers)
                    codes, names = dictionary_of(rows["market_id"].combine_chunks())
                    is_here = np.array([name is not None and first <= name < last for name in names])[codes]
                    parts.append(rows.filter(pa.array(is_here)))
            columns = from_tables(view, parts)
            added += table.put(to_table(columns.sort()), COMPACT_EFFORT) if len(columns) else []
        return Plan(added, files)

    if len(table.version().files) > _DEEPEST:
        table.plan(plan)


def _depth(groups: Sequence[DataFile]) -> float:
    """How many row groups with rows of several markets may have rows of a market, in the mean."""
    mixed = [group for group in groups if group.market_min != group.market_max]
    begins, ends = sorted(group.market_min for group in mixed), sorted(group.market_max for group in mixed)
    depths = [bisect_right(begins, name) - bisect_left(ends, name) for name in begins]
    return float(np.mean(depths)) if depths else 0.0


def vacuum(store: ArchiveStore, retention_hours: Any) -> list[str]:
    """Remove our files that no version of the last hours names, by the clock of the storage; returns their names."""
    thousand_years = 24 * 365 * 1000
    hours = math.ceil(min(number("retention_hours", retention_hours, least=0), thousand_years))
    removed = list[str]()
    for name, table in store.tables.items():
        if table.version().number < 0:
            continue
        with errors.writing(f"Vacuuming {table.uri}"):
            now = table.store.now()
        # deltalake counts its hours from this machine's clock.
        ahead = max(0, time.time_ns() // 1000 - now) // _HOUR
        old = {path for path, at in table.store.written("").items() if at < now - _IN_PROGRESS and OURS.fullmatch(path)}
        unused = [path for path in table.unused_files(hours + ahead) if path in old]
        if name in VIEWS:
            unused += store.coverage[name].unused_files(now - hours * _HOUR, _IN_PROGRESS)
        with errors.writing(f"Vacuuming {table.uri}"):
            for path in unused:
                table.store.delete(path)
        removed += unused
    return removed


def verify(store: ArchiveStore) -> list[Damage]:
    """All differences from the written state; ArchiveError if the storage failed."""
    damage = [problem for kind in RECORD_KINDS for problem in _verify_records(store, kind)]
    return [*damage, *(problem for view in VIEWS for problem in _verify_view(store, view))]


def _verify_records(store: ArchiveStore, kind: RecordKind) -> Iterator[Damage]:
    """Damaged files of records, and records whose columns do not tell what their text does."""
    table = store.tables[kind]
    for file in table.version().files:
        for _, rows in _pieces(table, file):
            if isinstance(rows, ArchiveCorruptError):
                yield Damage(kind, "", None, None, str(rows))
                continue
            try:
                _, ids = rows_again(kind, rows)
            except ArchiveCorruptError as problem:
                yield Damage(kind, "", None, None, str(problem))
                continue
            for identity in ids:
                problem_of = f"The columns of {identity!r} do not tell what its record does."
                yield Damage(kind, identity if kind == "markets" else "", None, None, problem_of)


def _pieces(table: Table, file: DataFile) -> Iterator[tuple[DataFile, pa.Table | ArchiveCorruptError]]:
    """The rows of a file as they are stored now; for a damaged file, the rows or the damage of each row group."""
    try:
        footer = table.footer(file, fresh=True)
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


def _verify_view(store: ArchiveStore, view: View) -> Iterator[Damage]:
    """Compare the files of a view with its coverage."""
    table, coverage = store.points[view], store.coverage[view]
    version = table.version()
    damaged_buckets = coverage.damaged(version) if version.number >= 0 else {}
    for problem in damaged_buckets.values():
        yield Damage("coverage", "", None, None, problem)
    damage, times = _stored_times(table, view, version)
    yield from damage
    records = {} if damaged_buckets else coverage.all(version)
    for market in () if damaged_buckets else sorted({*records, *times}):
        stored, expected = times.get(market, _NONE), {r.range: r.rows for r in records.get(market, [])}
        whole = [Range(int(stored[0]), int(stored[-1]) + 1)] if len(stored) else []
        for span, rows in (expected | dict.fromkeys(subtract(whole, expected), 0)).items():
            count = _count(stored, span)
            if count != rows:
                yield Damage(view, market, *span, f"{count} points are stored where {rows} were written")


def _stored_times(table: Table, view: View, version: Version) -> tuple[list[Damage], dict[str, Ints]]:
    """Damaged and foreign files, and for each market the sorted times of its rows."""
    damage, stored = list[Damage](), list[Series]()
    for file in version.files:
        if not OURS.fullmatch(file.path):
            damage.append(Damage(view, "", *_span(file), f"The data file {file.path} was written by another program."))
        for part, rows in _pieces(table, file):
            if isinstance(rows, ArchiveCorruptError):
                market = part.market_min if part.market_min == part.market_max else ""
                damage.append(Damage(view, market, *_span(part), str(rows)))
                continue
            with errors.parsing(f"The data file {file.path}"):
                points = from_tables(view, [rows])
            stored.append(Series(points.tokens, points.bounds, points.ts, {}))
    return damage, times_of(*stored)


def _span(part: DataFile) -> tuple[int | None, int | None]:
    """The range of times in a file or row group, if it is known."""
    return (part.ts_min, part.ts_max + 1) if part.ts_max < FAR else (None, None)


def _count(times: Ints, span: Range) -> int:
    return int(np.diff(np.searchsorted(times, span))[0])


def repair(store: ArchiveStore) -> list[Damage]:
    """Keep what can be read of damaged files, and record as unverified what differs, for a pull to fetch again."""
    damage = verify(store)
    for table in store.tables.values():
        for file in table.version().files:
            _salvage(table, file)
    for kind in RECORD_KINDS:
        if any(problem.view == kind for problem in damage):
            _make_columns_again(store.tables[kind], kind)
            _add_records(store, kind)
    for view in VIEWS:
        if store.points[view].version().number >= 0:
            _recover(store, view)
    return damage


def _salvage(table: Table, file: DataFile) -> None:
    """Replace a damaged file by its readable row groups."""
    pieces = [rows for _, rows in _pieces(table, file)]
    readable = [rows for rows in pieces if isinstance(rows, pa.Table)]

    def plan(version: Version) -> Plan | None:
        kept = table.put(pa.concat_tables(readable).unify_dictionaries()) if readable else []
        return Plan(kept, [file]) if file in version.files else None

    if len(readable) < len(pieces):
        table.plan(plan)


def _make_columns_again(table: Table, kind: RecordKind) -> None:
    """Replace the columns of records that differ from their texts."""

    def plan(version: Version) -> Plan | None:
        made = {file: rows_again(kind, table.read(file)) for file in version.files}
        wrong = {file: rows for file, (rows, ids) in made.items() if ids}
        return Plan([new for rows in wrong.values() for new in table.put(rows)], [*wrong]) if wrong else None

    table.plan(plan)


def _add_records(store: ArchiveStore, kind: RecordKind) -> None:
    """Restore lost records as far as points and records of markets tell; a pull restores the rest."""
    markets = store.catalog["markets"]
    if kind != "markets":
        every = markets.records()
        store.catalog[kind].upsert(derive(kind, every, every))
        return
    for view, table in store.points.items():
        for file in table.version().files:
            markets.upsert(seen_markets(from_tables(view, [table.read(file)]), markets))


def _recover(store: ArchiveStore, view: View) -> None:
    """Record ranges as unverified if their points differ from their coverage, and drop ranges without a point."""
    table, coverage, now = store.points[view], store.coverage[view], time.time_ns() // 1000

    def plan(version: Version) -> Plan | None:
        damaged = coverage.damaged(version)
        _, times = _stored_times(table, view, version)
        readable = coverage.all(version, without=damaged)
        changed = {}
        for market in {*readable, *times}:
            before, stored = readable.get(market, []), times.get(market, _NONE)
            kept = [record for record in before if _count(stored, record.range) == record.rows]
            whole = [hull_of(stored, store.base.micros)] if len(stored) else []
            free = [(part, _count(stored, part)) for part in subtract(whole, [record.range for record in kept])]
            added = [CoverageRecord(*part, CoverageState.UNVERIFIED, count, now) for part, count in free if count]
            if [*kept, *added] != before:
                changed[market] = sorted([*kept, *added])
        return Plan(transactions=coverage.put(changed, version, damaged=damaged)) if changed or damaged else None

    table.plan(plan)
