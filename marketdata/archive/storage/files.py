"""Files of a table: Parquet with page checksums, found by statistics, read by row group, then parsed."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import stat
import uuid
import zlib
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from marketdata.archive.storage import errors
from marketdata.errors import ArchiveCorruptError, ArchiveError, ConfigError
from marketdata.points.schema import ID_COLUMNS
from marketdata.times import Range, to_text

# A row group is decoded whole, also for one page of a service.
GROUP_LEVELS = 50_000
FILE_LEVELS = 8_000_000
# The text of one record is decoded with the others of its group.
_GROUP_RECORDS = 8_192
WRITE_EFFORT = 3
COMPACT_EFFORT = 9
# Footers have no checksum of their own, so it is in the name, after an id that the footer repeats.
OURS = re.compile(r"[0-9a-f]{32}-([0-9a-f]{8})\.parquet")
# Listings of a folder that changes meanwhile, until it is given up.
_LISTINGS = 100
_MAGIC = b"PAR1"
# Texts that many rows share, which are read as codes: those of points, and the names of the fields of records.
_REPEATING = (*ID_COLUMNS, "fields")
# Readers of Delta tables ignore names that begin so.
_CLOCK = "_clock"
# Without statistics a file may have any time [microseconds] and any name.
FAR = 2**62
LAST_NAME = "\U0010ffff" * 8
# The storage library decodes percent signs, and takes backslashes for slashes.
_REFUSED = re.compile(r"%[0-9a-fA-F]{2}|[\x00-\x1f\x7f\ud800-\udfff]" + ("" if os.sep == "\\" else r"|\\"))


def is_url(location: str) -> bool:
    """Whether a location names an object store rather than a folder."""
    return "://" in location and not location.startswith("file://")


def located(path_or_url: object) -> str:
    """The address, or the absolute path, of an archive; ConfigError for one that cannot be an archive's."""
    if not isinstance(path_or_url, str | bytes | os.PathLike) or not path_or_url:
        problem = "is refused; allowed are a folder or an object-store address, as text or a path."
        raise ConfigError(problem, argument="path_or_url", value=path_or_url)
    location = os.fsdecode(path_or_url)
    if is_url(location):
        return location
    path = Path(location.removeprefix("file://")).absolute()
    refused = _REFUSED.search(str(path))
    problem = f"has {refused[0]!r}, which the storage library does not take in a path" if refused else ""
    try:
        if not problem and path.is_file():
            problem = "is a file; an archive is a folder, which the first write makes"
    except OSError as failed:
        if failed.errno != errno.ENAMETOOLONG:
            raise errors.unavailable(f"The folder {location!r}", failed) from failed
        problem = f"has {len(location):,} characters, more than the file system takes"
    if problem:
        raise ConfigError(f"{problem}. Use another folder.", argument="path_or_url", value=location)
    return str(path)


