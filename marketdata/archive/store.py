"""The tables of one archive: a commit of points has their coverage."""

from __future__ import annotations

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marketdata.archive import query
from marketdata.archive.catalog import SCHEMAS as RECORD_SCHEMAS
from marketdata.archive.catalog import Catalog
from marketdata.archive.coverage.buckets import Coverage
from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, overlay, subtract, union, within
from marketdata.archive.coverage.policy import MINUTE, SHORTEST_GAP, recorded_beside
from marketdata.archive.storage.parquet import DataFile, cuts
from marketdata.archive.storage.tables import Plan, Table, Version
from marketdata.errors import ArchiveError, ConfigError
from marketdata.points.columns import Books, Data, Ints, Token
from marketdata.points.duplicates import equal_values
from marketdata.points.records import KINDS, RecordKind
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range
from marketdata.wire.arrow import SCHEMAS, from_tables, to_table, tokens_of

# In the schema of the tables, so that it is fixed by the commit that creates them.
_BASE = b"marketdata.base"
# Points of these may be the user's own: a fetch replaces those that it brings, and leaves the others.
_ADDED = (CoverageState.RECORDED, CoverageState.UNVERIFIED)
# A write joins small files once there are this many, so that reads stay fast; small is below these [bytes, rows].
_MANY_SMALL, _SMALL_BYTES, _SMALL_ROWS = 32, 64_000, 50_000
# Rows of several files are joined up to this size in memory [bytes]; so many rows or levels are written at once.
_BATCH_BYTES = 4_000_000
_PORTION = 4_000_000


class Rows(NamedTuple):
    """Stored rows: ``codes`` are places in ``tokens``, ``at`` places among the points that are written, else -1."""

    tokens: Sequence[Token]
    codes: Any
    ts: Any
    at: Any


@dataclass
class Change:
    """Sorted times of the points of a market: those written, and those stored in the ranges that stay or go."""

    new: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    stay: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    gone: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    @staticmethod
    def count(times: Ints, within: Range | CoverageRecord) -> int:
        """The number of times in a range."""
        first, last = np.searchsorted(times, (within.start, within.end))
        return int(last - first)


Records = Mapping[str, Sequence[CoverageRecord]]
# True for stored rows in the ranges that stay; and the new records of a market after a write.
Keep = Callable[[Rows, Records], Any]
After = Callable[[str, Sequence[CoverageRecord], Change], Sequence[CoverageRecord]]


