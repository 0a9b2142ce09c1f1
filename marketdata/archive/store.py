"""The tables of one archive: a commit of points has their coverage."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np

from marketdata.archive.arrow import SCHEMAS, from_tables, to_table
from marketdata.archive.coverage.buckets import Coverage
from marketdata.archive.coverage.intervals import CoverageRecord, CoverageState, covered
from marketdata.archive.market_ranges import Ranges, Records, hull_of, inside, times_of
from marketdata.archive.record_columns import SCHEMAS as RECORD_SCHEMAS
from marketdata.archive.records import Catalog
from marketdata.archive.storage import errors
from marketdata.archive.storage.files import WRITE_EFFORT, DataFile, is_url
from marketdata.archive.storage.tables import Plan, Table, Version
from marketdata.archive.write_plan import WritePlan
from marketdata.archive.writes import Addition, Fetch, Observation, Present, Refusal, Withdrawal, Write
from marketdata.errors import ArchiveError, ConfigError, NotArchivedError
from marketdata.points.columns import Data
from marketdata.points.records import RECORD_KINDS, RecordKind
from marketdata.points.views import VIEWS, View, empty
from marketdata.resolution import BucketWidth
from marketdata.times import Range

# The base is in the schema of the tables, so that the commit that creates them fixes it.
_BASE = b"marketdata.base"
# A write joins small files once there are this many; small is below these [bytes, rows].
_MANY_SMALL, _SMALL_BYTES, _SMALL_ROWS = 32, 64_000, 50_000


class ArchiveStore:
    """Everything that is stored under one root."""

    def __init__(
        self, root: str, options: dict[str, str] | None, as_of: int | None = None, base: BucketWidth | None = None
    ) -> None:
        self.root = root
        self.options = options
        self._as_of = as_of
        self.given_base = base  # that the user chose
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

    def at_base(self, base: BucketWidth) -> Self:
        """The same store, with a base for an archive that has none yet."""
        other = object.__new__(type(self))  # a copy would have caches of its own
        other.__dict__.update(self.__dict__, given_base=base)
        return other

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
        return self.write(Fetch(view, columns, ranges, self.base.micros, _now(), fresh))

    def record(self, view: View, columns: Data, bucket: Range, tokens: Mapping[str, int], now: int) -> int:
        """Add points of one bucket, ``final`` for markets with points of all their ``tokens``, ``recorded`` for others.

        Returns by how many points there are more.
        """
        ranges = {market: [bucket] for market in times_of(columns)}
        return self.write(Present(view, columns, ranges, self.base.micros, now, bucket, tokens))

    def upsert(self, view: View, columns: Data, state: CoverageState, *, whole: bool = False) -> int:
        """Add points at the base: equal (token, ts) are replaced; ``whole`` replaces first to last of a token.

        Of equal prints one is stored. Complete ranges stay so; the rest of each market, from its first to its last
        bucket, gets ``state``. Returns by how many points there are more.
        """
        columns = columns.sort()
        ranges = {market: [hull_of(times, self.base.micros)] for market, times in times_of(columns).items()}
        return self.write(Addition(view, columns, ranges, self.base.micros, _now(), state, whole))

    def observe(self, view: View, columns: Data, seen: Ranges) -> int:
        """Add points of a live stream, and record the ranges in which it was seen, and nothing else.

        Complete ranges stay so. Returns by how many points there are more.
        """
        columns = columns.sort()
        if not inside(columns, seen).all():
            raise ArchiveError(f"{view} points lie outside of the ranges that were seen.")
        return self.write(Observation(view, columns, seen, self.base.micros, _now()))

    def withdraw(self, view: View, ranges: Ranges) -> int:
        """Remove points that a live stream recorded, and their coverage. Returns by how many points there are more."""
        return self.write(Withdrawal(view, empty(view), ranges, self.base.micros, _now()))

    def refuse(self, view: View, ranges: Ranges, state: CoverageState, now: int) -> None:
        """Record ranges that a service refused, if nothing is stored there."""
        self.write(Refusal(view, empty(view), ranges, self.base.micros, now, state))

    def write(self, write: Write) -> int:
        """Replace points, and record it, in one commit. Returns the growth [points]."""
        self.fix_base()  # what cannot be recorded is not written
        table = self.points[write.view]
        table.create({_BASE: self.base.text.encode()})
        table.add_columns(to_table(write.columns.take(np.empty(0, np.int64))).schema)
        plan = WritePlan(table, self.coverage[write.view], write)
        table.plan(plan.after)
        with contextlib.suppress(ArchiveError):  # the rows are stored, whatever becomes of this
            small = [f for f in table.version().files if f.size < _SMALL_BYTES and f.rows < _SMALL_ROWS]
            if len(small) >= _MANY_SMALL:
                self.join(write.view, small)
        return plan.growth

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


def _now() -> int:
    return time.time_ns() // 1000
