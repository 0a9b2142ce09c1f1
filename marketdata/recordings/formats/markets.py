"""Records of markets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from marketdata.recordings.columns import first
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import Batch, Format
from marketdata.recordings.points import NO_RECORDS, RECORD_NAMES, read_records

_LISTS = ("token_ids", "clob_token_ids", "token_ids_json", "asset_ids", "assets_ids")
_TOKEN_OF_OUTCOME = re.compile(r"(?:outcome|token)_(\d+)_(?:token_)?id")


def read(chosen: Format, file: RecordingFile) -> Iterator[Batch]:
    """The records, their tokens as ``token_ids`` and ``token_labels``."""
    (batch,) = read_records(chosen, file)
    columns, frame = chosen.columns(file), batch.frame
    if "market_id" not in frame.columns:
        frame = frame.rename({columns.get("market_id", "id"): "market_id"}, strict=False)
    ids = first(frame.columns, _LISTS)
    numbered = sorted((int(m[1]), m.group()) for m in map(_TOKEN_OF_OUTCOME.fullmatch, frame.columns) if m)
    if ids:
        frame = frame.with_columns(_lists(frame, ids).alias("token_ids"))
    elif numbered and "tokens" not in frame.columns:
        frame = frame.with_columns(_list_of([name for _, name in numbered]).list.drop_nulls().alias("token_ids"))
    if "token_ids" in frame.columns:
        labels = pl.col("token_ids")
        names = [name for n, _ in numbered if (name := first(frame.columns, (f"outcome_{n}_label", f"outcome_{n}")))]
        if "token_labels" in columns:
            labels = _lists(frame, columns["token_labels"])
        elif numbered and len(names) == len(numbered):
            labels = _list_of(names)
        # A market with another number of labels has ids in their place.
        fits = labels.list.len() == pl.col("token_ids").list.len()
        frame = frame.with_columns(pl.when(fits).then(labels).otherwise("token_ids").alias("token_labels"))
    batch.frame = frame
    yield batch


def _list_of(names: list[str]) -> pl.Expr:
    return pl.concat_list(pl.col(names).cast(pl.String))


def _lists(frame: pl.DataFrame, name: str) -> pl.Expr:
    """Lists of texts, also of texts of JSON."""
    lists, column = pl.List(pl.String), pl.col(name)
    return column.str.json_decode(lists) if frame[name].dtype == pl.String else column.cast(lists)


FORMAT = Format(
    name="markets",
    kind="markets",
    description="records of markets, with their tokens",
    needs=("market_id token_ids/question/slug", "id token_ids"),
    read=read,
    also=("token_ids", "token_labels", "question", "slug"),
    without=NO_RECORDS,
    names={**RECORD_NAMES, "question": ("question",)},
)
