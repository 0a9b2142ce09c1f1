"""A Delta table of an archive: its versions, and commits that are refused if another one came first."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from marketdata.archive.storage import errors, files, untrusted
from marketdata.archive.storage.files import DataFile, Footer, Store
from marketdata.errors import ArchiveBusyError, ArchiveCorruptError, ArchiveError, ConfigError
from marketdata.times import to_datetime, to_text

FORMAT = b"5"
_FORMAT_KEY = b"marketdata.format"
# After an error the mark of a commit, a random number under this key, tells whether it was made.
_MARK = "marketdata"
# Features that other engines may switch on, with which the files alone do not tell the rows.
_DELETION_VECTORS, _MAPPING = "deletionVectors", "delta.columnMapping.mode"
_LOG, COVERAGE = "_delta_log", "_coverage"
# A commit is given up after this many refusals.
_TRIES = 100
# Number of footers that stay in memory.
_REMEMBERED = 4096
# The columns of deltalake, ordered as the fields of `DataFile`, each with the value that stands for unknown.
_FACTS = {
    "path": "", "size_bytes": 0, "num_records": -1, "min.market_id": "", "max.market_id": files.LAST_NAME,
    "min.ts": -files.FAR, "max.ts": files.FAR,
}  # fmt: skip


@dataclass(frozen=True)
class Version:
    """A committed version of a table; number -1 is a table that does not exist."""

    number: int
    files: tuple[DataFile, ...]
    schema: pa.Schema


class Plan(NamedTuple):
    """Files that a commit adds and drops, and the numbers of its transactions."""

    adds: Sequence[DataFile] = ()
    drops: Sequence[DataFile] = ()
    transactions: Mapping[str, int] = {}


class Table:
    """A Delta table, which the first write creates.

    Data files never change. A writer plans on one version and commits against it, and plans again if another commit
    came first. A commit of ours never deletes files, because an error does not tell whether the commit was made.
    """

    def __init__(
        self, uri: str, schema: pa.Schema, options: dict[str, str] | None = None, *, as_of: int | None = None
    ) -> None:
        self.uri = uri
        self.options = options
        self._name = f"The commit log of {uri}"
        self._as_of = as_of
        self._absent = Version(-1, (), schema)
        self._version = self._absent
        self._handle: Any = None
        # Transactions of the current version that were looked up, with their numbers.
        self._transactions: dict[str, int | None] = {}
        self._lock = threading.RLock()

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.uri, self._absent.schema, self.options)

    @cached_property
    def store(self) -> Store:
        """The files of the table."""
        with errors.reading(f"The storage of {self.uri}"):
            return Store(self.uri, self.options)

    def version(self) -> Version:
        """The newest version, or the one of the time ``as_of``."""
        from deltalake.exceptions import DeltaError

        with self._lock, errors.reading(self._name):
            if self._handle is not None:
                self._refuse_removed()
            if self._handle is not None and self._as_of is None and not self._is_newest():
                try:
                    self._handle.update_incremental()
                except (DeltaError, OSError):
                    # A checkpoint may have replaced commits that the handle asks for.
                    self._handle = None
            if self._handle is None:
                self._open()
            if self._handle is None:
                return self._absent
            if self._handle.version() != self._version.number:
                try:
                    self._refuse_unreadable(self._handle)
                    version = _version_of(self._handle)
                    untrusted.refuse_outside(self.uri, (file.path for file in version.files))
                    self._version, self._transactions = version, {}
                except ArchiveError:
                    self._handle, self._version = None, self._absent
                    raise
            return self._version

    def _refuse_unreadable(self, handle: Any) -> None:
        """ArchiveError for a table of another format, or if its files alone do not tell its rows.

        Other engines may mark rows as deleted, map columns to other names, or keep a column in the names of folders.
        Files that are read without that have other rows, and nobody would see it.
        """
        stored = (pa.schema(handle.schema().to_arrow()).field(0).metadata or {}).get(_FORMAT_KEY, b"none")
        settings, features = handle.metadata(), handle.protocol().reader_features or ()
        again, reads = "Pull or add the data into a new archive.", "which marketdata does not read."
        anew = "Write the table again without it in the engine that made it, or pull the data into a new archive."
        if _DELETION_VECTORS in features and _height(handle.deletion_vectors()):
            what = f"has rows that are deleted by deletion vectors, {reads}"
            hint = "Run REORG TABLE ... APPLY (PURGE) in that engine, and set 'delta.enableDeletionVectors' = 'false'."
        elif settings.configuration.get(_MAPPING, "none") != "none":
            what, hint = f"has columns under other names in its files (column mapping), {reads}", anew
        elif settings.partition_columns:
            what, hint = f"is partitioned by {', '.join(settings.partition_columns)}, {reads}", anew
        elif stored != FORMAT:
            what = f"has the format {stored.decode(errors='replace')}; marketdata reads format {FORMAT.decode()} only."
            hint = again
        else:
            return
        raise ArchiveError(f"{self.uri} {what} {hint}", hint=hint)

    def _open(self) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        names = [] if self.store.remote else self.store.names(_LOG)
        if not (self.store.remote or names):
            return
        if not self.store.remote:
            untrusted.refuse_links(Path(self.uri))
            untrusted.refuse_nested(Path(self.uri, _LOG))
        try:
            handle = DeltaTable(self.uri, storage_options=self.options)
        except TableNotFoundError:
            # A failing storage looks like a table that is not there.
            if any(name.endswith(".json") for name in names):
                raise
            return
        if self._as_of is not None and not self._go_back(handle, self._as_of):
            return
        self._handle = handle

    def _refuse_removed(self) -> None:
        """ArchiveError if the folder is gone: the library would go on with the version that it has in memory."""
        if not self.store.remote and not Path(self.uri, _LOG).exists():
            hint = "Bring it back, or open the place as a new archive: md.Archive(path)."
            raise ArchiveError(f"The folder {self.uri} is gone since this archive was opened.", hint=hint)

    def _is_newest(self) -> bool:
        """Whether a folder has no later commit: two names cost less than a listing of a log of thousands."""
        names = (f"{self._handle.version() + n:020d}.json" for n in (0, 1))
        return not self.store.remote and [Path(self.uri, _LOG, name).exists() for name in names] == [True, False]

    def _go_back(self, handle: Any, as_of: int) -> bool:
        """Move a handle to the version of a time; False if there was none yet."""
        handle.load_as_version(to_datetime(as_of))
        number = handle.version()
        # If no version is as old, deltalake takes the first one that is left.
        if number and self._has_version(number - 1):
            return True
        committed = self._committed_at(number)
        if as_of >= committed:
            return True
        if number == 0:
            return False
        earliest = f"{to_text(committed)}, the earliest time at which {self.uri} can be read"
        problem = f"is before {earliest}. Use that time or a later one."
        raise ConfigError(problem, argument="as_of", value=to_text(as_of))

    def _has_version(self, number: int) -> bool:
        """Whether a version can still be read."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            DeltaTable(self.uri, version=number, storage_options=self.options)
        except DeltaError:
            return False
        return True

    def _committed_at(self, number: int) -> int:
        """The time of a commit by its file [microseconds], 0 where a checkpoint has replaced it.

        The history of deltalake numbers its entries from the version of the handle, so it is wrong once another writer
        has committed.
        """
        try:
            with self.store.open(f"{_LOG}/{number:020d}.json") as file:
                actions = map(msgspec.json.decode, bytes(file.read()).splitlines())
                return next((a["commitInfo"]["timestamp"] * 1000 for a in actions if "commitInfo" in a), 0)
        except FileNotFoundError:
            return 0

    def transaction(self, name: str, version: Version) -> int | None:
        """The number of a transaction at a version, or None."""
        from deltalake import DeltaTable

        with self._lock, errors.reading(self._name):
            if version.number < 0:
                return None
            if self._handle is None or version is not self._version:  # another thread has moved on
                handle = DeltaTable(self.uri, version=version.number, storage_options=self.options)
                return handle.transaction_version(name)
            if name not in self._transactions:
                self._transactions[name] = self._handle.transaction_version(name)
            return self._transactions[name]

    def create(self, metadata: Mapping[bytes, bytes] = {}) -> None:
        """Create the empty table if there is none, with ``metadata`` of its first column."""
        if self._as_of is not None:
            raise ConfigError("An archive opened with as_of= shows the past and cannot be written to.")
        if self.version().number >= 0:
            return
        from deltalake import CommitProperties, DeltaTable
        from deltalake.exceptions import DeltaError

        first = self._absent.schema.field(0)
        schema = self._absent.schema.set(0, first.with_metadata({_FORMAT_KEY: FORMAT, **metadata}))
        # Each commit since the last checkpoint is read again, in an object store by a request.
        interval = {"delta.checkpointInterval": "10"}
        with errors.writing(f"Creating {self.uri}"), self._lock:
            try:
                # With retries the slower of two processes would replace the columns of the other.
                more = {"configuration": interval, "commit_properties": CommitProperties(max_commit_retries=0)}
                DeltaTable.create(self.uri, schema, storage_options=self.options, **more)  # type: ignore[arg-type]
            except (DeltaError, OSError):
                if self.version().number < 0:
                    raise

    def _versions(self) -> Iterator[Version]:
        """The newest version of the table. It is created if there is none, repeatedly while others commit first."""
        for n in range(_TRIES):
            self.create()
            yield self.version()
            # The loser waits, longer each time, so that all get their turn.
            time.sleep(random.uniform(0, min(0.5, 0.004 * 2 ** min(n, 7))))  # noqa: S311  no secret
        raise ArchiveBusyError(f"Committing to {self.uri}: other processes kept committing first. Run it again.")

    def add_columns(self, schema: pa.Schema) -> None:
        """Add the columns of ``schema`` that the table lacks; older rows are null there."""
        from deltalake.schema import Field

        for version in self._versions():
            fields = [Field.from_arrow(field) for field in schema if field.name not in version.schema.names]
            if not fields or self._sent(version, lambda handle: handle.alter.add_columns, fields):
                return

    def plan(self, make: Callable[[Version], Plan | None]) -> None:
        """Commit what ``make`` plans for the newest version; it plans again whenever another commit came first.

        ``make`` returns None if there is nothing to do. A commit is for exactly its version: deltalake does not see
        that a compaction (dataChange=false) removed a file which this commit removes too.
        """
        from deltalake import PostCommitHookProperties, Transaction
        from deltalake.transaction import AddAction, RemoveAction

        for version in self._versions():
            plan = make(version)
            if plan is None:
                return
            now = time.time_ns() // 1_000_000
            actions: list[Any] = [AddAction(f.path, f.size, {}, now, True, files.statistics(f)) for f in plan.adds]
            actions += [RemoveAction(f.path, True, now, f.size, {}) for f in plan.drops]
            transactions = [Transaction(name, number) for name, number in plan.transactions.items()]
            # deltalake's clean-up lists the whole log, which costs requests in an object store.
            hook = PostCommitHookProperties(cleanup_expired_logs=version.number % 100 == 0)
            more = {"mode": "append", "post_commithook_properties": hook}
            if self._sent(version, _appending, actions, transactions=transactions, **more):
                return

    def _sent(
        self, version: Version, method: Callable[[Any], Any], *args: Any, transactions: Any = (), **more: Any
    ) -> bool:
        """Send a commit after a version by a ``method`` of the table; False if another came first.

        Any error may hide a commit that was made: an answer was lost, or the checkpoint after it failed. The mark in
        the log tells.
        """
        from deltalake import CommitProperties
        from deltalake.exceptions import DeltaError

        mark = uuid.uuid4().hex
        once = CommitProperties({_MARK: mark}, 0, list(transactions) or None)
        with errors.writing(f"Committing to {self.uri}"), self._lock:
            if self._handle is None or version is not self._version:
                return False
            try:
                method(self._handle)(*args, commit_properties=once, **more)
            except (DeltaError, OSError) as problem:
                self._handle = None
                newest = self.version().number
                later = self._handle.history(newest - version.number) if newest > version.number else []
                if any(entry.get(_MARK) == mark for entry in later):
                    return True
                if isinstance(problem, DeltaError) and later:
                    return False
                raise
        return True

    def put(self, rows: pa.Table, effort: int = files.WRITE_EFFORT) -> list[DataFile]:
        """Write rows to new files, which a commit may name."""
        with errors.writing(f"Writing to {self.uri}"):
            return list(files.write_rows(self.store, rows, effort))

    @cached_property
    def _remembered_footer(self) -> Any:
        return lru_cache(_REMEMBERED)(partial(files.read_footer, self.store))

    def footer(self, file: DataFile, *, fresh: bool = False) -> Footer:
        """The footer of a file, remembered unless ``fresh``."""
        with self._removed():
            footer: Footer = files.read_footer(self.store, file) if fresh else self._remembered_footer(file)
        return footer

    def content(self, file: DataFile, groups: Sequence[int] | None = None) -> memoryview:
        """The bytes of a file, for several reads of it; only those of the row groups are filled."""
        footer = self.footer(file)
        with self._removed():
            return files.content_of(self.store, file, footer, groups)

    def read(
        self,
        file: DataFile,
        groups: Sequence[int] | None = None,
        names: Sequence[str] | None = None,
        content: memoryview | None = None,
    ) -> pa.Table:
        """Some or all columns of a file or of some of its row groups, with page checksums compared."""
        content = self.content(file, groups) if content is None else content
        return files.read_groups(content, file, self.footer(file), groups, names)

    def check(self, version: Version) -> None:
        """ArchiveCorruptError if a file of a version is gone or cut, before an engine reads them."""
        with self._removed():
            self.store.check(version.files)

    @contextlib.contextmanager
    def _removed(self) -> Iterator[None]:
        """A missing file of the past as a ConfigError."""
        try:
            yield
        except ArchiveCorruptError as problem:
            if self._as_of is None or not errors.is_missing(problem.__cause__):
                raise
            why = f"cannot be read: vacuum has removed files of {self.uri} as it was then. Use a later time."
            raise ConfigError(why, argument="as_of", value=to_text(self._as_of)) from problem

    def transactions_at(self, moment: int | None, names: Iterable[str]) -> dict[str, int | None]:
        """Numbers of transactions now (None), at a time [microseconds UTC], or in the first version of the log."""
        from deltalake import DeltaTable

        with errors.reading(self._name):
            handle = DeltaTable(self.uri, storage_options=self.options)
            if moment is not None:
                handle.load_as_version(to_datetime(moment))
            return {name: handle.transaction_version(name) for name in names}

    def unused_files(self, hours: int) -> list[str]:
        """Files that no version of the last hours names, as deltalake lists them by this machine's clock."""
        with errors.reading(self._name), self._lock:
            self.version()
            if self._handle is None:
                return []
            names: list[str] = self._handle.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
            return names

    def checkpoint(self) -> None:
        """Write the state of the table as one file, so that it opens quickly."""
        with errors.writing(f"Writing a checkpoint of {self.uri}"), self._lock:
            if self.version().number > 0:
                self._handle.create_checkpoint()
                self._handle.cleanup_metadata()


def _appending(handle: Any) -> Callable[..., Any]:
    return partial(handle.create_write_transaction, schema=handle.schema())


def _height(rows: Any) -> int:
    """How many rows an Arrow stream has."""
    return int(pa.table(rows).num_rows)


def _version_of(handle: Any) -> Version:
    import polars as pl

    rows = pl.DataFrame(handle.get_add_actions(flatten=True))
    facts = []
    for name, unknown in _FACTS.items():
        column = pl.col(name) if name in rows.columns else pl.lit(None)
        column = column.cast(pl.Datetime("us", "UTC")) if name.endswith(".ts") else column
        facts.append(column.cast(pl.String if isinstance(unknown, str) else pl.Int64).fill_null(unknown).alias(name))
    schema = pa.schema([f.with_nullable(True) for f in pa.schema(handle.schema().to_arrow())])
    return Version(handle.version(), tuple(itertools.starmap(DataFile, rows.select(facts).iter_rows())), schema)
