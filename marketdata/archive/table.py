"""One Delta Lake table: its current files, and commits that replace some of them."""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from marketdata.archive import faults
from marketdata.archive.files import (
    FILE_LEVELS,
    OURS,
    WRITE_EFFORT,
    DataFile,
    Footer,
    cuts,
    encode,
    read_footer,
    read_groups,
    statistics,
)
from marketdata.archive.storage import Bucket, Folder, flush, is_url
from marketdata.errors import ArchiveCorruptError, ArchiveError, ConfigError, PartialCoverageWarning, warn
from marketdata.times import to_datetime

_FAR = 2**62
_FOOTERS = 4096
_TRIES = 60
_REBUILD = "Run archive.rebuild() to make it anew from the data files."


@dataclass(frozen=True, slots=True)
class State:
    """One committed version of a table: what a reader sees, whole."""

    version: int
    files: tuple[DataFile, ...]


NOTHING = State(-1, ())


class Table:
    """A Delta table that is created by the first write.

    Writers never change a file: a commit names new files and drops old ones, in one step. Two writers that
    touch the same key (``locks``) can not both commit on the same version, so the later one looks again.
    """

    def __init__(
        self, uri: str, schema: pa.Schema, options: dict[str, str] | None = None, *, as_of: int | None = None
    ) -> None:
        self.uri = uri
        self.schema = schema
        self._options = options
        self._as_of = as_of
        self._log = Path(uri) / "_delta_log"
        self.remote = is_url(uri)
        self._store: Folder | Bucket | None = None
        self._handle: Any = None
        self._state = NOTHING
        self._footers: OrderedDict[str, Footer] = OrderedDict()
        self._lock = threading.RLock()
        # What is wrong with the commit log; such a table is read as far as it goes, and not written to.
        self.damage: str | None = None

    @property
    def store(self) -> Folder | Bucket:
        """The place of the files."""
        if self._store is None:
            self._store = Bucket(self.uri, self._options) if self.remote else Folder(self.uri)
        return self._store

    def state(self) -> State:
        """The newest committed version, or the one of the time that was asked for."""
        with self._lock:
            if self._handle is None and self.damage is None:
                self._open()
            elif self._as_of is None and self.damage is None and self._moved():
                with faults.reading(f"The commit log of {self.uri}"):
                    self._handle.update_incremental()
                self._load()
            return self._state

    def _moved(self) -> bool:
        if self.remote:
            return True
        return (self._log / f"{self._state.version + 1:020d}.json").exists()

    def _open(self) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError, TableNotFoundError

        if not self.remote and not Path(self.uri).is_dir():
            return
        with faults.reading(f"The commit log of {self.uri}"):
            try:
                if not self.remote:
                    self._check_log()
                self._handle = DeltaTable(self.uri, storage_options=self._options)
            except TableNotFoundError:
                if self.remote or not any(OURS.fullmatch(path.name) for path in Path(self.uri).iterdir()):
                    return
                self._damaged("it is gone", None)
                return
            except DeltaError as problem:
                if self.remote or faults.is_newer(problem):
                    raise
                self._damaged(str(problem).partition("\n")[0][:200], problem)
            if self._as_of is not None:
                self._handle.load_as_version(to_datetime(self._as_of))
        self._load()

    def _check_log(self) -> None:
        """An empty commit is no commit: a crash of the machine left it, and Delta would pass over it."""
        from deltalake.exceptions import DeltaError

        empty = [path.name for path in self._log.glob("*.json") if not path.stat().st_size]
        if empty:
            raise DeltaError(f"{min(empty)} is empty")

    def _damaged(self, what: str, problem: Exception | None) -> None:
        """Open the last version that can be read, and say so; without one there is nothing to read."""
        self._handle, shown = self._last_good(), "nothing"
        if self._handle is not None:
            shown = f"version {self._handle.version()}"
        elif problem is not None:
            raise ArchiveCorruptError(f"The commit log of {self.uri} is damaged: {what}.", hint=_REBUILD) from problem
        self.damage = f"The commit log of {self.uri} is damaged ({what})"
        warn(f"{self.damage}, so {shown} of it is shown.", PartialCoverageWarning, hint=_REBUILD)

    def _last_good(self) -> Any:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        commits = [path for path in self._log.glob("*.json") if path.stem.isdigit()]
        broken = min((int(path.stem) for path in commits if not path.stat().st_size), default=_FAR)
        for version in sorted((int(path.stem) for path in commits), reverse=True):
            if version < broken:
                try:
                    return DeltaTable(self.uri, version=version)
                except DeltaError:
                    continue
        return None

    def _load(self) -> None:
        version = self._handle.version()
        if version == self._state.version:
            return
        with faults.reading(f"The commit log of {self.uri}"):
            rows = pa.table(self._handle.get_add_actions(flatten=True))
        self._state = State(version, tuple(_data_files(rows)))
        self.schema = pa.schema(self._handle.schema().to_arrow())

    def create(self) -> None:
        """Make the empty table if it is not there yet."""
        if self._as_of is not None:
            raise ConfigError("An archive opened with as_of= shows the past and can not be written to.")
        version = self.state().version
        if self.damage is not None:
            raise ArchiveCorruptError(f"{self.damage}, so nothing is written to it.", hint=_REBUILD)
        if version >= 0:
            return
        from deltalake import DeltaTable

        with faults.writing(f"Creating {self.uri}"), self._lock:
            if not self.remote:
                Path(self.uri).mkdir(parents=True, exist_ok=True)
            for attempt in range(_TRIES):
                try:
                    DeltaTable.create(self.uri, self.schema, mode="ignore", storage_options=self._options)
                    break
                except Exception:
                    # Of two that create at once the slower one fails, and finds the table of the other.
                    if DeltaTable.is_deltatable(self.uri, self._options):
                        break
                    if attempt == 2:
                        raise
            self._open()

    def footer(self, file: DataFile) -> Footer:
        """The footer of a file; files never change, so it is read once."""
        with self._lock:
            known = self._footers.get(file.path)
            if known is not None:
                self._footers.move_to_end(file.path)
                return known
        found = read_footer(self.store, file)
        with self._lock:
            self._footers[file.path] = found
            while len(self._footers) > _FOOTERS:
                self._footers.popitem(last=False)
        return found

    def forget(self, file: DataFile) -> None:
        """Read the footer of a file again when it is next needed."""
        with self._lock:
            self._footers.pop(file.path, None)

    def read(self, file: DataFile, groups: Sequence[int] | None = None) -> pa.Table:
        """Rows of a file, or of some of its row groups."""
        return read_groups(self.store, file, self.footer(file), groups)

    def put(self, table: pa.Table, weights: Any, effort: int = WRITE_EFFORT) -> list[Any]:
        """Write rows to new files; returns what a commit takes to name them."""
        from deltalake.transaction import AddAction

        self.create()
        out = []
        for start, stop in cuts(weights, FILE_LEVELS):
            part = table.slice(start, stop - start)
            with faults.writing(f"Writing to {self.uri}"):
                name, body = encode(part, weights[start:stop], effort)
                self.store.write(name, body)
            out.append(AddAction(name, len(body), {}, int(time.time() * 1000), True, statistics(part)))
        return out

    def commit(
        self,
        plan: Callable[[State], tuple[Sequence[Any], Iterable[DataFile]] | None],
        locks: Iterable[str],
        *,
        data_change: bool = True,
    ) -> dict[str, int]:
        """Commit what ``plan`` wants for the newest version; run it again when others were faster.

        Parameters
        ----------
        plan
            From the state to (files to name, files to drop), or None for nothing to do.
        locks
            Keys of what is replaced. Each has a counter that rises by one with every commit.

        Returns
        -------
        dict
            The counter of each key after this commit.

        Raises
        ------
        ArchiveBusyError
            If others kept changing the same keys.
        """
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import RemoveAction

        self.create()
        keys = sorted(set(locks))
        with faults.writing(f"Committing to {self.uri}"):
            for attempt in range(_TRIES):
                with self._lock:
                    state = self.state()
                    counters = {key: (self._handle.transaction_version(key) or 0) + 1 for key in keys}
                    wanted = plan(state)
                    if wanted is None:
                        return {key: count - 1 for key, count in counters.items()}
                    adds, drops = wanted
                    now = int(time.time() * 1000)
                    removes = [RemoveAction(f.path, data_change, now, f.size, {}) for f in drops]
                    properties = CommitProperties(
                        app_transactions=[Transaction(key, count) for key, count in counters.items()]
                    )
                    try:
                        self._handle.create_write_transaction(
                            [*adds, *removes], "append", self._handle.schema(), commit_properties=properties
                        )
                    except CommitFailedError:
                        if attempt == _TRIES - 1:
                            raise
                    else:
                        self._settle()
                        return counters
                # Who lost steps back a little, longer each time, so that all get their turn.
                time.sleep(random.uniform(0, min(0.5, 0.004 * 2 ** min(attempt, 7))))  # noqa: S311  no secret
        raise ArchiveError(f"Committing to {self.uri} came to no end.")

    def _settle(self) -> None:
        before = self._state.version
        after = self.state().version
        if not self.remote:
            # The library does not flush what it writes there.
            for version in range(before + 1, after + 1):
                flush(self._log / f"{version:020d}.json")
            self.store.settle("_delta_log")

    def add_columns(self, fields: Sequence[pa.Field]) -> None:
        """Add columns that the table does not have; older rows hold nulls."""
        from deltalake.exceptions import DeltaError
        from deltalake.schema import Field as DeltaField

        self.create()
        for attempt in range(_TRIES):
            self.state()
            missing = [f for f in fields if f.name not in self.schema.names]
            if not missing:
                return
            try:
                self._handle.alter.add_columns([DeltaField.from_arrow(f) for f in missing])
            except DeltaError:
                if attempt == _TRIES - 1:
                    raise
                self._handle = None
            self.reopen()

    def reopen(self) -> None:
        """Look at the table as if for the first time."""
        with self._lock:
            self._handle, self._state, self.damage = None, NOTHING, None
            self._footers.clear()

    @property
    def handle(self) -> Any:
        """The DeltaTable at the newest version; None before the first write."""
        self.state()
        return self._handle


def _data_files(rows: pa.Table) -> Iterable[DataFile]:
    count = rows.num_rows

    def column(name: str) -> list[Any]:
        return rows.column(name).to_pylist() if name in rows.schema.names else [None] * count

    def micros(name: str) -> list[Any]:
        if name not in rows.schema.names or pa.types.is_null(rows.column(name).type):
            return [None] * count
        values: list[Any] = rows.column(name).cast(pa.int64()).to_pylist()
        return values

    for path, size, number, low, high, first, last in zip(
        column("path"), column("size_bytes"), column("num_records"), column("min.market_id"), column("max.market_id"),
        micros("min.ts"), micros("max.ts"), strict=True,
    ):  # fmt: skip
        yield DataFile(
            path,
            size,
            number if number is not None else -1,
            low,
            high,
            -_FAR if first is None else first,
            # Other writers cut times to milliseconds.
            _FAR if last is None else last + 999,
        )
