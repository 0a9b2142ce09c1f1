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
from marketdata.archive.storage.parquet import WRITE_EFFORT, DataFile, cuts, holding, hull
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
# Points of these states may be the user's own: a fetch replaces only those that it brings.
_ADDED = (CoverageState.RECORDED, CoverageState.UNVERIFIED)
# A write joins small files once there are this many; small is below these [bytes, rows].
_MANY_SMALL, _SMALL_BYTES, _SMALL_ROWS = 32, 64_000, 50_000
# Bounds of what is written at once: bytes of rows that remain, and rows or levels of new points.
_BATCH_BYTES = 4_000_000
_PORTION = 4_000_000

Records = Mapping[str, Sequence[CoverageRecord]]


class Rows(NamedTuple):
    """Stored rows of a file: the token (a place in ``tokens``), time and number of each."""

    tokens: Sequence[Token]
    codes: Any
    ts: Any
    numbers: Any


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


# Selects the stored rows that stay, by the place of each among the new points (-1: none) and the coverage before.
Keep = Callable[[Rows, Ints, Records], Any]
# Gives the new records of a market after a write.
After = Callable[[str, Sequence[CoverageRecord], Change], Sequence[CoverageRecord]]


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
        self.catalog: dict[RecordKind, Catalog] = {k: Catalog(table(k, RECORD_SCHEMAS[k]), k) for k in KINDS}
        # Every table by its name.
        self.tables: dict[str, Table] = {str(view): points for view, points in self.points.items()}
        self.tables |= {str(kind): catalog.table for kind, catalog in self.catalog.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "options": self.options, "as_of": self._as_of, "base": self.given_base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def base(self) -> BucketWidth:
        """Width of the stored points, or of those that a new archive will have; ConfigError if another was given."""
        base = self.stored_base or self.given_base or BucketWidth.of("1m")
        if self.given_base not in (None, base):
            raise ConfigError(
                f"The archive {self.root!r} has base={base.text!r}, which is fixed; base={self.given_base!s} needs "
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

        def keep(rows: Rows, matches: Ints, before: Records) -> Any:
            added = {m: [r.range for r in records if r.state in _ADDED] for m, records in before.items()}
            return query.inside(rows.tokens, rows.codes, rows.ts, added) & (matches < 0)

        def after(market: str, before: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            added = (r.range for one in union(ranges[market]) for r in within(before, one) if r.state in _ADDED)
            occupied = _occupied(change.stay, union(added), self.base.micros)
            return [*fresh[market], *(recorded_beside(r) for one in occupied for r in within(fresh[market], one))]

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

        def keep(rows: Rows, matches: Ints, _: Records) -> Any:
            if not whole:
                return matches < 0
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
            drops, remains, changes, is_stored = self._changes(view, version, columns, ranges, keep, before)
            for market, times in new_times.items():
                changes.setdefault(market, Change()).new = np.sort(times)
            overlaid = {m: overlay(after(m, before[m], changes.get(m) or Change()), before[m]) for m in ranges}
            records = self._counted(view, version, ranges, before, overlaid, changes)
            changed = {market: counted for market, counted in records.items() if counted != before[market]}
            growth = len(columns) - sum(len(change.gone) for change in changes.values())
            if is_stored.any():
                new = self._put(view, columns.take(np.flatnonzero(~is_stored)))
            else:
                new = everything = self._put(view, columns) if everything is None else everything
            if not (new or drops or changed):
                return None
            return Plan([*new, *self._rewritten(view, remains)], drops, coverage.put(changed, version))

        table.plan(plan)
        with contextlib.suppress(ArchiveError):  # the rows are stored, whatever becomes of this
            small = [f for f in table.version().files if f.size < _SMALL_BYTES and f.rows < _SMALL_ROWS]
            if len(small) >= _MANY_SMALL:
                self.join(view, small)
        return growth

    def refuse(self, view: View, ranges: Mapping[str, Sequence[Range]], now: int) -> None:
        """Record ranges that a plan did not allow, where nothing is stored."""

        def plan(version: Version) -> Plan | None:
            changed = {}
            for market, before in self.coverage[view].of(ranges, version).items():
                free = subtract(ranges[market], [r.range for r in before if r.state != CoverageState.NOT_ALLOWED])
                refused = [CoverageRecord(*one, CoverageState.NOT_ALLOWED, 0, now) for one in free]
                changed[market] = overlay(refused, before)
            return Plan(transactions=self.coverage[view].put(changed, version)) if changed else None

        self.fix_base()
        self.points[view].create({_BASE: self.base.text.encode()})
        self.points[view].plan(plan)

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
        uncounted = {m: [r.range for r in records if r.rows is None] for m, records in after.items()}
        outside = {m: subtract(cut_off, ranges[m]) for m, cut_off in uncounted.items() if cut_off}
        times_outside = self._times(view, version, outside)
        out: dict[str, list[CoverageRecord]] = {}
        for market, records in after.items():
            change = changes.get(market) or Change()
            around = times_outside.get(market, np.empty(0, np.int64))
            out[market] = []
            for record in records:
                if record.rows is None:
                    rows = sum(change.count(times, record) for times in (change.new, change.stay, around))
                    origin = next((old for old in before[market] if _is_part(record, old)), None)
                    stored = (change.stay, change.gone, around)
                    if origin and origin.rows != sum(change.count(times, origin) for times in stored):
                        record = record._replace(state=CoverageState.UNVERIFIED)  # noqa: PLW2901
                    record = record._replace(rows=rows)  # noqa: PLW2901
                out[market].append(record)
        return out

    def _rows(
        self, view: View, version: Version, ranges: Mapping[str, Sequence[Range]]
    ) -> Iterator[tuple[DataFile, Rows]]:
        """The rows in the ranges of each file that has some."""
        table = self.points[view]
        markets = sorted(market for market, wanted in ranges.items() if wanted)
        span = hull(one for wanted in ranges.values() for one in wanted)
        for file in holding(version.files, markets, span) if markets else ():
            if not holding(table.footer(file).groups, markets, span):
                continue
            columns = table.read(file, names=[*VIEWS[view].ids, "ts"])
            tokens, codes = tokens_of(view, columns)
            ts = columns.column("ts").cast(pa.int64()).to_numpy()
            numbers = np.flatnonzero(query.inside(tokens, codes, ts, ranges))
            if len(numbers):
                yield file, Rows(tokens, codes[numbers], ts[numbers], numbers)

    def _times(self, view: View, version: Version, ranges: Mapping[str, Sequence[Range]]) -> dict[str, Ints]:
        """Sorted times of the stored rows in ranges, by market."""
        times: dict[str, list[Ints]] = {}
        for _, rows in self._rows(view, version, ranges):
            for market, places in _by_market(rows):
                times.setdefault(market, []).append(rows.ts[places])
        return {market: np.sort(np.concatenate(parts)) for market, parts in times.items()}

    def _put(self, view: View, columns: Data) -> list[DataFile]:
        """Write points to new files, some at a time: their rows take as much memory again."""
        return [file for part in _portions(columns) for file in self.points[view].put(to_table(part))]

    def _changes(
        self,
        view: View,
        version: Version,
        columns: Data,
        ranges: Mapping[str, Sequence[Range]],
        keep: Keep,
        before: Records,
    ) -> tuple[list[DataFile], list[pa.Table], dict[str, Change], NDArray[np.bool_]]:
        """Files with rows to replace, the rows of each that stay, and the times of all rows in the ranges by market.

        Last, which of ``columns`` are stored already: such rows stay too, though they count as replaced.
        """
        drops, remains, changes = list[DataFile](), list[pa.Table](), dict[str, Change]()
        is_stored, matches_of = np.zeros(len(columns), bool), _matching(columns, self.base)
        for file, rows in self._rows(view, version, ranges):
            matches = matches_of(rows)
            stays = keep(rows, matches, before)
            for market, places in _by_market(rows):
                change, times, kept = changes.setdefault(market, Change()), rows.ts[places], stays[places]
                change.stay, change.gone = np.append(change.stay, times[kept]), np.append(change.gone, times[~kept])
            gone, matches = rows.numbers[~stays], matches[~stays]
            if not len(gone):
                continue
            stored = self.points[view].read(file)
            matched = np.flatnonzero(matches >= 0)
            is_same = _equal(view, stored.take(gone[matched]), columns, matches[matched])
            same = matched[is_same & ~is_stored[matches[matched]]]
            is_stored[matches[same]] = True
            gone = np.delete(gone, same)
            if len(gone):
                drops.append(file)
                remains.append(stored.filter(pa.array(~np.isin(np.arange(len(stored)), gone))))
        for change in changes.values():
            change.stay, change.gone = np.sort(change.stay), np.sort(change.gone)
        return drops, remains, changes, is_stored

    def _rewritten(self, view: View, parts: Sequence[pa.Table]) -> list[DataFile]:
        """New files of the rows that remain of others, some at a time."""
        out, batch = list[DataFile](), list[pa.Table]()
        for n, part in enumerate(parts):
            batch.append(part)
            if n + 1 == len(parts) or sum(one.nbytes for one in batch) >= _BATCH_BYTES:
                out += self.points[view].put(to_table(from_tables(view, batch).sort()))
                batch = []
        return out


def _is_part(record: CoverageRecord, whole: CoverageRecord) -> bool:
    """Whether a record is what remains of another one."""
    is_alike = record._replace(start=0, end=0, rows=None) == whole._replace(start=0, end=0, rows=None)
    return is_alike and whole.start <= record.start and record.end <= whole.end


def _by_market(rows: Rows) -> Iterator[tuple[str, Ints]]:
    """The places of the rows of each market."""
    numbers: dict[str, int] = {}
    markets = np.array([numbers.setdefault(token.market_id, len(numbers)) for token in rows.tokens])[rows.codes]
    order = np.argsort(markets, kind="stable")
    edges = np.searchsorted(markets[order], np.arange(len(numbers) + 1))
    for market, (first, end) in zip(numbers, itertools.pairwise(edges.tolist()), strict=True):
        if first < end:
            yield market, order[first:end]


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
    """The place of each token in the tokens of columns, -1 for none."""
    codes = {_identity(token): code for code, token in enumerate(columns.tokens)}
    return np.array([codes.get(_identity(token), -1) for token in tokens] or [-1], np.int64)


def _matching(columns: Data, base: BucketWidth) -> Callable[[Rows], Ints]:
    """A function that gives for each row the place of its token and time in sorted columns, -1 for none."""
    first, last = (int(columns.ts.min()), int(columns.ts.max())) if len(columns) else (0, -1)
    reach = (last - first) // base.micros + 1

    @functools.cache
    def point_numbers() -> Ints:
        """A rising number for each of the points, only if rows are compared with them: it takes as much memory."""
        return columns.token.astype(np.int64) * reach + (columns.ts - first) // base.micros

    def matches(rows: Rows) -> Ints:
        tokens = _codes_in(columns, rows.tokens)[rows.codes]
        out = np.full(len(rows.ts), -1)
        near = np.flatnonzero((tokens >= 0) & (rows.ts >= first) & (rows.ts <= last))
        if len(near):
            wanted = tokens[near] * reach + (rows.ts[near] - first) // base.micros
            places = np.minimum(np.searchsorted(point_numbers(), wanted), len(columns) - 1)
            out[near] = np.where(point_numbers()[places] == wanted, places, -1)
        return out

    return matches


def _equal(view: View, rows: pa.Table, columns: Data, places: Ints) -> NDArray[np.bool_]:
    """True for rows with the label and values of the points at these places; none if they are in another order."""
    with contextlib.suppress(ArchiveError):  # what is no point is replaced
        stored = from_tables(view, [rows])
        if (np.diff(tokens_of(view, rows)[1]) >= 0).all() and (np.diff(places) > 0).all():
            tokens = set(columns.tokens)
            is_named = np.array([token in tokens for token in stored.tokens], bool)[stored.token]
            return is_named & equal_values(stored, columns.take(places))
    return np.zeros(len(places), bool)


def _occupied(times: Any, where: Sequence[Range], width: int) -> Iterator[Range]:
    """Ranges of buckets from point to point inside ``where``, with less than an hour between two points."""
    for limits in where:
        starts = np.unique(times[(times >= limits.start) & (times < limits.end)] // width * width)
        for part in np.split(starts, np.flatnonzero(np.diff(starts) > max(SHORTEST_GAP, width)) + 1):
            if len(part):
                yield Range(int(part[0]), int(part[-1]) + width)


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
