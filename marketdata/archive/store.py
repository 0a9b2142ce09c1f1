"""The tables of one archive: a commit of points has their coverage."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marketdata.archive.arrow import SCHEMAS, from_tables, to_table, tokens_of
from marketdata.archive.coverage.buckets import Coverage
from marketdata.archive.coverage.intervals import (
    CoverageRecord,
    CoverageState,
    covered,
    overlay,
    subtract,
    union,
    within,
    without,
)
from marketdata.archive.coverage.policy import MINUTE, SHORTEST_GAP, recorded_beside
from marketdata.archive.records import SCHEMAS as RECORD_SCHEMAS
from marketdata.archive.records import Catalog
from marketdata.archive.storage import errors
from marketdata.archive.storage.files import WRITE_EFFORT, DataFile, cuts, holding, hull, is_url
from marketdata.archive.storage.tables import Plan, Table, Version
from marketdata.errors import ArchiveError, ConfigError, NotArchivedError
from marketdata.points.columns import Books, Data, Ints, Series, Trades, joined
from marketdata.points.prints import CLOCKS
from marketdata.points.prints import union as union_of_prints
from marketdata.points.records import RECORD_KINDS, RecordKind
from marketdata.points.views import VIEWS, View, empty
from marketdata.resolution import BucketWidth
from marketdata.times import Range

# The base is in the schema of the tables, so that the commit that creates them fixes it.
_BASE = b"marketdata.base"
# Points in these states may be the user's own, so a fetch replaces only points that it brings.
_ADDED = (CoverageState.RECORDED, CoverageState.UNVERIFIED)
# A write joins small files once there are this many; small is below these [bytes, rows].
_MANY_SMALL, _SMALL_BYTES, _SMALL_ROWS = 32, 64_000, 50_000
# Bounds of what is written at once: bytes of rows that remain, and rows or levels of new points.
_BATCH_BYTES = 4_000_000
_PORTION = 4_000_000
# The columns that tell where a stored row is: in which of several files, and its number there.
_FILE, _NUMBER = "__file", "__number"

Bools = NDArray[np.bool_]
Ranges = Mapping[str, Sequence[Range]]  # by market, as records and times
Records = Mapping[str, Sequence[CoverageRecord]]
Times = Mapping[str, Ints]


class Change(NamedTuple):
    """Sorted times of each market's points: the written ones, and the stored ones in its ranges that stay or go."""

    new: Times
    stay: Times
    gone: Times


# Gives the new records of a market after a write.
After = Callable[[str, Sequence[CoverageRecord], Change], Sequence[CoverageRecord]]


class Write(NamedTuple):
    """A write to the points of a view.

    - ``columns``: the new points at the base, in tidy order; they replace those of equal token and bucket. Prints are
      `points.prints.distinct`, and added to those that are stored
    - ``ranges``: where points and coverage may change, by market
    - ``after``: gives the new records of a market; records without ``rows`` are counted
    - ``is_fetch``: all stored points of the ranges go, but for those that were added and are not replaced
    - ``whole``: all points of a token from its first new one to its last go
    - ``is_withdrawal``: what is ``recorded`` in the ranges goes, and its coverage too
    """

    view: View
    columns: Data
    ranges: Ranges
    after: After
    is_fetch: bool = False
    whole: bool = False
    is_withdrawal: bool = False


class Parted(NamedTuple):
    """The effect of a write on stored rows.

    The points to write, the files that lose some rows, their remaining rows, and the number of points that go.
    """

    columns: Data
    drops: Sequence[DataFile]
    remains: Sequence[pa.Table]
    change: Change
    removed: int


