"""Metrics of markets, one time a row."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.points.columns import METRICS
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import Batch, Format
from marketdata.recordings.points import POINT_NAMES, read_points


def read(chosen: Format, file: RecordingFile) -> Iterator[Batch]:
    """The metrics; further columns of numbers are metrics too."""
    columns = chosen.columns(file)
    # A slug is looked up in the archive.
    market = "slug" if columns["market_id"] == "slug" else "market_id"
    metrics = {name: name for name in METRICS if name in columns}
    ours = {"ts": columns["ts"], market: columns["market_id"], **metrics}
    return read_points(file, ours, "ts", market, extra=True)


FORMAT = Format(
    name="metrics",
    kind="metrics",
    description="a table of metrics of markets, which are averaged over each bucket",
    needs=(f"ts market_id {'/'.join(METRICS)}",),
    read=read,
    # With one of these a volume belongs to a trade, a candle or a token, and a spread to a quote.
    without=(
        "token_id", "price", "side", "size", "open", "high", "low", "close", "best_bid", "best_ask", "bids", "asks",
        "outcome", "trade_id", "order_id", "transaction_hash", "event_type",
    ),
    names={**POINT_NAMES, "market_id": ("market_id", "condition_id", "market", "slug")},
)  # fmt: skip
