"""Bids of both outcomes of a market, one row a moment; a bid at p is an ask of the other outcome at 1 - p."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from marketdata.adapters.recordings.columns import NAMES
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.tables import Levels, Sides, book_batch, derived_markets, readable, sides_of

_LABELS = ("Yes", "No")


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """Two books of their own moment from each row."""
    for frame, batch in FORMAT.rows(file, options):
        rows, books = readable(
            frame, [_books(*cells) for cells in frame.select("yes_levels", "no_levels").iter_rows()], batch
        )
        batch.markets = derived_markets(dict.fromkeys(frame["market_id"].drop_nulls().unique().to_list(), _LABELS))
        rows = rows.drop("best_bid", "best_ask", strict=False)
        labelled = [rows.with_columns(pl.lit(label).alias("token_label")) for label in _LABELS]
        both = [book[outcome] for outcome in range(2) for book in books]
        yield book_batch(batch, pl.concat(labelled), options, both)


def _books(yes: Any, no: Any) -> tuple[Sides, Sides] | None:
    """The books of both outcomes; None if one cannot be read."""
    sides = sides_of(yes, no)
    if sides is None:
        return None
    bids = [_dollars(levels) for levels in sides]
    asks = [[(round(1 - price, 9), size) for price, size in levels] for levels in reversed(bids)]
    return (bids[0], asks[0]), (bids[1], asks[1])


def _dollars(levels: Levels) -> Levels:
    """Prices in dollars; whole numbers from 1 on are cents."""
    if levels and all(price >= 1 and price == int(price) for price, _ in levels):
        return [(price / 100, size) for price, size in levels]
    return levels


FORMAT = Format(
    name="outcome-bids",
    kind="books",
    description="a table of the bids of both outcomes: an ask of Yes at p is a bid of No at 1 - p",
    needs=("ts market_id yes_levels no_levels",),
    read=read,
    names={"market_id": ("ticker", "market_ticker", *NAMES["market_id"], "symbol"), "token_id": ()},
)
