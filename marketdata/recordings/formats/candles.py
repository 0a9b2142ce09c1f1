"""Open, high, low and close of tokens, one candle a row; the close is the price of the bucket."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.recordings.format import Batch, Format, Table
from marketdata.recordings.points import read_points


def read(table: Table) -> Iterator[Batch]:
    """The closes as prices."""
    table.columns = {**table.columns, "price": table.columns["close"]}
    for batch in read_points(table, "prices", ("token_id",), numbers_of=("price",)):
        batch.notes.append("prices are the close of each candle")
        yield batch


FORMAT = Format(
    name="candles",
    kind="prices",
    description="a table of candles of tokens: prices are their closes, at the start of the candle",
    needs=("ts token_id close", "ts market_id token_label close"),
    takes="token_id price",
    read=read,
)
