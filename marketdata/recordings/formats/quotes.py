"""Best bids and asks of tokens, one quote a row."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.points.schema import COLUMNS
from marketdata.recordings.format import Format
from marketdata.recordings.points import read_points
from marketdata.recordings.table import Batch, Table


def read(table: Table) -> Iterator[Batch]:
    """The quotes; further columns of numbers stay in a tidy table."""
    is_tidy = {"ts", "token_id", "best_bid", "best_ask"} <= set(table.file.columns)
    optional = tuple(name for name in COLUMNS["quotes"] if name.endswith("_size"))
    return read_points(
        table, "quotes", ("token_id",), numbers_of=("best_bid", "best_ask"), optional=optional, extra=is_tidy
    )


FORMAT = Format(
    name="quotes",
    kind="quotes",
    description="a table of best bids and asks, of which the last of each bucket is kept",
    needs=("ts token_id best_bid best_ask", "ts market_id token_label best_bid best_ask"),
    takes="best_bid_size best_ask_size spread price token_id",
    read=read,
)
