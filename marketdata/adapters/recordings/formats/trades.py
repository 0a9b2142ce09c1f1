"""Trades, one row per print or per leg of a fill."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.trades import trades_of_rows


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """The trades."""
    return (trades_of_rows(frame, batch) for frame, batch in FORMAT.rows(file, options))


FORMAT = Format(
    name="trades",
    kind="trades",
    description="a table of trades; for `md.read_trades`, as an archive has none",
    needs=("ts token_id price size", "ts market_id token_label price size"),
    read=read,
    also=("side", "transaction_hash", "maker", "taker", "trader_side", "trade_id"),
    without=(
        "level", "is_snapshot", "event_type", "order_type", "original_size", "size_matched", "time_in_force",
    ),
    trades=read,
)  # fmt: skip
