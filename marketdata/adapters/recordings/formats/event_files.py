"""Hourly event files: a row per event, by market, token and time of arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import clocks, coded, micros, numbers, sides
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import frames_with_time, kept_values, levels_of, row_numbers, trades_of_rows
from marketdata.points.columns import Ints, Token, ranges
from marketdata.points.rebuild import CHANGE, SNAPSHOT, Changes

_NEEDED = ("timestamp_received", "event_type", "asset_id", "bids", "asks", "price", "size", "side")
_READ = (*_NEEDED, "timestamp", "market", "best_bid", "best_ask", "hash", "last_trade_price", "tick_size")
# The first and the last time of arrival in a tenth of a second are enough to find gaps of seconds [microseconds].
_TENTH = 100_000


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """Books and changes; other events are left out by kind."""
    parts = [_ends(micros(frame["timestamp_received"])) for frame, _ in frames_with_time(file, ["timestamp_received"])]
    yield Batch(received=_ends(np.concatenate(parts)) if parts else np.empty(0, np.int64))
    for frame, batch in frames_with_time(file, _READ):
        kinds = frame["event_type"].cast(pl.String)
        is_level = kinds.is_in(["book", "price_change"]).fill_null(value=False)
        others = kinds.filter(~is_level).fill_null("without an event_type")
        batch.left_out += Counter(dict(others.value_counts().iter_rows()))
        batch.changes = _changes(frame.filter(is_level), reading)
        yield batch


def read_trades(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """The trade prints."""
    columns = ("timestamp", "market", "transaction_hash", *_NEEDED)
    for frame, batch in frames_with_time(file, columns):
        is_trade = (frame["event_type"].cast(pl.String) == "last_trade_price").fill_null(value=False)
        batch.left_out["no trades"] += int((~is_trade).sum())
        batch.frame = trades_of_rows(frame.filter(is_trade), reading, batch)
        yield batch


def _ends(times: Ints) -> Ints:
    """The first and the last of the times in each tenth of a second."""
    times = np.unique(times)
    is_last = np.append(np.diff(times // _TENTH) > 0, True)[: len(times)]
    ends: Ints = times[is_last | np.append(True, is_last[:-1])[: len(times)]]
    return ends


def _changes(rows: pl.DataFrame, reading: Reading) -> Changes:
    """One entry for a changed level, and as many as levels for a whole book, in the order of rows."""
    is_book = (rows["event_type"].cast(pl.String) == "book").to_numpy()
    books = [
        [(side, *level) for side, cell in enumerate(cells) for level in levels_of(cell)]
        for cells in rows.filter(is_book).select("bids", "asks").iter_rows()
    ]
    ts, seen = clocks(rows, reading.clock)
    names, token = coded(rows["asset_id"], rows["market"] if "market" in rows.columns else None)
    tokens = tuple(Token((market or "").strip("\0 "), name, None) for name, market in names)
    lengths = np.ones(len(rows), np.int64)
    lengths[is_book] = [max(len(book), 1) for book in books]
    of, begins = np.repeat(np.arange(len(rows)), lengths), np.cumsum(lengths) - lengths
    side, price, size = sides(rows["side"])[of], numbers(rows["price"])[of], numbers(rows["size"])[of]
    in_books = ranges(begins[is_book], lengths[is_book])
    flat = np.array([level for book in books for level in book or [(0, np.nan, np.nan)]]).reshape(-1, 3)
    side[in_books], price[in_books], size[in_books] = flat.T
    event = np.full(len(of), CHANGE, np.int8)
    event[begins[is_book]] = SNAPSHOT
    stated = np.full((len(of), 2), np.nan)
    if {"best_bid", "best_ask"} <= set(rows.columns):
        stated = np.stack((numbers(rows["best_bid"]), numbers(rows["best_ask"])), axis=1)[of]
        stated[in_books] = np.nan
        stated[stated[:, 1] == 0, 1] = 1.0
    values = {name: v[of] for name, v in kept_values(rows, reading).items()}
    row = row_numbers(rows)[of]
    return Changes(tokens, token[of], ts[of], seen[of], event, side, price, size, stated, row, values)


FORMAT = Format(
    name="event-files",
    kind="books",
    description="a table of events: whole books, changed levels, trades and others",
    needs=" ".join(_NEEDED),
    fits=having(*((name,) for name in _NEEDED)),
    read=read,
    trades=read_trades,
    changes=True,
)
