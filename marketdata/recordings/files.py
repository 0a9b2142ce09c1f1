"""Files that others wrote: those that paths name, and their JSON, CSV or Parquet, plain or compressed, part by part."""

from __future__ import annotations

import csv
import glob
import gzip
import io
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec
import polars as pl

from marketdata.errors import ConfigError
from marketdata.recordings.columns import did_you_mean

Form = Literal["json", "csv", "parquet"]
_FORM_OF_SUFFIX: dict[str, Form] = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet", ".pq": "parquet"
}  # fmt: skip
_PACKED = (".gz", ".zst", ".zstd")
SUFFIXES = f"{', '.join(s for s in _FORM_OF_SUFFIX if s != '.pq')}; all but Parquet also with .gz or .zst"
# A row of a CSV file must fit into a block.
_PART_ROWS, _CSV_BLOCK = 1 << 15, 1 << 24


def files_of(paths: Any) -> dict[Path, bool]:
    """The files of paths, folders and patterns, and whether a path names the file itself; else a ConfigError."""
    given = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable) else list(paths)
    refused = [path for path in given if not isinstance(path, str | os.PathLike)] if given else [paths]
    if refused:
        problem = f"{'is refused' if given else 'names nothing'}; pass paths of files and folders, at least one."
        raise ConfigError(problem, argument="paths", value=refused[0])
    files: dict[Path, bool] = {}
    for path in map(Path, given):
        if path.is_dir():
            inside = (p.relative_to(path) for p in path.rglob("*") if p.is_file())
            matches = [path / p for p in inside if not any(part.startswith((".", "_")) for part in p.parts)]
            if not any(RecordingFile(match).form for match in matches):
                raise ConfigError(f"{str(path)!r} has no file whose name ends in these: {SUFFIXES}.")
        elif glob.has_magic(str(path)) and not path.exists():
            matches = [p for p in map(Path, glob.iglob(str(path), recursive=True)) if p.is_file()]  # noqa: PTH207  of any folder
            if not matches:
                raise ConfigError(f"{str(path)!r} matches no file.")
        elif path.is_file():
            matches, files[path] = [], True
        else:
            raise ConfigError(f"{str(path)!r} does not exist.")
        for match in sorted(matches, key=_by_numbers):
            files.setdefault(match, False)
    return files


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """The order of names in which numbers count by their value."""
    return [(int(p), "") if p.isdigit() else (0, p) for p in re.split(r"([0-9]+)", str(path))]


@dataclass(frozen=True)
class ReadOptions:
    """How to read files.

    ``clock`` is "timestamp", "received" or the name of a column. ``keep`` names fields of snapshots. ``format`` is the
    name of the format, None for the one that fits. ``columns`` says which column of the file has one of our names.
    ``token_id`` is the token of messages that name none.
    """

    clock: str = "timestamp"
    keep: tuple[str, ...] = ()
    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    token_id: str | None = None


