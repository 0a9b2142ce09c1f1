"""Tables of tidy points and of records, each read at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import polars as pl

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import micros
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.errors import ConfigError
from marketdata.points.records import COLUMNS, NUMBER_LISTS, TEXT_LISTS
from marketdata.points.schema import ID_COLUMNS

# Columns of texts, whatever their values look like: a label may be 007.
_TEXTS = {"side", "slug", *ID_COLUMNS, *(name for names in COLUMNS.values() for name in names)}


def points_of(
    file: RecordingFile,
    choose: Callable[[Sequence[str]], dict[str, str]],
    needed: Sequence[str],
    *,
    extra: bool = False,
) -> Iterator[Batch]:
    """The points of a table under the names of tidy frames; rows without a needed value, and copies, are left out.

    ``choose`` says which column of the file has which name. ``extra``: further columns of numbers stay.
    """
    frame = _whole(file)
    batch = Batch(rows=len(frame))
    names = choose(frame.columns)
    others = [c for c in frame.columns if extra and c not in names.values() and not c.endswith("_id")]
    rows = frame.select(*(pl.col(column).alias(name) for name, column in names.items()), *others)
    for name in rows.columns:
        if name != "ts" and name not in _TEXTS and rows[name].dtype == pl.String:
            numbers = _numbers(rows[name], required=name in needed)
            rows = rows.drop(name) if numbers is None else rows.with_columns(numbers)
    for name in needed:
        present = rows.drop_nulls(name)
        if len(present) < len(rows):
            batch.left_out[f"without a {'time' if name == 'ts' else name}"] += len(rows) - len(present)
            rows = present
    rows = rows.with_columns(pl.Series("ts", micros(rows["ts"])).cast(pl.Datetime("us", "UTC")))
    distinct = rows.unique(maintain_order=True)
    batch.left_out += Counter({"equal to another row": len(rows) - len(distinct)})
    batch.frame = distinct
    yield batch


def records_of(file: RecordingFile) -> pl.DataFrame:
    """The records of a table, with the types that their texts show."""
    frame = _whole(file)
    if file.form == "csv":
        names = [c for c in frame.columns if not (c in _TEXTS or c.endswith(("_id", "_slug")))]
        frame = frame.with_columns(_typed(frame[name]) for name in names)
    lists = dict.fromkeys(TEXT_LISTS, pl.String) | dict.fromkeys(NUMBER_LISTS, pl.Float64)
    texts = [name for name in lists if name in frame.columns and frame[name].dtype == pl.String]
    try:
        return frame.with_columns(pl.col(name).str.json_decode(pl.List(lists[name])) for name in texts)
    except pl.exceptions.PolarsError as problem:
        raise ConfigError(f'{", ".join(texts)} should have lists as JSON, such as ["a", "b"]: {problem}.') from None


def _whole(file: RecordingFile) -> pl.DataFrame:
    frames = list(file.frames())
    return (
        pl.concat(frames, how="diagonal_relaxed")
        if frames
        else pl.DataFrame(schema=dict.fromkeys(file.columns, pl.String))
    )


def _numbers(texts: pl.Series, *, required: bool) -> pl.Series | None:
    """A column of texts as numbers; None for another column of which one is no number, ConfigError if it is needed."""
    plain = texts.str.strip_chars()
    numbers = plain.cast(pl.Float64, strict=False)
    wrong = (numbers.is_null() & (plain != "")).arg_true()
    if not len(wrong):
        return numbers
    if required:
        raise ConfigError(f"value {wrong[0] + 1} of {texts.name} is {texts[wrong[0]]!r}, not a number.")
    return None


def _typed(texts: pl.Series) -> pl.Series:
    """Truth values or numbers if each text is exactly that of its value, else texts."""
    if texts.null_count() == len(texts):
        return texts.cast(pl.Null)
    if texts.drop_nulls().is_in(["true", "false"]).all():
        return texts == "true"
    tried = (texts.cast(kind, strict=False) for kind in (pl.Int64, pl.Float64))
    return next((values for values in tried if values.cast(pl.String).eq_missing(texts).all()), texts)