class Store:
    """The files of one table, which never change: a local folder, or a prefix of an object store."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        from deltalake.fs import DeltaStorageHandler
        from pyarrow.fs import LocalFileSystem, PyFileSystem, SubTreeFileSystem

        self.uri = uri.rstrip("/")
        self.remote = is_url(uri)
        if self.remote:
            self._handler = DeltaStorageHandler(self.uri, options)
        self.files: Any = PyFileSystem(self._handler) if self.remote else SubTreeFileSystem(self.uri, LocalFileSystem())

    def write(self, name: str, body: bytes | memoryview) -> None:
        """Write a new file, durable before any commit can name it."""
        if self.remote:
            # Not through pyarrow: its streams pass buffers, and the handler takes bytes only.
            stream: Any = self._handler._handler.open_output_stream(name, None)  # noqa: SLF001
            stream.write(bytes(body))
            stream.close()
            return
        path = Path(self.uri, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            if os.name == "posix":  # where a folder can be opened: the name of the file must be durable too
                folder = os.open(path.parent, os.O_RDONLY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
        except BaseException:
            # No commit names it yet, so the torn file can go at once.
            path.unlink(missing_ok=True)
            raise

    def check(self, files: Iterable[DataFile]) -> None:
        """ArchiveCorruptError for a local file that is gone or cut, as engines that read it name neither.

        An object store is not asked, because that would cost a request for each file.
        """
        if self.remote:
            return
        for file in files:
            what = f"The data file {file.path}"
            with errors.reading(what):
                entry = os.stat(Path(self.uri, file.path))  # noqa: PTH116 a path object costs as much again
            if not stat.S_ISREG(entry.st_mode):
                raise ArchiveCorruptError(f"{what} is no file.", hint=errors.REPAIR)
            if entry.st_size != file.size:
                problem = f"{what} has {entry.st_size} bytes where {file.size} were committed."
                raise ArchiveCorruptError(problem, hint=errors.REPAIR)

    def open(self, name: str) -> Any:
        """A file for reading, unbuffered."""
        return self.files.open_input_file(name)

    def written(self, folder: str) -> dict[str, int]:
        """The names of the files in a folder, and the time of each by the storage [microseconds]."""
        from pyarrow.fs import FileSelector

        for _ in range(_LISTINGS):
            # The library fails if a folder or file comes or goes while it lists; the next listing is whole.
            with contextlib.suppress(FileNotFoundError):
                entries = self.files.get_file_info(FileSelector(folder, allow_not_found=True))
                return {entry.base_name: int(entry.mtime_ns or 0) // 1000 for entry in entries if entry.is_file}
        raise ArchiveError(f"The files of {self.uri} change faster than they can be listed. Run it again.")

    def now(self) -> int:
        """The clock of the storage, by a file that is written and removed [microseconds].

        This machine's clock may be days ahead, so that the file of a running write would seem old.
        """
        name = f"{_CLOCK}-{uuid.uuid4().hex}"  # another process may ask at the same time
        if self.remote:
            self.write(name, b" ")
        else:
            Path(self.uri, name).touch()
        now = self.written("")[name]
        self.delete(name)
        return now

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder."""
        return list(self.written(folder))

    def delete(self, name: str) -> None:
        """Remove a file that no commit names."""
        self.files.delete_file(name)


class DataFile(NamedTuple):
    """A file with its statistics in the commit, or a row group of a file with its statistics in the footer.

    A row group has a ``number``, and ``begin`` and ``size`` say where its bytes are.
    """

    path: str
    size: int
    rows: int
    market_min: str = ""
    market_max: str = LAST_NAME
    ts_min: int = -FAR
    ts_max: int = FAR
    number: int = -1
    begin: int = 0


class Footer(NamedTuple):
    """The footer of a file: as the library has it, and its row groups."""

    metadata: Any
    groups: Sequence[DataFile]


def holding(parts: Iterable[DataFile], markets: Sequence[str] | None, wanted: Range) -> list[DataFile]:
    """The files or row groups that may have rows of (sorted) markets, or of any (None), in a range."""
    start, end = wanted
    in_time = [part for part in parts if part.ts_max >= start and part.ts_min < end]
    if markets is None:
        return in_time
    ends = [*markets, LAST_NAME + LAST_NAME]
    return [part for part in in_time if ends[bisect_left(ends, part.market_min)] <= part.market_max]


def hull(ranges: Iterable[Range]) -> Range:
    """The range from the first start to the last end."""
    every = list(ranges)
    return Range(min((r.start for r in every), default=0), max((r.end for r in every), default=0))


