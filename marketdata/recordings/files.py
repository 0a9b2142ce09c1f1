"""Finds files that others wrote, and reads their JSON, CSV or Parquet, plain or compressed, part by part."""

from __future__ import annotations

import csv
import datetime as dt
import glob
import gzip
import io
import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, takewhile
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec
import polars as pl

from marketdata.errors import ConfigError
from marketdata.recordings.roles import INDEX_NAMES, ROLES, did_you_mean

Form = Literal["json", "csv", "parquet", "delta", "sqlite"]
_FORM_OF_SUFFIX: dict[str, Form] = {
    ".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".tsv": "csv", ".parquet": "parquet",
    ".pq": "parquet", ".sqlite": "sqlite", ".sqlite3": "sqlite", ".db": "sqlite",
}  # fmt: skip
_PACKED = (".gz", ".zst", ".zstd")
SUFFIXES = ".json, .jsonl, .ndjson, .csv, .tsv, .parquet, .sqlite, .db; the first five also with .gz or .zst"
# A row of a CSV file must fit into a block.
_PART_ROWS, _CSV_BLOCK = 1 << 15, 1 << 24
# A short file can hold a line, a value or a table of any size once it is unpacked.
_MOST_BYTES, _MOST_COLUMNS = 1 << 28, 10_000
_LINE = "a line of {}; write one JSON value a line"
# Rows are in lists, envelopes and mappings; each one that is inside another takes the memory of its content again.
MOST_NESTED = 8
_NUMBERS = re.compile(rb'\s*\[\s*[^\s\[\]{}"][^\[\]{}"]*\]\s*')
# The clock of files that are one answer, without a time inside.
MODIFIED = "modified"
_SAMPLE_ROWS = 300
_MOST_COMMENTS = 100
# A number or an ISO time: neither is the name of a first column.
_VALUE = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\d{4}-\d\d-\d\d[T ].*|0x[0-9a-fA-F]{16,}")
# Values in names of files and folders: a pair, or a text that can only be an id.
_SAID = re.compile(r"([A-Za-z_]+)=([^=/\\\\]+)")
_IDS_IN_NAMES = {
    "token_id": re.compile(r"(?<!\d)\d{20,}(?!\d)"), "market_id": re.compile(r"0x[0-9a-fA-F]{64}"),
    "timestamp": re.compile(r"(?<!\d)1[4-9]\d{8}(?:\d{3})?(?!\d)|20[1-9]\d-[01]\d-[0-3]\dT[\d:]{5,8}Z?"),
    "ticker": re.compile(r"(?<![A-Za-z])KX[A-Z0-9]+(?:-[A-Z0-9.]+)+"),
}  # fmt: skip
_ID_KEY = re.compile(r"\d{5,}|0x[0-9a-fA-F]+|[A-Z][A-Z0-9]*(?:-[A-Z0-9.]+)+")
MESSAGE_KEYS = frozenset({"event_type", "price_changes", "changes", "bids", "asks", "buys", "sells"})
# Lists that belong to a row, and are not the rows of an answer.
_LISTS_OF_A_ROW = {"tokens", "tags", "outcomes", "bids", "asks", "clobTokenIds", "outcomePrices", "yes", "no"}
_IDS_AROUND = {
    "ticker", "market_ticker", "market", "market_id", "condition_id", "token_id", "asset_id", "token", "asset",
    "outcome", "slug", "market_slug", "series_ticker", "period_interval",
}  # fmt: skip
_PAGING = _IDS_AROUND | {
    "next_cursor", "cursor", "limit", "count", "offset", "next", "previous", "has_more", "pagination", "total",
    "page", "page_size", "per_page", "status", "success", "meta", "metadata", "error", "message", "interval",
    "fidelity", "start", "end", "start_ts", "end_ts", "fetched_at", "exported_at", "generated_at", "total_count",
    "next_page", "version", "schema", "source", "venue", "exchange", "platform",
}  # fmt: skip
# Unix seconds of 2001.
_LEAST_TIME = 10**9
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_LIST = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODERS: dict[bytes, Any] = {b"{": _OBJECT, b"[": _LIST}
_ENCODINGS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


