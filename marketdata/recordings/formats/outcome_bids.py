"""Bids of both outcomes of a market, one row a moment; a bid at p is an ask of the other outcome at 1 - p."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl

from marketdata.errors import ContractError
from marketdata.recordings.book_rows import Sides, add_books, levels_of, printed, readable
from marketdata.recordings.format import Format
from marketdata.recordings.points import OUTCOMES, tokens_of_both
from marketdata.recordings.table import Batch, Table
from marketdata.wire import kalshi


def read(table: Table) -> Iterator[Batch]:
    """Two books of their own moment for each row."""
    for frame, batch in table.rows():
        if len(frame):
            _add(frame, table, batch)
        yield batch


def _add(frame: pl.DataFrame, table: Table, batch: Batch) -> None:
    if "market_id" not in frame.columns:
        frame = frame.rename({"token_id": "market_id"})
    if "outcome_book" in frame.columns:
        answers = frame["outcome_book"].to_list()
    else:
        pairs = frame.select(yes="yes_levels", no="no_levels").iter_rows(named=True)
        # A row without both is no empty book.
        answers = [pair if any(side is not None for side in pair.values()) else None for pair in pairs]
    rows, books = readable(frame, list(map(_books, answers)), batch)
    rows = rows.drop("best_bid", "best_ask", "token_id", "outcome_book", strict=False)
    rows = rows.with_columns(pl.col("market_id").cast(pl.String))
    ids = tokens_of_both(rows, table, batch)
    both = pl.concat(
        [
            rows.with_columns(pl.lit(label).alias("token_label"), token.alias("token_id"))
            for label, token in zip(OUTCOMES, ids, strict=True)
        ]
    )
    add_books(both, batch, [book[outcome] for outcome in range(2) for book in books])


def _books(answer: Any) -> list[Sides] | None:
    """The books of both outcomes; None if one cannot be read."""
    try:
        book = printed(answer) if isinstance(answer, str) else answer
        sides = {name: _levels(side) for name, side in book.items() if name.startswith(("yes", "no"))}
        return kalshi.sides_of(*kalshi.bids_of(sides)) if sides else None
    except (ContractError, TypeError, ValueError, AttributeError):
        return None


def _levels(side: Any) -> Any:
    """The levels of a side as the venue has them; whole numbers from 1 on are cents, also as floats."""
    # The venue has null for a side without bids.
    levels = [] if side is None else levels_of(side)
    in_cents = bool(levels) and all(price >= 1 and price == int(price) for price, _ in levels)
    return [(int(price) if in_cents else float(price), size) for price, size in levels]


FORMAT = Format(
    name="outcome-bids",
    description="a table of the bids of both outcomes: an ask of Yes at p is a bid of No at 1 - p",
    needs=("ts market_id yes_levels no_levels", "ts market_id/token_id outcome_book"),
    takes="token_id best_bid best_ask yes_bid yes_ask no_bid no_ask",
    read=read,
)
