"""The tables of one archive: a commit of points has their coverage."""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from marketdata.archive import query
from marketdata.archive.catalog import SCHEMAS as RECORD_SCHEMAS
from marketdata.archive.catalog import Catalog
from marketdata.archive.coverage import table as coverage_table
from marketdata.archive.coverage.intervals import CoverageRecord, cut, subtract, union, within
from marketdata.archive.coverage.policy import MINUTE, SHORTEST_GAP, recorded_beside
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.coverage.table import CoverageTable, note_of
from marketdata.archive.storage.locks import lock
from marketdata.archive.storage.parquet import COMPACT_EFFORT, WRITE_EFFORT, DataFile, cuts
from marketdata.archive.storage.tables import Plan, Table, Version, looking_once
from marketdata.errors import ArchiveCorruptError, ArchiveError, ConfigError
from marketdata.points.columns import Books, Data, Ints, Token
from marketdata.points.duplicates import equal_values
from marketdata.points.records import KINDS, RecordKind
from marketdata.points.views import VIEWS, View, empty
from marketdata.resolution import BASES, BucketWidth
from marketdata.times import Range
from marketdata.wire.arrow import SCHEMAS, from_tables, to_table, tokens_of

# In the schema of the tables, so that it is fixed by the commit that creates them.
_BASE = b"marketdata.base"
# Points of these may be the user's own: a fetch replaces those that it brings, and leaves the others.
_OWN = (CoverageState.RECORDED, CoverageState.UNPROVEN)
# States that stay when points are added.
_STAYS = (CoverageState.FINAL, CoverageState.RECORDED)
# At least this many small files, in a folder or an object store, are joined by a write.
_TAIL_FILES, _TAIL_REMOTE = 64, 4
# A small file has less [bytes].
_TAIL_BYTES = 500_000
# Rows of several files are joined up to this size in memory [bytes], however few they take in a file; so many rows or
# levels are written at once.
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

    def counted(self, record: CoverageRecord) -> CoverageRecord:
        """The record with its number of points, if it has none."""
        if record.rows is not None:
            return record
        return record._replace(rows=self.count(self.new, record) + self.count(self.stay, record))


Coverage = Mapping[str, Sequence[CoverageRecord]]
# True for stored rows in the ranges that stay; and the records of a market after a write.
Keep = Callable[[Rows, Coverage], Any]
After = Callable[[str, Sequence[CoverageRecord], Change], Sequence[CoverageRecord]]


