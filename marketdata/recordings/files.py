"""Files that others wrote: which there are, what their names say, and their columns under common names."""

from __future__ import annotations

import datetime as dt
import glob
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from marketdata.adapters.dispatch import is_lazy, kind_name
from marketdata.adapters.frames import library_of
from marketdata.errors import ConfigError
from marketdata.recordings.containers import (
    CSV_BLOCK,
    FORM_OF_SUFFIX,
    PACKED,
    PART_ROWS,
    SAMPLE_ROWS,
    SUFFIXES,
    Container,
    is_delta,
)
from marketdata.recordings.roles import INDEX_NAMES, ROLES, did_you_mean

# The clock of files that are one answer, without a time inside.
MODIFIED = "modified"
# Stands for the name of a file in ``token_id=``.
NAME = "{name}"
# Values in names of files and folders: a pair, or a text that can only be an id.
_SAID = re.compile(r"([A-Za-z_]+)=([^=/\\\\]+)")
_IDS_IN_NAMES = {
    "token_id": re.compile(r"(?<!\d)\d{20,}(?!\d)"), "market_id": re.compile(r"0x[0-9a-fA-F]{64}"),
    "timestamp": re.compile(r"(?<!\d)1[4-9]\d{8}(?:\d{3})?(?!\d)|20[1-9]\d-[01]\d-[0-3]\dT[\d:]{5,8}Z?"),
    "ticker": re.compile(r"(?<![A-Za-z])KX[A-Z0-9]+(?:-[A-Z0-9.]+)+"),
}  # fmt: skip


def _is_frame(given: object) -> bool:
    return library_of(given) is not None or is_lazy(given)


def files_of(paths: Any) -> dict[Path, bool]:
    """The files of paths, folders and patterns, and whether a path names the file itself; else a ConfigError."""
    is_one = isinstance(paths, str | os.PathLike) or _is_frame(paths) or not isinstance(paths, Iterable)
    given = [paths] if is_one else list(paths)
    if a_frame := [kind_name(one) for one in given if _is_frame(one)]:
        raise ConfigError(
            f"paths has a {a_frame[0]}, which is no file; pass paths of files and folders.",
            hint="A frame whose columns have our names is tidy already: give it to the functions, such as md.pnl or "
            "md.resample, or to archive.add. Else write it to a Parquet file, and pass its path.",
        )
    refused = [path for path in given if not isinstance(path, str | os.PathLike)] if given else [paths]
    if refused:
        problem = f"{'is refused' if given else 'names nothing'}; pass paths of files and folders, at least one."
        raise ConfigError(problem, argument="paths", value=refused[0])
    files: dict[Path, bool] = {}
    for path in (Path(one).expanduser() for one in given):
        if is_delta(path):
            matches, files[path] = [], True
        elif path.is_dir():
            inside = (p.relative_to(path) for p in path.rglob("*") if p.is_file())
            matches = [path / p for p in inside if not any(part.startswith((".", "_")) for part in p.parts)]
            tables = [folder.parent for folder in path.rglob("_delta_log") if is_delta(folder.parent)]
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


def refuse_one_token(files: Iterable[Path], options: ReadOptions) -> None:
    """ConfigError for one ``token_id=`` of several files, which would become one token."""
    count = sum(RecordingFile(path).form is not None for path in files)
    if options.token_id is not None and NAME not in options.token_id and count > 1:
        hint = f"token_id='{NAME}' takes the name of each file; or import them one by one."
        problem = f"is the token of one file, and there are {count:,}."
        raise ConfigError(problem, argument="token_id", value=options.token_id, hint=hint)


def _without_suffixes(path: Path) -> str:
    """The name of a file without the suffixes of its form and compression."""
    name = path.name
    while name.lower().endswith((*PACKED, *FORM_OF_SUFFIX)) and name.rpartition(".")[0]:
        name = name.rpartition(".")[0]
    return name


def _by_numbers(path: Path) -> list[tuple[int, str]]:
    """Sorts names so that numbers in them are in the order of their values."""
    return [(int(p), "") if p.isdigit() else (0, p) for p in re.split(r"([0-9]+)", str(path))]