@dataclass
class RecordingFile:
    """A file with its columns, or the fields of its first message, under their common names.

    Names are lower case with underscores, so that ``clobTokenIds`` is ``clob_token_ids``. ``damage`` says why the rest
    of a damaged file is missing, once the rows before it were read.
    """

    path: Path
    options: ReadOptions = field(default_factory=ReadOptions)
    damage: str | None = None

    @property
    def form(self) -> Form | None:
        """The form that the suffix says, apart from a compression."""
        suffixes = self.path.suffixes[-2:]
        is_packed = len(suffixes) == 2 and suffixes[1] in _PACKED
        return _FORM_OF_SUFFIX.get(suffixes[0] if is_packed else self.path.suffix)

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns, or fields of the first message; ConfigError if the file cannot be read or is empty."""
        return tuple(self.common_names.values())

    @cached_property
    def common_names(self) -> dict[str, str]:
        """The common name of each column of the file; ConfigError if a column to rename is not there."""
        present, renamed = self._columns_of_file, self.options.columns
        ours = {column: name for name, column in renamed.items()}
        for column in set(ours).difference(present):
            raise ConfigError(
                f"{self.path.name!r} has no column {column!r}{did_you_mean(column, present)} Its columns are "
                f"{', '.join(present)}."
            )
        lower = {name: re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip()).lower() for name in present}
        # A name that was given, or that is so in the file, comes before one that is made.
        taken = {*renamed, *present}
        common = {name: ours.get(name) or (lower[name] if lower[name] not in taken else name) for name in present}
        # A column that has one of our names and was not chosen for it gives way.
        common |= {name: f"{name} of the file" for name in renamed if name in present and name not in ours}
        names = list(common.values())
        return {name: new if names.count(new) == 1 else name for name, new in common.items()}

    @cached_property
    def _columns_of_file(self) -> tuple[str, ...]:
        if self.form == "json":
            return tuple(self.first_message) if isinstance(self.first_message, dict) else ()
        if self.form == "parquet":
            return tuple(self._parquet().schema_arrow.names)
        header = next(self.lines(), b"").decode("utf-8", "replace")
        return tuple(next(csv.reader([header]), ())) or self._refuse_empty()

    @cached_property
    def first_message(self) -> Any:
        """The first JSON value, or the first entry of a list."""
        message = next((message for message in self.rows() if message is not None), None)
        return self._refuse_empty() if message is None else message

    def lines(self) -> Iterator[bytes]:
        """Lines that are not blank, up to the damage of a compressed file."""
        try:
            with self._stream() as stream:
                if stream.peek(3)[:3] == b"\xef\xbb\xbf":  # a byte order mark
                    stream.read(3)
                yield from (line for line in stream if not line.isspace())
        except (FileNotFoundError, PermissionError) as problem:
            raise ConfigError(f"{self.path.name!r} cannot be read: {problem}.") from problem
        except (EOFError, OSError, zlib.error):
            self.damage = (
                f"{self.path.name!r} ends in the middle of its data: fetch it again, or rename it if it is not "
                "compressed as its name says. The rows before its end were read."
            )

    def messages(self) -> Iterator[Any]:
        """The JSON value of each line, None for a damaged line; or the one value of many lines."""
        values = map(_value, self.lines())
        first = next(values, None)
        if first is None:
            # The first line is damaged, or one value has many lines.
            whole = _value(b"".join(self.lines()) or self._refuse_empty())
            if whole is not None:
                yield whole
                return
            if not any(isinstance(_value(line), dict | list) for line in self.lines()):
                raise ConfigError(
                    self.damage
                    or f"{self.path.name!r} is no JSON: it needs one JSON value, or one a line. If it was "
                    "cut, fetch it again; if it is of another kind, its name should end in that."
                )
        yield first
        yield from values

    def rows(self) -> Iterator[Any]:
        """JSON values as `messages` gives them, the entries of lists one by one."""
        return _flat(self.messages())

    def frames(self, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """Rows in parts, under common names: CSV as texts, Parquet with these ``columns`` only, JSON its objects."""
        import pyarrow as pa

        names = {name: new for name, new in self.common_names.items() if columns is None or new in columns}
        try:
            for part in self._json_frames() if self.form == "json" else self._arrow_batches(list(names)):
                yield pl.DataFrame(part).rename(names, strict=False)
        except (EOFError, OSError, zlib.error, pa.ArrowInvalid) as problem:
            self.damage = (
                f"{self.path.name!r} cannot be read further: {problem}. The rows before that were read; fetch it again."
            )

    def _json_frames(self) -> Iterator[pl.DataFrame]:
        rows = self.rows()
        # A line that is no object counts as a row without values.
        while objects := [_with_text_ids(row) if isinstance(row, dict) else {} for row in islice(rows, _PART_ROWS)]:
            try:
                yield pl.DataFrame(objects, infer_schema_length=None, strict=False)
            except (pl.exceptions.PolarsError, TypeError):  # a column has values of several shapes
                yield pl.DataFrame(map(_with_text_cells, objects), infer_schema_length=None, strict=False)

    def _arrow_batches(self, columns: list[str]) -> Iterator[Any]:
        import pyarrow as pa
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

        if self.form == "parquet":
            yield from self._parquet().iter_batches(_PART_ROWS, columns=columns)
            return
        texts = ConvertOptions(
            column_types=dict.fromkeys(self._columns_of_file, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        # One thread counts the rows for messages.
        blocks = ReadOptions(block_size=_CSV_BLOCK, use_threads=False)
        with self._stream() as stream:
            yield from open_csv(stream, blocks, ParseOptions(newlines_in_values=True), texts)

    def _parquet(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.path.stat().st_size:
            self._refuse_empty()
        try:
            return pq.ParquetFile(self.path)
        except (OSError, pa.ArrowInvalid) as problem:
            raise ConfigError(
                f"{self.path.name!r} is no whole Parquet file: {problem}. It was cut, or is of another kind: fetch it "
                "again."
            ) from problem

    def _stream(self) -> Any:
        if self.path.suffix == ".gz":
            return gzip.open(self.path, "rb")
        if self.path.suffix not in _PACKED:
            return self.path.open("rb")
        import pyarrow as pa

        return io.BufferedReader(pa.input_stream(str(self.path), compression="zstd"))

    def _refuse_empty(self) -> NoReturn:
        raise ConfigError(self.damage or f"{self.path.name!r} is empty: fetch it again, or leave it out.")


def _value(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (RecursionError, ValueError):
        return None


def _with_text_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with lists and objects as JSON."""
    return {name: msgspec.json.encode(v).decode() if isinstance(v, list | dict) else v for name, v in row.items()}


def _with_text_ids(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with ids, and whole numbers that no column of numbers can hold, as texts."""
    return {
        name: str(value) if type(value) is int and (name.endswith(("_id", "Id")) or abs(value) >= 1 << 63) else value
        for name, value in row.items()
    }


def _flat(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        yield from _flat(value) if isinstance(value, list) else (value,)
