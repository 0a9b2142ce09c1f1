"""Parquet files of a table: written with page checksums, found by statistics, read by row group, then parsed."""

from __future__ import annotations

import itertools
import json
import os
import re
import stat
import time
import uuid
import zlib
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from marketdata.archive.storage import errors
from marketdata.errors import ArchiveCorruptError
from marketdata.points.schema import ID_COLUMNS
from marketdata.times import Range, to_text

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
# Levels of a row group and of a file, and rows of a group at least and at most. A group is decoded whole, for a page of
# the service too. With half as many levels files would be 5 % larger, and reads of whole markets 5 to 10 % slower.
GROUP_LEVELS = 50_000
FILE_LEVELS = 8_000_000
_GROUP_ROWS = (256, 65_536)
# Pages of up to 128 kB are the ones that zstd packs best.
_PAGE_BYTES = 112 * 1024
# Ids of markets with at least so many levels are not packed: it saves nothing, and unpacking takes 0.01 ms a page.
_LONG = 10_000
# Short markets in a row group at most, and its rows at least.
_GROUP_MARKETS, _GROUP_SHORT = 64, 8_192
# Compression levels: fast for a write, better for compaction.
WRITE_EFFORT = 3
COMPACT_EFFORT = 9
# With at least this many row groups a second core is worth its start.
_MANY_GROUPS = 8
# The names of our files: an id, and the checksum of the footer, which has the id under the key.
OURS = re.compile(r"[0-9a-f]{32}-([0-9a-f]{8})\.parquet")
_KEY = "marketdata.file"
# Both ends of a Parquet file.
_MAGIC = b"PAR1"
# Most footers are in so many last bytes; of so many files read whole for their footers the bytes are kept for the rows.
_TAIL = 131_072
_BODIES = 64
# A time before and after all others [microseconds], and a name after all others, where there are no statistics.
FAR = 2**62
LAST_NAME = "\U0010ffff" * 8


class Recent(OrderedDict[_Key, _Value]):
    """The values that were set last, at most so many."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: _Key, value: _Value) -> None:
        super().__setitem__(key, value)
        while len(self) > self._most:
            self.popitem(last=False)


def is_url(location: str) -> bool:
    """Whether a location names an object store rather than a folder."""
    return "://" in location and not location.startswith("file://")


def is_folder(path: Path) -> bool:
    """Whether there is such a folder; OSError if the storage fails, where Python 3.14 would say that there is none."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


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
        self.bodies = Recent[str, memoryview](_BODIES)

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
            flush(path.parent)
        except BaseException:
            # No commit names it yet, so the torn file can go at once.
            path.unlink(missing_ok=True)
            raise

    def open(self, name: str) -> Any:
        """A file for reading, unbuffered."""
        return self.files.open_input_file(name)

    def age(self, name: str) -> int:
        """How long ago a file was written [microseconds]."""
        return (time.time_ns() - int(self.files.get_file_info(name).mtime_ns or time.time_ns())) // 1000

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder."""
        from pyarrow.fs import FileSelector

        entries = self.files.get_file_info(FileSelector(folder, allow_not_found=True))
        return [entry.base_name for entry in entries if entry.is_file]

    def delete(self, name: str) -> None:
        """Remove a file that no commit names."""
        self.files.delete_file(name)

    def address(self, name: str) -> str:
        """Path or address of a file, as engines take it."""
        return f"{self.uri}/{name}"


def flush(path: Path) -> None:
    """Make the names in a folder durable, where the system lets a folder be opened."""
    if os.name != "posix":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# First and last time of the rows of each market.
Spans = dict[str, tuple[int, int]]


class DataFile(NamedTuple):
    """A file that a commit names, with its statistics in the commit, or a row group of one, with those in its footer.

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

    @property
    def span(self) -> Range:
        """The range of its rows."""
        return Range(max(self.ts_min, 0), max(min(self.ts_max, 2**55), 0) + 1)


class Footer(NamedTuple):
    """The footer of a file: as the library has it, and its row groups."""

    metadata: Any
    groups: Sequence[DataFile]


def holding(parts: Iterable[DataFile], markets: Sequence[str] | None, wanted: Range) -> list[DataFile]:
    """The files or row groups that by their statistics may have rows of markets (sorted; None: any) in a range."""
    start, end = wanted
    some = [part for part in parts if part.ts_max >= start and part.ts_min < end]
    if markets is None:
        return some
    if len(markets) == 1:
        # Without a call per file: there may be ten thousand.
        one = markets[0]
        return [part for part in some if part.market_min <= one <= part.market_max]
    ends = list(markets)
    ends.append(LAST_NAME + LAST_NAME)
    return [part for part in some if ends[bisect_left(ends, part.market_min)] <= part.market_max]


def hull(ranges: Iterable[Range]) -> Range:
    """The range from the first start to the last end."""
    some = list(ranges)
    return Range(min((r.start for r in some), default=0), max((r.end for r in some), default=0))


