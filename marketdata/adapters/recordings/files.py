"""Files of recordings: JSON lines, CSV and Parquet, plain or compressed, read part by part."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import simdjson

from marketdata.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

Form = Literal["json", "csv", "parquet"]
# The form that the end of a name says.
_FORMS: dict[str, Form] = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet", ".pq": "parquet"
}  # fmt: skip
# Ends of compressed files, behind that of the form.
_PACKED = (".gz", ".zst", ".zstd")
# Names that are read, for messages.
ENDS = f"{', '.join(end for end in _FORMS if end != '.pq')}; of all but Parquet also with .gz or .zst"
# Rows of a table that are read at a time.
_ROWS = 1 << 19
# Columns of few different texts.
_REPEATED = ("asset_id", "event_type", "side")
# Bytes of a CSV file that are read at a time.
_CSV_BLOCK = 1 << 24
# What a message says of a file that ends early.
_CUT = "ends in the middle of its data: fetch it again. What came before the end was read."


class DamagedFileError(ConfigError):
    """A file ends early, or cannot be read from some place on; what came before was given."""


@dataclass(frozen=True)
class RecordingFile:
    """A file by its name: its form, and its columns or the fields of its first message."""

    path: Path

    @property
    def form(self) -> Form | None:
        """The form that the name says, without that of its compression."""
        ends = self.path.suffixes[-2:]
        end = ends[0] if len(ends) == 2 and ends[1] in _PACKED else self.path.suffix
        return _FORMS.get(end)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns, or fields of the first message; ConfigError if the file cannot be read or is empty."""
        if self.form == "json":
            first = self.first_message
            return tuple(first) if isinstance(first, dict) else ()
        if self.form == "parquet":
            return tuple(self._parquet().schema_arrow.names)
        header = next(iter(self.lines()), b"")
        if not header.strip():
            raise self._empty()
        return tuple(name.strip().strip('"') for name in header.decode("utf-8", "replace").strip().split(","))

    @cached_property
    def first_message(self) -> Any:
        """The first JSON value; the first of a list."""
        for found in self.messages():
            while isinstance(found, list):
                if not found:
                    break
                found = found[0]  # noqa: PLW2901  the list was one line
            if found is not None and found != []:
                return found
        raise self._empty()

    def lines(self) -> Iterator[bytes]:
        """Lines, without those that are blank; DamagedFileError where a compressed file ends early."""
        try:
            with self._stream() as stream:
                yield from (line for line in stream if not line.isspace())
        except (EOFError, OSError, zlib.error) as problem:
            if isinstance(problem, FileNotFoundError | PermissionError):
                raise ConfigError(f"{self.path.name!r} cannot be read: {problem}.") from problem
            raise DamagedFileError(f"{self.path.name!r} {_CUT}") from problem

    def messages(self) -> Iterator[Any]:
        """JSON values line by line, None for a line that is none; of one list over many lines its entries."""
        parser = simdjson.Parser()
        for number, line in enumerate(self.lines()):
            try:
                yield parser.parse(line, True)
            except (ValueError, RuntimeError):
                value = _loads(line)
                if value is None and not number:
                    yield from self._whole()
                    return
                yield value

    def _whole(self) -> Iterator[Any]:
        """The values of a file that is one JSON value, or one after the other over many lines."""
        text = b"".join(self.lines()).decode("utf-8", "replace")
        decoder, at = json.JSONDecoder(), 0
        try:
            while at < len(text):
                value, at = decoder.raw_decode(text, at)
                yield from value if isinstance(value, list) else [value]
                at += len(text) - at - len(text[at:].lstrip(" \t\r\n,"))
        except ValueError as problem:
            if not at:
                raise ConfigError(
                    f"{self.path.name!r} is no JSON: {problem}. If it was cut, fetch it again; if it is of another "
                    "kind, its name should end in that."
                ) from problem
            raise DamagedFileError(f"{self.path.name!r} {_CUT}") from problem

    def frames(self, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """Rows of CSV, all of them texts, or of Parquet, some at a time."""
        return self._csv_frames() if self.form == "csv" else self._parquet_frames(columns)

    def _csv_frames(self) -> Iterator[pl.DataFrame]:
        import polars as pl
        import pyarrow as pa
        from pyarrow import csv

        names = self.columns
        try:
            with self._stream() as stream:
                reader = csv.open_csv(
                    stream,
                    csv.ReadOptions(block_size=_CSV_BLOCK),
                    csv.ParseOptions(newlines_in_values=False),
                    csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True),
                )
                for batch in reader:
                    yield cast("pl.DataFrame", pl.from_arrow(batch))
        except (EOFError, OSError, zlib.error, pa.ArrowInvalid) as problem:
            raise DamagedFileError(f"{self.path.name!r} cannot be read further: {problem}. {_CUT}") from problem

    def _parquet_frames(self, columns: Sequence[str] | None) -> Iterator[pl.DataFrame]:
        import polars as pl
        import pyarrow as pa

        file = self._parquet()
        names = None if columns is None else [c for c in columns if c in file.schema_arrow.names]
        try:
            for batch in file.iter_batches(_ROWS, columns=names, use_threads=False):
                yield cast("pl.DataFrame", pl.from_arrow(batch))
        except (OSError, pa.ArrowInvalid) as problem:
            raise DamagedFileError(
                f"{self.path.name!r} cannot be read further: {problem}. Fetch it again."
            ) from problem

    def _parquet(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.path.stat().st_size:
            raise self._empty()
        try:
            names = pq.read_schema(self.path).names
            return pq.ParquetFile(self.path, read_dictionary=[name for name in _REPEATED if name in names])
        except (OSError, pa.ArrowInvalid) as problem:
            raise ConfigError(
                f"{self.path.name!r} is no whole Parquet file: {problem}. It was cut, or is of another kind: fetch it "
                "again."
            ) from problem

    def _stream(self) -> Any:
        if self.path.suffix == ".gz":
            return gzip.open(self.path, "rb")
        if self.path.suffix in (".zst", ".zstd"):
            import pyarrow as pa

            return io.BufferedReader(pa.input_stream(str(self.path), compression="zstd"))
        return self.path.open("rb")

    def _empty(self) -> ConfigError:
        return ConfigError(f"{self.path.name!r} is empty: fetch it again, or leave it out.")


def _loads(line: bytes) -> Any:
    """A JSON value that the fast parser refuses, such as one with a whole number of 77 digits; None for no JSON."""
    try:
        return json.loads(line)
    except ValueError:
        return None
