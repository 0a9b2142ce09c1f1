"""A Delta Lake table: versions that are read whole, and commits against the version they were planned on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from marketdata.archive.storage import errors, parquet
from marketdata.archive.storage.commits import is_plain, library_commit, link_commit, properties
from marketdata.archive.storage.format import check, marked, outdated
from marketdata.archive.storage.parquet import DataFile, Footer, Recent, Spans, Store
from marketdata.errors import (
    ArchiveBusyError,
    ArchiveCorruptError,
    ArchiveError,
    ConfigError,
    PartialCoverageWarning,
    warn,
)
from marketdata.times import Range, to_datetime, to_text

# Footers of files kept in memory.
_FOOTERS = 4096
# A commit is given up after so many were refused, as others came first.
_TRIES = 100
# A writer whose commit was refused waits at most so long before the second and before any attempt [s].
_FIRST_PAUSE, _LONGEST_PAUSE = 0.004, 0.5
# Written files kept in memory, and the size below which one is kept [bytes].
_MANY, _SMALL = 64, 250_000
# A log is read so often before it counts as damaged.
_MOST_READS = 3
# After so many commits, in a folder or an object store, the state of the table is written as one file: opening it reads
# this and the commits since, each of which is a request.
_CHECKPOINT, _CHECKPOINT_REMOTE = 100, 10
# A shorter log has none.
_FEWEST = 5
# The hint of a damaged log.
_REBUILD = "Run archive.rebuild() to make it again from the data files."
# The folder of the commits, as Delta Lake calls it.
LOG_FOLDER = "_delta_log"
# In each commit of ours: a hash of the files of its version. A flipped bit in the log, which would bring a
# replaced file back, or hide one, makes it differ.
_FILES = "marketdata.files-1"
# Also there: the number and an id of the commit, by which its writer recognises it when the answer to it was lost.
_COMMIT = "marketdata.commit"
# Also there: what the commit says of its points. So many of the last ones are remembered.
_NOTE = "marketdata.note"
_NOTES = 64


# Names that the library gives to the facts of a file, in the order of `DataFile`, and values for unknown ones.
_ENTRY = {
    "path": "", "size_bytes": 0, "num_records": -1, "min.market_id": "", "max.market_id": parquet.LAST_NAME,
    "min.ts": -parquet.FAR, "max.ts": parquet.FAR,
}  # fmt: skip
# Inode, size and time of change [ns] of the file of a commit.
Mark = tuple[int, int, int]
# New files, files to drop, and a note.
Plan = tuple[Sequence[DataFile], Sequence[DataFile]] | tuple[Sequence[DataFile], Sequence[DataFile], str]
# The lock of a writer that shares nothing with others.
_NOT_ALONE = contextlib.nullcontext()


@dataclass(frozen=True)
class Version:
    """One committed version of a table."""

    number: int
    files: tuple[DataFile, ...]
    schema: pa.Schema

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the files and columns of the version; times to the millisecond, as some logs have them."""
        lines = sorted(
            f"{path!r} {size} {rows} {low or None!r} {None if high == parquet.LAST_NAME else high!r} "
            f"{first // 1000} {last // 1000}"
            for path, size, rows, low, high, first, last, *_ in self.files
        )
        lines += [f"{field.name!r} {field.type}" for field in self.schema]
        return hashlib.blake2b("\n".join(lines).encode("utf-8", "replace"), digest_size=8).hexdigest()


# The files that the plan of this thread has written and not committed.
_WRITTEN: ContextVar[set[DataFile]] = ContextVar("marketdata_written")
# The tables whose newest version this thread has looked for since its block of `looking_once` began.
_SEEN: ContextVar[set[Table]] = ContextVar("marketdata_seen")


@contextlib.contextmanager
def looking_once() -> Iterator[None]:
    """Look for the newest version of each table once in the block, and again where a commit is refused.

    In an object store each look is a request.
    """
    before = _SEEN.set(_SEEN.get(set()))
    try:
        yield
    finally:
        _SEEN.reset(before)


