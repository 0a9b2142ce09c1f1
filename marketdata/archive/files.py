"""One Parquet file: written whole with checksums, found by statistics, read by row group.

A file names itself in its footer, the footer has a checksum of each row group, and the name of the file
carries the checksum of the footer. So a flipped bit, a torn file and two swapped files are all seen when they
are read. The checksums of Parquet itself are not enough: they leave out the headers of pages.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from marketdata.archive import faults
from marketdata.archive.storage import Bucket, Folder
from marketdata.errors import ArchiveCorruptError
from marketdata.times import to_text

ROW_GROUP_LEVELS = 100_000
FILE_LEVELS = 16_000_000
# Where a file is smaller than with 3 by an eighth, and writing still faster than any network; 9 takes twice as long.
WRITE_EFFORT = 6
UPKEEP_EFFORT = 9
# From so many row groups on a second core is worth its start.
_MANY_GROUPS = 4
OURS = re.compile(r"[0-9a-f]{32}-[0-9a-f]{8}\.parquet")
_KEY = b"marketdata.file"
_SUMS = b"marketdata.groups"
_MAGIC = b"PAR1"
_UNKNOWN = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file that a commit names, with what the log says about its rows."""

    path: str
    size: int
    rows: int
    market_min: str | None
    market_max: str | None
    ts_min: int
    ts_max: int

    def may_hold(self, market_id: str | None, start: int, end: int) -> bool:
        """Whether rows of the market in [start, end) may be inside; None stands for any market."""
        if self.ts_max < start or self.ts_min >= end:
            return False
        if market_id is None or self.market_min is None or self.market_max is None:
            return True
        return self.market_min <= market_id <= self.market_max


@dataclass(frozen=True, slots=True)
class Footer:
    """What one read of a footer tells: where the row groups are and what they hold."""

    metadata: Any
    first: Sequence[str | None]
    last: Sequence[str | None]
    ts_min: Any
    ts_max: Any
    names: frozenset[str]
    # Where each row group lies, and its checksum; other writers give none.
    sums: Sequence[tuple[int, int, int]] | None

    def groups(self, market_id: str | None, start: int, end: int) -> list[int]:
        """Row groups that may hold rows of the market in [start, end)."""
        near = np.flatnonzero((self.ts_max >= start) & (self.ts_min < end)).tolist()
        if market_id is None:
            return near
        out = []
        for i in near:
            low, high = self.first[i], self.last[i]
            if low is None or high is None or low <= market_id <= high:
                out.append(i)
        return out


def encode(table: pa.Table, weights: Any, effort: int = WRITE_EFFORT) -> tuple[str, memoryview]:
    """Name and bytes of a new file of these rows; ``weights`` are level rows per row, ``effort`` is that of zstd."""
    identity = uuid.uuid4().hex
    memory = io.BytesIO()
    # Prices repeat; sizes do not, and a dictionary of them costs a third of the file.
    dictionary = [name for name in table.schema.names if name.endswith(("_id", "_label", "price"))]
    writer = pq.ParquetWriter(
        pa.PythonFile(memory, mode="w"),
        _plain(table.schema),
        compression="zstd",
        compression_level=effort,
        use_dictionary=[_leaf(table.schema, name) for name in dictionary],
        write_page_checksum=True,
        store_schema=False,
        write_statistics=True,
    )
    sums = []
    with writer:
        at = memory.tell()
        for start, stop in cuts(weights, ROW_GROUP_LEVELS):
            writer.write_table(table.slice(start, stop - start), row_group_size=max(stop - start, 1))
            end = memory.tell()
            sums.append((at, end, zlib.crc32(memory.getbuffer()[at:end])))
            at = end
        writer.add_key_value_metadata({_KEY.decode(): identity, _SUMS.decode(): json.dumps(sums)})
    body = memory.getbuffer()
    return f"{identity}-{_footer_sum(body):08x}.parquet", body


def _plain(schema: pa.Schema) -> pa.Schema:
    """The schema as files show it; dictionaries are a matter of encoding only."""
    return pa.schema([f.with_type(f.type) for f in schema])


def _leaf(schema: pa.Schema, name: str) -> str:
    return f"{name}.list.element" if pa.types.is_list(schema.field(name).type) else name