def files_of(paths: Any) -> dict[Path, bool]:
    """The files of paths, folders and patterns, and whether a path names the file itself; else a ConfigError."""
    given = [paths] if isinstance(paths, str | os.PathLike) or not isinstance(paths, Iterable) else list(paths)
    refused = [path for path in given if not isinstance(path, str | os.PathLike)] if given else [paths]
    if refused:
        problem = f"{'is refused' if given else 'names nothing'}; pass paths of files and folders, at least one."
        raise ConfigError(problem, argument="paths", value=refused[0])
    files: dict[Path, bool] = {}
    for path in (Path(one).expanduser() for one in given):
        if _is_delta(path):
            matches, files[path] = [], True
        elif path.is_dir():
            inside = (p.relative_to(path) for p in path.rglob("*") if p.is_file())
            matches = [path / p for p in inside if not any(part.startswith((".", "_")) for part in p.parts)]
            tables = [folder.parent for folder in path.rglob("_delta_log") if _is_delta(folder.parent)]
            matches = [m for m in matches if not any(m.is_relative_to(table) for table in tables)] + tables
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


def _is_delta(path: Path) -> bool:
    return (path / "_delta_log").is_dir()


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """Sorts names so that numbers in them are in the order of their values."""
    return [(int(p), "") if p.isdigit() else (0, p) for p in re.split(r"([0-9]+)", str(path))]


@dataclass(frozen=True)
class ReadOptions:
    """How to read files.

    ``clock`` is "timestamp", "received", the name of a column, or "modified", which is the time of the file itself.
    ``keep`` names fields of snapshots. ``format`` is the name of the format, None for the one that fits. ``columns``
    says which column of the file has one of our names. ``token_id`` is the token of rows that name none.
    """

    clock: str = "timestamp"
    keep: tuple[str, ...] = ()
    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    token_id: str | None = None


