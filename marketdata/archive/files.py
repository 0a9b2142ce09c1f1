"""Files of tidy rows and records as frames to add, and frames as files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from marketdata.adapters.polars import write_file
from marketdata.adapters.recordings.files import ENDS, DamagedFileError, RecordingFile
from marketdata.errors import ArchiveError, ConfigError
from marketdata.points.columns import METRICS
from marketdata.points.records import COLUMNS, NUMBER_LISTS, TEXT_LISTS
from marketdata.points.schema import ID_COLUMNS
from marketdata.points.views import VIEWS, View

if TYPE_CHECKING:
    import polars as pl

FileKind = Literal["markets", "events", "series"] | View
# Records come first, as points name them.
ORDER: tuple[FileKind, ...] = ("series", "events", "markets", *VIEWS)
# Columns of texts, whatever their values look like: a label may be 007. Of points the others are numbers.
_TEXTS = {"ts", "side", *ID_COLUMNS, *(name for names in COLUMNS.values() for name in names)}
# Columns of points that have to be numbers.
_NUMBERS = {name for spec in VIEWS.values() for name in spec.names} - _TEXTS


class Found(NamedTuple):
    """A file, its kind, and its rows as `Archive.add` takes them."""

    path: Path
    kind: FileKind
    data: Any
    rows: int


def read(path: Path) -> Found:
    """Read a file of tidy rows or records; ConfigError if it is not there, or cannot be read."""
    import polars as pl

    from marketdata.adapters.recordings.columns import micros

    file = RecordingFile(path)
    try:
        if file.form == "json":
            rows = list(file.rows())
            if not all(isinstance(row, dict) for row in rows):
                raise ConfigError(f"{path.name!r} holds JSON that is not a list of objects.")
            rows = [{k: str(v) if type(v) is int and k.endswith("_id") else v for k, v in row.items()} for row in rows]
            frame = pl.DataFrame(rows, infer_schema_length=None)
        elif file.form == "csv":
            frame = _typed(pl.concat(file.frames()))
        elif file.form == "parquet":
            frame = pl.read_parquet(path)
        else:
            raise ConfigError(f"{path.name!r} is not of a known kind; names that end in these are read: {ENDS}.")
    except (pl.exceptions.PolarsError, OSError, ValueError, DamagedFileError) as problem:
        why = problem.__cause__ if isinstance(problem, DamagedFileError) else problem
        if isinstance(why, ConfigError):
            raise
        raise ConfigError(f"{path.name!r} cannot be read as {file.form}: {why}.") from problem
    kind = kind_of(frame.columns, path.name)
    if "ts" in frame.columns and (frame["ts"].dtype == pl.String or frame["ts"].dtype.is_numeric()):
        try:
            ts = pl.Series("ts", micros(frame["ts"])).cast(pl.Datetime("us", "UTC"))
        except ConfigError as problem:
            raise ConfigError(f"{path.name!r}: {problem.problem}") from problem
        frame = frame.with_columns(ts)
    return Found(path, kind, frame, frame.height)


def _typed(texts: pl.DataFrame) -> pl.DataFrame:
    """Rows of CSV with the types of their columns: its name, and never its first values, makes one a text."""
    import polars as pl

    names = texts.columns
    typed = _numbers if "ts" in names else _values
    frame = texts.with_columns(
        typed(texts[name]) for name in names if not (name in _TEXTS or name.endswith(("_id", "_slug")))
    )
    types = dict.fromkeys(TEXT_LISTS, pl.String) | dict.fromkeys(NUMBER_LISTS, pl.Float64)
    return frame.with_columns(pl.col(c).str.json_decode(pl.List(dtype)) for c, dtype in types.items() if c in names)


def _numbers(texts: pl.Series) -> pl.Series:
    """A column of points: numbers, or texts if it is not one that a view needs."""
    import polars as pl

    plain = texts.str.strip_chars()
    numbers = plain.cast(pl.Float64, strict=False)
    wrong = (numbers.is_null() & (plain != "")).arg_true()
    if not len(wrong):
        return numbers
    if texts.name in _NUMBERS:
        raise ValueError(f"value {wrong[0] + 1} of {texts.name} is {texts[wrong[0]]!r}, not a number")
    return texts


def _values(texts: pl.Series) -> pl.Series:
    """A further field of records: truth values or numbers if each text is exactly that of its value, else texts."""
    import polars as pl

    if texts.null_count() == len(texts):
        return texts.cast(pl.Null)
    if texts.drop_nulls().is_in(["true", "false"]).all():
        return texts == "true"
    tried = (texts.cast(kind, strict=False) for kind in (pl.Int64, pl.Float64))
    return next((values for values in tried if values.cast(pl.String).eq_missing(texts).all()), texts)


def kind_of(columns: Iterable[str], name: str) -> FileKind:
    """The kind of rows with these columns; ConfigError if an archive takes none such."""
    have = set(columns)
    if "ts" in have:
        for view, spec in VIEWS.items():
            # A market of metrics may be named by its slug.
            named = "token_id" in have if spec.has_tokens else have & {"market_id", "slug"}
            if named and (have & set(spec.names) if spec.optional else have >= set(spec.names)):
                return view
    elif "market_id" in have and have & {"token_ids", "question", "slug"}:
        return "markets"
    elif have & {"event_id", "event_slug"}:
        return "events"
    elif have & {"series_id", "series_slug"}:
        return "series"
    raise ConfigError(
        f"{name!r} holds nothing that an archive takes: its columns are {sorted(have)}. Tidy columns are: books "
        "ts token_id side level price size; prices ts token_id price; metrics ts market_id "
        f"{' '.join(METRICS)}; markets market_id slug question token_ids token_labels. Columns of recordings of order "
        "books are in the guide on them: rename yours to these."
    )


def write(rows: pl.LazyFrame, path: Path) -> None:
    """Write rows to a file; see `write_file`."""
    import polars as pl

    try:
        write_file(rows, path)
    except (OSError, pl.exceptions.PolarsError) as problem:
        raise ArchiveError(f"Writing {path.name!r} failed: {problem}. The archive is as it was.") from problem
