"""Prices of tokens, one a row."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.recordings.format import Format
from marketdata.recordings.formats.trades import has_outcomes_elsewhere
from marketdata.recordings.points import read_points
from marketdata.recordings.table import Batch, Table


def read(table: Table) -> Iterator[Batch]:
    """The prices; further columns of numbers stay in a tidy table."""
    is_tidy = {"ts", "token_id"} <= set(table.file.columns)
    return read_points(table, "prices", ("token_id",), numbers_of=("price",), extra=is_tidy)


FORMAT = Format(
    name="prices",
    kind="prices",
    description="a table of prices, which are averaged over each bucket",
    needs=("ts token_id price", "ts market_id token_label price"),
    takes="token_id",
    read=read,
    guards=(has_outcomes_elsewhere,),
)
