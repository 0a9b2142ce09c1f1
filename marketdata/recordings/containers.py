"""Containers of rows: JSON, CSV, Parquet, Delta tables and SQLite, plain or compressed, read part by part."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec
import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.columns import Ints
from marketdata.recordings.envelopes import content, json_value, of_ticker, times_around
from marketdata.recordings.wanted import Needles

Form = Literal["json", "csv", "parquet", "delta", "sqlite"]
FORM_OF_SUFFIX: dict[str, Form] = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
    ".pq": "parquet", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite",
}  # fmt: skip
PACKED = (".gz", ".zst", ".zstd")
SUFFIXES = ".json, .jsonl, .ndjson, .csv, .tsv, .parquet, .sqlite, .db; the first five also with .gz or .zst"
# The CSV reader refuses a row that is longer than a block.
PART_ROWS, CSV_BLOCK, SAMPLE_ROWS = 1 << 15, 1 << 24, 300
# A short file can hold a line, a value or a table of any size once it is unpacked.
_MOST_BYTES, _MOST_COLUMNS = 1 << 28, 10_000
_LINES_AT_ONCE, _GROUP_ROWS = 1 << 22, 1 << 18
# The number of a row in its file, where not all rows were read.
ROW = "__row"
_LINE = "a line of {}; write one JSON value a line"
_MOST_COMMENTS = 100
# A number or an ISO time: neither is the name of a first column.
_VALUE = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\d{4}-\d\d-\d\d[T ].*|0x[0-9a-fA-F]{16,}")
# A time of arrival before the JSON of a line.
_STAMPED = re.compile(rb"\s*(?:(\d{10,19}(?:\.\d+)?)|(\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:?\d\d)?))[\t ,;|]+(?=[\[{])")
_ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


@dataclass
class Container:
    """A file, or a table of an SQLite file, with its rows and columns as they are there.

    ``damage`` says why the rest of a damaged file is missing, once the rows before it were read; ``torn`` counts lines
    that are no rows.
    """

    path: Path
    table: str | None = None
    damage: str | None = None
    torn: int = 0
    # Where rows without these texts are not wanted, they are left out before they are decoded.
    needles: Needles | None = None
    # Fields of the object around the rows, which each row repeats.
    named: Collection[str] = ()
    # The wanted rows of each row group that was looked at.
    _kept_rows: dict[int, Ints] = field(default_factory=dict, init=False, repr=False)

    @property
    def name(self) -> str:
        """The name for messages."""
        return self.path.name if self.table is None else f"{self.path.name}: {self.table}"

    @property
    def form(self) -> Form | None:
        """The form that the suffix says, apart from a compression; a folder with a log is a Delta table."""
        if is_delta(self.path):
            return "delta"
        suffixes = [suffix.lower() for suffix in self.path.suffixes[-2:]]
        is_packed = len(suffixes) == 2 and suffixes[1] in PACKED
        return FORM_OF_SUFFIX.get(suffixes[0] if is_packed else self.path.suffix.lower())

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The columns as the file calls them; ConfigError if it has none."""
        if self.form == "parquet":
            names = self._parquet().schema_arrow.names
            self._refuse_more_columns(len(names))
            return tuple(names)
        if self.form == "csv":
            # Checked before the split, because names take many times the bytes of the line.
            self._refuse_more_columns(self._header.count(self._separator) + 1)
            try:
                names = tuple(next(csv.reader([self._header], delimiter=self._separator), ())) or self._refuse_empty()
            except csv.Error as problem:
                raise ConfigError(
                    f"{self.name!r} has no line of column names at its start: {problem}. Put one there."
                ) from problem
            if 1 < self._fields_of_rows != len(names) < self._fields_of_rows:
                raise ConfigError(
                    f"{self.name!r} has a title above the names of its columns: its first line, "
                    f"{self._header.strip()[:60]!r}, has fewer fields than the others. Take it out."
                )
            if again := [name for name in names if name and names.count(name) > 1]:
                raise ConfigError(
                    f"{self.name!r} has several columns called {again[0]!r}. Rename them, or take all but one out."
                )
            if len(names) > 1 and _VALUE.fullmatch(names[0].strip()):
                raise ConfigError(
                    f"{self.name!r} has no line of column names: its first line has values, such as {names[0]!r}. "
                    "Put a line such as ts,token_id,price before it."
                )
            return names
        first = next(self.parts(None, SAMPLE_ROWS), None)
        return () if first is None else tuple(first.columns)

    def _refuse_more_columns(self, count: int) -> None:
        if count > _MOST_COLUMNS:
            raise ConfigError(f"{self.name!r} has {count:,} columns; at most {_MOST_COLUMNS:,} are read.")

    def _refuse_more_bytes(self, count: int, what: str) -> None:
        if count > _MOST_BYTES:
            raise ConfigError(f"{self.name!r} has {what.format(f'more than {_MOST_BYTES >> 20} MB')}.")

    @cached_property
    def _encoding(self) -> str:
        try:
            with self._stream() as stream:
                return _ENCODINGS.get(stream.peek(2)[:2], "utf-8-sig")
        except (EOFError, OSError, zlib.error):
            return "utf-8-sig"

    @cached_property
    def _header(self) -> str:
        if self._encoding != "utf-8-sig":
            with io.TextIOWrapper(self._stream(), self._encoding, errors="replace") as text:
                line = text.readline(_MOST_BYTES // 2 + 1)
                self._refuse_more_bytes(2 * len(line), _LINE)
                return line.rstrip("\r\n")
        lines = islice(self.lines(), self._comments, None)
        return next(lines, b"").decode("utf-8", "replace").rstrip("\r\n")

    @cached_property
    def _comments(self) -> int:
        """The lines before the names of columns: those that begin with #, and the separator that Excel writes."""
        if self._encoding != "utf-8-sig":
            return 0
        some = islice(self.lines(), _MOST_COMMENTS)
        return sum(1 for _ in takewhile(lambda line: line.startswith((b"# ", b"##", b"sep=")), some))

    @cached_property
    def _fields_of_rows(self) -> int:
        """The number of fields that the first rows below the header have alike, 0 where they differ or are none."""
        if self._encoding != "utf-8-sig":
            return 0
        lines = islice(self.lines(), self._comments + 1, self._comments + 6)
        texts = [line.decode("utf-8", "replace").rstrip("\r\n") for line in lines]
        separator = max(",;\t|", key="".join(texts).count)
        try:
            counts = [len(row) for row in csv.reader(texts, delimiter=separator)]
        except csv.Error:
            return 0
        # A title may be above several lines, of which the names of the columns are one.
        return counts[-1] if len(counts) > 1 and counts[-1] == counts[-2] else 0

    @cached_property
    def _separator(self) -> str:
        """The separator that most often stands in the header."""
        return max(",;\t|", key=self._header.count)

    def lines(self) -> Iterator[bytes]:
        """Lines that are not blank, up to the damage of a compressed file; ConfigError for one without an end."""
        try:
            with self._stream() as stream:
                if stream.peek(3)[:3] == b"\xef\xbb\xbf":  # a byte order mark
                    stream.read(3)
                while line := stream.readline(_MOST_BYTES + 1):
                    self._refuse_more_bytes(len(line), _LINE)
                    if not line.isspace():
                        yield line
        except (FileNotFoundError, PermissionError) as problem:
            raise ConfigError(f"{self.name!r} cannot be read: {problem}.") from problem
        except (EOFError, OSError, zlib.error):
            self.damage = (
                f"{self.name!r} ends in the middle of its data: fetch it again, or rename it if it is not "
                "compressed as its name says. The rows before its end were read."
            )

    def values(self) -> Iterator[bytes]:
        """The JSON of each line, which may be damaged; or the one value of many lines."""
        pattern = None if self.needles is None else self.needles.pattern
        for number, value in enumerate(self.all_values()):
            # The first line tells what the file is.
            if pattern is None or not number or pattern.search(value.lower()):
                yield value

    def all_values(self) -> Iterator[bytes]:
        """The JSON of each line, also of those that are not wanted."""
        if self._encoding != "utf-8-sig":
            raise ConfigError(f"{self.name!r} is UTF-16; JSON is UTF-8. Save it as UTF-8.")
        lines = self.lines()
        first = next(lines, b"")
        if _STAMPED.match(first):
            yield from map(_with_stamp, chain([first], lines))
            return
        if json_value(first) is None:
            # The first line is damaged, or one value has many lines.
            whole = self._text() or self._refuse_empty()
            if len(whole) <= _MOST_BYTES and json_value(whole) is not None:
                yield whole
                return
            if whole[:64].split(b"\n")[0].strip() in (b"[", b"{"):  # the last entry of a list may be a line of its own
                self._refuse_more_bytes(len(whole), "a JSON value of {}; write one value a line")
            if not any(isinstance(json_value(line), dict | list) for line in self.lines()):
                raise ConfigError(
                    self.damage
                    or f"{self.name!r} is no JSON: it needs one JSON value, or one a line. If it was "
                    "cut, fetch it again; if it is of another kind, its name should end in that."
                )
        yield first
        yield from lines

    def _text(self) -> bytes:
        """All lines, or the first ones up to the limit of memory."""
        text = bytearray()
        for line in self.lines():
            text += line
            if len(text) > _MOST_BYTES:
                break
        return bytes(text)

    def times_around(self) -> list[str]:
        """The names of the times that the envelope of the first JSON value has."""
        return times_around(next(self.all_values(), b"")) if self.form == "json" else []

    def rows(self) -> Iterator[Any]:
        """The rows of JSON values: the entries of lists, and the list of an object whose content is one list."""
        for value in self.values():
            yield from map(of_ticker, map(json_value, content(value, named=self.named)))

    def parts(self, columns: list[str] | None, json_rows: int = PART_ROWS) -> Iterator[pl.DataFrame]:
        """Rows in parts: CSV as texts, Parquet with these ``columns`` only, JSON its objects."""
        if self.form == "json":
            yield from self._json_frames(json_rows)
        elif self.form == "csv":
            yield from self._csv_frames(columns)
        elif self.form == "sqlite":
            yield from self._sqlite_frames()
        elif self.form == "delta":
            yield from self._delta_frames()
        else:
            yield from self._parquet_frames(columns)

    def _parquet_frames(self, columns: list[str] | None) -> Iterator[pl.DataFrame]:
        """Rows of Parquet, which have their numbers in the file where others are not wanted."""
        needles = self.needles
        if needles is None:
            yield from map(pl.DataFrame, self._parquet().iter_batches(PART_ROWS, columns=columns))
            return
        import pyarrow as pa

        # Each id is decoded once.
        file, begins = self._parquet(needles.columns), 0
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            at, begins = begins, begins + group.num_rows
            if not may_have(group, needles):
                continue
            if number not in self._kept_rows and needles.columns:
                ids = file.read_row_group(number, columns=list(needles.columns))
                self._kept_rows[number] = np.flatnonzero(needles.rows(ids))
            kept = np.zeros(group.num_rows, bool)
            kept[self._kept_rows.get(number, slice(None))] = True
            done = 0
            for batch in file.iter_batches(_GROUP_ROWS, row_groups=[number], columns=columns) if kept.any() else ():
                mask = kept[done : done + len(batch)]
                numbers = pl.Series(ROW, np.flatnonzero(mask) + at + done)
                done += len(batch)
                if len(numbers):
                    wanted = pa.table(batch.filter(pa.array(mask)))
                    for name in needles.columns if columns is None else {*needles.columns} & {*columns}:
                        column = wanted.column(name)
                        if pa.types.is_dictionary(column.type):
                            place = wanted.column_names.index(name)
                            wanted = wanted.set_column(place, name, column.cast(column.type.value_type))
                    yield pl.DataFrame(wanted).with_columns(numbers)

    def price_bounds(self, columns: list[str]) -> tuple[float, float] | None:
        """The least and the most value of columns by the statistics of Parquet; None if these do not say it."""
        found = list[Any]()
        if self.form != "parquet":
            return None
        groups = self._parquet().metadata
        for group in map(groups.row_group, range(groups.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if column.path_in_schema in columns:
                    bounds = column.statistics
                    known = bounds is not None and bounds.has_min_max
                    found += [bounds.min, bounds.max] if known else [None]
        if not found or not all(isinstance(value, float) for value in found):
            return None
        return min(found), max(found)

    def _json_frames(self, json_rows: int) -> Iterator[pl.DataFrame]:
        rows = self.rows()
        # A line that is no object counts as a row without values.
        while objects := [_with_text_ids(row) if isinstance(row, dict) else {} for row in islice(rows, json_rows)]:
            self._refuse_more_columns(len(set().union(*objects)))
            try:
                yield pl.DataFrame(objects, infer_schema_length=None, strict=False)
            except (pl.exceptions.PolarsError, TypeError):  # a column has values of several shapes
                yield pl.DataFrame(map(_with_text_cells, objects), infer_schema_length=None, strict=False)

    def _csv_frames(self, columns: list[str] | None) -> Iterator[pl.DataFrame]:
        import pyarrow as pa
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

        names = self.names
        texts = ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        self.torn = 0

        def torn(_: Any) -> str:
            self.torn += 1
            return "skip"

        # One thread counts the rows for messages.
        blocks = ReadOptions(block_size=CSV_BLOCK, use_threads=False, skip_rows=self._comments)
        parse = ParseOptions(delimiter=self._separator, newlines_in_values=True, invalid_row_handler=torn)
        with self._wanted_lines() as stream:
            for batch in open_csv(stream, blocks, parse, texts):
                frame = pl.DataFrame(batch)
                frame = frame if columns is None else frame.select(columns)
                yield frame if self._separator == "," else frame.with_columns(map(_with_points, frame.columns))

    def _wanted_lines(self) -> Any:
        """The stream in UTF-8 without lines that are not wanted; all of them where a row may have several lines."""
        pattern = None if self.needles is None or self._encoding != "utf-8-sig" else self.needles.pattern
        return self._utf8() if pattern is None else io.BufferedReader(_Lines(self._utf8(), pattern, self._comments + 1))

    def _sqlite_frames(self) -> Iterator[pl.DataFrame]:
        import sqlite3

        with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            quoted = str(self.table).replace('"', '""')
            cursor = database.execute(f'select * from "{quoted}"')  # noqa: S608  a table of the file itself
            names = [column[0] for column in cursor.description]
            while rows := cursor.fetchmany(PART_ROWS):
                yield pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None, strict=False)

    def _delta_frames(self) -> Iterator[pl.DataFrame]:
        from deltalake import DeltaTable

        table = pl.scan_delta(DeltaTable(self.path)).collect()
        yield from table.iter_slices(PART_ROWS)

    def _parquet(self, dictionaries: Sequence[str] = ()) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.path.stat().st_size:
            self._refuse_empty()
        try:
            return pq.ParquetFile(self.path, read_dictionary=list(dictionaries))
        except (OSError, pa.ArrowInvalid) as problem:
            raise ConfigError(
                f"{self.name!r} is no whole Parquet file: {problem}. It was cut, or is of another kind: fetch it again."
            ) from problem

    def _utf8(self) -> Any:
        """The stream in UTF-8; UTF-16, which spreadsheets write, is held in memory."""
        if self._encoding == "utf-8-sig":
            return self._stream()
        with io.TextIOWrapper(self._stream(), self._encoding, newline="") as text:
            whole = text.read(_MOST_BYTES // 2 + 1)
            self._refuse_more_bytes(2 * len(whole), "{} of UTF-16; save it as UTF-8")
            return io.BytesIO(whole.encode())

    def _stream(self) -> Any:
        suffix = self.path.suffix.lower()
        if suffix == ".gz":
            return io.BufferedReader(gzip.open(self.path, "rb"))
        if suffix not in PACKED:
            return self.path.open("rb")
        import pyarrow as pa

        return io.BufferedReader(pa.input_stream(str(self.path), compression="zstd"))

    def _refuse_empty(self) -> NoReturn:
        raise ConfigError(self.damage or f"{self.name!r} is empty: fetch it again, or leave it out.")


def refuse_pointer(path: Path) -> None:
    """ConfigError for a file that is none: a pointer of Git LFS, or a web page that was saved under its name."""
    if path.is_dir():
        return
    with path.open("rb") as stream:
        begin = stream.read(100).lstrip()
    if begin.startswith(b"version https://git-lfs"):
        raise ConfigError(
            f"{path.name!r} is a pointer of Git LFS, and not the file itself: run git lfs pull, or download it."
        )
    if begin[:15].lower().startswith((b"<!doctype html", b"<html")):
        raise ConfigError(f"{path.name!r} is a web page, and not the file itself: download it again.")


def may_have(group: Any, needles: Needles) -> bool:
    """Whether the statistics of a row group leave room for a wanted row."""
    bounds = {column.path_in_schema: column.statistics for column in map(group.column, range(group.num_columns))}
    known = {name: (found.min, found.max) for name, found in bounds.items() if found is not None and found.has_min_max}
    times = needles.times
    if times is not None and times.column in known and not times.may_be_between(*known[times.column]):
        return False
    return not needles.columns or any(
        name not in known or needles.may_be_between(*known[name]) for name in needles.columns
    )


class _Lines(io.RawIOBase):
    """A stream without the lines in which a pattern finds nothing; its head stays.

    From the first quote on all lines stay, because a quoted cell may have several lines.
    """

    def __init__(self, stream: Any, pattern: re.Pattern[bytes], head: int) -> None:
        self._stream, self._pattern = stream, pattern
        self._ready = b"".join(stream.readline() for _ in range(head))
        self._has_quotes = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._ready and (block := self._stream.read(_LINES_AT_ONCE)):
            block += self._stream.readline()
            self._has_quotes |= b'"' in block
            self._ready = block if self._has_quotes else self._of_block(block)
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size

    def _of_block(self, block: bytes) -> bytes:
        kept, end = list[bytes](), 0
        for match in self._pattern.finditer(block.lower()):
            if match.start() >= end:
                begin = block.rfind(b"\n", 0, match.start()) + 1
                end = block.find(b"\n", match.end()) + 1 or len(block)
                kept.append(block[begin:end])
        return b"".join(kept)

    def close(self) -> None:
        self._stream.close()
        super().close()


def is_delta(path: Path) -> bool:
    """Whether a folder is a Delta table."""
    return (path / "_delta_log").is_dir()


def _with_points(name: str) -> pl.Expr:
    """Numbers with a decimal comma with a point."""
    texts = pl.col(name)
    return (
        pl.when(texts.str.contains(r"^\s*-?(?:\d*|\d{1,3}(?:\.\d{3})+),\d+\s*$"))
        .then(texts.str.replace_all(".", "", literal=True).str.replace(",", "."))
        .otherwise(texts)
        .alias(name)
    )


def _with_stamp(line: bytes) -> bytes:
    """A line with a time before its JSON as an envelope around this JSON; a damaged line stays."""
    if not (stamp := _STAMPED.match(line)):
        return line
    unix, iso = stamp.groups()
    return b'{"received_at":%b,"raw":%b}' % (unix or b'"%b"' % iso, line[stamp.end() :].rstrip())


def _with_text_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with lists and objects as JSON."""
    return {name: msgspec.json.encode(v).decode() if isinstance(v, list | dict) else v for name, v in row.items()}


def _with_text_ids(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with ids, and whole numbers that no column of numbers can hold, as texts."""
    return {
        name: str(value) if type(value) is int and (name.endswith(("_id", "Id")) or abs(value) >= 1 << 63) else value
        for name, value in row.items()
    }
