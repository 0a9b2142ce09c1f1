"""Bids of both outcomes of a market, one row a moment; a bid at p is an ask of the other outcome at 1 - p."""

from __future__ import annotations

from typing import Any

import polars as pl

from marketdata.recordings.columns import NAMES
from marketdata.recordings.format import Batch, Format, by_parts
from marketdata.recordings.tables import Sides, add_books, derived_markets, readable, sides_of

_LABELS = ("Yes", "No")


def add(frame: pl.DataFrame, batch: Batch) -> None:
    """Add two books of their own moment for each row."""
    rows, books = readable(
        frame, [_books(*cells) for cells in frame.select("yes_levels", "no_levels").iter_rows()], batch
    )
    batch.markets = derived_markets(dict.fromkeys(frame["market_id"].drop_nulls().unique().to_list(), _LABELS), {})
    rows = rows.drop("best_bid", "best_ask", strict=False)
    both = pl.concat([rows.with_columns(pl.lit(label).alias("token_label")) for label in _LABELS])
    add_books(both, batch, [book[outcome] for outcome in range(2) for book in books])


def _books(yes: Any, no: Any) -> tuple[Sides, Sides] | None:
    """The books of both outcomes; None if one cannot be read."""
    sides = sides_of(yes, no)
    if sides is None:
        return None
    bids = []
    for levels in sides:
        # Whole numbers from 1 on are cents.
        unit = 100 if levels and all(price >= 1 and price == int(price) for price, _ in levels) else 1
        bids.append([(price / unit, size) for price, size in levels])
    asks = [[(round(1 - price, 9), size) for price, size in levels] for levels in reversed(bids)]
    return (bids[0], asks[0]), (bids[1], asks[1])


FORMAT = Format(
    name="outcome-bids",
    description="a table of the bids of both outcomes: an ask of Yes at p is a bid of No at 1 - p",
    needs=("ts market_id yes_levels no_levels",),
    read=by_parts(add),
    names={"market_id": ("ticker", "market_ticker", *NAMES["market_id"], "symbol"), "token_id": ()},
)