@dataclass(frozen=True)
class ReadOptions:
    """How to read files.

    ``clock`` is "timestamp", "received", the name of a column, or "modified", which is the time of the file itself.
    ``keep`` names fields of snapshots. ``format`` is the name of the format, None for the one that fits. ``columns``
    says which column of the file has one of our names. ``token_id`` is the token of rows that name none; ``{name}`` in
    it is the name of the file. ``time_format`` is the form of dates that are no ISO 8601, such as ``%m/%d/%Y``.
    ``sides`` says what the words of the file for a side are.
    """

    clock: str = "timestamp"
    keep: tuple[str, ...] = ()
    format: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    token_id: str | None = None
    time_format: str | None = None
    sides: Mapping[str, str | None] | None = None


class RecordingFile(Container):
    """A file, or a table of an SQLite file, with its columns under their common names.

    Names are lower case with underscores: ``clobTokenIds`` is ``clob_token_ids``, ``Best Bid`` is ``best_bid``. Pairs
    such as ``token_id=7`` in the names of the file and its folders are columns too, unless the file has them.
    """

    def __init__(self, path: Path, options: ReadOptions | None = None, table: str | None = None) -> None:
        super().__init__(path, table)
        self.options = ReadOptions() if options is None else options
        self.named = frozenset(self.options.columns.values())

    def with_options(self, options: ReadOptions) -> RecordingFile:
        """The file with another format; its first rows are not read again."""
        file = RecordingFile(self.path, options, self.table)
        vars(file).update({name: value for name, value in vars(self).items() if name in ("sample", "names")})
        return file

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns, or fields of the first message; ConfigError if the file cannot be read or is empty."""
        return tuple(self.sample.columns)

    @cached_property
    def sample(self) -> pl.DataFrame:
        """The first rows, under common names; ConfigError if the file cannot be read or is empty."""
        rows = next(self.frames(None, SAMPLE_ROWS), None)
        names = [] if rows is None and self.form == "json" else self.common_names(self.names).values()
        for name, column in self.options.columns.items():
            if name not in (rows.columns if rows is not None else names):
                near = did_you_mean(column, self.names) or "."
                columns = ", ".join(self.names)
                raise ConfigError(f"{self.name!r} has no column {column!r}{near} Its columns are {columns}.")
        if rows is None:
            return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        return rows.head(SAMPLE_ROWS)

    @cached_property
    def said_by_names(self) -> dict[str, str]:
        """Values from the names of the file and its folders: ``token_id=7``, and texts that can only be ids."""
        parts = [*self.path.parts[:-1], _without_suffixes(self.path)]
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
        common = {
            name: ours.get(name) or ours.get(lower[name]) or (lower[name] if lower[name] not in taken else name)
            for name in present
        }
        # A column that has one of our names, but was not chosen for it, loses the name.
        common |= {n: f"{n} of the file" for n in renamed if common.get(n) == n and n not in ours}
        names = list(common.values())
        return {name: new if names.count(new) == 1 else name for name, new in common.items()}

    def original_name(self, name: str) -> str:
        """The name that the file has for a column."""
        return next((given for given, ours in self.common_names(self.names).items() if ours == name), name)

    def frames(self, columns: Sequence[str] | None = None, json_rows: int = PART_ROWS) -> Iterator[pl.DataFrame]:
        """Rows in parts, under common names: CSV as texts, Parquet with these ``columns`` only, JSON its objects."""
        import sqlite3

        import pyarrow as pa

        if self.form in ("parquet", "csv"):
            names = self.common_names(self.names)
            wanted = [name for name, new in names.items() if columns is None or new in columns]
        else:
            names, wanted = {}, None
        try:
            for part in self.parts(wanted, json_rows):
                # A JSON part may have other fields than the first one.
                renamed = part.rename(names or self.common_names(part.columns), strict=False)
                yield self._with_said(renamed)
        except (EOFError, OSError, zlib.error, pa.ArrowInvalid, UnicodeError, sqlite3.DatabaseError) as problem:
            if "UTF8" in str(problem) or isinstance(problem, UnicodeError):
                raise ConfigError(
                    f"{self.name!r} is not UTF-8; files of Windows are mostly cp1252. Save it as UTF-8, such as with "
                    "path.write_text(path.read_text('cp1252'), 'utf-8')."
                ) from problem
            why = f"it has a row of more than {CSV_BLOCK >> 20} MB" if "straddl" in str(problem) else problem
            self.damage = (
                f"{self.name!r} cannot be read further: {why}. The rows before that were read; fetch it again."
            )

    def _with_said(self, rows: pl.DataFrame) -> pl.DataFrame:
        """The rows with the values of names and the given token, unless the file has such a column."""
        given = self.options.token_id
        token = {} if given is None else {"token_id": given.replace(NAME, _without_suffixes(self.path))}
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