class ArchiveStore:
    """Everything that is stored under one root."""

    def __init__(
        self, root: str, options: dict[str, str] | None, as_of: int | None = None, base: BucketWidth | None = None
    ) -> None:
        self.root = root
        self.options = options
        self._as_of = as_of
        # The base that the user, or a pull, chose.
        self.given_base = base
        self._stored_base: BucketWidth | None = None

        def table(name: str, schema: Any) -> Table:
            return Table(f"{root.rstrip('/')}/{name}", schema, options, as_of=as_of)

        self.points: dict[View, Table] = {view: table(view, SCHEMAS[view]) for view in VIEWS}
        self.coverage: dict[View, Coverage] = {view: Coverage(points) for view, points in self.points.items()}
        self.catalog: dict[RecordKind, Catalog] = {k: Catalog(table(k, RECORD_SCHEMAS[k]), k) for k in RECORD_KINDS}
        # Every table by its name.
        self.tables: dict[str, Table] = {str(view): points for view, points in self.points.items()}
        self.tables |= {str(kind): catalog.table for kind, catalog in self.catalog.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return ArchiveStore, (self.root, self.options, self._as_of, self.given_base)

    def opened(self) -> Self:
        """The store for reading; NotArchivedError where there is no folder, or one of other files."""
        if self.stored_base is None:
            check_folder(self.root)
        return self

    @property
    def base(self) -> BucketWidth:
        """Width of the points, also of a new archive before its first write; ConfigError if another was given."""
        base = self.stored_base or self.given_base or BucketWidth.of("1m")
        if self.given_base not in (None, base):
            raise ConfigError(
                f"The archive {self.root!r} has base={base.text!r}, which is fixed; base={self.given_base!s} needs "
                "another folder. Without base= it is opened as it is."
            )
        return base

    @property
    def stored_base(self) -> BucketWidth | None:
        """Width of the stored points; None before the first write, which creates the table of books."""
        if self._stored_base is None and (version := self.points["books"].version()).number >= 0:
            self._stored_base = BucketWidth.of((version.schema.field(0).metadata or {})[_BASE].decode())
        return self._stored_base

    def fix_base(self) -> None:
        """Create the table of books, which decides the base; ConfigError if the archive has another one."""
        if self.stored_base is None:
            self.points["books"].create({_BASE: self.base.text.encode()})
        self.base  # noqa: B018  another process may have been first

    def width(self, resolution: Any) -> BucketWidth:
        """The bucket width of a resolution, by default 1m, or the base if that is coarser; else a ConfigError."""
        if resolution is None:
            return max(self.base, BucketWidth.of("1m"), key=lambda width: width.micros)
        width = BucketWidth.of(resolution)
        if not self.base.divides(width):
            problem = f"is refused: the archive stores points of {self.base}, which does not divide it."
            raise ConfigError(problem, argument="resolution", value=resolution)
        return width

    def quoted(
        self, markets: Iterable[str] | None, version: Version
    ) -> tuple[Sequence[str] | None, Sequence[str] | None]:
        """Of some or (None) all markets, the ones that have quotes, and the ones whose books stand for quotes."""
        if version.number < 0:
            return (), None if markets is None else sorted(markets)
        stored = self.coverage["quotes"].of(markets, version)
        own = sorted(market for market, records in stored.items() if covered(records))
        every = self.coverage["books"].all() if markets is None else stored
        return own, sorted(every.keys() - {*own})

    def records(
        self, view: View, markets: Iterable[str] | None, version: Version | None = None
    ) -> dict[str, list[CoverageRecord]]:
        """Coverage of these markets, or (None) of all. For quotes it includes the books that stand for them."""
        version = version or self.points[view].version()
        records = self.coverage[view].of(markets, version)
        if view == "quotes":
            _, without = self.quoted(markets, version)
            records |= self.coverage["books"].of(without)
        return records

    def commit(self, view: View, columns: Data, fresh: Records) -> int:
        """Replace the points inside the ranges of records, and record these; ArchiveError if a point is outside.

        ``columns`` are all points of all ranges, at the base, in tidy order; records are disjoint per market, and their
        points are counted. Added points of other tokens and times stay, and their coverage stays ``recorded``. Returns
        by how many points there are more.
        """
        if not fresh:
            return 0
        ranges = {market: [record.range for record in records] for market, records in fresh.items()}
        if not inside(columns, ranges).all():
            raise ArchiveError(f"{view} points lie outside of the ranges that they were to replace.")

        def after(market: str, before: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            added = (r.range for one in union(ranges[market]) for r in within(before, one) if r.state in _ADDED)
            occupied = _occupied(change.stay.get(market, np.empty(0)), union(added), self.base.micros)
            return [*fresh[market], *(recorded_beside(r) for one in occupied for r in within(fresh[market], one))]

        return self.write(Write(view, columns, ranges, after, is_fetch=True))

    def record(self, view: View, columns: Data, bucket: Range, tokens: Mapping[str, int], now: int) -> int:
        """Add points of one bucket, ``final`` for markets with points of all their ``tokens``, ``recorded`` for others.

        Returns by how many points there are more.
        """

        def after(market: str, _: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            entry = CoverageRecord(*bucket, CoverageState.FINAL, None, now)
            held = _count(market, entry, change.new, change.stay)
            return [entry if held >= tokens[market] else entry._replace(state=CoverageState.RECORDED)]

        return self.write(Write(view, columns, {market: [bucket] for market in times_of(columns)}, after))

    def upsert(self, view: View, columns: Data, state: CoverageState, *, whole: bool = False) -> int:
        """Add points at the base: equal (token, ts) are replaced; ``whole`` replaces first to last of a token.

        Of equal prints one is stored. Complete ranges stay so; the rest of each market, from its first to its last
        bucket, gets ``state``. Returns by how many points there are more.
        """
        columns, now = columns.sort(), time.time_ns() // 1000
        hulls = {market: hull_of(times, self.base.micros) for market, times in times_of(columns).items()}
        stays = () if state == CoverageState.FINAL else (CoverageState.FINAL, CoverageState.RECORDED)

        def after(market: str, before: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            complete = [r for r in before if r.state in stays]
            out = [CoverageRecord(*r, state, None, now) for r in subtract([hulls[market]], [r.range for r in complete])]
            return [*out, *_grown(market, complete, change)]

        ranges = {market: [hull] for market, hull in hulls.items()}
        return self.write(Write(view, columns, ranges, after, whole=whole))

    def observe(self, view: View, columns: Data, seen: Ranges) -> int:
        """Add points of a live stream, and record the ranges in which it was seen, and nothing else.

        Complete ranges stay so. Returns by how many points there are more.
        """
        columns, now = columns.sort(), time.time_ns() // 1000
        if not inside(columns, seen).all():
            raise ArchiveError(f"{view} points lie outside of the ranges that were seen.")

        def after(market: str, before: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            complete = [r for r in before if r.state == CoverageState.FINAL]
            return [
                *(CoverageRecord(*r, CoverageState.RECORDED, None, now)
                  for r in subtract(seen[market], [r.range for r in complete])),
                *_grown(market, complete, change),
            ]  # fmt: skip

        return self.write(Write(view, columns, seen, after))

    def withdraw(self, view: View, ranges: Ranges) -> int:
        """Remove points that a live stream recorded, and their coverage. Returns by how many points there are more."""
        return self.write(Write(view, empty(view), ranges, lambda *_: (), is_withdrawal=True))

    def refuse(self, view: View, ranges: Ranges, state: CoverageState, now: int) -> None:
        """Record ranges that a service refused, if nothing is stored there."""

        def after(market: str, before: Sequence[CoverageRecord], _: Change) -> list[CoverageRecord]:
            return [CoverageRecord(*free, state, 0, now) for free in subtract(ranges[market], covered(before))]

        self.write(Write(view, empty(view), ranges, after))

    def write(self, write: Write) -> int:
        """Replace points, and record it, in one commit. Returns the growth [points]."""
        self.fix_base()  # what cannot be recorded is not written
        table = self.points[write.view]
        table.create({_BASE: self.base.text.encode()})
        table.add_columns(to_table(write.columns.take(np.empty(0, np.int64))).schema)
        attempts = _Attempts(self, write)
        table.plan(attempts.plan)
        with contextlib.suppress(ArchiveError):  # the rows are stored, whatever becomes of this
            small = [f for f in table.version().files if f.size < _SMALL_BYTES and f.rows < _SMALL_ROWS]
            if len(small) >= _MANY_SMALL:
                self.join(write.view, small)
        return attempts.growth

    def parted(self, write: Write, version: Version, before: Records) -> Parted:
        """The stored rows in the ranges of a write, in those that stay and those that go."""
        table = self.points[write.view]
        if not VIEWS[write.view].is_grid:
            return self._parted_prints(write, version, before)
        added = {m: [r.range for r in records if r.state in _ADDED] for m, records in before.items()}
        drops, remains, stay, gone = list[DataFile](), list[pa.Table](), list[Series](), list[Series]()
        for file, rows in self.rows_in(write.view, version, write.ranges):
            stays = ~_replaced(rows, write.columns, self.base.micros, whole=write.whole)
            stays &= inside(rows, added) | (not write.is_fetch)
            if write.is_withdrawal:
                stays = ~inside(rows, _recorded(before, write.ranges))
            stay.append(rows.take(np.flatnonzero(stays)))
            gone.append(rows.take(np.flatnonzero(~stays)))
            if len(gone[-1]):
                drops.append(file)
                remains.append(_without(table.read(file), gone[-1].values[_NUMBER]))
        change = Change(times_of(write.columns), times_of(*stay), times_of(*gone))
        return Parted(write.columns, drops, remains, change, sum(map(len, gone)))

    def _parted_prints(self, write: Write, version: Version, before: Records) -> Parted:
        """The same for prints: each stays, but for those that the write replaces or of which it tells more."""
        table, new = self.points[write.view], write.columns
        assert isinstance(new, Trades)
        near = {market: Range(int(ts[0]) - CLOCKS, int(ts[-1]) + CLOCKS) for market, ts in times_of(new).items()}
        ranges = {m: union([*wanted, *([near[m]] if m in near else [])]) for m, wanted in write.ranges.items()}
        files, parts = list[DataFile](), list[Trades]()
        for file, rows in self.rows_in(write.view, version, ranges, whole=True):
            of_file = np.full(len(rows), float(len(files)))
            parts.append(dataclasses.replace(rows, values={**rows.values, _FILE: of_file}))
            files.append(file)
        stored = joined(parts) if parts else Trades.empty()
        places = [stored.values.get(name, np.empty(0)) for name in (_FILE, _NUMBER)]
        stored = dataclasses.replace(
            stored, values={n: v for n, v in stored.values.items() if n not in (_FILE, _NUMBER)}
        )
        if write.whole or write.is_withdrawal:
            is_gone = (
                inside(stored, _recorded(before, write.ranges)) if write.is_withdrawal
                else _replaced(stored, new, self.base.micros, whole=True)
            )  # fmt: skip
            written, confirmed, gone = new, np.empty(0, np.int64), np.flatnonzero(is_gone)
        else:
            written, confirmed, gone = union_of_prints(new, stored)
        drops, remains = list[DataFile](), list[pa.Table]()
        for place, file in enumerate(files):
            numbers = places[1][gone[places[0][gone] == place]]
            if len(numbers):
                drops.append(file)
                remains.append(_without(table.read(file), numbers))
        # A print that is given again counts as written, though its row stays as it is.
        again, other = stored.take(np.sort(np.append(gone, confirmed))), np.ones(len(stored), bool)
        other[gone] = other[confirmed] = False
        change = Change(
            times_of(written, stored.take(confirmed)), times_of(stored.take(np.flatnonzero(other))), times_of(again)
        )
        return Parted(written, drops, remains, change, len(gone))

    def changed_records(
        self, write: Write, version: Version, before: Records, change: Change
    ) -> dict[str, list[CoverageRecord]]:
        """The coverage after a write of the markets whose records it changes."""
        if write.is_withdrawal:
            recorded = _recorded(before, write.ranges)
            after = {m: without(before[m], recorded[m]) for m in write.ranges}
        else:
            after = {m: overlay(write.after(m, before[m], change), before[m]) for m in write.ranges}
        records = self._counted(write.view, version, write.ranges, before, after, change)
        return {market: counted for market, counted in records.items() if counted != before[market]}

    def join(self, view: View, files: Sequence[DataFile], effort: int = WRITE_EFFORT) -> None:
        """Write the rows of files as few large ones; files that another writer replaces meanwhile are left out."""
        table = self.points[view]

        def plan(version: Version) -> Plan | None:
            stored = [file for file in files if file in version.files]
            if len(stored) < 2:
                return None
            rows = to_table(from_tables(view, [table.read(file) for file in stored]).sort())
            return Plan(table.put(rows, effort), stored)

        table.plan(plan)

    def _counted(
        self, view: View, version: Version, ranges: Ranges, before: Records, after: Records, change: Change
    ) -> dict[str, list[CoverageRecord]]:
        """Records with the numbers of their points.

        A write may cut a record. The rest is unverified if the record did not have as many points as it says, because
        another program changed them.
        """
        uncounted = {m: [r.range for r in records if r.rows is None] for m, records in after.items()}
        outside = {m: subtract(cut_off, ranges[m]) for m, cut_off in uncounted.items() if cut_off}
        around = times_of(*(rows for _, rows in self.rows_in(view, version, outside)))

        def counted(market: str, record: CoverageRecord) -> CoverageRecord:
            if record.rows is not None:
                return record
            origin = next((old for old in before[market] if _is_part(record, old)), None)
            if origin and origin.rows != _count(market, origin, change.stay, change.gone, around):
                record = record._replace(state=CoverageState.UNVERIFIED)
            return record._replace(rows=_count(market, record, change.new, change.stay, around))

        return {market: [counted(market, record) for record in records] for market, records in after.items()}

    def rows_in(
        self, view: View, version: Version, ranges: Ranges, *, whole: bool = False
    ) -> Iterator[tuple[DataFile, Any]]:
        """For each file with rows in the ranges: the tokens, times and row ``number`` of these, or all their values."""
        table = self.points[view]
        markets = sorted(market for market, wanted in ranges.items() if wanted)
        span = hull(one for wanted in ranges.values() for one in wanted)
        for file in holding(version.files, markets, span) if markets else ():
            groups = table.footer(file).groups
            chosen = [group.number for group in holding(groups, markets, span)]
            if not chosen:
                continue
            begins = np.cumsum([0, *(group.rows for group in groups)])
            numbers = np.concatenate([np.arange(begins[n], begins[n + 1], dtype=float) for n in chosen])
            stored = table.read(file, chosen, None if whole else [*VIEWS[view].ids, "ts"])
            if whole:
                rows = from_tables(view, [stored.append_column(_NUMBER, pa.array(numbers))])
            else:
                ts = stored.column("ts").cast(pa.int64()).to_numpy()
                every = Series((), np.zeros(1, np.int64), ts, {_NUMBER: numbers})
                rows = every.grouped(*tokens_of(view, stored.to_batches()))
            rows = rows.take(np.flatnonzero(inside(rows, ranges)))
            if len(rows):
                yield file, rows

    def put(self, view: View, columns: Data) -> list[DataFile]:
        """Write points to new files, whole tokens at a time: their rows take as much memory again."""
        levels = columns.counts.reshape(-1, 2).sum(axis=1) if isinstance(columns, Books) else np.ones(len(columns))
        weights = np.add.reduceat(np.maximum(levels, 1), columns.starts)
        parts = (columns.part(first, end) for first, end in cuts(weights, _PORTION))
        return [file for part in parts for file in self.points[view].put(to_table(part))]

    def rewritten(self, view: View, parts: Sequence[pa.Table]) -> list[DataFile]:
        """New files with the remaining rows of other files, in batches."""
        batches = (parts[first:end] for first, end in cuts(np.array([part.nbytes for part in parts]), _BATCH_BYTES))
        rows = (to_table(from_tables(view, batch).sort()) for batch in batches)
        return [file for table in rows for file in self.points[view].put(table)]


class _Attempts:
    """The plans of a write: a new one for each version that others commit before it."""

    def __init__(self, store: ArchiveStore, write: Write) -> None:
        self._store, self._write = store, write
        # Files of the points that the last plan wrote, so that the next one need not write the same.
        self._written: tuple[Data, list[DataFile]] | None = None
        self.growth = 0

    def plan(self, version: Version) -> Plan | None:
        """Files and coverage to commit after a version; None if nothing changes."""
        store, write = self._store, self._write
        coverage = store.coverage[write.view]
        before = coverage.of(write.ranges, version)
        parted = store.parted(write, version, before)
        changed = store.changed_records(write, version, before, parted.change)
        self.growth = len(parted.columns) - parted.removed
        if self._written is None or self._written[0] is not parted.columns:
            self._written = parted.columns, store.put(write.view, parted.columns)
        if not (self._written[1] or parted.drops or changed):
            return None
        added = [*self._written[1], *store.rewritten(write.view, parted.remains)]
        return Plan(added, parted.drops, coverage.put(changed, version))


def names_in(root: str) -> set[str] | None:
    """The visible names in a folder, None without a folder; no names for an address, because only a read can tell."""
    if is_url(root):
        return set()
    with errors.reading(f"The folder {root!r}"):
        # One listing: another process may make the archive at this moment.
        try:
            return {path.name for path in Path(root).iterdir() if path.name[0] not in "._"}
        except (FileNotFoundError, NotADirectoryError):
            return None


def is_archive(root: str) -> bool:
    """Whether a folder holds tables of an archive, or the journal of its first import; assumed for an address."""
    return is_url(root) or not {*VIEWS, *RECORD_KINDS, "imports"}.isdisjoint(names_in(root) or ())


def check_folder(root: str) -> None:
    """NotArchivedError if there is no folder or it has other files; an empty folder may become an archive."""
    names, hint = names_in(root), "Is the path right? The first add or pull makes an archive there."
    if names is None:
        raise NotArchivedError(f"There is no folder {root!r}. {hint}")
    if names and not is_archive(root):
        raise NotArchivedError(f"The folder {root!r} holds other files, and no archive. {hint}")


def _without(rows: pa.Table, numbers: Any) -> pa.Table:
    """The rows but for those with these numbers."""
    return rows.filter(pa.array(~np.isin(np.arange(len(rows)), numbers)))


def _is_part(record: CoverageRecord, whole: CoverageRecord) -> bool:
    """Whether a record is a remaining part of another one."""
    is_alike = record._replace(start=0, end=0, rows=None) == whole._replace(start=0, end=0, rows=None)
    return is_alike and whole.start <= record.start and record.end <= whole.end


def _count(market: str, record: CoverageRecord, *times: Times) -> int:
    """How many points a market has inside a record."""
    return int(sum(np.diff(np.searchsorted(of[market], record.range))[0] for of in times if market in of))


def _grown(market: str, records: Iterable[CoverageRecord], change: Change) -> Iterator[CoverageRecord]:
    """Those of the records whose number of points a write changes, with the new one."""
    for record in records:
        if grown := _count(market, record, change.new) - _count(market, record, change.gone):
            yield record._replace(rows=(record.rows or 0) + grown)


def _slices(points: Data) -> Iterator[tuple[Any, slice]]:
    """Each token, and the place of its points."""
    return zip(points.tokens, itertools.starmap(slice, itertools.pairwise(points.bounds.tolist())), strict=True)


def inside(points: Data, ranges: Ranges) -> Bools:
    """True for points that lie in a range of their market."""
    out = np.zeros(len(points), bool)
    for token, place in _slices(points):
        for start, end in ranges.get(token.market_id, ()):
            out[place] |= (points.ts[place] >= start) & (points.ts[place] < end)
    return out


def _recorded(before: Records, ranges: Ranges) -> dict[str, list[Range]]:
    """The parts of ranges that are recorded."""
    every = {m: [r for one in union(ranges[m]) for r in within(before[m], one)] for m in ranges}
    return {m: [r.range for r in records if r.state == CoverageState.RECORDED] for m, records in every.items()}


def _replaced(rows: Data, columns: Data, width: int, *, whole: bool = False) -> Bools:
    """True for rows with a token and bucket of the columns; with ``whole`` also for rows of the token between these."""

    def identity(token: Any) -> tuple[str | None, ...]:
        return (token.market_id, token.token_id, None if token.token_id else token.token_label)

    out, places = np.zeros(len(rows), bool), {identity(token): place for token, place in _slices(columns)}
    for token, place in _slices(rows):
        if identity(token) in places:
            ts, times = rows.ts[place], columns.ts[places[identity(token)]]
            out[place] = (ts >= times[0]) & (ts <= times[-1]) if whole else np.isin(ts // width, times // width)
    return out


def _occupied(times: Any, where: Sequence[Range], width: int) -> Iterator[Range]:
    """Ranges of buckets from point to point inside ``where``, with less than an hour between two points."""
    for limits in where:
        starts = np.unique(times[(times >= limits.start) & (times < limits.end)] // width * width)
        for part in np.split(starts, np.flatnonzero(np.diff(starts) > max(SHORTEST_GAP, width)) + 1):
            if len(part):
                yield Range(int(part[0]), int(part[-1]) + width)


def hull_of(times: Ints, width: int) -> Range:
    """The range of whole buckets, at least of whole minutes, from the first time to the last."""
    step = max(width, MINUTE)
    return Range(int(times.min()) // step * step, int(times.max()) // step * step + step)


def times_of(*parts: Data) -> dict[str, Ints]:
    """For each market the sorted times of its points."""
    times: dict[str, list[Ints]] = {}
    for part in parts:
        for token, place in _slices(part):
            times.setdefault(token.market_id, []).append(part.ts[place])
    return {market: np.sort(np.concatenate(slices)) for market, slices in times.items()}
