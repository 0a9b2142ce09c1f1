"""What a write does to the files of a view, and to the coverage beside them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from marketdata.archive.arrow import from_tables, to_table, tokens_of
from marketdata.archive.coverage.buckets import Coverage
from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, subtract, union
from marketdata.archive.market_ranges import Ranges, Records, count, inside, times_of
from marketdata.archive.storage.files import DataFile, cuts, holding, hull
from marketdata.archive.storage.tables import Plan, Table, Version
from marketdata.archive.writes import Change, Write
from marketdata.points.columns import Books, Data, Ints, Series, Trades, joined
from marketdata.points.prints import CLOCKS
from marketdata.points.prints import union as union_of_prints
from marketdata.points.views import VIEWS
from marketdata.times import Range

# Bounds of what is written at once: bytes of rows that remain, and rows or levels of new points.
_BATCH_BYTES = 4_000_000
_PORTION = 4_000_000
# The columns that tell where a stored row is: in which of several files, and its number there.
_FILE, _NUMBER = "__file", "__number"


class Parted(NamedTuple):
    """The effect of a write on stored rows.

    The points to write, the files that lose some rows, their remaining rows, and the number of points that go.
    """

    columns: Data
    drops: Sequence[DataFile]
    remains: Sequence[pa.Table]
    change: Change
    removed: int


class WritePlan:
    """The files and the coverage of a write, planned again for each version that others commit before it."""

    def __init__(self, points: Table, coverage: Coverage, write: Write) -> None:
        self._points, self._coverage, self._write = points, coverage, write
        # Files of the points that the last plan wrote, so that the next one need not write the same.
        self._written: tuple[Data, list[DataFile]] | None = None
        self.growth = 0

    def after(self, version: Version) -> Plan | None:
        """Files and coverage to commit after a version; None if nothing changes."""
        before = self._coverage.of(self._write.ranges, version)
        parted = (self._parted if VIEWS[self._write.view].is_grid else self._parted_prints)(version, before)
        changed = self._changed_records(version, before, parted.change)
        self.growth = len(parted.columns) - parted.removed
        if self._written is None or self._written[0] is not parted.columns:
            self._written = parted.columns, self._put(parted.columns)
        if not (self._written[1] or parted.drops or changed):
            return None
        added = [*self._written[1], *self._rewritten(parted.remains)]
        return Plan(added, parted.drops, self._coverage.put(changed, version))

    def _rows_in(self, version: Version, ranges: Ranges, *, whole: bool = False) -> Iterator[tuple[DataFile, Any]]:
        return rows_in(self._points, self._write.view, version, ranges, whole=whole)

    def _parted(self, version: Version, before: Records) -> Parted:
        """The stored rows in the ranges of the write, in those that stay and those that go."""
        write = self._write
        drops, remains, stay, gone = list[DataFile](), list[pa.Table](), list[Series](), list[Series]()
        for file, rows in self._rows_in(version, write.ranges):
            stays = write.stays(rows, before)
            stay.append(rows.take(np.flatnonzero(stays)))
            gone.append(rows.take(np.flatnonzero(~stays)))
            if len(gone[-1]):
                drops.append(file)
                remains.append(_without(self._points.read(file), gone[-1].values[_NUMBER]))
        change = Change(times_of(write.columns), times_of(*stay), times_of(*gone))
        return Parted(write.columns, drops, remains, change, sum(map(len, gone)))

    def _parted_prints(self, version: Version, before: Records) -> Parted:
        """The same for prints, which have no buckets."""
        write, new = self._write, self._write.columns
        assert isinstance(new, Trades)
        files, stored, place, number = self._stored_prints(version)
        written, confirmed, gone = new, np.empty(0, np.int64), np.empty(0, np.int64)
        if write.joins_prints:
            written, confirmed, gone = union_of_prints(new, stored)
        else:
            gone = np.flatnonzero(~write.stays(stored, before))
        drops, remains = list[DataFile](), list[pa.Table]()
        for k, file in enumerate(files):
            numbers = number[gone[place[gone] == k]]
            if len(numbers):
                drops.append(file)
                remains.append(_without(self._points.read(file), numbers))
        # A print that is given again counts as written, though its row stays as it is.
        again, other = stored.take(np.sort(np.append(gone, confirmed))), np.ones(len(stored), bool)
        other[gone] = other[confirmed] = False
        stay = stored.take(np.flatnonzero(other))
        change = Change(times_of(written, stored.take(confirmed)), times_of(stay), times_of(again))
        return Parted(written, drops, remains, change, len(gone))

    def _stored_prints(self, version: Version) -> tuple[list[DataFile], Trades, Ints, Ints]:
        """The files with prints near the write, these prints, and of each the place of its file and its row in it."""
        near = {m: Range(int(ts[0]) - CLOCKS, int(ts[-1]) + CLOCKS) for m, ts in times_of(self._write.columns).items()}
        ranges = {m: union([*wanted, *([near[m]] if m in near else [])]) for m, wanted in self._write.ranges.items()}
        files, parts = list[DataFile](), list[Trades]()
        for file, rows in self._rows_in(version, ranges, whole=True):
            of_file = np.full(len(rows), float(len(files)))
            parts.append(dataclasses.replace(rows, values={**rows.values, _FILE: of_file}))
            files.append(file)
        stored = joined(parts) if parts else Trades.empty()
        place, number = (stored.values.get(name, np.empty(0)) for name in (_FILE, _NUMBER))
        values = {name: value for name, value in stored.values.items() if name not in (_FILE, _NUMBER)}
        return files, dataclasses.replace(stored, values=values), place, number

    def _changed_records(self, version: Version, before: Records, change: Change) -> dict[str, list[CoverageRecord]]:
        """The coverage after the write of the markets whose records it changes."""
        after = {market: self._write.coverage(market, before[market], change) for market in self._write.ranges}
        records = self._counted(version, before, after, change)
        return {market: counted for market, counted in records.items() if counted != before[market]}

    def _counted(
        self, version: Version, before: Records, after: Records, change: Change
    ) -> dict[str, list[CoverageRecord]]:
        """Records with the numbers of their points.

        A write may cut a record. The rest is unverified if the record did not have as many points as it says, because
        another program changed them.
        """
        uncounted = {m: [r.range for r in records if r.rows is None] for m, records in after.items()}
        outside = {m: subtract(cut_off, self._write.ranges[m]) for m, cut_off in uncounted.items() if cut_off}
        around = times_of(*(rows for _, rows in self._rows_in(version, outside)))

        def counted(market: str, record: CoverageRecord) -> CoverageRecord:
            if record.rows is not None:
                return record
            origin = next((old for old in before[market] if _is_part(record, old)), None)
            if origin and origin.rows != count(market, origin, change.stay, change.gone, around):
                record = record._replace(state=CoverageState.UNVERIFIED)
            return record._replace(rows=count(market, record, change.new, change.stay, around))

        return {market: [counted(market, record) for record in records] for market, records in after.items()}

    def _put(self, columns: Data) -> list[DataFile]:
        """Write points to new files, whole tokens at a time: their rows take as much memory again."""
        levels = columns.counts.reshape(-1, 2).sum(axis=1) if isinstance(columns, Books) else np.ones(len(columns))
        weights = np.add.reduceat(np.maximum(levels, 1), columns.starts)
        parts = (columns.part(first, end) for first, end in cuts(weights, _PORTION))
        return [file for part in parts for file in self._points.put(to_table(part))]

    def _rewritten(self, parts: Sequence[pa.Table]) -> list[DataFile]:
        """New files with the remaining rows of other files, in batches."""
        batches = (parts[first:end] for first, end in cuts(np.array([part.nbytes for part in parts]), _BATCH_BYTES))
        rows = (to_table(from_tables(self._write.view, batch).sort()) for batch in batches)
        return [file for table in rows for file in self._points.put(table)]


def rows_in(
    table: Table, view: Any, version: Version, ranges: Ranges, *, whole: bool = False
) -> Iterator[tuple[DataFile, Any]]:
    """For each file with rows in the ranges: the tokens, times and row ``number`` of these, or all their values."""
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


def _without(rows: pa.Table, numbers: Any) -> pa.Table:
    """The rows but for those with these numbers."""
    return rows.filter(pa.array(~np.isin(np.arange(len(rows)), numbers)))


def _is_part(record: CoverageRecord, whole: CoverageRecord) -> bool:
    """Whether a record is a remaining part of another one."""
    is_alike = record._replace(start=0, end=0, rows=None) == whole._replace(start=0, end=0, rows=None)
    return is_alike and whole.start <= record.start and record.end <= whole.end
