"""Columns of tables of recordings: the names that publishers give them, and their values as tidy frames have them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.points.columns import Codes, Floats, Ints, Token
from marketdata.points.schema import SNAPSHOT_FIELDS
from marketdata.recordings.changes import ASKS, BIDS
from marketdata.times import parse_iso, unix_scale

# The order matters because the first name that a file has counts.
NAMES: dict[str, tuple[str, ...]] = {
    "ts": (
        "ts", "timestamp", "exchange_timestamp", "venue_timestamp", "book_timestamp", "time", "t", "snapshot_time",
        "snapshot_ts", "snapshot_at", "datetime", "block_timestamp", "match_time", "created_at",
    ),
    "received_at": (
        "received_at", "timestamp_received", "recv_ts", "receive_ts", "local_timestamp", "collected_at", "captured_at",
        "fetched_at", "collected_at_utc", "recorded_at", "ingested_at", "timestamp_created_at",
    ),
    "market_id": ("market_id", "condition_id", "market", "market_slug", "slug"),
    "token_id": (
        "token_id", "asset_id", "clob_token_id", "token", "asset", "instrument_id", "symbol", "ticker", "market_ticker",
    ),
    "token_label": ("token_label", "token_side", "outcome", "outcome_label"),
    "side": ("side", "taker_side", "taker_direction"),
    "price": ("price", "p"),
    "size": ("size", "amount", "quantity", "qty", "shares"),
    "level": ("level", "level_index", "rank"),
    "bids": ("bids", "bid_levels", "buys", "bids_top5", "bids_top10", "bids_top20"),
    "asks": ("asks", "ask_levels", "sells", "asks_top5", "asks_top10", "asks_top20"),
    "book": ("book", "orderbook", "order_book", "book_json", "orderbook_json", "raw_book"),
    "yes_levels": ("yes_levels", "yes_bids", "yes"),
    "no_levels": ("no_levels", "no_bids", "no"),
    "question": ("question", "title"),
    "slug": ("slug", "market_slug"),
    "title": ("title", "event_title", "series_title"),
    "token_ids": (
        "token_ids", "clob_token_ids", "token_ids_json", "asset_ids", "assets_ids", "tokens", "outcome_0_token_id",
        "outcome_1_token_id", "token_0_id", "token_1_id",
    ),
    "token_labels": ("token_labels", "outcomes"),
    "trade_id": ("trade_id", "fill_id", "match_id"),
    "transaction_hash": ("transaction_hash", "tx_hash"),
    "maker": ("maker", "maker_address"),
    "taker": ("taker", "taker_address"),
    "trader_side": ("trader_side", "role", "liquidity", "maker_or_taker"),
    "maker_amount": ("maker_amount_filled", "maker_amount"),
    "taker_amount": ("taker_amount_filled", "taker_amount"),
    **{
        name: (name,)
        for name in (
            "best_bid", "best_ask", "is_snapshot", "event_type", "event_id", "event_slug", "series_id", "series_slug",
            "volume", "liquidity", "spread", *SNAPSHOT_FIELDS,
        )
    },
}  # fmt: skip


def first(present: Iterable[str], names: Iterable[str]) -> str | None:
    """The first of ``names`` that is present."""
    present = set(present)
    return next((name for name in names if name in present), None)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """The nearest of the names as a hint, empty if none is near."""
    return "".join(f"; did you mean {near!r}?" for near in difflib.get_close_matches(name, names, n=1))


def renamed_columns(columns: Any) -> dict[str, str]:
    """The argument ``columns`` of imports; ConfigError for a name that is not ours, with the nearest one that is."""
    if columns is not None and not isinstance(columns, Mapping):
        raise ConfigError("is no dict such as {'ts': 'when'}.", argument="columns", value=columns)
    for name in columns or {}:
        if name not in NAMES:
            hint = did_you_mean(str(name), NAMES)
            raise ConfigError(
                f"has {name!r}, which is no column of ours{hint} They are {', '.join(NAMES)}.",
                argument="columns",
                value=columns,
            )
    return {str(name): str(column) for name, column in (columns or {}).items()}


def numbers(column: pl.Series) -> Floats:
    """A column of numbers, decimals or texts as floats, NaN where it has none."""
    return column.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()


def micros(column: pl.Series) -> Ints:
    """Times, Unix times in any unit or ISO texts as microseconds UTC; ConfigError for an unreadable one."""
    if isinstance(column.dtype, pl.Datetime):
        return column.dt.epoch("us").to_numpy()
    if not column.dtype.is_numeric():
        column = column.cast(pl.String).str.strip_chars()
    values = column.cast(pl.Float64, strict=False)
    if values.null_count():
        return _iso(column).to_numpy()
    try:
        times, over = unix_scale(float(np.median(values)) if len(values) else 1e15)
    except ValueError as problem:
        raise ConfigError(f"{column.name} cannot be read: {problem}.") from None
    whole = column.cast(pl.Int64, strict=False)
    if whole.null_count() or column.dtype.is_float():
        return np.rint(values.to_numpy() * times / over).astype(np.int64)
    return whole.to_numpy() * times // over


def _iso(column: pl.Series) -> pl.Series:
    """ISO 8601 texts; each distinct one is read once."""
    micros_of = {}
    for text in column.unique(maintain_order=True).to_list():
        try:
            micros_of[text] = parse_iso(text)
        except ValueError as problem:
            place = (column.index_of(text) or 0) + 1
            raise ConfigError(
                f"{column.name} is neither an ISO 8601 time nor a Unix time: value {place}, {problem}."
            ) from None
    return column.replace_strict(micros_of, return_dtype=pl.Int64)


def identified(frame: pl.DataFrame) -> pl.DataFrame:
    """The ids of the rows as texts; a token without an id is called by its market and label."""
    absent = [pl.lit(None).alias(name) for name in Token._fields if name not in frame.columns]
    market = pl.col("market_id").fill_null("").str.strip_chars("\0 ")
    derived = pl.format("{}:{}", market, pl.col("token_label").fill_null("None"))
    token = pl.when(pl.col("token_id") != "").then("token_id").otherwise(derived)
    texts = frame.with_columns(absent).select(pl.col(Token._fields).cast(pl.String))
    return texts.select(market, token.alias("token_id"), "token_label")


def tokens(frame: pl.DataFrame) -> tuple[tuple[Token, ...], Codes]:
    """The distinct tokens, and for each row the number of its token."""
    ids = identified(frame)
    distinct = ids.unique(maintain_order=True)
    numbered = ids.join(
        distinct.with_row_index("code"), on=Token._fields, how="left", nulls_equal=True, maintain_order="left"
    )
    return tuple(map(Token._make, distinct.iter_rows())), numbered["code"].to_numpy().astype(np.int32)


def sides(column: pl.Series) -> NDArray[np.int8]:
    """Sides as numbers, a missing one as the bids; ConfigError for another text."""
    codes_of = dict.fromkeys(("buy", "bid", "bids", "b"), BIDS) | dict.fromkeys(("sell", "ask", "asks", "a"), ASKS)
    texts = column.cast(pl.String).str.to_lowercase()
    codes = texts.replace_strict(codes_of, default=None, return_dtype=pl.Int8)
    wrong = texts.filter(codes.is_null() & (texts != ""))
    if len(wrong):
        raise ConfigError(f"{column.name} has the value {wrong[0]!r}; allowed are {', '.join(codes_of)}.")
    return codes.fill_null(BIDS).to_numpy().copy()