class Table:
    """A Delta table that is created by the first write.

    Files never change: a commit names new files and drops old ones, in one step. A plan is made on one version and
    committed against it: if another commit came first it is refused, and planned again.
    """

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        options: dict[str, str] | None = None,
        *,
        as_of: int | None = None,
        interval: int = _CHECKPOINT_REMOTE,
    ) -> None:
        self.uri = uri
        self.remote = parquet.is_url(uri)
        self._interval = interval if self.remote else _CHECKPOINT
        self._nothing = Version(-1, (), schema)
        self._version = self._nothing
        self.options = options
        self._as_of = as_of
        self._log = Path(uri) / LOG_FOLDER
        self._handle: Any = None
        # Whether commits are made without the library.
        self._is_plain = False
        # The mark of the newest known commit.
        self._seen: Mark | None = None
        # Facts of the files that were read or written last; files never change.
        self._footers = Recent[str, Footer](_FOOTERS)
        self._spans = Recent[str, Spans](_FOOTERS)
        self._notes = Recent[int, str](_NOTES)
        # Rows of small files that were written, to be joined with others.
        self._written = Recent[str, pa.Table](_MANY)
        # Called before a checkpoint is written, which lets earlier commits of the log go.
        self.before_checkpoint: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        # The damage of the commit log: such a table is read up to its last good version, and not written to.
        self.damage: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.uri, self._nothing.schema, self.options)

    @property
    def is_made(self) -> bool:
        """Whether it is known to exist, in this format and whole."""
        return self._version.number >= 0 and self.damage is None and outdated(self._version.schema) is None

    @cached_property
    def store(self) -> Store:
        """The files of the table."""
        with errors.reading(f"The storage of {self.uri}"):
            return Store(self.uri, self.options)

    def version(self) -> Version:
        """The newest committed version, or the one of the time ``as_of``."""
        with self._lock:
            seen = _SEEN.get(set())
            if self in seen:
                return self._version
            seen.add(self)
            if self._handle is None and self.damage is None:
                self._open()
            elif self.remote and self._follows():
                self._update()
            for _ in range(_MOST_READS):
                before = self._version.number
                newest, moved = self._look()
                if newest != self._seen:
                    self._compare()
                elif moved:
                    self._update()
                else:
                    return self._version
            if self._follows() and self._version.number == before:
                raise errors.unavailable(f"The commit log of {self.uri}", OSError("a commit in it is not listed"))
            return self._version

    def look_again(self) -> None:
        """Look for the newest version at its next use, also in a block in which that was done."""
        _SEEN.get(set()).discard(self)

    def _follows(self) -> bool:
        return self._handle is not None and self._as_of is None and self.damage is None

    def _look(self) -> tuple[Mark | None, bool]:
        """The mark of the newest known commit, and whether there is a newer one, also one that no listing shows yet.

        The mark changes with the file, and is None without it.
        """
        if self.remote or not self._follows():
            return self._seen, False
        mark = None
        for number in (self._version.number, self._version.number + 1):
            try:
                found = os.stat(f"{self._log}/{number:020d}.json")  # noqa: PTH116  called for each market of a read
            except FileNotFoundError:
                continue
            except OSError as problem:
                raise errors.unavailable(f"The commit log of {self.uri}", problem) from problem
            if number > self._version.number:
                return mark, True
            mark = found.st_ino, found.st_size, found.st_mtime_ns
        return mark, False

    def _compare(self) -> None:
        """Read the log again, whose newest known commit was changed or removed; ArchiveError if it is another log.

        What a checkpoint replaces is removed after some time, with it the commit that would be the next one.
        """
        from deltalake import DeltaTable

        with errors.reading(f"The commit log of {self.uri}"):
            found = DeltaTable(self.uri)
        is_same = found.metadata().id == self._handle.metadata().id and found.version() >= self._version.number
        if not is_same or not self._is_whole(self._version):
            raise ArchiveError(f"{self.uri} was replaced by another table.", hint="Open the archive again.")
        self._load(found)

    def _update(self) -> None:
        try:
            with errors.reading(f"The commit log of {self.uri}"):
                self._handle.update_incremental()
        except ArchiveError:
            # A part of the log that a checkpoint replaces may be gone: read from the start.
            self._handle = None
            self._open()
        else:
            if self._handle.version() != self._version.number:
                self._load(self._handle)

    def _open(self) -> None:
        """Open the table; its log is damaged if it is refused again after all of its bytes could be read."""
        # If a call of the file system fails, the library may read the log without one of its commits.
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        what = ""
        with errors.reading(f"The commit log of {self.uri}"):
            if not self.remote and not parquet.is_folder(Path(self.uri)):
                return
            for _ in range(_MOST_READS):
                try:
                    handle = DeltaTable(self.uri, storage_options=self.options)
                    if self._as_of is not None:
                        self._go_back(handle, self._as_of)
                    break
                except TableNotFoundError:
                    if self.remote:
                        return
                    if not self._read_log() and not any(p.suffix == ".parquet" for p in Path(self.uri).iterdir()):
                        return
                    what = "it is gone"
                except DeltaError as problem:
                    if self.remote or errors.is_newer(problem):
                        raise
                    self._read_log()
                    what = errors.one_line(problem)
            else:
                self._damaged(what)
                return
        self._load(handle)

    def _go_back(self, handle: Any, as_of: int) -> None:
        """Load the version of a time; ConfigError if the log of that time is gone."""
        handle.load_as_version(to_datetime(as_of))
        # Without a version of that time the library loads the first that is left.
        number = handle.version()
        made = self.store.modified(f"{LOG_FOLDER}/{number:020d}.json")
        if made > as_of and (number or (self._info(0) or {}).get("timestamp", 0) * 1000 <= as_of):
            raise ConfigError(
                f"is before {to_text(made)}, the earliest time at which {self.uri} can be read: "
                "the commits of 30 days are kept, and a copy begins when it was made. Use that time or a later one.",
                argument="as_of",
                value=to_text(as_of),
            )

    def _read_log(self) -> int:
        """Read all of the commit log, so that a failing storage raises; returns the number of its files."""
        if not parquet.is_folder(self._log):
            return 0
        # Not the temporary files of writers that were killed.
        paths = [path for path in self._log.iterdir() if path.suffix in (".json", ".parquet")]
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                path.read_bytes()
        return len(paths)

    def _load(self, handle: Any) -> None:
        """Use the version of a handle, if its files are those of its last commit."""
        found = _version_of(handle, self.uri)
        check(found.schema, self._nothing.schema, self.uri)
        if not self._is_whole(found):
            self._damaged("a commit has other files than were committed")
            return
        self._handle, self._version = handle, found
        self._is_plain = not self.remote and is_plain(handle)
        self._seen = self._look()[0]

    def _is_whole(self, version: Version) -> bool:
        """Whether a version has the files that its last commit says; an object store keeps checksums of its own."""
        return self.remote or (self._info(version.number) or {}).get(_FILES) in (None, version.fingerprint)

    def _info(self, number: int) -> dict[str, Any] | None:
        """The metadata of a commit, None if there is none; read by number: a handle's history is of the newest."""
        name = f"{LOG_FOLDER}/{number:020d}.json"
        try:
            with errors.reading(f"The commit {name} of {self.uri}"), self.store.open(name) as source:
                lines = bytes(source.read()).splitlines()
        except ArchiveCorruptError:
            return None
        try:
            actions = [json.loads(line) for line in lines if b"commitInfo" in line]
            return dict(next(action["commitInfo"] for action in actions if "commitInfo" in action))
        except (ValueError, TypeError, StopIteration):
            return {_FILES: "unreadable"}

    def note(self, number: int) -> str | None:
        """The note of a commit, which is empty where it has none; None if the log no longer has the commit."""
        if number not in self._notes and self.remote and self._follows():
            with errors.reading(f"The commit log of {self.uri}"), self._lock:
                # One request a commit. The library counts versions from its own; the ids of the commits have them.
                for found in self._handle.history(self._version.number - number + 1):
                    version = str(found.get(_COMMIT, "")).partition("-")[0]
                    if version.isdigit():
                        self._notes[int(version)] = str(found.get(_NOTE, ""))
        if number not in self._notes:
            found = self._info(number)
            if found is None:
                return None
            if found.get(_FILES) == "unreadable":
                raise ArchiveCorruptError(f"Commit {number} of {self.uri} is damaged.", hint=errors.REPAIR)
            self._notes[number] = str(found.get(_NOTE, ""))
        return self._notes[number]

    def _damaged(self, what: str) -> None:
        """Use the last version whose log is whole, with a warning."""
        with errors.reading(f"The commit log of {self.uri}"):
            self._handle, self._version = self._last_good()
        shown = f"version {self._version.number}" if self._handle is not None else "nothing"
        self.damage = f"The commit log of {self.uri} is damaged ({what})"
        warn(f"{self.damage}, so {shown} of it is shown.", PartialCoverageWarning, hint=_REBUILD)

    def _last_good(self) -> tuple[Any, Version]:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        if self.remote:
            return None, self._nothing
        commits = [path for path in self._log.glob("*.json") if path.stem.isdigit()]
        for number in sorted((int(path.stem) for path in commits), reverse=True):
            try:
                handle = DeltaTable(self.uri, version=number)
            except DeltaError:
                continue
            found = _version_of(handle, self.uri)
            if self._is_whole(found):
                return handle, found
        return None, self._nothing

    def create(self, metadata: dict[bytes, bytes] | None = None) -> None:
        """Create the empty table if there is none, with ``metadata`` of its first column."""
        if self._as_of is not None:
            raise ConfigError("An archive opened with as_of= shows the past and cannot be written to.")
        number = self.version().number
        if self.damage is not None:
            raise ArchiveCorruptError(f"{self.damage}, so nothing is written to it.", hint=_REBUILD)
        if number >= 0:
            if outdated(self._version.schema) is not None:
                # Earlier programs are then not to write to it.
                self._alter("set_column_metadata", outdated)
            return
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        with errors.writing(f"Creating {self.uri}"), self._lock:
            if not self.remote:
                Path(self.uri).mkdir(parents=True, exist_ok=True)
            schema = marked(self._nothing.schema, metadata)
            try:
                # Tried once: by another attempt the slower of two would replace the columns of the table of the other.
                DeltaTable.create(
                    self.uri, schema, mode="ignore", storage_options=self.options, commit_properties=properties({})
                )
            except (DeltaError, OSError):
                # If two create the table at once, the slower one fails, and then finds it.
                if not DeltaTable.is_deltatable(self.uri, self.options):
                    raise
            if not self.remote:
                for path in (self._log / f"{0:020d}.json", self._log, Path(self.uri)):
                    parquet.flush(path)
            self._open()

    def add_columns(self, names: Iterable[str]) -> None:
        """Add columns of numbers that the table does not have; older rows are null there."""

        def missing(schema: pa.Schema) -> tuple[Any, ...] | None:
            from deltalake.schema import Field

            new = [Field.from_arrow(pa.field(name, pa.float64())) for name in names if name not in schema.names]
            return (new,) if new else None

        self._alter("add_columns", missing)

    def _alter(self, verb: str, needed: Callable[[pa.Schema], tuple[Any, ...] | None]) -> None:
        """Change the columns by a verb of the library, as the newest need it; again if another commit came first."""

        def attempt(_: int) -> Version | None:
            with errors.writing(f"Changing the columns of {self.uri}"), self._lock:
                version = self.version()
                if (arguments := needed(version.schema)) is None:
                    return version

                def send(info: dict[str, str]) -> None:
                    with self._library(version) as handle:
                        getattr(handle.alter, verb)(*arguments, commit_properties=properties(info))

                if not self._send(version, send):
                    return None
                self._load(self._handle)
                return self._version

        self._tried(attempt)

    def commit(
        self,
        version: Version,
        adds: Sequence[DataFile],
        drops: Iterable[DataFile],
        note: str = "",
        *,
        data_change: bool = True,
    ) -> Version | None:
        """Commit on exactly this version; None if another came first. After an ArchiveError it may be committed."""
        gone = {file.path for file in drops}
        dropped = [file for file in version.files if file.path in gone]
        left = (file for file in version.files if file.path not in gone)
        after = Version(version.number + 1, (*left, *adds), version.schema)
        said = {_FILES: after.fingerprint, _NOTE: note}

        def send(info: dict[str, str]) -> None:
            if self._is_plain:
                link_commit(self._log, after.number, adds, dropped, said | info, data_change=data_change)
                return
            with self._library(version) as handle:
                library_commit(handle, adds, dropped, said | info, data_change=data_change)

        with errors.writing(f"Committing to {self.uri}"), self._lock:
            if not self._send(version, send, adds):
                return None
            # The handle follows when it is needed again.
            self._version = after
            self._seen = self._look()[0]
            self._notes[after.number] = note
        # Not all tables of an archive at the same write.
        if (after.number + len(self.uri.rpartition("/")[2])) % self._interval == 0:
            with contextlib.suppress(ArchiveError):  # the commit is made, and a later one writes it
                self.checkpoint()
        return after

    def _send(self, version: Version, send: Callable[[dict[str, str]], None], adds: Iterable[DataFile] = ()) -> bool:
        """Make the commit after a version, with an id of its own; False if another came first.

        An error does not tell whether it is made: the commit of that number does, by its id.
        """
        from deltalake.exceptions import DeltaError

        if self._handle is None or self._version.number != version.number:
            return False
        number = version.number + 1
        identity = f"{number}-{uuid.uuid4().hex}"
        written = _WRITTEN.get(set())
        drafts = written.intersection(adds)
        written -= drafts
        try:
            send({_COMMIT: identity})
        except (DeltaError, OSError):
            found = self._info(number)
            if found is None and self.remote:
                raise  # the request may still be under way: its files stay
            if found is None or found.get(_COMMIT) != identity:
                written |= drafts
                if found is None:
                    raise
                return False
        if not self.remote:
            parquet.flush(self._log)  # the name of the commit
        return True

    @contextlib.contextmanager
    def _library(self, version: Version) -> Iterator[Any]:
        """The handle at a version, to make the commit after it, which is then made durable; FileExistsError if late."""
        if self._handle.version() < version.number:
            self._handle.update_incremental()  # to the last commit of its own, or beyond
        if self._handle.version() != version.number:
            raise FileExistsError(f"{self.uri} has newer commits than {version.number}")
        yield self._handle
        if not self.remote:
            with errors.writing(f"Committing to {self.uri}"):  # no longer an error of the commit
                parquet.flush(self._log / f"{version.number + 1:020d}.json")

    def plan(
        self,
        make: Callable[[Version], Plan | None],
        alone: AbstractContextManager[None] = _NOT_ALONE,
        *,
        data_change: bool = True,
    ) -> Version:
        """Commit the plan of ``make`` for the newest version, made again whenever another commit came first.

        ``make`` returns (new files, files to drop, a note), or None for nothing to do. The first plan is made beside
        other writers; ``alone`` is held from its commit on, so that those that hold it too refuse no later plan.
        ``data_change``: whether rows come or go, or are only in other files.
        Returns the version committed, or the newest; ArchiveBusyError if others keep committing.
        """
        self.create()
        written = set[DataFile]()
        before = _WRITTEN.set(written)
        with contextlib.ExitStack() as locks:

            def attempt(n: int) -> Version | None:
                version = self.version()
                wanted = make(version)
                if wanted is None:
                    return version
                if n == 0:
                    locks.enter_context(alone)
                return self.commit(version, *wanted, data_change=data_change)

            try:
                return self._tried(attempt)
            finally:  # what was written, and no commit names or may yet name
                _WRITTEN.reset(before)
                for file in written:
                    self.store.delete(file.path)

    def _tried(self, attempt: Callable[[int], Version | None]) -> Version:
        """The version of an attempt that was not refused, as one is where another commit came first."""
        for n in range(_TRIES):
            if (done := attempt(n)) is not None:
                return done
            self.look_again()
            # The loser waits, longer each time, so that all get their turn.
            time.sleep(random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(n, 7))))  # noqa: S311  no secret
        raise ArchiveBusyError(f"Committing to {self.uri}: other processes kept committing first; run it again.")

    def put(self, rows: pa.Table, effort: int = parquet.WRITE_EFFORT) -> list[DataFile]:
        """Write rows to new files, for a commit of the same `plan` to name."""
        out: list[DataFile] = []
        with errors.writing(f"Writing to {self.uri}"):
            for file, spans in parquet.write_rows(self.store, rows, effort):
                _WRITTEN.get(set()).add(file)
                out.append(file)
                self._spans[file.path] = spans
            if len(out) == 1 and rows.nbytes < _SMALL:
                self._written[out[0].path] = rows
        return out

    def footer(self, file: DataFile, *, fresh: bool = False, whole: bool = False) -> Footer:
        """The footer of a file; files never change, so it is read once; ``whole``: all of it, if its rows come next."""
        known = None if fresh else self._footers.get(file.path)
        if known is None:
            with self._past():
                known = self._footers[file.path] = parquet.read_footer(self.store, file, whole=whole)
        return known

    def read(self, file: DataFile, groups: Sequence[int] | None = None, names: Sequence[str] | None = None) -> pa.Table:
        """Rows of a file, or of some of its row groups, and columns of them, with page checksums compared."""
        footer = self.footer(file, whole=groups is None and names is None)
        with self._past():
            return parquet.read_groups(self.store, file, footer, groups, names)

    def read_small(self, file: DataFile) -> pa.Table:
        """Rows of a file that was perhaps written by this process."""
        known = self._written.get(file.path)
        return self.read(file) if known is None else known

    def touched(self, version: Version, ranges: Mapping[str, Sequence[Range]]) -> Iterator[DataFile]:
        """The files where a wanted range of a market meets the time from the first of its rows to the last."""
        markets = sorted(ranges)
        wanted = parquet.hull(one for some in ranges.values() for one in some)
        for file in parquet.holding(version.files, markets, wanted):
            spans = self._spans.get(file.path)
            if spans is None:
                if not parquet.holding(self.footer(file).groups, markets, wanted):
                    continue
                # Statistics of ids that are hashes exclude nothing; files never change, so this is read once.
                spans = self._spans[file.path] = parquet.spans_of(self.read(file, names=("market_id", "ts")))
            if any(
                start <= spans[m][1] and end > spans[m][0]
                for m in spans.keys() & ranges.keys()
                for start, end in ranges[m]
            ):
                yield file

    @contextlib.contextmanager
    def _past(self) -> Iterator[None]:
        """A missing file of the past as a ConfigError with the earliest time whose files are all there."""
        try:
            yield
        except ArchiveCorruptError as problem:
            if self._as_of is None or problem.__cause__ is None or not errors.is_missing(problem.__cause__):
                raise
            made = self.store.modified(f"{LOG_FOLDER}/{self._earliest():020d}.json")
            raise ConfigError(
                f"cannot be read: vacuum has removed files of {self.uri} as it was then. The earliest time that can "
                f"be read is {to_text(made)}; vacuum(retention_hours=) says how long replaced files are kept.",
                argument="as_of",
                value=to_text(self._as_of),
            ) from problem

    def _earliest(self) -> int:
        """The first version of which all files are there: those that are removed are of earlier ones."""
        from deltalake import DeltaTable

        with errors.reading(f"The commit log of {self.uri}"):
            handle = DeltaTable(self.uri, storage_options=self.options)
            first, last = self._version.number + 1, handle.version()
            while first < last:
                middle = (first + last) // 2
                handle.load_as_version(middle)
                there = self.store.files.get_file_info([file.path for file in _version_of(handle, self.uri).files])
                whole = all(found.is_file for found in there)
                first, last = (first, middle) if whole else (middle + 1, last)
        return last

    def vacuum(self, hours: int, *, dry_run: bool = False) -> list[str]:
        """Remove files that no version of the last hours names; returns their names."""
        with errors.writing(f"Vacuuming {self.uri}"), self._lock:
            if self.damage is None:
                self._handle.update_incremental()
            found: list[str] = self._handle.vacuum(
                retention_hours=hours, dry_run=dry_run, enforce_retention_duration=False
            )
            return found

    def checkpoint(self) -> None:
        """Write the state of the table as one file; without it, opening the table reads each commit twice."""
        from deltalake import DeltaTable

        if self._as_of is not None or self.version().number < _FEWEST or self.damage is not None:
            return
        self.before_checkpoint()
        with errors.writing(f"Writing a checkpoint of {self.uri}"), self._lock:
            if self.remote:
                self._handle.update_incremental()
                self._handle.create_checkpoint()
                return
            # A handle lists all commits since it was opened, at each of its own.
            handle = DeltaTable(self.uri)
            handle.create_checkpoint()
            parquet.flush(self._log / f"{handle.version():020d}.checkpoint.parquet")
            parquet.flush(self._log)
            handle.cleanup_metadata()
            self._load(handle)

    def reopen(self) -> None:
        """Forget what was read of the table."""
        with self._lock:
            self._handle, self._version, self.damage = None, self._nothing, None
            self._footers.clear()
            self._spans.clear()
            self._notes.clear()
            self._written.clear()


def _version_of(handle: Any, uri: str) -> Version:
    with errors.reading(f"The commit log of {uri}"):
        rows = pa.RecordBatchReader.from_stream(handle.get_add_actions(flatten=True)).read_all()
        fields = pa.schema(handle.schema().to_arrow())
        schema = pa.schema([pa.field(f.name, f.type, metadata=f.metadata) for f in fields])
    return Version(handle.version(), tuple(_data_files(rows)), schema)


def _data_files(rows: pa.Table) -> Iterable[DataFile]:
    """The files of a version, as the library has them."""
    columns = []
    for name, unknown in _ENTRY.items():
        column = rows.column(name) if name in rows.schema.names else pa.nulls(rows.num_rows)
        if name in ("min.ts", "max.ts"):
            column = column.cast(pa.timestamp("us", "UTC"))
        plain = pa.string() if isinstance(unknown, str) else pa.int64()
        columns.append(column.cast(plain).fill_null(unknown).to_pylist())
    return map(DataFile, *columns)
