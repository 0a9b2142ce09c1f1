"""Files that others wrote: JSON, CSV and Parquet, plain or compressed, read part by part."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

import msgspec

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
# Rows of a table, and of JSON, that are read at a time.
_ROWS, _JSON_ROWS = 1 << 19, 1 << 14
# Columns of few different texts.
_REPEATED = ("asset_id", "event_type", "side")
# Bytes of a CSV file that are read at a time: a row has no more.
_CSV_BLOCK = 1 << 24
# Bytes in memory that are read as one part, and that a file has at most which is read as one.
_PART, _WHOLE = 1 << 25, 2 << 30
# Digits that every whole number of 64 bits can have.
_INT64_DIGITS = 18
# The message about a file that ends early.
_CUT = "ends in the middle of its data: fetch it again. What came before the end was read."


class DamagedFileError(ConfigError):
    """A file ends early, or cannot be read from some place on; what came before was given."""


@dataclass(frozen=True)
class RecordingFile:
    """A file by its name: its form, and its columns or the fields of its first message.

    ``token_id`` is the token of messages that name none; with ``whole`` all rows are read as one part.
    """

    path: Path
    token_id: str | None = None
    whole: bool = False

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
        header = next(self.lines(), b"").decode("utf-8-sig", "replace")
        return tuple(name.strip() for name in next(csv.reader([header]), ())) or self._refuse_empty()

    @cached_property
    def first_message(self) -> Any:
        """The first JSON value; the first of a list."""
        found = next((one for one in self.rows() if one is not None), None)
        return self._refuse_empty() if found is None else found

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
        for number, line in enumerate(self.lines()):
            try:
                yield msgspec.json.decode(line)
            except (ValueError, RecursionError):
                value = _loads(line)
                if value is None and not number:
                    yield from self._whole()
                    return
                yield value

    def rows(self) -> Iterator[Any]:
        """JSON values as `messages` gives them, the entries of lists one by one."""
        return _each(self.messages())

    def _whole(self) -> Iterator[Any]:
        """The values of a file that is one JSON value, or one after the other over many lines."""
        text = b"".join(self.lines()).decode("utf-8", "replace")
        decoder, at = json.JSONDecoder(parse_int=_whole_number), 0
        try:
            while at < len(text):
                value, at = decoder.raw_decode(text, at)
                yield from value if isinstance(value, list) else [value]
                at += len(text) - at - len(text[at:].lstrip(" \t\r\n,"))
        except (ValueError, RecursionError) as problem:
            if not at:
                raise ConfigError(
                    f"{self.path.name!r} is no JSON: {problem}. If it was cut, fetch it again; if it is of another "
                    "kind, its name should end in that."
                ) from problem
            raise DamagedFileError(f"{self.path.name!r} {_CUT}") from problem

    def frames(self, columns: Sequence[str] | None = None) -> Iterator[pl.DataFrame]:
        """Rows, some at a time: of CSV all texts, of Parquet those of the ``columns``; of JSON the objects."""
        import polars as pl

        ways = {"csv": self._csv_frames, "json": self._json_frames, "parquet": self._parquet_frames}
        block, size = list[pl.DataFrame](), 0.0
        try:
            for frame in ways[str(self.form)](columns):
                block.append(frame)
                size += frame.estimated_size()
                if self.is_part(size):
                    yield pl.concat(block, how="diagonal_relaxed")
                    block, size = [], 0.0
        except DamagedFileError:
            if block:
                yield pl.concat(block, how="diagonal_relaxed")
            raise
        if block:
            yield pl.concat(block, how="diagonal_relaxed")

    def is_part(self, size: float) -> bool:
        """Whether so many bytes are a part; ConfigError if a file that is read as one part has more than fit."""
        if self.whole and size > _WHOLE:
            raise ConfigError(
                f"{self.path.name!r} is not in the order of time, and larger than the {_WHOLE >> 20:,} MB that are "
                "sorted in memory. Sort its rows by their time first, or divide it into files of a range of time each "
                "that are named in that order."
            )
        return not self.whole and size >= _PART

    def _json_frames(self, _: Sequence[str] | None) -> Iterator[pl.DataFrame]:
        import polars as pl

        rows = self.rows()
        damage: DamagedFileError | None = None
        while damage is None:
            some: list[Any] = []
            try:
                some.extend(islice(rows, _JSON_ROWS))
            except DamagedFileError as problem:
                damage = problem
            if some:
                yield pl.DataFrame([row for row in some if isinstance(row, Mapping)], infer_schema_length=None)
            elif damage is None:
                return
        raise damage

    def _csv_frames(self, _: Sequence[str] | None) -> Iterator[pl.DataFrame]:
        import polars as pl
        import pyarrow as pa
        from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, open_csv

        texts = ConvertOptions(
            column_types=dict.fromkeys(self.columns, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[""],
        )
        try:
            with self._stream() as stream:
                # One thread counts the rows for messages.
                options = ReadOptions(block_size=_CSV_BLOCK, use_threads=False), ParseOptions(newlines_in_values=True)
                reader = open_csv(stream, *options, texts)
                yield cast("pl.DataFrame", pl.from_arrow(reader.schema.empty_table()))
                for batch in reader:
                    yield cast("pl.DataFrame", pl.from_arrow(batch))
        except (EOFError, OSError, zlib.error, pa.ArrowInvalid) as problem:
            raise DamagedFileError(
                f"{self.path.name!r} cannot be read further: {problem}. What came before was read."
            ) from problem

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
            self._refuse_empty()
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

    def _refuse_empty(self) -> NoReturn:
        raise ConfigError(f"{self.path.name!r} is empty: fetch it again, or leave it out.")


def _loads(line: bytes) -> Any:
    """A JSON value that the fast parser refuses, such as one with a whole number of 77 digits; None for no JSON."""
    try:
        return json.loads(line, parse_int=_whole_number)
    except (ValueError, RecursionError):
        return None


def _whole_number(digits: str) -> int | str:
    """A whole number; one of more digits than a column of numbers has, such as a token id, as text."""
    return int(digits) if len(digits) <= _INT64_DIGITS else digits


def _each(found: Iterable[Any]) -> Iterator[Any]:
    for one in found:
        yield from _each(one) if isinstance(one, list) else (one,)
