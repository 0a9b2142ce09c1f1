"""Whole books, one a row: as JSON text, lists of pairs, or lists of structs."""

from __future__ import annotations

from typing import Any

import polars as pl

from marketdata.recordings.book_rows import Sides, add_books, printed, sides_of
from marketdata.recordings.format import Format, by_parts
from marketdata.recordings.roles import ROLES
from marketdata.recordings.table import Batch
from marketdata.wire.records import first


def add(frame: pl.DataFrame, batch: Batch) -> None:
    """Add books of their own moments."""
    if "bids" in frame.columns and "asks" in frame.columns:
        add_books(frame, batch, [sides_of(*cells) for cells in frame.select("bids", "asks").iter_rows()])
    else:
        add_books(frame, batch, [_sides_of_book(cell) for cell in frame["book"].to_list()])


def _sides_of_book(cell: Any) -> Sides | None:
    """The sides of a book that is JSON text or a struct; None for a damaged one."""
    try:
        book = printed(cell) if isinstance(cell, str) else cell
        bids, asks = (book[first(book, ROLES[side].names)] for side in ("bids", "asks"))
    except (KeyError, TypeError, ValueError):
        return None
    return sides_of(bids, asks)


FORMAT = Format(
    name="snapshots",
    description="a table of whole books, as JSON text, pairs or structs",
    needs=(
        "ts token_id bids asks", "ts market_id token_label bids asks", "ts token_id book",
        "ts market_id token_label book",
    ),
    takes="best_bid best_ask price side size token_id",
    read=by_parts(add),
)  # fmt: skip
