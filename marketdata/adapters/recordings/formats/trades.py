"""Trades, one row per print or per leg of a fill."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import LABEL, LEVEL, MARKET, PRICE, SIZE, TIME, TOKEN, first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import TRADE_COLUMNS, frames_with_time, trades_of_rows

_NOT_TRADES = (*LEVEL, "is_snapshot", "event_type", "order_type", "original_size", "size_matched", "time_in_force")


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """The trades."""
    for frame, batch in frames_with_time(file):
        batch.frame = trades_of_rows(frame, reading, batch)
        yield batch


def fits(file: RecordingFile) -> int:
    """One for each column that is needed, and for each that only trades have."""
    score = max(
        having(TIME, TOKEN, PRICE, SIZE, without=_NOT_TRADES)(file),
        having(TIME, MARKET, LABEL, PRICE, SIZE, without=_NOT_TRADES)(file),
    )
    own = (*TRADE_COLUMNS.values(), ("trade_id", "fill_id", "match_id"))
    return score + sum(first(file.columns, names) is not None for names in own) if score else 0


FORMAT = Format(
    name="trades",
    kind="trades",
    description="a table of trades; for `md.read_trades`, as an archive has none",
    needs="a time, a token (or a market and an outcome), price, and size or amount",
    fits=fits,
    read=read,
    trades=read,
)
