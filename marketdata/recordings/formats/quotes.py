"""Best bids and asks of tokens, one quote a row."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.points.schema import COLUMNS
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import Batch, Format
from marketdata.recordings.points import POINT_NAMES, read_points


def read(chosen: Format, file: RecordingFile) -> Iterator[Batch]:
    """The quotes; further columns of numbers stay in a tidy table."""
    columns = {name: column for name, column in chosen.columns(file).items() if name in COLUMNS["quotes"]}
    is_tidy = {"ts", "token_id", "best_bid", "best_ask"} <= set(file.columns)
    return read_points(file, columns, "ts", "token_id", numbers=("best_bid", "best_ask"), extra=is_tidy)


FORMAT = Format(
    name="quotes",
    kind="quotes",
    description="a table of best bids and asks, of which the last of each bucket is kept",
    needs=("ts token_id best_bid best_ask",),
    read=read,
    also=("best_bid_size", "best_ask_size", "mid", "spread"),
    # With one of these a row is a trade, a level or a message, which states the best prices too.
    without=(
        "side", "size", "level", "price", "bids", "asks", "trade_id", "order_id", "transaction_hash", "event_type",
    ),
    names={**POINT_NAMES, "best_bid_size": ("best_bid_size",), "best_ask_size": ("best_ask_size",)},
)  # fmt: skip
