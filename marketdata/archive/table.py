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
from marketdata.archive.files import FILE_LEVELS, DataFile, Footer, cuts, encode, read_footer, read_groups, statistics
from marketdata.archive.storage import Bucket, Folder, is_url
from marketdata.errors import ArchiveError, ConfigError
from marketdata.times import to_datetime

_FAR = 2**62
_FOOTERS = 4096
_TRIES = 60


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

    @property
    def store(self) -> Folder | Bucket:
        """The place of the files."""
        if self._store is None:
            self._store = Bucket(self.uri, self._options) if self.remote else Folder(self.uri)
        return self._store

    def state(self) -> State:
        """The newest committed version, or the one of the time that was asked for."""
        with self._lock:
            if self._handle is None:
                self._open()
            elif self._as_of is None and self._moved():
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
        from deltalake.exceptions import TableNotFoundError

        if not self.remote and not self._log.is_dir():
            return
        with faults.reading(f"The commit log of {self.uri}"):
            try:
                self._handle = DeltaTable(self.uri, storage_options=self._options)
            except TableNotFoundError:
                return
            if self._as_of is not None:
                self._handle.load_as_version(to_datetime(self._as_of))
        self._load()

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
        if self.state().version >= 0:
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

    def put(self, table: pa.Table, weights: Any) -> list[Any]:
        """Write rows to new files; returns what a commit takes to name them."""
        from deltalake.transaction import AddAction

        self.create()
        out = []
        for start, stop in cuts(weights, FILE_LEVELS):
            part = table.slice(start, stop - start)
            with faults.writing(f"Writing to {self.uri}"):
                name, body = encode(part, weights[start:stop])
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
        if not self.remote:
            self.store.settle("_delta_log")
        self.state()

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
            with self._lock:
                self._handle, self._state = None, NOTHING
                self._open()

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
