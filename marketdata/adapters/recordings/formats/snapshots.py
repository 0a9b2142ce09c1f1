"""Whole books, one a row: as JSON text, lists of pairs, or lists of structs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from marketdata.adapters.recordings.columns import NAMES, first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.tables import Sides, book_batch, sides_of


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """Books of their own moments."""
    for frame, batch in FORMAT.rows(file, options):
        if "bids" in frame.columns and "asks" in frame.columns:
            books = [sides_of(*cells) for cells in frame.select("bids", "asks").iter_rows()]
        else:
            books = [_sides_of_book(cell) for cell in frame["book"].to_list()]
        yield book_batch(batch, frame, options, books)


def _sides_of_book(cell: Any) -> Sides | None:
    """The sides of a book that is JSON text or a struct; None for a damaged one."""
    try:
        book = msgspec.json.decode(cell) if isinstance(cell, str) else cell
        bids, asks = (book[first(book, NAMES[side])] for side in ("bids", "asks"))
    except (KeyError, TypeError, msgspec.MsgspecError):
        return None
    return sides_of(bids, asks)


FORMAT = Format(
    name="snapshots",
    kind="books",
    description="a table of whole books, as JSON text, pairs or structs",
    needs=(
        "ts token_id bids asks", "ts market_id token_label bids asks", "ts token_id book",
        "ts market_id token_label book",
    ),
    read=read,
    without=("event_type",),
)  # fmt: skip
