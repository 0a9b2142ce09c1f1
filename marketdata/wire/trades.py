"""One reader of a trade as a venue gives it: in an answer, in a message of a socket, or in a file of either."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from marketdata.points.columns import Trades
from marketdata.wire import kalshi, polymarket

_TICKERS = ("ticker", "market_ticker")
# Where answers and messages have the time of a print; the finest counts.
_TIMES = ("created_time", "ts_ms", "ts", "time")


def trades(rows: Sequence[Mapping[str, Any]]) -> Trades:
    """The prints of rows of one venue, newest first or oldest first; ContractError for rows that are none.

    Beside ``side price size`` they have what is known of ``trade_id transaction_hash maker taker role is_block fee``,
    and the ``account`` of a row that does not say whether it was the maker or the taker.
    """
    if not rows or rows[0].keys().isdisjoint(_TICKERS):
        return polymarket.trades(rows)
    return kalshi.trades([{**row, **_named(row)} for row in rows])


def _named(row: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a message of Kalshi under the names of answers."""
    at = next((row[name] for name in _TIMES if row.get(name) is not None), None)
    return {"ticker": kalshi.ticker_in(row), "created_time": at, "trade_id": str(row.get("trade_id") or "")}
