"""The tables of one archive: points are committed first, then their coverage."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyarrow as pa

from marketdata.archive import query
from marketdata.archive.catalog import SCHEMAS as RECORD_SCHEMAS
from marketdata.archive.catalog import Catalog
from marketdata.archive.coverage import table as coverage_table
from marketdata.archive.coverage.intervals import CoverageRecord, Interval, cut, subtract, union, within
from marketdata.archive.coverage.policy import HOLE, MINUTE, recorded_beside
from marketdata.archive.coverage.state import CoverageState
from marketdata.archive.coverage.table import CoverageKey, CoverageTable
from marketdata.archive.storage.locks import lock
from marketdata.archive.storage.parquet import DataFile
from marketdata.archive.storage.schema import SCHEMAS, level_weights, to_table, tokens_of
from marketdata.archive.storage.tables import Table, Version
from marketdata.errors import ArchiveError, ConfigError
from marketdata.points.columns import Data, Token
from marketdata.points.records import KINDS, RecordKind
from marketdata.points.views import VIEWS, View, empty
from marketdata.resolution import BASES, BucketWidth
from marketdata.times import Range

# In the schema of the tables, so that it is fixed by the commit that creates them.
_BASE = b"marketdata.base"
# How long a writer waits for another one of the same view [s].
_WAIT = 600.0
# Points of these may be the user's own: a fetch replaces those that it brings, and leaves the others.
_OWN = (CoverageState.RECORDED, CoverageState.UNPROVEN)
# What stays as it is when points are added to it.
_STAYS = (CoverageState.FINAL, CoverageState.RECORDED)
# Which rows of a file a write replaces.
Gone = Callable[[pa.Table], Any]


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

        def table(name: str, schema: Any) -> Table:
            return Table(f"{root.rstrip('/')}/{name}", schema, options, as_of=as_of)

        self.points: dict[View, Table] = {view: table(view, SCHEMAS[view]) for view in VIEWS}
        self.catalog: dict[RecordKind, Catalog] = {k: Catalog(table(k, RECORD_SCHEMAS[k]), k) for k in KINDS}
        self.coverage = CoverageTable(table("coverage", coverage_table.SCHEMA))

    def __getstate__(self) -> dict[str, Any]:
        return {"root": self.root, "options": self.options, "as_of": self._as_of, "base": self._given_base}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def tables(self) -> dict[str, Table]:
        """Every table by its name."""
        named: dict[str, Table] = {str(view): table for view, table in self.points.items()}
        named.update({kind: catalog.table for kind, catalog in self.catalog.items()})
        return {**named, "coverage": self.coverage.table}

    @property
    def base(self) -> BucketWidth:
        """Width of the stored points, fixed with the coverage table; ConfigError if another one was given."""
        if self._stored is None:
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

    @property
    def is_made(self) -> bool:
        """Whether a commit log has the base."""
        return self._stored is not None

    def fix_base(self, base: BucketWidth) -> None:
        """Create the coverage table, and with it the base; ConfigError if it was created with another one."""
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

    def labels(self, view: View, markets: Iterable[str] | None) -> dict[tuple[str, str], str]:
        """Labels of the tokens of markets (None: all) in their records; of metrics none."""
        return self.catalog["markets"].labels(markets) if VIEWS[view].has_tokens else {}

    def writer(self, name: str) -> AbstractContextManager[None]:
        """One writer of a view or another table at a time, among the processes of one machine."""
        return lock(self.root, name, _WAIT, f"writing {name}")

    def commit(self, view: View, columns: Data, intervals: Sequence[Interval], *, fetched_at: int | None = None) -> int:
        """Replace the points inside the intervals, then record their coverage; ArchiveError if a point is outside.

        ``columns`` are all points of all intervals, at the base, in tidy order; intervals are disjoint per market;
        ``fetched_at`` [microseconds UTC] is now by default. Added points of other tokens and times stay, and their
        coverage stays ``recorded``. Returns by how many points there are more.
        """
        if not intervals:
            return 0
        ranges: dict[str, list[Range]] = {}
        for one in intervals:
            ranges.setdefault(one.market_id, []).append(Range(one.start, one.end))
        if not query.inside(columns.tokens, columns.token, columns.ts, ranges).all():
            raise ArchiveError(f"{view} points lie outside of the intervals that they were to replace.")
        parts = by_market(columns)
        now = time.time_ns() // 1000 if fetched_at is None else fetched_at
        fresh: dict[str, list[CoverageRecord]] = {}

        def prepare() -> None:
            nothing = empty(view)
            for one in intervals:
                part = parts.get(one.market_id, nothing).between(one.start, one.end)
                fresh.setdefault(one.market_id, []).append(
                    CoverageRecord(one.start, one.end, one.state, len(part), now, 0, one.tries)
                )

        base = self.base
        is_fetched = _membership(columns, base)

        def own(records: Iterable[CoverageRecord]) -> list[Range]:
            return union(p.range for p in records if p.state in _OWN)

        def kept(tokens: Sequence[Token], codes: Any, ts: Any, where: Mapping[str, Sequence[Range]]) -> Any:
            return query.inside(tokens, codes, ts, where) & ~is_fetched(tokens, codes, ts)

        def gone(rows: pa.Table) -> Any:
            tokens, codes = tokens_of(view, rows)
            ts, names = _times(rows), {token.market_id for token in tokens} & ranges.keys()
            where = {market: own(self.coverage.records(view, market)) for market in names}
            return query.inside(tokens, codes, ts, ranges) & ~kept(tokens, codes, ts, where)

        def after(market: str, before: Sequence[CoverageRecord], version: Version) -> list[CoverageRecord]:
            left = list(before)
            for record in fresh[market]:
                left = [part for old in left for part in cut(old, record.start, record.end)]
            out = [*(old for old in left if old not in before), *fresh[market]]
            where = [part for one in union(ranges[market]) for part in own(within(before, one))]
            if not where:
                return out
            hull = Range(where[0].start, where[-1].end)
            held = query.read(self.points[view], view, market, hull, version=version)
            times = held.ts[kept(held.tokens, held.token, held.ts, {market: where})]
            for run in _runs(times, where):
                for one in within(fresh[market], run):
                    out = [part for old in out for part in cut(old, one.start, one.end)]
                    out.append(recorded_beside(one))
            return out

        return self._replace(view, columns, base, gone, ranges, after, prepare)

    def upsert(
        self, view: View, columns: Data, base: BucketWidth, state: CoverageState, *, whole: bool = False
    ) -> None:
        """Add points at ``base``: equal (token, ts) are replaced; ``whole`` replaces first to last of a token.

        Complete ranges stay so; the rest of each market, from its first to its last minute, gets ``state``.
        """
        columns = columns.sort()
        parts = by_market(columns)
        hulls = {m: [minutes_of(part)] for m, part in parts.items()}
        spans = _spans(columns)
        places = {_identity(token): code for code, token in enumerate(columns.tokens)}
        now = time.time_ns() // 1000
        is_added = _membership(columns, base)

        def gone(rows: pa.Table) -> Any:
            tokens, codes = tokens_of(view, rows)
            if not whole:
                return is_added(tokens, codes, _times(rows))
            same = np.array([places.get(_identity(token), -1) for token in tokens] or [-1])[codes]
            ts = _times(rows)
            return (same >= 0) & (ts >= spans[same, 0]) & (ts <= spans[same, 1])

        def after(market: str, before: Sequence[CoverageRecord], _: Version) -> list[CoverageRecord]:
            (hull,) = hulls[market]
            near = within(before, hull)
            complete = [] if state == CoverageState.FINAL else [p.range for p in near if p.state in _STAYS]
            out = [CoverageRecord(*r, state, None, now, 0) for r in subtract([hull], complete)]
            for old in before:
                if any(old.start <= r.start and r.end <= old.end for r in complete):
                    out.append(old._replace(rows=None))
                else:
                    out += [part for part in cut(old, *hull) if part is not old]
            return out

        self._replace(view, columns, base, gone, hulls, after, lambda: None)

    def _replace(
        self,
        view: View,
        columns: Data,
        base: BucketWidth,
        gone: Gone,
        ranges: Mapping[str, Sequence[Range]],
        after: Callable[[str, Sequence[CoverageRecord], Version], Sequence[CoverageRecord]],
        prepare: Callable[[], None],
    ) -> int:
        """Replace rows in one commit, then record their coverage in another; returns how many rows there are more.

        Nothing is ever recorded that is not stored: what will be replaced is first recorded as unproven, then the
        points are committed, then their coverage. A process that ends in between leaves a range that a pull fetches
        again. ``gone`` and ``ranges``: which rows are replaced, and where per market; ``after`` maps the records of a
        market before to those after, whose rows are counted if None. ``prepare`` runs while files are written, before
        ``after``.
        """
        table = self.points[view]
        self.fix_base(base)  # what cannot be recorded is not written
        table.create(self.metadata_of(base))
        new: list[DataFile] = []
        try:
            with ThreadPoolExecutor(1) as pool:
                prepared = pool.submit(prepare)
                if len(columns):
                    rows = to_table(columns)
                    known = set(table.version().schema.names)
                    table.add_columns([pa.field(n, pa.float64()) for n in rows.schema.names if n not in known])
                    new = table.put(rows, level_weights(rows, view))
                prepared.result()
            with self.writer(view):
                before = {market: self.coverage.records(view, market) for market in ranges}
                growth: list[int] = []
                version = table.plan(self._plan(view, new, gone, ranges, growth))
                mine, new = new, []
                records = {market: list(after(market, before[market], version)) for market in ranges}
                self._count(view, records, version, columns, mine)
                self.coverage.append(
                    {
                        (view, market): [r._replace(seq=2 * version.number) for r in some]
                        for market, some in records.items()
                    }
                )
        finally:
            table.discard(new)
        return growth[-1]

    def _count(
        self,
        view: View,
        records: dict[str, list[CoverageRecord]],
        version: Version,
        columns: Data,
        mine: Sequence[DataFile],
    ) -> None:
        """Fill in rows that are None, from the points that were written or are stored."""
        open_ = {m: [r for r in some if r.rows is None] for m, some in records.items()}
        hulls = {m: Range(min(r.start for r in s), max(r.end for r in s)) for m, s in open_.items() if s}
        if not hulls:
            return
        markets = sorted(hulls)
        hull = Range(min(r.start for r in hulls.values()), max(r.end for r in hulls.values()))
        stored: set[str] = set()
        for file in version.files:
            if file not in mine and file.may_hold(markets, *hull):
                near = file.markets_near(markets)
                stored.update(m for m in near if file.may_hold([m], *hulls[m]))
        parts = by_market(columns)
        if stored:
            parts |= by_market(
                query.read(self.points[view], view, stored, {m: hulls[m] for m in stored}, version=version)
            )
        nothing = empty(view)
        for market in hulls:
            part = parts.get(market, nothing)
            for i, record in enumerate(records[market]):
                if record.rows is None:
                    records[market][i] = record._replace(rows=len(part.between(record.start, record.end)))

    def _plan(
        self,
        view: View,
        new: Sequence[DataFile],
        gone: Gone,
        ranges: Mapping[str, Sequence[Range]],
        growth: list[int],
    ) -> Callable[[Version], tuple[Sequence[DataFile], Sequence[DataFile]] | None]:
        """The plan of a replacement; each plan appends to ``growth`` how many rows there will be more."""
        table = self.points[view]
        # What is left of each file, for plans on two versions that touch the same files.
        left: dict[DataFile, list[DataFile]] = {}

        def plan(version: Version) -> tuple[Sequence[DataFile], Sequence[DataFile]] | None:
            drops: list[DataFile] = []
            for file, rows in _touched(table, version, gone, ranges, left):
                if rows is not None:
                    left[file] = table.put(rows, level_weights(rows, view)) if rows.num_rows else []
                drops.append(file)
            adds = [*new, *(part for file in drops for part in left[file])]
            dropped = sum(table.footer(file).metadata.num_rows for file in drops)
            growth.append(sum(file.rows for file in adds) - dropped)
            if not adds and not drops:
                return None
            self._unprove(view, ranges, version)
            return adds, drops

        return plan

    def _unprove(self, view: View, ranges: Mapping[str, Sequence[Range]], version: Version) -> None:
        """Record as unproven what is about to be replaced."""
        # Ordered after all of this version and before those of the planned one, so that a slower writer of an older
        # version cannot undo it. In an object store, without locks, such a writer may still commit: there the records
        # are written also where nothing is known yet.
        seq = 2 * version.number + 1
        now = time.time_ns() // 1000
        out: dict[CoverageKey, list[CoverageRecord]] = {}
        for market, wanted in ranges.items():
            for one in union(wanted):
                known = [
                    p for p in within(self.coverage.records(view, market), one) if p.state != CoverageState.MISSING
                ]
                records = [
                    p._replace(state=CoverageState.UNPROVEN, rows=None, seq=seq)
                    for p in known
                    if p.state != CoverageState.UNPROVEN or p.rows is not None or p.seq < seq
                ]
                if self.points[view].remote:
                    bare = subtract([one], [p.range for p in known])
                    records += [CoverageRecord(*r, CoverageState.MISSING, None, now, seq) for r in bare]
                if records:
                    out.setdefault((view, market), []).extend(records)
        self.coverage.append(out)


def _touched(
    table: Table,
    version: Version,
    gone: Gone,
    ranges: Mapping[str, Sequence[Range]],
    seen: Container[DataFile],
) -> Iterable[tuple[DataFile, pa.Table | None]]:
    """Files with replaced rows, and the rows to keep; None for files that were processed before."""
    markets = sorted(ranges)
    hulls = {m: (min(r.start for r in some), max(r.end for r in some)) for m, some in ranges.items()}
    if not hulls:
        return
    first, last = min(start for start, _ in hulls.values()), max(end for _, end in hulls.values())
    for file in version.files:
        if not file.may_hold(markets, first, last):
            continue
        if file in seen:
            yield file, None
            continue
        if not table.footer(file).groups(markets, first, last):
            continue
        rows = table.read(file)
        replaced = gone(rows)
        if replaced.any():
            yield file, rows.filter(pa.array(~replaced))


def _identity(token: Token) -> tuple[str | None, ...]:
    """What identifies a token: its id, or its label if it has none."""
    return (token.market_id, token.token_id, None if token.token_id else token.token_label)


def _membership(columns: Data, base: BucketWidth) -> Callable[[Sequence[Token], Any, Any], Any]:
    """A test of which points have the token and time of one of the columns."""
    places = {_identity(token): code for code, token in enumerate(columns.tokens)}
    first, last = (int(columns.ts.min()), int(columns.ts.max())) if len(columns) else (0, -1)
    reach = (last - first) // base.micros + 1
    mine = columns.token.astype(np.int64) * reach + (columns.ts - first) // base.micros

    def is_one(tokens: Sequence[Token], codes: Any, ts: Any) -> Any:
        same = np.array([places.get(_identity(token), -1) for token in tokens] or [-1])[codes]
        out = (same >= 0) & (ts >= first) & (ts <= last)
        out[out] = np.isin(same[out] * reach + (ts[out] - first) // base.micros, mine)
        return out

    return is_one


def _runs(times: Any, where: Sequence[Range]) -> Iterator[Range]:
    """Ranges of minutes from point to point inside ``where``, with less than an hour between two points."""
    for one in where:
        inside = np.unique(times[(times >= one.start) & (times < one.end)] // MINUTE * MINUTE)
        for run in np.split(inside, np.flatnonzero(np.diff(inside) > HOLE) + 1):
            if len(run):
                yield Range(int(run[0]), int(run[-1]) + MINUTE)


def _spans(columns: Data) -> Any:
    """First and last time of each token; the last row, for no token, is none."""
    out = np.tile(np.array([1, 0], dtype=np.int64), (len(columns.tokens) + 1, 1))
    if len(columns):
        out[:-1, 0], out[:-1, 1] = columns.ts[columns.starts], columns.ts[columns.bounds[1:] - 1]
    return out


def _times(rows: pa.Table) -> Any:
    return rows.column("ts").cast(pa.int64()).to_numpy()


def minutes_of(columns: Data) -> Range:
    """From the minute of the first point to the end of that of the last: coverage is known by the minute."""
    return Range(int(columns.ts.min()) // MINUTE * MINUTE, int(columns.ts.max()) // MINUTE * MINUTE + MINUTE)


def by_market(columns: Data) -> dict[str, Data]:
    """Sorted columns cut where the market changes; no copies of levels."""
    if not len(columns):
        return {}
    names = [t.market_id for t in columns.tokens]
    first = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    return {names[a]: columns.part(a, b) for a, b in itertools.pairwise([*first, len(names)])}
