"""Prices of tokens, one a row."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.points.schema import COLUMNS
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import Batch, Format
from marketdata.recordings.points import POINT_NAMES, read_points


def read(chosen: Format, file: RecordingFile) -> Iterator[Batch]:
    """The prices; further columns of numbers stay in a tidy table."""
    columns = {name: column for name, column in chosen.columns(file).items() if name in COLUMNS["prices"]}
    is_tidy = {"ts", "token_id"} <= set(file.columns)
    return read_points(file, columns, "ts", "token_id", numbers=("price",), extra=is_tidy)


FORMAT = Format(
    name="prices",
    kind="prices",
    description="a table of prices, which are averaged over each bucket",
    needs=("ts token_id price",),
    read=read,
    # With one of these a price belongs to a trade, an order or one side of a book.
    without=(
        "side", "size", "level", "trade_id", "order_id", "transaction_hash", "event_type", "maker", "taker",
    ),
    names=POINT_NAMES,
)  # fmt: skip
