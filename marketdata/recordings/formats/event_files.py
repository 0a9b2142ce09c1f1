"""Hourly event files: a row per event, by market, token and time of arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.recordings.arrivals import UNSTATED, Arrivals
from marketdata.recordings.book_rows import changes_of, readable, sides_of
from marketdata.recordings.changes import CHANGE, SNAPSHOT
from marketdata.recordings.format import Format, by_parts
from marketdata.recordings.table import Batch, Table
from marketdata.recordings.trades import add_trades

_TENTH_OF_A_SECOND = 100_000  # [microseconds]


def read(table: Table) -> Iterator[Batch]:
    """Books and changes; other events are left out by kind."""
    # The rows of a market are together, so the times of all rows come first: the ends of each tenth of a second.
    tenth = pl.col("__seen") // _TENTH_OF_A_SECOND
    is_change = pl.col("event_type").cast(pl.String) == "price_change"
    delay = (pl.col("__seen") - pl.col("ts")).filter(is_change).min()
    ends = [pl.col("__seen").min().alias("first"), pl.col("__seen").max().alias("last"), delay.alias("delay")]
    parts = [
        frame.group_by(tenth).agg(ends) for frame, _ in table.rows("ts", "received_at", "event_type") if len(frame)
    ]
    times = pl.concat(parts) if parts else pl.DataFrame(schema=dict.fromkeys(("first", "last", "delay"), pl.Int64))
    first, last = (times[name].to_numpy() for name in ("first", "last"))
    stated = (times["first"] - times["delay"]).fill_null(UNSTATED).to_numpy()
    seen = np.concatenate((first, last))
    yield Batch(received=Arrivals(seen, np.append(stated, np.full(len(last), UNSTATED)), np.ones(len(seen), bool)))
    for frame, batch in table.rows():
        kinds = frame["event_type"].cast(pl.String).fill_null("without an event_type")
        is_level = kinds.is_in(["book", "price_change"])
        batch.left_out += Counter(kinds.filter(~is_level).to_list())
        levels = frame.filter(is_level)
        cells = levels.select(pl.col("event_type").cast(pl.String) == "book", "bids", "asks").iter_rows()
        sides = [sides_of(bids, asks) if is_book else () for is_book, bids, asks in cells]
        rows, books = readable(levels, sides, batch)
        event = np.array([SNAPSHOT if book else CHANGE for book in books], np.int8)
        batch.changes = changes_of(rows, batch, event, [book for book in books if book])
        yield batch


def add_prints(frame: pl.DataFrame, batch: Batch) -> None:
    """Add the trade prints."""
    trades = frame.filter(pl.col("event_type").cast(pl.String) == "last_trade_price")
    batch.left_out["no trades"] += len(frame) - len(trades)
    add_trades(trades, batch)


FORMAT = Format(
    name="event-files",
    description="a table of events: whole books, changed levels, trades and others",
    needs=("received_at event_type token_id bids asks price size side",),
    takes="best_bid best_ask transaction_hash book_event",
    read=read,
    trades=by_parts(add_prints),
    changes=True,
)
