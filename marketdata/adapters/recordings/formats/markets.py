"""Records of markets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import polars as pl

from marketdata.adapters.recordings.columns import first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.points import NO_RECORDS, POINT_NAMES, read_records

_LISTS = ("token_ids", "clob_token_ids", "token_ids_json", "asset_ids", "assets_ids")
_TOKEN_OF_OUTCOME = re.compile(r"(?:outcome|token)_(\d+)_(?:token_)?id")


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """The records, their tokens as ``token_ids`` and ``token_labels``."""
    (batch,) = read_records(file, options)
    assert batch.frame is not None
    columns, frame = FORMAT.columns(file), batch.frame
    if "market_id" not in frame.columns:
        frame = frame.rename({columns.get("market_id", "id"): "market_id"}, strict=False)
    ids = first(frame.columns, _LISTS)
    numbered = sorted((int(m[1]), m.group()) for m in map(_TOKEN_OF_OUTCOME.fullmatch, frame.columns) if m)
    if ids:
        frame = frame.with_columns(_lists(frame[ids]).alias("token_ids"))
    elif numbered and "tokens" not in frame.columns:
        frame = frame.with_columns(_list_of(name for _, name in numbered).list.drop_nulls().alias("token_ids"))
    if "token_ids" in frame.columns:
        labels = None
        if "token_labels" in columns:
            labels = _lists(frame[columns["token_labels"]])
        elif numbered:
            names = [first(frame.columns, (f"outcome_{n}_label", f"outcome_{n}")) for n, _ in numbered]
            labels = frame.select(_list_of(names)).to_series() if all(names) else None
        frame = frame.with_columns(_labels(frame["token_ids"], labels).alias("token_labels"))
    batch.frame = frame
    yield batch


def _list_of(names: Iterable[str | None]) -> pl.Expr:
    return pl.concat_list(pl.col([name for name in names if name]).cast(pl.String))


def _lists(column: pl.Series) -> pl.Series:
    """Lists of texts, also of texts of JSON."""
    if column.dtype == pl.String:
        return column.str.json_decode(pl.List(pl.String))
    return column.cast(pl.List(pl.String))


def _labels(ids: pl.Series, labels: pl.Series | None) -> pl.Series:
    """The labels of tokens; a market with another number of labels has ids in their place."""
    given = labels.to_list() if labels is not None else [None] * len(ids)
    pairs = zip(ids.to_list(), given, strict=True)
    names = [n if n is not None and i is not None and len(n) == len(i) else i for i, n in pairs]
    return pl.Series(names, dtype=pl.List(pl.String))


FORMAT = Format(
    name="markets",
    kind="markets",
    description="records of markets, with their tokens",
    needs=("market_id token_ids/question/slug", "id token_ids"),
    read=read,
    also=("token_ids", "token_labels", "question", "slug"),
    without=NO_RECORDS,
    names={**POINT_NAMES, "market_id": ("market_id", "condition_id"), "question": ("question",)},
)