@dataclass
class RecordingFile:
    """A file, or a table of an SQLite file, with its columns under their common names.

    Names are lower case with underscores: ``clobTokenIds`` is ``clob_token_ids``, ``Best Bid`` is ``best_bid``. Pairs
    such as ``token_id=7`` in the names of the file and its folders are columns too, unless the file has them.
    ``damage`` says why the rest of a damaged file is missing, once the rows before it were read; ``torn`` counts lines
    that are no rows.
    """

    path: Path
    options: ReadOptions = field(default_factory=ReadOptions)
    table: str | None = None
    damage: str | None = None
    torn: int = 0

    @property
    def name(self) -> str:
        """The name for messages."""
        return self.path.name if self.table is None else f"{self.path.name}: {self.table}"

    @property
    def form(self) -> Form | None:
        """The form that the suffix says, apart from a compression; a folder with a log is a Delta table."""
        if _is_delta(self.path):
            return "delta"
        suffixes = [suffix.lower() for suffix in self.path.suffixes[-2:]]
        is_packed = len(suffixes) == 2 and suffixes[1] in _PACKED
        return _FORM_OF_SUFFIX.get(suffixes[0] if is_packed else self.path.suffix.lower())

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns, or fields of the first message; ConfigError if the file cannot be read or is empty."""
        return tuple(self.sample.columns)

    @cached_property
    def sample(self) -> pl.DataFrame:
        """The first rows, under common names; ConfigError if the file cannot be read or is empty."""
        rows = next(self.frames(None, _SAMPLE_ROWS), None)
        names = [] if rows is None and self.form == "json" else self.common_names(self._columns_of_file).values()
        for name, column in self.options.columns.items():
            if name not in (rows.columns if rows is not None else names):
                near = did_you_mean(column, self._columns_of_file) or "."
                columns = ", ".join(self._columns_of_file)
                raise ConfigError(f"{self.name!r} has no column {column!r}{near} Its columns are {columns}.")
        if rows is None:
            return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        return rows.head(_SAMPLE_ROWS)

    @cached_property
    def said_by_names(self) -> dict[str, str]:
        """Values from the names of the file and its folders: ``token_id=7``, and texts that can only be ids."""
        parts = [part.split(".")[0] if part == self.path.name else part for part in self.path.parts]
        said: dict[str, str] = {}
        for part in reversed(parts):
            said = {**dict(_SAID.findall(part)), **said}
            for name, pattern in _IDS_IN_NAMES.items():
                if name not in said and (match := pattern.search(part)):
                    said[name] = match.group()
        return said

    def common_names(self, present: Sequence[str]) -> dict[str, str]:
        """The common name of each of the columns."""
        renamed = self.options.columns
        ours = {column: name for name, column in renamed.items()}
        words = {name: re.sub(r"[\s()/-]+", "_", name.strip()).rstrip("_") for name in present}
        lower = {name: re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", text).lower() for name, text in words.items()}
        # A given name, or a name of the file, precedes a derived one.
        taken = {*renamed, *present}
        common = {name: ours.get(name) or (lower[name] if lower[name] not in taken else name) for name in present}
        # A column that has one of our names, but was not chosen for it, loses the name.
        common |= {name: f"{name} of the file" for name in renamed if name in present and name not in ours}
        names = list(common.values())
        return {name: new if names.count(new) == 1 else name for name, new in common.items()}

    def original_name(self, name: str) -> str:
        """The name that the file has for a column."""
        return next((given for given, ours in self.common_names(self._columns_of_file).items() if ours == name), name)

    @cached_property
    def _columns_of_file(self) -> tuple[str, ...]:
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
            if len(names) > 1 and _VALUE.fullmatch(names[0].strip()):
                raise ConfigError(
                    f"{self.name!r} has no line of column names: its first line has values, such as {names[0]!r}. "
                    "Put a line such as ts,token_id,price before it."
                )
            return names
        first = next(self._parts(None, _SAMPLE_ROWS), None)
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
        if self._encoding != "utf-8-sig":
            raise ConfigError(f"{self.name!r} is UTF-16; JSON is UTF-8. Save it as UTF-8.")
        lines = self.lines()
        first = next(lines, b"")
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

    def rows(self) -> Iterator[Any]:
        """The rows of JSON values: the entries of lists, and the list of an object whose content is one list."""
        for value in self.values():
            yield from map(_of_ticker, map(json_value, content(value)))

    def frames(self, columns: Sequence[str] | None = None, json_rows: int = _PART_ROWS) -> Iterator[pl.DataFrame]:
        """Rows in parts, under common names: CSV as texts, Parquet with these ``columns`` only, JSON its objects."""
        import sqlite3

        import pyarrow as pa

        if self.form in ("parquet", "csv"):
            names = self.common_names(self._columns_of_file)
            wanted = [name for name, new in names.items() if columns is None or new in columns]
        else:
            names, wanted = {}, None
        try:
            for part in self._parts(wanted, json_rows):
                # A JSON part may have other fields than the first one.
                renamed = part.rename(names or self.common_names(part.columns), strict=False)
                yield self._with_said(renamed)
        except (EOFError, OSError, zlib.error, pa.ArrowInvalid, UnicodeError, sqlite3.DatabaseError) as problem:
            why = f"it has a row of more than {_CSV_BLOCK >> 20} MB" if "straddl" in str(problem) else problem
            self.damage = (
                f"{self.name!r} cannot be read further: {why}. The rows before that were read; fetch it again."
            )

    def _with_said(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with the values of names and the given token, unless the file has such a column."""
        token = {} if self.options.token_id is None else {"token_id": self.options.token_id}
        if self.options.clock == MODIFIED:
            moment = dt.datetime.fromtimestamp(self.path.stat().st_mtime, dt.UTC)
            rows = rows.with_columns(pl.lit(moment).dt.cast_time_unit("us").alias(MODIFIED))
        said = {n: v for n, v in {**self.said_by_names, **token}.items() if n not in rows.columns}
        if any(
            name in rows.columns and name not in INDEX_NAMES
            for role in ("ts", "end_ts", "received_at", "created_at")
            for name in ROLES[role].names
        ):
            said = {name: value for name, value in said.items() if name not in ("timestamp", "date")}
        if not token and any(name in rows.columns for name in ROLES["token_id"].names):
            said.pop("token_id", None)
        return rows.with_columns(pl.lit(value).alias(name) for name, value in said.items())

    def _parts(self, columns: list[str] | None, json_rows: int = _PART_ROWS) -> Iterator[pl.DataFrame]:
        if self.form == "json":
            yield from self._json_frames(json_rows)
        elif self.form == "csv":
            yield from self._csv_frames(columns)
        elif self.form == "sqlite":
            yield from self._sqlite_frames()
        elif self.form == "delta":
            yield from self._delta_frames()
        else:
            yield from map(pl.DataFrame, self._parquet().iter_batches(_PART_ROWS, columns=columns))

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

        names = self._columns_of_file
        texts = ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=["", "NaN", "nan", "NULL", "null", "None"],
        )
        self.torn = 0

        def torn(_: Any) -> str:
            self.torn += 1
            return "skip"

        # One thread counts the rows for messages.
        blocks = ReadOptions(block_size=_CSV_BLOCK, use_threads=False, skip_rows=self._comments)
        parse = ParseOptions(delimiter=self._separator, newlines_in_values=True, invalid_row_handler=torn)
        with self._utf8() as stream:
            for batch in open_csv(stream, blocks, parse, texts):
                frame = pl.DataFrame(batch)
                frame = frame if columns is None else frame.select(columns)
                yield frame if self._separator == "," else frame.with_columns(map(_with_points, frame.columns))

    def _sqlite_frames(self) -> Iterator[pl.DataFrame]:
        import sqlite3

        with closing(sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            quoted = str(self.table).replace('"', '""')
            cursor = database.execute(f'select * from "{quoted}"')  # noqa: S608  a table of the file itself
            names = [column[0] for column in cursor.description]
            while rows := cursor.fetchmany(_PART_ROWS):
                yield pl.DataFrame(rows, schema=names, orient="row", infer_schema_length=None, strict=False)

    def _delta_frames(self) -> Iterator[pl.DataFrame]:
        from deltalake import DeltaTable

        table = pl.scan_delta(DeltaTable(self.path)).collect()
        yield from table.iter_slices(_PART_ROWS)

    def _parquet(self) -> Any:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if not self.path.stat().st_size:
            self._refuse_empty()
        try:
            return pq.ParquetFile(self.path)
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
        if suffix not in _PACKED:
            return self.path.open("rb")
        import pyarrow as pa

        return io.BufferedReader(pa.input_stream(str(self.path), compression="zstd"))

    def _refuse_empty(self) -> NoReturn:
        raise ConfigError(self.damage or f"{self.name!r} is empty: fetch it again, or leave it out.")


def tables_of(path: Path, options: ReadOptions) -> list[RecordingFile]:
    """A file, or each table of an SQLite file."""
    file = RecordingFile(path, options)
    if file.form != "sqlite":
        return [file]
    import sqlite3

    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            names = database.execute(
                "select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name"
            ).fetchall()
    except sqlite3.Error as problem:
        raise ConfigError(f"{path.name!r} is no SQLite file: {problem}.") from problem
    if not names:
        raise ConfigError(f"{path.name!r} has no table.")
    return [RecordingFile(path, options, name) for (name,) in names]


def content(value: bytes, depth: int = 0) -> Iterator[bytes]:
    """The rows of a JSON value, each as JSON: entries of lists one by one, and the one list of an answer.

    An answer is an object with one list beside cursors and ids, or a mapping from ids to lists or books. Rows of it
    have its ids. Values below the depth `MOST_NESTED` stay whole.
    """
    fields = fields_of(value) if depth <= MOST_NESTED else None
    if isinstance(fields, list):
        if _are_pairs(fields):
            yield from map(_point_of, fields)
            return
        for entry in fields:
            yield from content(bytes(entry), depth + 1)
    elif fields is None or not MESSAGE_KEYS.isdisjoint(fields):
        yield value
    else:
        yield from _content_of_object(value, fields, depth + 1)


def _are_pairs(entries: Sequence[msgspec.Raw]) -> bool:
    """Whether entries are pairs of a Unix time and a price, as charts have them; levels have no times."""
    # Looked at only if it is short: a long list in a list is no pair.
    pair = json_value(first) if entries and (first := bytes(entries[0]))[:1] == b"[" and len(first) < 100 else None
    return (
        isinstance(pair, list)
        and len(pair) == 2
        and all(isinstance(n, int | float) for n in pair)
        and pair[0] > _LEAST_TIME >= pair[1]
    )


def _point_of(entry: msgspec.Raw) -> bytes:
    pair = json_value(bytes(entry))
    is_pair = isinstance(pair, list) and len(pair) == 2
    return msgspec.json.encode(dict(zip("tp", pair, strict=True))) if is_pair else bytes(entry)


def _lists_of_outcomes(value: msgspec.Raw) -> dict[str, msgspec.Raw] | None:
    """The lists of a mapping from outcomes or tokens to lists of objects; None for another value."""
    fields = fields_of(bytes(value))
    if not isinstance(fields, dict) or not fields or not all(bytes(v)[:1] == b"[" for v in fields.values()):
        return None
    return fields if MESSAGE_KEYS.isdisjoint(fields) and all(map(_are_objects, fields.values())) else None


def _content_of_object(value: bytes, fields: Mapping[str, msgspec.Raw], depth: int) -> Iterator[bytes]:
    kinds = {name: bytes(inner)[:1] for name, inner in fields.items()}
    lists = [name for name, kind in kinds.items() if kind == b"["]
    around = [name for name, kind in kinds.items() if kind != b"[" and not name.startswith("$")]
    if fields.keys() == {"event", "markets"} and kinds["event"] == b"{":  # one event, and its markets beside it
        yield _with({"markets": fields["markets"]}, bytes(fields["event"]))
        return
    if len(lists) == 1 and lists[0] not in _LISTS_OF_A_ROW and _PAGING.issuperset(map(_common, around)):
        ids = {n: fields[n] for n in around if _common(n) in _IDS_AROUND and kinds[n] not in b"{n"}
        for row in content(bytes(fields[lists[0]]), depth):
            yield _with(ids, row)
    elif fields and len(lists) == len(fields) and all(map(_are_objects, fields.values())):
        for key, entries in fields.items():
            for row in content(bytes(entries), depth):
                yield _with({"token_id": msgspec.Raw(msgspec.json.encode(key))}, row)
    elif fields and {*kinds.values()} == {b"{"} and all(by_outcome := [*map(_lists_of_outcomes, fields.values())]):
        for market, lists_of in zip(fields, by_outcome, strict=True):
            for key, entries in (lists_of or {}).items():
                name = "token_id" if _ID_KEY.fullmatch(key) else "outcome"
                said = {"market": market, name: key}
                for row in content(bytes(entries), depth):
                    yield _with({n: msgspec.Raw(msgspec.json.encode(text)) for n, text in said.items()}, row)
    elif fields and {*kinds.values()} == {b"{"} and (len(fields) == 1 or all(map(_ID_KEY.fullmatch, fields))):
        names_ids = all(map(_ID_KEY.fullmatch, fields))
        for key, inner in fields.items():
            if names_ids:
                yield from content(_with({"ticker": msgspec.Raw(msgspec.json.encode(key))}, bytes(inner)), depth)
            elif key in ROLES["book"].names:
                yield value
            else:
                yield from content(bytes(inner), depth)
    else:
        yield value


def _of_ticker(row: Any) -> Any:
    """The quote in a message of Kalshi's ticker, as a row beside what its envelope says."""
    if not isinstance(row, dict) or row.get("type") != "ticker" or not isinstance(row.get("msg"), dict):
        return row
    return {name: value for name, value in row.items() if name not in ("type", "sid", "seq", "msg")} | row["msg"]


def fields_of(value: bytes) -> dict[str, msgspec.Raw] | list[msgspec.Raw] | None:
    """The fields of a JSON object, or the entries of a list, each as JSON; None for a list of numbers and others."""
    decode = _OBJECT if value.startswith(b"{") else _DECODERS.get(value.lstrip()[:1])
    if decode is None or (decode is _LIST and _NUMBERS.fullmatch(value)):
        return None
    try:
        return decode(value)
    except (RecursionError, ValueError):
        known = json_value(value)
        # Python writes numbers that JSON does not have.
        return None if known is None else decode(json.dumps(known).encode())


def _with(ids: Mapping[str, msgspec.Raw], row: bytes) -> bytes:
    """The row with ids that it does not have itself."""
    fields = fields_of(row) if ids else None
    return msgspec.json.encode({**ids, **fields}) if isinstance(fields, dict) else row


def _common(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _are_objects(entries: msgspec.Raw) -> bool:
    return all(bytes(entry)[:1] == b"{" for entry in _LIST(entries))


def json_value(line: bytes) -> Any:
    """The value of JSON in which NaN may stand for null; None for a damaged text."""
    try:
        return msgspec.json.decode(line)
    except (RecursionError, ValueError):
        # Python writes numbers that JSON does not have.
        if b"NaN" not in line and b"Infinity" not in line:
            return None
    try:
        return json.loads(line, parse_constant=lambda _: None)
    except (RecursionError, ValueError):
        return None


def _with_points(name: str) -> pl.Expr:
    """Numbers with a decimal comma with a point."""
    texts = pl.col(name)
    return (
        pl.when(texts.str.contains(r"^\s*-?(?:\d*|\d{1,3}(?:\.\d{3})+),\d+\s*$"))
        .then(texts.str.replace_all(".", "", literal=True).str.replace(",", "."))
        .otherwise(texts)
        .alias(name)
    )


def _with_text_cells(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with lists and objects as JSON."""
    return {name: msgspec.json.encode(v).decode() if isinstance(v, list | dict) else v for name, v in row.items()}


def _with_text_ids(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with ids, and whole numbers that no column of numbers can hold, as texts."""
    return {
        name: str(value) if type(value) is int and (name.endswith(("_id", "Id")) or abs(value) >= 1 << 63) else value
        for name, value in row.items()
    }