def write_rows(store: Store, table: pa.Table, effort: int) -> Iterator[tuple[DataFile, Spans]]:
    """Write rows to new files of about so many levels, each with the spans of its markets."""
    weights = _level_rows(table)
    for start, stop in cuts(weights, FILE_LEVELS):
        part, identity = table.slice(start, stop - start), uuid.uuid4().hex
        spans = spans_of(part)
        body = _encoded(part, identity, weights[start:stop], len(spans), effort)
        name = f"{identity}-{zlib.crc32(body[-_length(body) :]):08x}.parquet"
        store.write(name, body)
        yield _entry(name, len(body), part, spans), spans


def _level_rows(table: pa.Table) -> Any:
    """The number of level rows of each row; 1 for rows without levels."""
    sides = [name for name in ("bid_price", "ask_price") if name in table.schema.names]
    out = np.zeros(table.num_rows, dtype=np.int64)
    for name in sides:
        out += pc.list_value_length(table.column(name)).fill_null(0).to_numpy()
    return np.maximum(out, 1)


def _rows_of_group(weights: Any, markets: int) -> int:
    rows = int(GROUP_LEVELS * len(weights) / max(int(weights.sum()), 1))
    short = max(_GROUP_SHORT, _GROUP_MARKETS * len(weights) // max(markets, 1))
    return min(max(rows, _GROUP_ROWS[0]), _GROUP_ROWS[1], short)


def _encoded(table: pa.Table, identity: str, weights: Any, markets: int, effort: int) -> memoryview:
    # Not BytesIO: Python 3.13 may free it before the view of it that the traceback of a failed write holds.
    memory, rows = pa.BufferOutputStream(), _rows_of_group(weights, markets)
    is_long = 0 < _LONG * markets <= weights.sum()
    paths = {f.name: f"{f.name}.list.element" if pa.types.is_list(f.type) else f.name for f in table.schema}
    packed = [path for name, path in paths.items() if not (is_long and name in ID_COLUMNS)]
    with pq.ParquetWriter(
        memory,
        table.schema,
        compression=dict.fromkeys(packed, "zstd"),
        compression_level=dict.fromkeys(packed, effort),
        data_page_size=_PAGE_BYTES,
        # Prices repeat; sizes do not, and a dictionary of them costs a third of the file.
        use_dictionary=[path for name, path in paths.items() if name.endswith(("_id", "_label", "price"))],
        # No query selects by the numbers in lists, and their statistics take a third of the time.
        write_statistics=[field.name for field in table.schema if not pa.types.is_list(field.type)],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for first in range(0, max(table.num_rows, 1), rows):
            part = table if table.num_rows <= rows else _narrowed(table.slice(first, rows))
            writer.write_table(part, row_group_size=rows)
        writer.add_key_value_metadata({_KEY: identity})
    return memoryview(memory.getvalue())


def _narrowed(table: pa.Table) -> pa.Table:
    """The same rows with only their own names in the dictionaries, as each row group stores all of its dictionary."""
    for i, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            column = table.column(i).combine_chunks()
            missing = np.asarray(column.is_null())
            codes = column.indices.fill_null(len(column.dictionary)).to_numpy()
            used = np.zeros(len(column.dictionary) + 1, dtype=bool)
            used[codes] = True
            places = pa.array((np.cumsum(used) - 1).astype(np.int32)[codes], mask=missing)
            names = column.dictionary.filter(pa.array(used[:-1]))
            table = table.set_column(i, field, pa.DictionaryArray.from_arrays(places, names))
    return table


def cuts(weights: Any, size: int) -> Iterator[tuple[int, int]]:
    """Row ranges whose weights sum to about ``size`` each: weights 3 3 3 3 and size 6 give (0, 2), (2, 4)."""
    if not len(weights):
        return
    before = np.cumsum(weights) - weights
    bounds = [0, *(np.flatnonzero(np.diff(before // size)) + 1).tolist(), len(weights)]
    yield from itertools.pairwise(bounds)


def spans_of(rows: pa.Table) -> Spans:
    """First and last time of each market of the rows; those of a market are beside each other."""
    out: Spans = {}
    for batch in rows.to_batches() if {"market_id", "ts"} <= set(rows.schema.names) else ():
        ids = batch.column("market_id")
        ids = ids if pa.types.is_dictionary(ids.type) else ids.dictionary_encode()
        codes, ts = ids.indices.fill_null(-1).to_numpy(), batch.column("ts").view(pa.int64()).to_numpy()
        starts = np.flatnonzero(np.diff(codes, prepend=-2))
        if len(starts):
            low, high = np.minimum.reduceat(ts, starts).tolist(), np.maximum.reduceat(ts, starts).tolist()
            names = ids.dictionary.to_pylist()
            for code, first, last in zip(codes[starts].tolist(), low, high, strict=True):
                if code >= 0:
                    known = out.get(names[code], (first, last))
                    out[names[code]] = min(first, known[0]), max(last, known[1])
    return out


def _entry(name: str, size: int, rows: pa.Table, spans: Spans) -> DataFile:
    if not spans:
        return DataFile(name, size, rows.num_rows)
    times = hull(Range(*span) for span in spans.values())
    return DataFile(name, size, rows.num_rows, min(spans), max(spans), *times)


def statistics(file: DataFile) -> str:
    """Statistics of a file for the commit log, as engines read them to prune."""
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    if file.market_max != LAST_NAME:
        low["market_id"], high["market_id"] = file.market_min, file.market_max
    if file.ts_min > -FAR:
        low["ts"], high["ts"] = to_text(file.ts_min), to_text(file.ts_max)
    # As UTF-8: behind escapes of two halves some readers lose characters of the higher planes.
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high}, ensure_ascii=False)


def read_footer(store: Store, file: DataFile, *, whole: bool = False) -> Footer:
    """The footer of a file; ArchiveCorruptError if it is missing, torn, damaged or not the one of the commit.

    ``whole``: fetch all of the file with it, as its rows are read next.
    """
    with errors.reading(_what(file.path)), store.open(file.path) as source:
        if (size := source.size()) != file.size:
            raise ArchiveCorruptError(
                f"{_what(file.path)} has {size} bytes where {file.size} were committed.", hint=errors.REPAIR
            )
        raw = _fetched(source, 0 if whole else max(0, size - _TAIL), size)
        length = _length(raw)
        if len(raw) < length <= size:
            raw = _fetched(source, size - length, size)
    footer = _parsed(raw, file)
    if len(raw) == size and (whole or store.remote):
        store.bodies[file.path] = raw
    return footer


def _what(name: str) -> str:
    return f"The data file {name}"


def _length(raw: memoryview) -> int:
    """Length of a footer with its own length field and magic number [bytes]."""
    return int.from_bytes(raw[-8:-4], "little") + 8


def _parsed(raw: memoryview, file: DataFile) -> Footer:
    """The footer at the end of some bytes."""
    with errors.parsing(_what(file.path)):
        length = _length(raw)
        if bytes(raw[-4:]) != _MAGIC or length > len(raw):
            raise ValueError("its end is not the end of a Parquet file")
        # Pages have checksums; the one of the footer, which is unique, is in the name.
        written = OURS.fullmatch(file.path.rpartition("/")[2])
        if written and f"{zlib.crc32(raw[-length:]):08x}" != written[1]:
            raise ValueError("its footer is not the one that was written")
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + bytes(raw[-length:])))
        return Footer(metadata, _groups(metadata, file.path, file.size - length))


def _groups(metadata: Any, path: str, end: int) -> list[DataFile]:
    """The row groups of a file whose last one ends at a byte."""
    names = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
    out: list[DataFile] = []
    for i in reversed(range(metadata.num_row_groups)):
        group = metadata.row_group(i)
        first = group.column(0)
        begin = first.dictionary_page_offset or first.data_page_offset
        stats = {n: group.column(names.index(n)).statistics for n in ("market_id", "ts") if n in names}
        market, ts = (one if one and one.has_min_max else None for one in map(stats.get, ("market_id", "ts")))
        first_name, last_name = (market.min, market.max) if market else ("", LAST_NAME)
        start, stop = (ts.min_raw, ts.max_raw) if ts else (-FAR, FAR)
        out.append(DataFile(path, end - begin, group.num_rows, first_name, last_name, start, stop, i, begin))
        end = begin
    return out[::-1]


def read_groups(
    store: Store,
    file: DataFile,
    footer: Footer,
    groups: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> pa.Table:
    """Columns of the rows of row groups (None: all), page checksums compared; ArchiveCorruptError if one differs."""
    some = list(range(len(footer.groups))) if groups is None else list(groups)
    body = store.bodies.pop(file.path, None)
    if body is None:
        # As long as the file, with just these row groups in it: untouched pages cost no memory.
        body = np.zeros(file.size, dtype=np.uint8).data
        with errors.reading(_what(file.path)), store.open(file.path) as source:
            for start, stop in _runs(some):
                last = footer.groups[stop - 1]
                _fetched(source, footer.groups[start].begin, last.begin + last.size, body)
    with errors.parsing(_what(file.path)):
        stored = footer.metadata.schema.names  # made at each call
        reader = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(body)),
            metadata=footer.metadata,
            read_dictionary=[name for name in ID_COLUMNS if name in stored],
            page_checksum_verification=True,
        )
        rows = reader.read_row_groups(some, columns=names, use_threads=len(some) >= _MANY_GROUPS)
        # Checksums leave out the headers of pages; a flipped bit in these shows here.
        rows.validate(full=True)
        if rows.num_rows != sum(footer.groups[i].rows for i in some):
            raise ValueError("it has other rows than were written")
        return rows


def _runs(groups: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Adjacent row groups as one: 1 2 5 give (1, 3), (5, 6)."""
    for _, run in itertools.groupby(enumerate(groups), key=lambda pair: pair[1] - pair[0]):
        some = [group for _, group in run]
        yield some[0], some[-1] + 1


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
