"""Tables of tidy points and of records, each read at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.records import COLUMNS, NUMBER_LISTS, TEXT_LISTS
from marketdata.points.schema import ID_COLUMNS
from marketdata.recordings.columns import micros
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import Batch, Format

# Not created_at and the like, because records have these.
POINT_NAMES = {
    "ts": ("ts", "timestamp", "time", "t", "datetime", "snapshot_time", "bucket", "bucket_start"), "received_at": (),
    "token_id": ("token_id", "asset_id", "clob_token_id", "token", "asset"),
}  # fmt: skip
RECORD_NAMES = {**POINT_NAMES, "market_id": ("market_id", "condition_id")}
NO_RECORDS = (
    "ts", "token_id", "price", "side", "size", "bids", "asks", "event_type", "trade_id", "order_id",
    "transaction_hash", "maker", "taker",
)  # fmt: skip
# Texts even if they look like numbers, because a label may be 007.
_TEXTS = {"side", "slug", *ID_COLUMNS, *(name for names in COLUMNS.values() for name in names)}


def read_points(
    file: RecordingFile, columns: Mapping[str, str], *needed: str, numbers: Sequence[str] = (), extra: bool = False
) -> Iterator[Batch]:
    """The points of a table; rows without a needed value, and copies of rows, are left out.

    ``columns`` says which column of the file has which of our names. The columns ``numbers`` have a number or null in
    each row: a null is a missing value, which is kept. With ``extra`` further columns of numbers stay.
    """
    frame = _whole(file)
    others = [c for c in frame.columns if extra and c not in columns.values() and not c.endswith("_id")]
    rows = frame.select(*(pl.col(column).alias(name) for name, column in columns.items()), *others)
    for name in rows.columns:
        if name != "ts" and name not in _TEXTS and rows[name].dtype == pl.String:
            texts = rows[name].str.strip_chars()
            parsed = texts.cast(pl.Float64, strict=False)
            wrong = (parsed.is_null() & (texts != "")).arg_true()
            if len(wrong) and name in numbers:
                raise ConfigError(f"value {wrong[0] + 1} of {name} is {rows[name][wrong[0]]!r}, not a number.")
            rows = rows.drop(name) if len(wrong) else rows.with_columns(parsed)
    left_out = Counter[str]()
    for name in needed:
        present = rows.drop_nulls(name)
        left_out[f"without a {'time' if name == 'ts' else name}"] = len(rows) - len(present)
        rows = present
    points = rows.with_columns(pl.Series("ts", micros(rows["ts"])).cast(pl.Datetime("us", "UTC")))
    points = points.unique(maintain_order=True)
    left_out["equal to another row"] = len(rows) - len(points)
    yield Batch(frame=points, rows=len(frame), left_out=+left_out)


def read_records(_: Format, file: RecordingFile) -> Iterator[Batch]:
    """The records of a table, with the types that their texts show."""
    frame = _whole(file)
    if file.form == "csv":
        names = [c for c in frame.columns if not (c in _TEXTS or c.endswith(("_id", "_slug")))]
        frame = frame.with_columns(_typed(frame[name]) for name in names)
    lists = dict.fromkeys(TEXT_LISTS, pl.String) | dict.fromkeys(NUMBER_LISTS, pl.Float64)
    texts = [name for name in lists if name in frame.columns and frame[name].dtype == pl.String]
    try:
        frame = frame.with_columns(pl.col(name).str.json_decode(pl.List(lists[name])) for name in texts)
    except pl.exceptions.PolarsError as problem:
        raise ConfigError(f'{", ".join(texts)} should have lists as JSON, such as ["a", "b"]: {problem}.') from None
    yield Batch(frame=frame, rows=len(frame))


def _whole(file: RecordingFile) -> pl.DataFrame:
    """The rows of a file; ConfigError for a damaged one."""
    parts = list(file.frames()) or [pl.DataFrame(schema=dict.fromkeys(file.columns, pl.String))]
    if file.damage:
        raise ConfigError(file.damage)
    return pl.concat(parts, how="diagonal_relaxed")


def _typed(texts: pl.Series) -> pl.Series:
    """Truth values or numbers if they are written exactly as the texts, else the texts."""
    if texts.null_count() == len(texts):
        return texts.cast(pl.Null)
    if texts.drop_nulls().is_in(["true", "false"]).all():
        return texts == "true"
    tried = (texts.cast(kind, strict=False) for kind in (pl.Int64, pl.Float64))
    return next((values for values in tried if values.cast(pl.String).eq_missing(texts).all()), texts)
