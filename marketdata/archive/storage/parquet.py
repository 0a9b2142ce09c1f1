"""Parquet files of a table: written with page checksums, found by statistics, read by row group, then parsed."""

from __future__ import annotations

import io
import itertools
import json
import os
import re
import uuid
import zlib
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marketdata.archive.storage import errors
from marketdata.errors import ArchiveCorruptError
from marketdata.points.schema import ID_COLUMNS
from marketdata.times import Range, to_text

# Levels of a row group and of a file, and rows of a group at least and at most.
GROUP_LEVELS = 100_000
FILE_LEVELS = 8_000_000
_GROUP_ROWS = (512, 65_536)
# So many short markets are one row group, of so many rows at least.
_GROUP_MARKETS, _GROUP_SHORT = 64, 8_192
# Compression levels: fast for a write, better for compaction.
WRITE_EFFORT = 3
COMPACT_EFFORT = 9
# From so many row groups on a second core is worth its start.
_MANY_GROUPS = 4
OURS = re.compile(r"[0-9a-f]{32}-([0-9a-f]{8})\.parquet")
_KEY = "marketdata.file"
_MAGIC = b"PAR1"
_TAIL = 65_536
_BODIES = 64
FAR = 2**62


def is_url(location: str) -> bool:
    """Whether a location names an object store rather than a folder."""
    return "://" in location and not location.startswith("file://")


