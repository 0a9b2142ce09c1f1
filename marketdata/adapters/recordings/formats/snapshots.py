"""Whole books, one a row: as JSON text, lists of pairs, or lists of structs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import LABEL, MARKET, TIME, TOKEN, first, tokens
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import ASKS_NAMES, BIDS_NAMES, book_batch, frames_with_time

_BOOK = ("book", "orderbook", "order_book", "book_json", "orderbook_json", "raw_book")


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """Books of their own moments."""
    bids, asks, book = (first(file.columns, names) for names in (BIDS_NAMES, ASKS_NAMES, _BOOK))
    for frame, batch in frames_with_time(file):
        if bids and asks:
            cells = list(frame.select(bids, asks).iter_rows())
        else:
            cells = [_both_sides(cell) for cell in frame[str(book)].to_list()]
        yield book_batch(batch, frame, reading, tokens(frame), cells)


def _both_sides(cell: Any) -> tuple[Any, Any]:
    """Bids and asks of a book that is JSON text or a struct; a number, which no levels are, for a damaged one."""
    try:
        book = msgspec.json.decode(cell) if isinstance(cell, str) else cell
    except msgspec.MsgspecError:
        return -1, -1
    if not isinstance(book, Mapping):
        return -1, -1
    bids, asks = (first(book, names) for names in (BIDS_NAMES, ASKS_NAMES))
    return (book[bids], book[asks]) if bids and asks else (-1, -1)


def fits(file: RecordingFile) -> int:
    """One for each side or for the book, for the token or its market and label, and for the time."""
    without = ("event_type",)
    named = max(having(TOKEN, TIME)(file), having(MARKET, LABEL, TIME)(file))
    shaped = max(having(BIDS_NAMES, ASKS_NAMES, without=without)(file), having(_BOOK, without=without)(file))
    return named + shaped if named and shaped else 0


FORMAT = Format(
    name="snapshots",
    kind="books",
    description="a table of whole books, as JSON text, pairs or structs",
    needs="a time, a token (or a market and an outcome), bids and asks (or book)",
    fits=fits,
    read=read,
)
