"""Best bids and asks of Yes and No of markets, one row a moment."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.recordings.format import Format
from marketdata.recordings.points import add_points, last_of_each, left, one_batch, outcomes_of, tokens_of_both
from marketdata.recordings.records import is_history
from marketdata.recordings.roles import numbers
from marketdata.recordings.table import Batch, Table
from marketdata.recordings.units import is_probability

_PRICES = ("yes_bid", "yes_ask", "no_bid", "no_ask")


def is_of_records(table: Table) -> str | None:
    """A listing has such prices too: its rows say the state of a market, and no market comes twice."""
    if "state" not in table.columns or is_history(table):
        return None
    return f"{table.columns['state']} says the state of each market once, so its rows are records of markets."


def read(table: Table) -> Iterator[Batch]:
    """Two quotes a row; the prices of No that are not stated are those of Yes from the other side."""
    rows, batch = one_batch(table, _PRICES)
    if not len(rows):
        yield batch
        return
    rows = rows.with_columns(pl.Series(n, numbers(rows[n])).fill_nan(None) for n in _PRICES if n in rows.columns)
    opposite = {"no_bid": "yes_ask", "no_ask": "yes_bid", "yes_ask": "no_bid"}
    absent = [(1 - pl.col(of)).round(9).alias(n) for n, of in opposite.items()
              if n not in rows.columns and of in rows.columns]  # fmt: skip
    stated = [n for n in _PRICES if n in rows.columns]
    is_whole = is_probability(*stated) & pl.col("market_id").is_not_null()
    rows = left(rows, is_whole, "price outside of 0 to 1, or no market", batch)
    rows = rows.with_columns(absent).with_columns(pl.col("market_id").cast(pl.String))
    rows = last_of_each(rows, ("ts", "market_id"), batch)
    names = tokens_of_both(rows, table, batch)
    both = pl.concat([
        rows.select("ts", "market_id", token.alias("token_id"), pl.lit(label).alias("token_label"),
                    best_bid=f"{outcome}_bid", best_ask=f"{outcome}_ask")
        for outcome, label, token in zip(("yes", "no"), outcomes_of(table), names, strict=True)
    ])  # fmt: skip
    batch.frames = add_points(Batch(), "quotes", both).frames
    yield batch


FORMAT = Format(
    name="outcome-quotes",
    kind="quotes",
    description="a table of best bids and asks of Yes and No",
    needs=("ts market_id yes_bid yes_ask", "ts market_id yes_bid no_bid"),
    takes="no_bid no_ask token_id price yes_price no_price",
    read=read,
    guards=(is_of_records,),
)
