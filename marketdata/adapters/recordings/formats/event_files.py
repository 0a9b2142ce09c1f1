"""Hourly event files: a row per event, by market, token and time of arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.tables import changes_of_rows, readable, sides_of
from marketdata.adapters.recordings.trades import trades_of_rows
from marketdata.points.columns import Ints
from marketdata.points.order import ascending

_TENTH_OF_A_SECOND = 100_000  # [microseconds]


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """Books and changes; other events are left out by kind."""
    # The rows of a market are together, so the times of all rows come first.
    parts = [_ends(frame["__seen"].to_numpy()) for frame, _ in FORMAT.rows(file, options, only=("ts", "received_at"))]
    yield Batch(received=_ends(np.concatenate(parts)) if parts else np.empty(0, np.int64))
    for frame, batch in FORMAT.rows(file, options):
        kinds = frame["event_type"].cast(pl.String).fill_null("without an event_type")
        is_level = kinds.is_in(["book", "price_change"])
        batch.left_out += Counter(kinds.filter(~is_level).to_list())
        rows = frame.filter(is_level)
        cells = rows.select("event_type", "bids", "asks").iter_rows()
        books = [sides_of(bids, asks) if kind == "book" else () for kind, bids, asks in cells]
        rows, readable_books = readable(rows, books, batch)
        is_book = (rows["event_type"].cast(pl.String) == "book").to_numpy()
        batch.changes = changes_of_rows(rows, options, is_book, [book for book in readable_books if book])
        yield batch


def read_trades(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """The trade prints."""
    for frame, batch in FORMAT.rows(file, options):
        trades = frame.filter(pl.col("event_type").cast(pl.String) == "last_trade_price")
        batch.left_out["no trades"] += len(frame) - len(trades)
        yield trades_of_rows(trades, batch)


def _ends(times: Ints) -> Ints:
    """The first and the last of the times in each tenth of a second, which show gaps of seconds."""
    times = ascending(times)
    is_last = np.append(np.diff(times // _TENTH_OF_A_SECOND) > 0, True)[: len(times)]
    ends: Ints = times[is_last | np.append(True, is_last[:-1])[: len(times)]]
    return ends


FORMAT = Format(
    name="event-files",
    kind="books",
    description="a table of events: whole books, changed levels, trades and others",
    needs=("received_at event_type token_id bids asks price size side",),
    read=read,
    trades=read_trades,
    changes=True,
)