class Store:
    """The files of one table, which never change: a local folder, or a prefix of an object store."""

    def __init__(self, uri: str, options: dict[str, str] | None) -> None:
        self.uri = uri.rstrip("/")
        self.remote = is_url(uri)
        if self.remote:
            from deltalake.fs import DeltaStorageHandler
            from pyarrow.fs import PyFileSystem

            self._handler = DeltaStorageHandler(self.uri, options)
            self._fs = PyFileSystem(self._handler)
        # Small objects whose footer was read, whole: it was one request for both.
        self._bodies: OrderedDict[str, memoryview] = OrderedDict()

    def write(self, name: str, body: memoryview) -> None:
        """Write a new file, durable before any commit can name it."""
        if self.remote:
            # Not through pyarrow: its streams pass buffers, and the handler takes bytes only.
            stream: Any = self._handler._handler.open_output_stream(name, None)  # noqa: SLF001
            stream.write(bytes(body))
            stream.close()
            return
        path = Path(self.uri, name)
        try:
            with path.open("xb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            flush(path.parent)
        except BaseException:
            # No commit names it yet, so the torn file can go at once.
            self.delete(name)
            raise

    def open(self, name: str) -> Any:
        """A file for reading, unbuffered."""
        return self._fs.open_input_file(name) if self.remote else io.FileIO(f"{self.uri}/{name}")

    def keep(self, name: str, body: memoryview) -> None:
        """Remember a small object, for the rows that are read next."""
        self._bodies[name] = body
        while len(self._bodies) > _BODIES:
            self._bodies.popitem(last=False)

    def kept(self, name: str) -> memoryview | None:
        """A small object whose footer was read just before."""
        return self._bodies.pop(name, None)

    def modified(self, name: str) -> int:
        """When a file was written [microseconds UTC]."""
        if self.remote:
            return int(self._fs.get_file_info(name).mtime_ns) // 1000
        return Path(self.uri, name).stat().st_mtime_ns // 1000

    def has(self, name: str) -> bool:
        """Whether there is a file."""
        if self.remote:
            return bool(self._fs.get_file_info(name).is_file)
        return Path(self.uri, name).exists()

    def dataset(self, addresses: Sequence[str], schema: pa.Schema, style: Any) -> Any:
        """Files as an Arrow dataset; ``addresses`` are of `address`."""
        import pyarrow.dataset as ds

        if not self.remote:
            return ds.dataset(list(addresses), schema=schema, format=style)
        names = [address.removeprefix(f"{self.uri}/") for address in addresses]
        return ds.dataset(names, schema=schema, format=style, filesystem=self._fs)

    def delete(self, name: str) -> None:
        """Remove a file that no commit names; ``vacuum`` finds it later if that fails."""
        try:
            if self.remote:
                self._fs.delete_file(name)
            else:
                Path(self.uri, name).unlink(missing_ok=True)
        except OSError:
            return

    def address(self, name: str) -> str:
        """Path or address of a file, as engines take it."""
        return f"{self.uri}/{name}"


def flush(path: Path) -> None:
    """Make a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# First and last time of the rows of each market.
Spans = dict[str, tuple[int, int]]


class DataFile(NamedTuple):
    """A file that a commit names, with its statistics in the commit."""

    path: str
    size: int
    rows: int
    market_min: str | None = None
    market_max: str | None = None
    ts_min: int = -FAR
    ts_max: int = FAR

    def may_hold(self, markets: Sequence[str] | None, start: int, end: int) -> bool:
        """Whether there may be rows of one of the markets (sorted; None: any) in [start, end)."""
        inside = self.ts_max >= start and self.ts_min < end
        return inside and (markets is None or bool(self.markets_near(markets)))

    def markets_near(self, markets: Sequence[str]) -> Sequence[str]:
        """Those of the sorted markets that the statistics do not exclude."""
        return _near(markets, self.market_min, self.market_max)


def _near(markets: Sequence[str], low: str | None, high: str | None) -> Sequence[str]:
    """Those of the sorted markets that lie between two statistics."""
    first = 0 if low is None else bisect_left(markets, low)
    last = len(markets) if high is None else bisect_right(markets, high)
    return markets[first:last]


@dataclass(frozen=True)
class Footer:
    """The footer of a file: where its row groups are, and their statistics."""

    metadata: Any
    ids: Sequence[str]
    rows: Sequence[int]
    starts: Sequence[int]
    market_min: Sequence[str | None]
    market_max: Sequence[str | None]
    ts_min: Any
    ts_max: Any

    def groups(self, markets: Sequence[str] | None, start: int, end: int) -> list[int]:
        """Row groups that may have rows of one of the markets (sorted; None: any) in [start, end)."""
        near = np.flatnonzero((self.ts_max >= start) & (self.ts_min < end)).tolist()
        return [i for i in near if markets is None or _near(markets, self.market_min[i], self.market_max[i])]


def write_rows(store: Store, table: pa.Table, weights: Any, effort: int) -> Iterator[tuple[DataFile, Spans]]:
    """Write rows to new files, each with the spans of its markets; ``weights`` are level rows per row."""
    for start, stop in cuts(weights, FILE_LEVELS):
        part = table.slice(start, stop - start)
        identity = uuid.uuid4().hex
        body = _encoded(part, identity, weights[start:stop], effort)
        name = f"{identity}-{zlib.crc32(body[-_length(body) :]):08x}.parquet"
        store.write(name, body)
        yield DataFile(name, len(body), part.num_rows, *_extremes(part)), spans_of(part)


def _encoded(table: pa.Table, identity: str, weights: Any, effort: int) -> memoryview:
    memory = io.BytesIO()
    # Prices repeat; sizes do not, and a dictionary of them costs a third of the file.
    repeated = [field for field in table.schema if field.name.endswith(("_id", "_label", "price"))]
    dictionary = [f"{f.name}.list.element" if pa.types.is_list(f.type) else f.name for f in repeated]
    rows = int(GROUP_LEVELS * len(weights) / max(int(weights.sum()), 1))
    markets = len(_used(table.column("market_id"))) if "market_id" in table.schema.names else 1
    short = max(_GROUP_SHORT, _GROUP_MARKETS * len(weights) // max(markets, 1))
    rows = min(max(rows, _GROUP_ROWS[0]), _GROUP_ROWS[1], short)
    with pq.ParquetWriter(
        memory,
        table.schema,
        compression="zstd",
        compression_level=effort,
        use_dictionary=dictionary,
        # No query selects by the numbers in lists, and their statistics take a third of the time.
        write_statistics=[field.name for field in table.schema if not pa.types.is_list(field.type)],
        write_page_checksum=True,
        store_schema=False,
    ) as writer:
        for first in range(0, max(table.num_rows, 1), rows):
            writer.write_table(_narrowed(table.slice(first, rows)), row_group_size=rows)
        writer.add_key_value_metadata({_KEY: identity})
    return memory.getbuffer()


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


def _extremes(table: pa.Table) -> tuple[str | None, str | None, int, int]:
    low = high = None
    first, last = -FAR, FAR
    if "market_id" in table.schema.names:
        seen = [name for name in _used(table.column("market_id")) if name is not None]
        low, high = min(seen, default=None), max(seen, default=None)
    if "ts" in table.schema.names and table.num_rows:
        ts = table.column("ts").cast(pa.int64()).to_numpy()
        first, last = int(ts.min()), int(ts.max())
    return low, high, first, last


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


def _used(column: pa.ChunkedArray) -> set[Any]:
    out: set[Any] = set()
    for chunk in column.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        used = np.unique(encoded.indices.drop_null().to_numpy(zero_copy_only=False))
        out.update(encoded.dictionary.take(pa.array(used)).to_pylist())
    return out


def statistics(file: DataFile) -> str:
    """Statistics of a file for the commit log, as engines read them to prune."""
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    if file.market_min is not None and file.market_max is not None:
        low["market_id"], high["market_id"] = file.market_min, file.market_max
    if file.ts_min > -FAR:
        low["ts"], high["ts"] = to_text(file.ts_min), to_text(file.ts_max)
    # As UTF-8: behind escapes of two halves some readers lose characters of the higher planes.
    return json.dumps({"numRecords": file.rows, "minValues": low, "maxValues": high}, ensure_ascii=False)


def read_footer(store: Store, file: DataFile) -> Footer:
    """The footer of a file; ArchiveCorruptError if it is missing, torn, damaged or not the one of the commit."""
    with errors.reading(_what(file)), store.open(file.path) as source:
        _check_size(source, file)
        raw = _fetched(source, max(0, file.size - _TAIL), file.size)
        length = _length(raw)
        if len(raw) < length <= file.size:
            raw = _fetched(source, file.size - length, file.size)
        if store.remote and len(raw) == file.size:
            store.keep(file.path, raw)
    return _parsed(raw, file)


def read_whole(store: Store, file: DataFile) -> pa.Table:
    """All rows of a file whose footer is not known; errors as of `read_footer` and `read_groups`."""
    with errors.reading(_what(file)), store.open(file.path) as source:
        _check_size(source, file)
        body = _fetched(source, 0, file.size)
    return _rows(body, file, _parsed(body, file), None)


def file_of(store: Store, name: str) -> tuple[DataFile, pa.Schema]:
    """The entry of an existing file for a commit, and its columns; ArchiveCorruptError if it is damaged."""
    with errors.reading(f"The data file {name}"), store.open(name) as source:
        size = _size(source)
    rows = read_whole(store, DataFile(name, size, -1))
    return DataFile(name, size, rows.num_rows, *_extremes(rows)), rows.schema


def _what(file: DataFile) -> str:
    return f"The data file {file.path}"


def _size(source: Any) -> int:
    size = source.seek(0, os.SEEK_END)
    return int(source.tell() if size is None else size)


def _check_size(source: Any, file: DataFile) -> None:
    if (size := _size(source)) != file.size:
        raise ArchiveCorruptError(
            f"{_what(file)} has {size} bytes where {file.size} were committed.", hint=errors.REPAIR
        )


def _length(raw: memoryview) -> int:
    """Length of a footer with its own length field and magic number [bytes]."""
    return int.from_bytes(raw[-8:-4], "little") + 8


def _parsed(raw: memoryview, file: DataFile) -> Footer:
    """The footer at the end of some bytes."""
    with errors.parsing(_what(file)):
        length = _length(raw)
        if bytes(raw[-4:]) != _MAGIC or length > len(raw):
            raise ValueError("its end is not the end of a Parquet file")
        # Pages have checksums; the one of the footer, which is unique, is in the name.
        written = OURS.fullmatch(file.path.rpartition("/")[2])
        if written and f"{zlib.crc32(raw[-length:]):08x}" != written[1]:
            raise ValueError("its footer is not the one that was written")
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + bytes(raw[-length:])))
        return _footer(metadata, file.size - length)


def _footer(metadata: Any, end: int) -> Footer:
    count = metadata.num_row_groups
    names = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
    low: list[str | None] = [None] * count
    high: list[str | None] = [None] * count
    ts_min, ts_max = np.full(count, -FAR), np.full(count, FAR)
    starts, rows = [], []
    for i in range(count):
        group = metadata.row_group(i)
        rows.append(group.num_rows)
        first = group.column(0)
        starts.append(first.dictionary_page_offset or first.data_page_offset)
        for name in ("market_id", "ts"):
            stats = group.column(names.index(name)).statistics if name in names else None
            if stats is not None and stats.has_min_max:
                if name == "ts":
                    ts_min[i], ts_max[i] = stats.min_raw, stats.max_raw
                else:
                    low[i], high[i] = stats.min, stats.max
    ids = [name for name in ID_COLUMNS if name in names]
    return Footer(metadata, ids, rows, [*starts, end], low, high, ts_min, ts_max)


def read_groups(
    store: Store, file: DataFile, footer: Footer, groups: Sequence[int] | None, names: Sequence[str] | None = None
) -> pa.Table:
    """Columns of the rows of row groups (None: all), page checksums compared; ArchiveCorruptError if one differs."""
    if (whole := store.kept(file.path)) is not None:
        return _rows(whole, file, footer, groups, names)
    # As long as the file, with just these row groups in it: untouched pages cost no memory.
    body = np.zeros(file.size, dtype=np.uint8).data
    with errors.reading(_what(file)), store.open(file.path) as source:
        for start, stop in _runs(range(footer.metadata.num_row_groups) if groups is None else groups):
            _fetched(source, footer.starts[start], footer.starts[stop], body)
    return _rows(body, file, footer, groups, names)


def _rows(
    body: memoryview,
    file: DataFile,
    footer: Footer,
    groups: Sequence[int] | None,
    names: Sequence[str] | None = None,
) -> pa.Table:
    some = list(range(footer.metadata.num_row_groups)) if groups is None else list(groups)
    with errors.parsing(_what(file)):
        reader = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(body)),
            metadata=footer.metadata,
            read_dictionary=footer.ids,
            page_checksum_verification=True,
        )
        rows = reader.read_row_groups(some, columns=names, use_threads=len(some) >= _MANY_GROUPS)
        # Checksums leave out the headers of pages; a flipped bit in these shows here.
        rows.validate(full=True)
        if rows.num_rows != sum(footer.rows[i] for i in some):
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


def span_of(file: DataFile) -> Range:
    """The range of the rows of a file."""
    return Range(max(file.ts_min, 0), max(min(file.ts_max, 2**55), 0) + 1)
