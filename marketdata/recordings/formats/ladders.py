"""Whole ladders of binary markets, one a row, with a list of prices and one of sizes for each side."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from marketdata.recordings.book_rows import Sides, add_books, derived_markets, printed, sides_of
from marketdata.recordings.format import Format
from marketdata.recordings.table import Batch, Table

_LISTS = ("bid_prices", "bid_sizes", "ask_prices", "ask_sizes")


def read(table: Table) -> Iterator[Batch]:
    """Books of their own moments; a set without ids has ids that are derived from the slug and the outcome."""
    labels: dict[str, dict[str, None]] = {}
    winners: dict[str, str] = {}
    for frame, batch in table.rows():
        if "token_id" not in frame.columns and len(frame):
            pairs = frame.select("market_id", "token_label").drop_nulls().unique(maintain_order=True)
            for slug, label in pairs.iter_rows():
                labels.setdefault(slug, {})[label] = None
            if "winning_outcome" in frame.columns:
                winners |= dict(frame.select("market_id", "winning_outcome").drop_nulls().unique().iter_rows())
            batch.markets = derived_markets(labels, winners)
        if len(frame):
            add_books(frame, batch, [_sides_of_lists(*lists) for lists in frame.select(_LISTS).iter_rows()])
        yield batch


def _sides_of_lists(*lists: Any) -> Sides | None:
    """The sides of a book; None if two lists differ in length, or one cannot be read."""
    try:
        decoded = [printed(cell) if isinstance(cell, str) else cell for cell in lists]
        return sides_of(list(zip(*decoded[:2], strict=True)), list(zip(*decoded[2:], strict=True)))
    except (TypeError, ValueError):
        return None


FORMAT = Format(
    name="ladders",
    description="a table of whole books as lists of prices and sizes; without ids these are of slug and outcome",
    needs=("ts market_id token_label " + " ".join(_LISTS), "ts token_id " + " ".join(_LISTS)),
    takes="best_bid best_ask price token_id",
    read=read,
)