def cuts(weights: Any, size: int) -> Iterator[tuple[int, int]]:
    """Row ranges whose weights sum to about ``size`` each.

    Examples
    --------
    >>> list(cuts(np.array([3, 3, 3, 3]), 6))
    [(0, 2), (2, 4)]
    """
    if not len(weights):
        return
    before = np.cumsum(weights) - weights
    edges = np.flatnonzero(np.diff(before // size)) + 1
    bounds = [0, *edges.tolist(), len(weights)]
    yield from itertools.pairwise(bounds)


def statistics(table: pa.Table) -> str:
    """Statistics of a file for the commit log, as engines read them to prune."""
    low: dict[str, str] = {}
    high: dict[str, str] = {}
    nulls: dict[str, int] = {}
    for name in ("market_id", "token_id", "ts"):
        if name not in table.schema.names:
            continue
        column = table.column(name)
        nulls[name] = column.null_count
        ends = _extremes(column)
        if ends is not None:
            low[name], high[name] = ends
    return json.dumps({"numRecords": table.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls})


def _extremes(column: pa.ChunkedArray) -> tuple[str, str] | None:
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.int64()).to_numpy()
        return (to_text(int(micros.min())), to_text(int(micros.max()))) if len(micros) else None
    seen: set[str] = set()
    for chunk in column.chunks:
        encoded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
        used = np.unique(encoded.indices.drop_null().to_numpy(zero_copy_only=False))
        names = encoded.dictionary.to_pylist()
        seen.update(names[i] for i in used.tolist())
    return (min(seen), max(seen)) if seen else None


def _footer_sum(body: memoryview) -> int:
    length = int.from_bytes(body[-8:-4], "little")
    return zlib.crc32(body[-8 - length :])


def read_footer(store: Folder | Bucket, file: DataFile) -> Footer:
    """Read and prove the footer of a file.

    Raises
    ------
    ArchiveCorruptError
        If the file is missing, torn, damaged or not the one that the commit names.
    """
    with faults.reading(f"The data file {file.path}"), store.open(file.path) as source:
        size = source.size()
        if size != file.size:
            raise ArchiveCorruptError(
                f"The data file {file.path} has {size} bytes where {file.size} were committed. "
                "Run archive.verify() to see which ranges to pull or add again."
            )
        source.seek(size - 8)
        tail = source.read(8)
        length = int.from_bytes(tail[:4], "little")
        if tail[4:] != _MAGIC or length > size - 12:
            raise OSError("its end is not the end of a Parquet file")
        source.seek(size - 8 - length)
        raw = source.read(length + 8)
        _prove_name(file.path, raw)
        metadata = pq.read_metadata(pa.BufferReader(_MAGIC + raw))
        claimed = (metadata.metadata or {}).get(_KEY, b"").decode()
        if claimed and not file.path.rsplit("/", 1)[-1].startswith(claimed):
            raise OSError(f"it holds the rows of another file ({claimed})")
        return _footer(metadata)


def _prove_name(path: str, raw: bytes) -> None:
    stem = path.rsplit("/", 1)[-1].removesuffix(".parquet")
    written = stem.rpartition("-")[2]
    if len(stem) == 41 and f"{zlib.crc32(raw):08x}" != written:  # files of other writers carry no checksum
        raise OSError("its footer is not the one that was written")


def _footer(metadata: Any) -> Footer:
    count = metadata.num_row_groups
    names = [metadata.schema.column(j).path for j in range(metadata.num_columns)]
    first: list[str | None] = [None] * count
    last: list[str | None] = [None] * count
    ts_min, ts_max = np.full(count, _UNKNOWN[0]), np.full(count, _UNKNOWN[1])
    at_market = names.index("market_id") if "market_id" in names else None
    at_ts = names.index("ts") if "ts" in names else None
    for i in range(count):
        group = metadata.row_group(i)
        if at_market is not None:
            stats = group.column(at_market).statistics
            if stats is not None and stats.has_min_max:
                first[i], last[i] = stats.min, stats.max
        if at_ts is not None:
            stats = group.column(at_ts).statistics
            if stats is not None and stats.has_min_max:
                ts_min[i], ts_max[i] = stats.min_raw, stats.max_raw
    written = (metadata.metadata or {}).get(_SUMS)
    sums = None if written is None else [tuple(one) for one in json.loads(written)]
    return Footer(metadata, first, last, ts_min, ts_max, frozenset(name.split(".")[0] for name in names), sums)


def read_groups(store: Folder | Bucket, file: DataFile, footer: Footer, groups: Sequence[int] | None) -> pa.Table:
    """Rows of some row groups (None: all), each proven by its checksum.

    Raises
    ------
    ArchiveCorruptError
        If a row group is damaged.
    """
    some = range(footer.metadata.num_row_groups) if groups is None else groups
    with faults.reading(f"The data file {file.path}"), store.open(file.path) as source:
        reader = pq.ParquetFile(
            source if footer.sums is None else pa.BufferReader(_proven(source, file.size, footer.sums, some)),
            metadata=footer.metadata,
            read_dictionary=[n for n in ("market_id", "token_id", "token_label") if n in footer.names],
            page_checksum_verification=footer.sums is None,
        )
        return reader.read_row_groups(list(some), use_threads=len(some) >= _MANY_GROUPS)


def _proven(source: Any, size: int, sums: Sequence[tuple[int, int, int]], groups: Iterable[int]) -> Any:
    """A buffer as long as the file with just these row groups in it; the rest costs no memory."""
    body = np.zeros(size, dtype=np.uint8)
    for group in groups:
        start, end, written = sums[group]
        part = body.data[start:end]
        source.seek(start)
        if source.readinto(part) != end - start or zlib.crc32(part) != written:
            raise OSError(f"row group {group} is not the one that was written")
    return pa.py_buffer(body)