class ArchiveStore:
    """Everything that is stored under one root."""

    def __init__(
        self, root: str, options: dict[str, str] | None, as_of: int | None = None, base: BucketWidth | None = None
    ) -> None:
        self.root = root
        self.options = options
        self._as_of = as_of
        self._given_base = base
        self._stored_base: BucketWidth | None = None

        def table(name: str, schema: Any) -> Table:
            return Table(f"{root.rstrip('/')}/{name}", schema, options, as_of=as_of)

        self.points: dict[View, Table] = {view: table(view, SCHEMAS[view]) for view in VIEWS}
        self.coverage: dict[View, Coverage] = {view: Coverage(points) for view, points in self.points.items()}
        self.catalog: dict[RecordKind, Catalog] = {k: Catalog(table(k, RECORD_SCHEMAS[k]), k) for k in KINDS}
        # Every table by its name.
        self.tables: dict[str, Table] = {str(view): points for view, points in self.points.items()}
        self.tables |= {str(kind): catalog.table for kind, catalog in self.catalog.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "options": self.options, "as_of": self._as_of, "base": self._given_base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def base(self) -> BucketWidth:
        """Width of the stored points, or of those that a new archive will have; ConfigError if another was given."""
        base = self.stored_base or self._given_base or BucketWidth.of("1m")
        if self._given_base not in (None, base):
            raise ConfigError(
                f"The archive {self.root!r} has base={base.text!r}, which is fixed; base={self._given_base!s} needs "
                "another folder. Without base= it is opened as it is."
            )
        return base

    @property
    def stored_base(self) -> BucketWidth | None:
        """Width of the stored points; None before the first write."""
        if self._stored_base is None:
            for points in self.points.values():
                version = points.version()
                if version.number >= 0:
                    self._stored_base = BucketWidth.of((version.schema.field(0).metadata or {})[_BASE].decode())
                    break
        return self._stored_base

    @property
    def is_base_given(self) -> bool:
        """Whether the user chose a base."""
        return self._given_base is not None

    def choose_base(self, base: BucketWidth) -> None:
        """Take a base for a new archive, which nobody has written to."""
        self._given_base = base

    def fix_base(self, base: BucketWidth | None = None) -> None:
        """Create the table of books, which decides the base; ConfigError if the archive has another one."""
        base = base or self.base
        if self.stored_base is None:
            self.points["books"].create({_BASE: base.text.encode()})
        if self.stored_base != base:
            raise ConfigError(f"The archive {self.root!r} has base={self.base.text!r}, not {base.text!r}.")

    def width(self, resolution: Any) -> BucketWidth:
        """The bucket width of a resolution, by default 1m, or the base if that is coarser; else a ConfigError."""
        if resolution is None:
            return max(self.base, BucketWidth.of("1m"), key=lambda width: width.micros)
        width = BucketWidth.of(resolution)
        if not self.base.divides(width):
            problem = f"is refused: the archive stores points of {self.base}, which does not divide it."
            raise ConfigError(problem, argument="resolution", value=resolution)
        return width

    def commit(self, view: View, columns: Data, fresh: Records) -> int:
        """Replace the points inside the ranges of records, and record these; ArchiveError if a point is outside.

        ``columns`` are all points of all ranges, at the base, in tidy order; records are disjoint per market, and their
        points are counted. Added points of other tokens and times stay, and their coverage stays ``recorded``. Returns
        by how many points there are more.
        """
        if not fresh:
            return 0
        ranges = {market: [record.range for record in records] for market, records in fresh.items()}
        if not query.inside(columns.tokens, columns.token, columns.ts, ranges).all():
            raise ArchiveError(f"{view} points lie outside of the ranges that they were to replace.")

        def keep(rows: Rows, before: Records) -> Any:
            added = {m: [r.range for r in records if r.state in _ADDED] for m, records in before.items()}
            return query.inside(rows.tokens, rows.codes, rows.ts, added) & (rows.at < 0)

        def after(market: str, before: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            added = (r.range for one in union(ranges[market]) for r in within(before, one) if r.state in _ADDED)
            runs = _adjacent(change.stay, union(added), self.base.micros)
            return [*fresh[market], *(recorded_beside(r) for run in runs for r in within(fresh[market], run))]

        return self.replace(view, columns, ranges, keep, after)

    def upsert(self, view: View, columns: Data, state: CoverageState, *, whole: bool = False) -> int:
        """Add points at the base: equal (token, ts) are replaced; ``whole`` replaces first to last of a token.

        Complete ranges stay so; the rest of each market, from its first to its last bucket, gets ``state``. Returns by
        how many points there are more.
        """
        columns = columns.sort()
        hulls = {market: hull_of(times, self.base.micros) for market, times in times_of(columns).items()}
        spans = _spans(columns)
        now = time.time_ns() // 1000
        stays = () if state == CoverageState.FINAL else (CoverageState.FINAL, CoverageState.RECORDED)

        def keep(rows: Rows, _: Records) -> Any:
            if not whole:
                return rows.at < 0
            same = _codes_in(columns, rows.tokens)[rows.codes]
            return (same < 0) | (rows.ts < spans[same, 0]) | (rows.ts > spans[same, 1])

        def after(market: str, before: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            complete = [r for r in before if r.state in stays]
            out = [CoverageRecord(*r, state, None, now) for r in subtract([hulls[market]], [r.range for r in complete])]
            for record in complete:
                grown = change.count(change.new, record) - change.count(change.gone, record)
                out += [record._replace(rows=(record.rows or 0) + grown)] if grown else []
            return out

        return self.replace(view, columns, {market: [hull] for market, hull in hulls.items()}, keep, after)

    def replace(
        self, view: View, columns: Data, ranges: Mapping[str, Sequence[Range]], keep: Keep, after: After
    ) -> int:
        """Replace the points in the ranges of markets, but those that ``keep`` selects, and record it, in one commit.

        ``after`` gives the new records of a market from those before and a change of points; records without ``rows``
        are counted. If another commit came first it is planned again. Points that are there already, with equal
        values, stay in their files. Returns by how many points there are more.
        """
        self.fix_base()  # what cannot be recorded is not written
        table, coverage, new_times = self.points[view], self.coverage[view], times_of(columns)
        table.create({_BASE: self.base.text.encode()})
        table.add_columns(to_table(columns.take(np.empty(0, np.int64))).schema)
        everything: list[DataFile] | None = None  # the files of all points, which no plan writes twice
        growth = 0

        def plan(version: Version) -> Plan | None:
            nonlocal growth, everything
            before = coverage.of(ranges, version)
            files = list(table.touched(version, ranges))
            drops, remains, changes, is_stored = self._changes(view, files, columns, ranges, keep, before)
            for market, times in new_times.items():
                changes.setdefault(market, Change()).new = np.sort(times)
            overlaid = {m: overlay(after(m, before[m], changes.get(m) or Change()), before[m]) for m in ranges}
            records = self._counted(view, version, ranges, before, overlaid, changes)
            changed = {market: some for market, some in records.items() if some != before[market]}
            growth = len(columns) - sum(len(change.gone) for change in changes.values())
            if is_stored.any():
                new = self._put(view, columns.take(np.flatnonzero(~is_stored)))
            else:
                new = everything = self._put(view, columns) if everything is None else everything
            if not (new or drops or changed):
                return None
            return Plan([*new, *self._rewritten(view, remains)], drops, coverage.put(changed, version))

        table.plan(plan)
        self._join_tail(view)
        return growth

    def refuse(self, view: View, ranges: Mapping[str, Sequence[Range]], now: int) -> None:
        """Record ranges that a plan did not allow, where nothing is stored."""

        def make(version: Version) -> dict[str, list[CoverageRecord]]:
            changed = {}
            for market, before in self.coverage[view].of(ranges, version).items():
                free = subtract(ranges[market], [r.range for r in before if r.state != CoverageState.NOT_ALLOWED])
                refused = [CoverageRecord(*one, CoverageState.NOT_ALLOWED, 0, now) for one in free]
                changed[market] = overlay(refused, before)
            return changed

        self.record(view, make)

    def record(self, view: View, make: Callable[[Version], Records]) -> None:
        """Record the coverage that ``make`` gives for each market at a version, with the points as they are."""

        def plan(version: Version) -> Plan | None:
            records = make(version)
            return Plan(transactions=self.coverage[view].put(records, version)) if records else None

        self.fix_base()
        self.points[view].create({_BASE: self.base.text.encode()})
        self.points[view].plan(plan)

    def join(self, view: View, files: Sequence[DataFile], version: Version) -> bool:
        """Write the rows of files of a version as few large ones; False if another commit came first."""
        table = self.points[view]
        return table.try_plan(Plan(table.put(self.joined(view, files)), files), version)

    def joined(self, view: View, files: Sequence[DataFile]) -> pa.Table:
        """The rows of several files in tidy order."""
        return to_table(from_tables(view, [self.points[view].read(file) for file in files]).sort())

    def _join_tail(self, view: View) -> None:
        """Join the small files once there are many, unless another writer comes first."""
        with contextlib.suppress(ArchiveError):  # the rows are stored, whatever becomes of this
            version = self.points[view].version()
            small = [f for f in version.files if f.size < _SMALL_BYTES and f.rows < _SMALL_ROWS]
            if len(small) >= _MANY_SMALL:
                self.join(view, small, version)

    def _counted(
        self,
        view: View,
        version: Version,
        ranges: Mapping[str, Sequence[Range]],
        before: Records,
        after: Records,
        changes: Mapping[str, Change],
    ) -> dict[str, list[CoverageRecord]]:
        """Records with the numbers of their points.

        What remains of a record that a write cuts is unverified if the record had another number of points than it
        says: another program changed them.
        """
        open_ranges = {m: [r.range for r in records if r.rows is None] for m, records in after.items()}
        outside = {m: subtract(some, ranges[m]) for m, some in open_ranges.items() if some}
        beside = self._times(view, version, outside)
        out: dict[str, list[CoverageRecord]] = {}
        for market, records in after.items():
            change, around = changes.get(market) or Change(), beside.get(market, np.empty(0, np.int64))
            out[market] = []
            for record in records:
                if record.rows is None:
                    origin = next((old for old in before[market] if _is_part(record, old)), None)
                    is_as_said = origin is None or origin.rows == sum(
                        change.count(times, origin) for times in (change.stay, change.gone, around)
                    )
                    out[market].append(
                        record._replace(
                            rows=sum(change.count(times, record) for times in (change.new, change.stay, around)),
                            state=record.state if is_as_said else CoverageState.UNVERIFIED,
                        )
                    )
                else:
                    out[market].append(record)
        return out

    def _times(self, view: View, version: Version, ranges: Mapping[str, Sequence[Range]]) -> dict[str, Ints]:
        """Sorted times of the stored rows in ranges, by market."""
        table, found = self.points[view], dict[str, list[Ints]]()
        for file in table.touched(version, ranges):
            rows = table.read(file, names=[*VIEWS[view].ids, "ts"])
            tokens, codes = tokens_of(view, rows)
            ts = rows.column("ts").cast(pa.int64()).to_numpy()
            here = np.flatnonzero(query.inside(tokens, codes, ts, ranges))
            for market, times, _ in _each_market(Rows(tokens, codes[here], ts[here], here), here):
                found.setdefault(market, []).append(times)
        return {market: np.sort(np.concatenate(times)) for market, times in found.items()}

    def _put(self, view: View, columns: Data) -> list[DataFile]:
        """Write points to new files, some at a time: their rows take as much memory again."""
        return [file for part in _portions(columns) for file in self.points[view].put(to_table(part))]

    def _changes(
        self,
        view: View,
        files: Sequence[DataFile],
        columns: Data,
        ranges: Mapping[str, Sequence[Range]],
        keep: Keep,
        before: Records,
    ) -> tuple[list[DataFile], list[pa.Table], dict[str, Change], NDArray[np.bool_]]:
        """Files with rows to replace, the rows of each that stay, and the times of all rows in the ranges by market.

        Last, which of ``columns`` are there already: such rows stay too, though they count as replaced.
        """
        drops, left, changes = list[DataFile](), list[pa.Table](), dict[str, Change]()
        there, places = np.zeros(len(columns), bool), _places(columns, self.base)
        for file in files:
            found = self.points[view].read(file)
            tokens, codes = tokens_of(view, found)
            ts = found.column("ts").cast(pa.int64()).to_numpy()
            here = np.flatnonzero(query.inside(tokens, codes, ts, ranges))
            rows = Rows(tokens, codes[here], ts[here], places(tokens, codes[here], ts[here]))
            stays = keep(rows, before)
            for market, times, kept in _each_market(rows, stays):
                change = changes.setdefault(market, Change())
                change.stay, change.gone = np.append(change.stay, times[kept]), np.append(change.gone, times[~kept])
            gone, at = here[~stays], rows.at[~stays]
            known = np.flatnonzero(at >= 0)
            same = known[_equal(view, found.take(gone[known]), columns, at[known]) & ~there[at[known]]]
            there[at[same]] = True
            gone = np.delete(gone, same)
            if len(gone):
                is_left = np.ones(len(found), bool)
                is_left[gone] = False
                drops.append(file)
                left.append(found.filter(pa.array(is_left)))
        for change in changes.values():
            change.stay, change.gone = np.sort(change.stay), np.sort(change.gone)
        return drops, left, changes, there

    def _rewritten(self, view: View, parts: Sequence[pa.Table]) -> list[DataFile]:
        """New files of the rows that remain of others, some at a time."""
        out, batch = list[DataFile](), list[pa.Table]()
        for n, part in enumerate(parts):
            batch.append(part)
            if n + 1 == len(parts) or sum(one.nbytes for one in batch) >= _BATCH_BYTES:
                out += self.points[view].put(to_table(from_tables(view, batch).sort()))
                batch = []
        return out


def _is_part(record: CoverageRecord, of: CoverageRecord) -> bool:
    """Whether a record is what remains of another one."""
    same = record[2] == of[2] and record[4:] == of[4:]
    return same and of.start <= record.start and record.end <= of.end


def _each_market(rows: Rows, stays: Any) -> Iterator[tuple[str, Ints, Any]]:
    """The times of the rows of each market, and which of these stay."""
    names: dict[str, int] = {}
    market = np.array([names.setdefault(t.market_id, len(names)) for t in rows.tokens] or [0])[rows.codes]
    order = np.argsort(market, kind="stable")
    edges = np.searchsorted(market[order], np.arange(len(names) + 1))
    for name, (a, b) in zip(names, itertools.pairwise(edges.tolist()), strict=True):
        if a < b:
            yield name, rows.ts[order[a:b]], stays[order[a:b]]


def _portions(columns: Data) -> Iterator[Data]:
    """Columns in portions of whole tokens, of some million rows or levels."""
    sides = columns.bids.counts + columns.asks.counts if isinstance(columns, Books) else np.ones(len(columns), np.int64)
    weights = np.diff(np.concatenate(([0], np.cumsum(sides)))[columns.bounds])
    for first, end in cuts(np.maximum(weights, 1), _PORTION):
        yield columns.part(first, end)


def _identity(token: Token) -> tuple[str | None, ...]:
    """The key of a token: its id, or its label if it has none."""
    return (token.market_id, token.token_id, None if token.token_id else token.token_label)


def _codes_in(columns: Data, tokens: Sequence[Token]) -> Ints:
    """The place of each token among those of columns, -1 without one."""
    codes = {_identity(token): code for code, token in enumerate(columns.tokens)}
    return np.array([codes.get(_identity(token), -1) for token in tokens] or [-1], np.int64)


def _places(columns: Data, base: BucketWidth) -> Callable[[Sequence[Token], Any, Any], Ints]:
    """A function from tokens and times of rows to places in the sorted columns, -1 for a row that is not there."""
    first, last = (int(columns.ts.min()), int(columns.ts.max())) if len(columns) else (0, -1)
    reach = (last - first) // base.micros + 1

    @functools.cache
    def numbers() -> Ints:
        """A rising number for each of the points, only if others are compared with them: it takes as much memory."""
        return columns.token.astype(np.int64) * reach + (columns.ts - first) // base.micros

    def places(tokens: Sequence[Token], codes: Any, ts: Any) -> Ints:
        same = _codes_in(columns, tokens)[codes]
        out = np.full(len(ts), -1)
        near = np.flatnonzero((same >= 0) & (ts >= first) & (ts <= last))
        if len(near):
            wanted = same[near] * reach + (ts[near] - first) // base.micros
            at = np.minimum(np.searchsorted(numbers(), wanted), len(columns) - 1)
            out[near] = np.where(numbers()[at] == wanted, at, -1)
        return out

    return places


def _equal(view: View, rows: pa.Table, columns: Data, at: Ints) -> NDArray[np.bool_]:
    """True for rows with the label and values of the points at these places; none if they are in another order."""
    with contextlib.suppress(ArchiveError):  # what is no point is replaced
        stored = from_tables(view, [rows])
        if (np.diff(tokens_of(view, rows)[1]) >= 0).all() and (np.diff(at) > 0).all():
            named = set(columns.tokens)
            is_named = np.array([token in named for token in stored.tokens], bool)[stored.token]
            return is_named & equal_values(stored, columns.take(at))
    return np.zeros(len(at), bool)


def _adjacent(times: Any, where: Sequence[Range], width: int) -> Iterator[Range]:
    """Ranges of buckets from point to point inside ``where``, with less than an hour between two points."""
    for one in where:
        inside = np.unique(times[(times >= one.start) & (times < one.end)] // width * width)
        for run in np.split(inside, np.flatnonzero(np.diff(inside) > max(SHORTEST_GAP, width)) + 1):
            if len(run):
                yield Range(int(run[0]), int(run[-1]) + width)


def _spans(columns: Data) -> Any:
    """First and last time of each token; the last row, for no token, is none."""
    out = np.tile(np.array([1, 0], dtype=np.int64), (len(columns.tokens) + 1, 1))
    if len(columns):
        out[:-1, 0], out[:-1, 1] = columns.ts[columns.starts], columns.ts[columns.bounds[1:] - 1]
    return out


def hull_of(times: Ints, width: int) -> Range:
    """The range of whole buckets, but of minutes at least, from the first time to the last."""
    step = max(width, MINUTE)
    return Range(int(times.min()) // step * step, int(times.max()) // step * step + step)


def times_of(columns: Data) -> dict[str, Ints]:
    """The times of each market of sorted columns; no copies."""
    names = [token.market_id for token in columns.tokens] if len(columns) else []
    first = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    edges = columns.bounds[[*first, len(names)]].tolist()
    return {names[i]: columns.ts[a:b] for i, (a, b) in zip(first, itertools.pairwise(edges), strict=True)}
