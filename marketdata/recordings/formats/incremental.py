"""Changed levels, one a row, with a flag or an event for the rows of whole books."""

from __future__ import annotations

from collections import Counter

import polars as pl

from marketdata.recordings.book_rows import add_levels
from marketdata.recordings.format import Format, by_parts
from marketdata.recordings.messages import KINDS
from marketdata.recordings.roles import flags
from marketdata.recordings.table import Batch, Table

_IS_BOOK = {"book": True, "book_snapshot": True, "price_change": False}


def add(frame: pl.DataFrame, batch: Batch) -> None:
    """Add changed levels and snapshots; events of other kinds are left out."""
    if "event_type" in frame.columns:
        kinds = frame["event_type"].cast(pl.String).str.strip_chars()
        is_book = kinds.replace_strict(_IS_BOOK, default=None, return_dtype=pl.Boolean)
        batch.left_out += Counter(kinds.filter(is_book.is_null()).fill_null("without an event_type").to_list())
        frame, is_book = frame.filter(is_book.is_not_null()), is_book.drop_nulls()
    if "is_snapshot" in frame.columns:
        is_book = flags(frame["is_snapshot"]).fill_null(value=False)
    add_levels(frame, batch, is_book)
    batch.received = batch.changes.arrivals()


def other_events(table: Table) -> str | None:
    """Why the events of the table are not those of the market channel."""
    if "event_type" not in table.columns:
        return None
    found = {*table.file.sample[table.columns["event_type"]].cast(pl.String).str.strip_chars().drop_nulls()}
    if found & _IS_BOOK.keys() and found <= {*KINDS}:
        return None
    return f"{table.columns['event_type']} is {', '.join(sorted(found)[:3])}; incremental has book and price_change."


FORMAT = Format(
    name="incremental",
    description="a table of changed levels",
    needs=("ts token_id is_snapshot side price size", "ts token_id event_type side price size"),
    takes="best_bid best_ask level transaction_hash",
    read=by_parts(add, "price", "best_bid", "best_ask"),
    changes=True,
    row_per_level=True,
    guards=(other_events,),
)
