"""Trades, one row per print or per leg of a fill."""

from __future__ import annotations

import polars as pl

from marketdata.recordings.format import UNDECIDED, Format, by_parts
from marketdata.recordings.roles import numbers
from marketdata.recordings.table import Batch, Table
from marketdata.recordings.trades import add_trades

# Prints have a size; a few rows of a file may be wrong.
_MOST_EMPTY = 0.05
_ASSETS = ("maker_asset_id", "taker_asset_id")


def proves(table: Table) -> int:
    """Sides of a book are bids and asks, sides of trades mostly buys and sells."""
    if table.has_tickers and table.columns.get("token_label") == table.columns.get("outcome_side", ""):
        return 0  # a price of Yes, or of the outcome that the taker bought
    if _has_removed_levels(table):
        return 0
    if "side" not in table.columns or "trade_id" in table.columns or "transaction_hash" in table.columns:
        return UNDECIDED
    sides = table.file.sample[table.columns["side"]].drop_nulls()
    texts = {str(side).strip().lower() for side in sides.to_list()}
    return 0 if texts - {"b"} and texts <= {"bid", "bids", "b", "ask", "asks", "a", "offer"} else UNDECIDED


def _has_removed_levels(table: Table) -> bool:
    """Whether some rows have no size, and none an id, as changes of a book have."""
    if {"trade_id", "transaction_hash"} & table.columns.keys() or "size" not in table.columns:
        return False
    sizes = numbers(table.file.sample[table.columns["size"]])
    return bool((sizes == 0).sum() > len(sizes) * _MOST_EMPTY)


def add(frame: pl.DataFrame, batch: Batch) -> None:
    """Add the trades; where no column is a side, the taker buys the token that the maker gives."""
    if "side" not in frame.columns and {"token_id", *_ASSETS} <= set(frame.columns):
        gives, takes = (pl.col(asset).cast(pl.String) == pl.col("token_id").cast(pl.String) for asset in _ASSETS)
        side = pl.when(gives & ~takes).then(pl.lit("buy")).when(takes & ~gives).then(pl.lit("sell"))
        frame = frame.with_columns(side.alias("side"))
    add_trades(frame, batch)


FORMAT = Format(
    name="trades",
    kind="trades",
    description="a table of trades; for `md.read_trades`, as an archive has none",
    needs=("ts token_id price size", "ts market_id token_label price size", "ts market_id token_number price size"),
    takes="side transaction_hash maker taker account trader_side trade_id token_id best_bid best_ask maker_asset_id "
    "taker_asset_id",
    read=by_parts(add, "price"),
    proves=proves,
)
