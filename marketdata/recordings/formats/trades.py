"""Trades, one row per print or per leg of a fill."""

from __future__ import annotations

from marketdata.recordings.format import Format, by_parts
from marketdata.recordings.trades import add_trades

FORMAT = Format(
    name="trades",
    kind="trades",
    description="a table of trades; for `md.read_trades`, as an archive has none",
    needs=("ts token_id price size", "ts market_id token_label price size"),
    read=by_parts(add_trades),
    also=("side", "transaction_hash", "maker", "taker", "trader_side", "trade_id"),
    without=(
        "level", "is_snapshot", "event_type", "order_type", "original_size", "size_matched", "time_in_force",
    ),
)  # fmt: skip