class ArchiveStore:
    """Everything that is stored under one root."""

    def __init__(
        self, root: str, options: dict[str, str] | None, as_of: int | None = None, base: str | None = None
    ) -> None:
        self.root = root
        self.options = options
        self._as_of = as_of
        self._given_base = base
        self._stored: BucketWidth | None = None

        def table(name: str, schema: Any, **more: int) -> Table:
            return Table(f"{root.rstrip('/')}/{name}", schema, options, as_of=as_of, **more)

        self.points: dict[View, Table] = {view: table(view, SCHEMAS[view]) for view in VIEWS}
        self.catalog: dict[RecordKind, Catalog] = {k: Catalog(table(k, RECORD_SCHEMAS[k]), k) for k in KINDS}
        self.coverage = CoverageTable(table("coverage", coverage_table.SCHEMA, interval=2), dict(self.points.items()))
        # Every table by its name.
        self.tables: dict[str, Table] = {str(view): points for view, points in self.points.items()}
        self.tables |= {str(kind): catalog.table for kind, catalog in self.catalog.items()}
        self.tables["coverage"] = self.coverage.table
        for view, points in self.points.items():
            points.before_checkpoint = functools.partial(self.coverage.fold, [view])

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "options": self.options, "as_of": self._as_of, "base": self._given_base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def base(self) -> BucketWidth:
        """Width of the stored points, fixed with the coverage table; ConfigError if another one was given."""
        if self._stored is None:
            self._check_past()
            # If its log is damaged, the tables of points have it too.
            for table in (self.coverage.table, *self.points.values()):
                version = table.version()
                if version.number >= 0:
                    metadata = version.schema.field(0).metadata or {}
                    self._stored = BASES[metadata.get(_BASE, b"1m").decode()]
                    break
        base = self._stored or BASES[self._given_base or "1m"]
        if self._given_base not in (None, base.text):
            raise ConfigError(
                f"The archive {self.root!r} was made with base={base.text!r}, which is fixed; "
                f"base={self._given_base!r} needs another folder. Without base= it is opened as it is."
            )
        return base

    def _check_past(self) -> None:
        """ConfigError with the earliest time at which all tables can be read, if that of ``as_of`` is before it."""
        refused = []
        for table in self.tables.values() if self._as_of is not None else ():
            try:
                table.version()
            except ConfigError as problem:
                refused.append(problem)
        if refused:
            raise max(refused, key=lambda problem: problem.problem)  # they begin with the time

    @property
    def is_made(self) -> bool:
        """Whether a commit log has the base."""
        return self._stored is not None

    def fix_base(self, base: BucketWidth) -> None:
        """Create the coverage table, and with it the base; ConfigError if it was created with another one."""
        if not self.coverage.table.is_made:
            self.coverage.table.create(self.metadata_of(base))
        if self.base != base:
            raise ConfigError(f"The archive {self.root!r} was just made with base={self.base.text!r}; open it again.")

    @staticmethod
    def metadata_of(base: BucketWidth) -> dict[bytes, bytes]:
        """Metadata of the tables of points at ``base``."""
        return {} if base == BASES["1m"] else {_BASE: base.text.encode()}

    def width(self, resolution: Any) -> BucketWidth:
        """The bucket width of a resolution; ConfigError if the base does not divide it."""
        width = BucketWidth.of(resolution)
        if not self.base.divides(width):
            problem = f"is refused: the archive stores points of {self.base}, which does not divide it."
            raise ConfigError(problem, argument="resolution", value=resolution)
        return width

    def writer(self, name: str) -> AbstractContextManager[None]:
        """One writer of a view or another table at a time, among the processes of one machine."""
        return lock(self.root, name, f"writing {name}")

    def commit(self, view: View, columns: Data, fresh: Coverage) -> int:
        """Replace the points inside the ranges of records, and record these; ArchiveError if a point is outside.

        ``columns`` are all points of all ranges, at the base, in tidy order; records are disjoint per market, and their
        points are counted. Added points of other tokens and times stay, and their coverage stays ``recorded``. Returns
        by how many points there are more.
        """
        if not fresh:
            return 0
        ranges = {market: [record.range for record in some] for market, some in fresh.items()}
        if not query.inside(columns.tokens, columns.token, columns.ts, ranges).all():
            raise ArchiveError(f"{view} points lie outside of the ranges that they were to replace.")

        def keep(rows: Rows, before: Coverage) -> Any:
            own = {m: [r.range for r in some if r.state in _OWN] for m, some in before.items()}
            return query.inside(rows.tokens, rows.codes, rows.ts, own) & (rows.at < 0)

        def after(market: str, before: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            out = list(fresh[market])
            own = (r.range for one in union(ranges[market]) for r in within(before, one) if r.state in _OWN)
            for run in _runs(change.stay, union(own)):
                for one in within(fresh[market], run):
                    out = [*(part for old in out for part in cut(old, one.start, one.end)), recorded_beside(one)]
            return out

        return self.replace(view, columns, ranges, keep, after)

    def upsert(self, view: View, columns: Data, state: CoverageState, *, whole: bool = False) -> None:
        """Add points at the base: equal (token, ts) are replaced; ``whole`` replaces first to last of a token.

        Complete ranges stay so; the rest of each market, from its first to its last minute, gets ``state``.
        """
        columns = columns.sort()
        hulls = {market: minutes_of(times) for market, times in times_of(columns).items()}
        spans = _spans(columns)
        now = time.time_ns() // 1000

        def keep(rows: Rows, _: Coverage) -> Any:
            if not whole:
                return rows.at < 0
            same = _codes_in(columns, rows.tokens)[rows.codes]
            return (same < 0) | (rows.ts < spans[same, 0]) | (rows.ts > spans[same, 1])

        stays = () if state == CoverageState.FINAL else _STAYS

        def split(records: Iterable[CoverageRecord], hull: Range) -> list[CoverageRecord]:
            """Records of points that the new ones cut, whose points beside these are counted anew."""
            return [r for r in records if r.rows and r.state not in stays and cut(r, *hull) not in ([r], [])]

        ranges = {
            market: union([hulls[market], *(r.range for r in split(records, hulls[market]))])
            for market, records in self.coverage.of(view, hulls).items()
        }

        def after(market: str, before: Sequence[CoverageRecord], change: Change) -> list[CoverageRecord]:
            hull = hulls[market]
            complete = [r for r in before if r.state in stays]
            out = [CoverageRecord(*r, state, None, now) for r in subtract([hull], [r.range for r in complete])]
            for old in split(before, hull):
                # Nothing was read of a record that another writer made meanwhile.
                if any(one.start <= old.start and old.end <= one.end for one in ranges[market]):
                    out += cut(old, *hull)
            for old in complete:
                grown = change.count(change.new, old.range) - change.count(change.gone, old.range)
                if grown and old.rows is not None:
                    out.append(old._replace(rows=old.rows + grown))
                elif grown:  # another writer may know the numbers of smaller parts, which this changes
                    out += within([old], hull)
            return out

        self.replace(view, columns, ranges, keep, after)

    def replace(
        self,
        view: View,
        columns: Data,
        ranges: Mapping[str, Sequence[Range]],
        keep: Keep,
        after: After,
        join: Sequence[DataFile] | None = None,
    ) -> int:
        """Replace the points in the ranges of markets, but those that ``keep`` selects, and record it, in one commit.

        ``after`` gives the records of a market whose coverage has records and a change of points; those without
        ``rows`` are counted. What is stored is read once, and again if another commit came first; points that are there
        already, with equal values, stay in their files. The records are in the commit, so that what is recorded is what
        is stored wherever a process ends. Some files are joined: by default the small ones once there are many, else
        those of ``join`` with more effort. Returns by how many points there are more.
        """
        table, new_times = self.points[view], times_of(columns)
        whole: list[DataFile] | None = None  # the files of all points, which no plan makes twice
        growth = 0

        def plan(version: Version) -> Plan | None:
            nonlocal growth, whole
            before = self.coverage.of(view, ranges)
            files = list(table.touched(version, ranges))
            drops, left, changes, there = self._changes(view, files, columns, ranges, keep, before)
            records = {}
            for market in ranges:
                change = changes.get(market) or Change()
                if market in new_times:
                    change.new = np.sort(new_times[market])
                records[market] = [change.counted(r) for r in after(market, before[market], change)]
            growth = len(columns) - sum(len(change.gone) for change in changes.values())
            if there.any():
                new = self._put(view, columns.take(np.flatnonzero(~there)))
            else:
                new = whole = self._put(view, columns) if whole is None else whole
            if join is None:
                joined = _small(table, version, drops, _row_bytes(columns))
            else:
                joined = {file: table.read(file) for file in join if file in version.files}
            if not (new or drops or joined or any(records.values())):
                return None
            new = [*new, *self._rewritten(view, [*left, *joined.values()], is_small=join is None)]
            return new, [*drops, *joined], note_of(records)

        with looking_once():
            self.fix_base(self.base)  # what cannot be recorded is not written
            table.create(self.metadata_of(self.base))
            if not isinstance(columns, Books):
                table.add_columns(columns.values)
            table.plan(plan, self.writer(view), data_change=join is None)
        return growth

    def join(self, view: View, files: Sequence[DataFile]) -> None:
        """Write files as one; one that another writer replaces meanwhile is left out, as its rows are newer."""
        self.replace(view, empty(view), {}, lambda rows, _: rows.at < 0, lambda *_: [], files)

    def record(self, view: View, make: Callable[[Version], Mapping[str, Sequence[CoverageRecord]]]) -> None:
        """Record other coverage of the points of a version, which ``make`` gives by market."""

        def plan(version: Version) -> Plan | None:
            records = make(version)
            return ([], [], note_of(records)) if any(records.values()) else None

        self.points[view].plan(plan, self.writer(view))

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
        before: Coverage,
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

    def _rewritten(self, view: View, parts: Sequence[pa.Table], *, is_small: bool) -> list[DataFile]:
        """New files of rows of others; small ones are made some at a time, and with less effort."""
        effort, most = (WRITE_EFFORT, _BATCH_BYTES) if is_small else (COMPACT_EFFORT, math.inf)
        out, batch, size = list[DataFile](), list[pa.Table](), 0
        for n, part in enumerate(parts):
            batch.append(part)
            size += part.nbytes
            if n + 1 < len(parts) and size < most:
                continue
            rows = batch[0] if len(batch) == 1 else to_table(from_tables(view, batch).sort())
            if rows.num_rows:
                out += self.points[view].put(rows, effort)
            batch, size = [], 0
        return out


def _each_market(rows: Rows, stays: Any) -> Iterator[tuple[str, Ints, Any]]:
    """The times of the rows of each market, and which of these stay."""
    names: dict[str, int] = {}
    market = np.array([names.setdefault(t.market_id, len(names)) for t in rows.tokens] or [0])[rows.codes]
    order = np.argsort(market, kind="stable")
    edges = np.searchsorted(market[order], np.arange(len(names) + 1))
    for name, (a, b) in zip(names, itertools.pairwise(edges.tolist()), strict=True):
        if a < b:
            yield name, rows.ts[order[a:b]], stays[order[a:b]]


def _small(table: Table, version: Version, drops: Sequence[DataFile], row_bytes: float) -> dict[DataFile, pa.Table]:
    """Small files to join once there are many, with their rows: as much as is joined at once."""
    # Books that do not change take little room in a file, and much in memory.
    most = _BATCH_BYTES / 2 / row_bytes
    small = [file for file in version.files if file.size < _TAIL_BYTES and file.rows < most and file not in drops]
    if len(small) < (_TAIL_REMOTE if table.remote else _TAIL_FILES):
        return {}
    size, out = 0, dict[DataFile, pa.Table]()
    for file in small:
        with contextlib.suppress(ArchiveCorruptError):  # it stays as it is, for `verify` to find
            out[file] = table.read_small(file)
            size += out[file].nbytes
        if size > _BATCH_BYTES:
            break
    return out


def _row_bytes(columns: Data) -> float:
    """The memory of a row of such points, about [bytes]."""
    levels = len(columns.bids.price) + len(columns.asks.price) if isinstance(columns, Books) else 0
    return 64 + 16 * levels / max(len(columns), 1)


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


def _runs(times: Any, where: Sequence[Range]) -> Iterator[Range]:
    """Ranges of minutes from point to point inside ``where``, with less than an hour between two points."""
    for one in where:
        inside = np.unique(times[(times >= one.start) & (times < one.end)] // MINUTE * MINUTE)
        for run in np.split(inside, np.flatnonzero(np.diff(inside) > SHORTEST_GAP) + 1):
            if len(run):
                yield Range(int(run[0]), int(run[-1]) + MINUTE)


def _spans(columns: Data) -> Any:
    """First and last time of each token; the last row, for no token, is none."""
    out = np.tile(np.array([1, 0], dtype=np.int64), (len(columns.tokens) + 1, 1))
    if len(columns):
        out[:-1, 0], out[:-1, 1] = columns.ts[columns.starts], columns.ts[columns.bounds[1:] - 1]
    return out


def minutes_of(times: Ints) -> Range:
    """The range from the minute of the first time to the end of the minute of the last."""
    return minutes_around(int(times.min()), int(times.max()))


def minutes_around(first: int, last: int) -> Range:
    """The range from the minute of one time to the end of the minute of another: coverage is by the minute."""
    return Range(first // MINUTE * MINUTE, last // MINUTE * MINUTE + MINUTE)


def times_of(columns: Data) -> dict[str, Ints]:
    """The times of each market of sorted columns; no copies."""
    names = [token.market_id for token in columns.tokens] if len(columns) else []
    first = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    edges = columns.bounds[[*first, len(names)]].tolist()
    return {names[i]: columns.ts[a:b] for i, (a, b) in zip(first, itertools.pairwise(edges), strict=True)}
