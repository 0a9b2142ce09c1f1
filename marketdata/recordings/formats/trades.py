"""Trades, one row per print or per leg of a fill."""

from __future__ import annotations

import polars as pl

from marketdata.recordings.format import Format, by_parts
from marketdata.recordings.roles import is_text, numbers
from marketdata.recordings.table import Batch, Table
from marketdata.recordings.trades import add_trades, has_unknown_sides

# Prints have a size; a few rows of a file may be wrong.
_MOST_EMPTY = 0.05
_ASSETS = ("maker_asset_id", "taker_asset_id")


_IDS = {"trade_id", "transaction_hash"}


def is_of_an_outcome(table: Table) -> str | None:
    """A price beside a ticker and a side may be that of Yes, or of the outcome that the taker bought."""
    if not table.has_tickers or table.columns.get("token_label") != table.columns.get("outcome_side", ""):
        return None
    return (
        f"{table.columns['price']} may be the price of Yes, or of the outcome in {table.columns['outcome_side']}: name "
        "the column yes_price if it is that of Yes."
    )


def has_outcomes_elsewhere(table: Table) -> str | None:
    """Rows by market, and a column of Yes and No that has no role: each may be of another outcome."""
    columns, sample = table.columns, table.file.sample
    if "token_label" in columns or table.has_both_outcomes:
        return None
    if columns.get("token_id") not in (None, "ticker", "market_ticker", columns.get("market_id")):
        return None
    for column in (n for n in table.others if is_text(sample[n]) and not n.startswith(("is_", "has_"))):
        texts = {str(text).strip().lower() for text in sample[column].drop_nulls().unique()}
        said = [{"yes", "no"} & set(text.split()) for text in texts]
        if not texts or not all(said) or len(set().union(*said)) == 1:
            continue
        if texts == {"yes", "no"}:
            option = f"columns={{'token_label': {column!r}}}"
            return f"{column} has Yes and No: if it is the outcome of each row, say so with {option}, else take it out."
        return f"{column} has Yes and No beside other words: write two columns, outcome of Yes and No, and side."
    return None


def has_removed_levels(table: Table) -> str | None:
    """Some rows have no size, and none an id, as changes of a book have."""
    if _IDS & table.columns.keys() or "size" not in table.columns:
        return None
    sizes = numbers(table.file.sample[table.columns["size"]])
    if (sizes == 0).sum() <= len(sizes) * _MOST_EMPTY:
        return None
    return f"{table.columns['size']} has zeros, as changes of books have. Write a column is_snapshot of true and false."


def has_sides_of_a_book(table: Table) -> str | None:
    """Sides of a book are bids and asks, sides of trades mostly buys and sells."""
    if "side" not in table.columns or _IDS & table.columns.keys():
        return None
    sides = table.file.sample[table.columns["side"]].drop_nulls()
    texts = {str(side).strip().lower() for side in sides.to_list()}
    if not texts - {"b"} or not texts <= {"bid", "bids", "b", "ask", "asks", "a", "offer"}:
        return None
    return f"{table.columns['side']} has bids and asks, so its rows are levels of a book."


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
    description="a table of trades",
    needs=("ts token_id price size", "ts market_id token_label price size", "ts market_id token_number price size"),
    takes="side transaction_hash maker taker account role trade_id token_id best_bid best_ask maker_asset_id "
    "taker_asset_id",
    read=by_parts(add, "price"),
    guards=(is_of_an_outcome, has_outcomes_elsewhere, has_removed_levels, has_sides_of_a_book, has_unknown_sides),
)
