"""Records of markets."""

from __future__ import annotations

import re
from collections.abc import Iterator

import polars as pl

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import PRICE, SIDE, SIZE, first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading
from marketdata.adapters.recordings.points import records_of

# A table with one of these is no list of records: it has times, tokens, prices or trades, one a row.
NO_RECORDS = (
    *PRICE, *SIDE, *SIZE, "ts", "timestamp", "time", "t", "datetime", "token_id", "asset_id", "clob_token_id", "token",
    "trade_id", "order_id", "transaction_hash", "tx_hash", "maker", "taker", "bids", "asks", "event_type", "level",
)  # fmt: skip
_ID = ("market_id", "condition_id")
_TOKENS = ("tokens", "token_ids", "clob_token_ids", "token_ids_json", "asset_ids", "assets_ids")
_LABELS = ("token_labels", "outcomes")
_TOKEN_OF_OUTCOME = re.compile(r"(?:outcome|token)_(\d+)_(?:token_)?id")


def read(file: RecordingFile, _: Reading) -> Iterator[Batch]:
    """The records, their tokens as ``token_ids`` and ``token_labels``."""
    names = file.columns
    ids, labels, identity = first(names, _TOKENS[1:]), first(names, _LABELS), first(names, (*_ID, "id"))
    if identity not in (None, "market_id") and "market_id" not in names:
        file_names = {str(identity): "market_id"}
    else:
        file_names = {}
    frame = records_of(file).rename(file_names)
    batch = Batch(rows=len(frame))
    matches = sorted((int(m[1]), m.group()) for m in map(_TOKEN_OF_OUTCOME.fullmatch, names) if m)
    if ids and ids != "token_ids":
        frame = frame.with_columns(_lists(frame[ids]).alias("token_ids"))
    elif matches and not ids and "tokens" not in names:
        columns = [column for _, column in matches]
        frame = frame.with_columns(pl.concat_list(pl.col(columns).cast(pl.String)).list.drop_nulls().alias("token_ids"))
    if "token_ids" in frame.columns:
        frame = frame.with_columns(_lists(frame["token_ids"]))
        texts = _lists(frame[labels]) if labels else None
        places = [n for n, _ in matches]
        labelled = [f"outcome_{n}_label" if f"outcome_{n}_label" in frame.columns else f"outcome_{n}" for n in places]
        if texts is None and matches and all(c in frame.columns for c in labelled):
            texts = frame.select(pl.concat_list(pl.col(labelled).cast(pl.String))).to_series()
        frame = frame.with_columns(_labels(frame["token_ids"], texts).alias("token_labels"))
    batch.frame = frame
    yield batch


def _lists(column: pl.Series) -> pl.Series:
    """Lists of texts, also of texts of JSON."""
    if column.dtype == pl.String:
        return column.str.json_decode(pl.List(pl.String))
    return column.cast(pl.List(pl.String))


def _labels(ids: pl.Series, labels: pl.Series | None) -> pl.Series:
    """The labels of tokens; a token without one is called by its id."""
    given = labels.to_list() if labels is not None else [None] * len(ids)
    pairs = zip(ids.to_list(), given, strict=True)
    return pl.Series(
        [n if n is not None and i is not None and len(n) == len(i) else i for i, n in pairs], dtype=pl.List(pl.String)
    )


def fits(file: RecordingFile) -> int:
    """One for each column that only records of markets have."""
    names = file.columns
    if first(names, NO_RECORDS):
        return 0
    tokens = first(names, _TOKENS) or any(_TOKEN_OF_OUTCOME.fullmatch(name) for name in names)
    evidence = [tokens, first(names, ("question",)), first(names, ("slug", "market_slug")), first(names, _LABELS)]
    identity = first(names, _ID) or (tokens and first(names, ("id",)))
    return 1 + sum(map(bool, evidence)) if identity and any(evidence[:3]) else 0


FORMAT = Format(
    name="markets",
    kind="markets",
    description="records of markets, with their tokens",
    needs="market_id (or condition_id, or id beside tokens), and token_ids, question or slug; no time, token or price",
    fits=fits,
    read=read,
)