def write_rows(store: Store, table: pa.Table, effort: int) -> Iterator[DataFile]:
    """Write rows to new files of about `FILE_LEVELS` levels each."""
    sides = [table[name] for name in ("bid_price", "ask_price") if name in table.schema.names]
    levels = sum((pc.list_value_length(side).fill_null(0).to_numpy() for side in sides), np.zeros(len(table), np.int64))
    weights = np.maximum(levels, 1)
    for start, stop in cuts(weights, FILE_LEVELS):
        part, identity = table.slice(start, stop - start), uuid.uuid4().hex
        is_points = "ts" in part.schema.names  # records have no markets
        chunks = part["market_id"].chunks if is_points else ()
        markets = {name for chunk in chunks for name in chunk.unique().to_pylist() if name is not None}
        # A row group has about `GROUP_LEVELS` levels, and at most 64 short markets.
        short = max(8_192, 64 * len(part) // max(len(markets), 1))
        rows = min(max(GROUP_LEVELS * len(part) // int(weights[start:stop].sum()), 256), 65_536, short)
        rows = rows if is_points else _GROUP_RECORDS
        body = _encoded(part, identity, rows, effort)
        name = f"{identity}-{zlib.crc32(body[-_length(body) :]):08x}.parquet"
        store.write(name, body)
        times = pc.min_max(part["ts"].cast(pa.int64())).as_py().values() if is_points else (-FAR, FAR)
        yield DataFile(name, len(body), len(part), min(markets, default=""), max(markets, default=LAST_NAME), *times)


def _encoded(table: pa.Table, identity: str, rows: int, effort: int) -> memoryview:
    """The bytes of a Parquet file; ``rows`` are the sizes of its row groups."""
    # Not BytesIO: Python 3.13 may free it before the view of it that the traceback of a failed write holds.
    memory = pa.BufferOutputStream()
    types = {f.name: f.type.value_type if pa.types.is_dictionary(f.type) else f.type for f in table.schema}
    schema = pa.schema([field.with_type(types[field.name]) for field in table.schema])
    lists = {name for name, kind in types.items() if pa.types.is_list(kind)}
    # Prices repeat; sizes do not, and a dictionary of them costs a third of the file.
    repeating = [name for name in types if name.endswith(("_id", "_label", "price")) or name in _REPEATING]
    with pq.ParquetWriter(
        memory,
        schema,
        compression="zstd",
        compression_level=effort,
        data_page_size=112 * 1024,  # zstd compresses pages of up to 128 kB best
        use_dictionary=[f"{name}.list.element" if name in lists else name for name in repeating],
        # No query selects by the numbers in lists, and their statistics take a third of the time.
        write_statistics=[name for name in types if name not in lists],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for first in range(0, len(table), rows):
            # A row group would store all names of a dictionary, so texts are encoded anew.
            writer.write_table(table.slice(first, rows).cast(schema), row_group_size=rows)
        writer.add_key_value_metadata({"marketdata.file": identity})
    return memoryview(memory.getvalue())


def cuts(weights: Any, size: int) -> Iterator[tuple[int, int]]:
    """Row ranges whose weights sum to about ``size`` each: weights 3 3 3 3 and size 6 give (0, 2), (2, 4)."""
    if not len(weights):
        return
    before = np.cumsum(weights) - weights
    bounds = [0, *(np.flatnonzero(np.diff(before // size)) + 1).tolist(), len(weights)]
    yield from itertools.pairwise(bounds)


def statistics(file: DataFile) -> str:
    """Statistics of a file for the commit log, as engines read them to prune."""
    is_points = file.ts_max < FAR
    low = {"market_id": file.market_min, "ts": to_text(file.ts_min)} if is_points else {}
    high = {"market_id": file.market_max, "ts": to_text(file.ts_max)} if is_points else {}
    # Written as UTF-8, because some readers lose characters that are escaped in two halves.
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high}, ensure_ascii=False)


def read_footer(store: Store, file: DataFile) -> Footer:
    """The footer of a file; ArchiveCorruptError if it is missing, torn, damaged or not the one of the commit."""
    what = f"The data file {file.path}"
    with errors.reading(what), store.open(file.path) as source:
        if (size := source.size()) != file.size:
            raise ArchiveCorruptError(f"{what} has {size} bytes where {file.size} were committed.", hint=errors.REPAIR)
        raw = _fetched(source, max(0, size - 131_072), size)  # has most footers
        if len(raw) < _length(raw) <= size:
            raw = _fetched(source, size - _length(raw), size)
    with errors.parsing(what):
        length = _length(raw)
        if bytes(raw[-4:]) != _MAGIC or length > len(raw):
            raise ValueError("its end is not the end of a Parquet file")
        # Pages have checksums. The checksum of the footer is in the name of the file.
        written = OURS.fullmatch(file.path.rpartition("/")[2])
        if written and f"{zlib.crc32(raw[-length:]):08x}" != written[1]:
            raise ValueError("its footer is not the one that was written")
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + bytes(raw[-length:])))
        return Footer(metadata, _groups(metadata, file.path, file.size - length))


def _length(raw: memoryview) -> int:
    """Length of a footer with its own length field and magic number [bytes]."""
    return int.from_bytes(raw[-8:-4], "little") + 8


def _groups(metadata: Any, path: str, end: int) -> list[DataFile]:
    """The row groups of a file whose last one ends at a byte."""
    names = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
    out: list[DataFile] = []
    for i in reversed(range(metadata.num_row_groups)):
        group = metadata.row_group(i)
        begin = group.column(0).dictionary_page_offset or group.column(0).data_page_offset
        stats = {n: group.column(names.index(n)).statistics for n in ("market_id", "ts") if n in names}
        market, ts = (one if one and one.has_min_max else None for one in map(stats.get, ("market_id", "ts")))
        first_name, last_name = (market.min, market.max) if market else ("", LAST_NAME)
        start, stop = (ts.min_raw, ts.max_raw) if ts else (-FAR, FAR)
        out.append(DataFile(path, end - begin, group.num_rows, first_name, last_name, start, stop, i, begin))
        end = begin
    return out[::-1]


def content_of(store: Store, file: DataFile, footer: Footer, groups: Sequence[int] | None) -> memoryview:
    """The bytes of a file, in which those of all row groups (None), or from the first to the last one, are filled."""
    numbers = range(len(footer.groups)) if groups is None else groups
    # As long as the file; only the bytes that are fetched cost memory.
    body = np.zeros(file.size, dtype=np.uint8).data
    with errors.reading(f"The data file {file.path}"), store.open(file.path) as source:
        if numbers:
            last = footer.groups[numbers[-1]]
            _fetched(source, footer.groups[numbers[0]].begin, last.begin + last.size, body)
    return body


def read_groups(
    content: memoryview, file: DataFile, footer: Footer, groups: Sequence[int] | None, names: Sequence[str] | None
) -> pa.Table:
    """Columns of all row groups (None), or of some; ArchiveCorruptError if the checksum of a page differs."""
    numbers = range(len(footer.groups)) if groups is None else groups
    with errors.parsing(f"The data file {file.path}"):
        stored = footer.metadata.schema.names  # made at each call
        reader = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(content)),
            metadata=footer.metadata,
            read_dictionary=[name for name in _REPEATING if name in stored],
            page_checksum_verification=True,
        )
        rows = reader.read_row_groups(list(numbers), columns=names, use_threads=len(numbers) >= 8)
        # Checksums leave out the headers of pages; a flipped bit in these shows here.
        rows.validate(full=True)
        if rows.num_rows != sum(footer.groups[number].rows for number in numbers):
            raise ValueError("it has other rows than were written")
        return rows


def _fetched(source: Any, start: int, end: int, body: memoryview | None = None) -> memoryview:
    """Bytes [start, end) of a file, in ``body`` at their place if given; zeros where the file is shorter."""
    part = memoryview(bytearray(end - start)) if body is None else body[start:end]
    source.seek(start)
    at = 0
    while at < len(part):
        count = source.readinto(part[at:])
        if not count:
            break
        at += count
    return part
