"""Whole books, one a row, with a column per level."""

from __future__ import annotations

import re

import polars as pl

from marketdata.recordings.columns import numbers
from marketdata.recordings.format import Batch, Format, by_parts
from marketdata.recordings.tables import add_books

_LEVEL = re.compile(r"((?:bids|asks)\[\d+\])\.price")


def add(frame: pl.DataFrame, batch: Batch) -> None:
    """Add books of their own moments."""
    levels = [match[1] for match in map(_LEVEL.fullmatch, frame.columns) if match]
    sides = []
    for side in ("bids", "asks"):
        columns = [(numbers(frame[f"{n}.price"]), numbers(frame[f"{n}.amount"])) for n in levels if n[:4] == side]
        rows = zip(*(zip(price.tolist(), size.tolist(), strict=True) for price, size in columns), strict=True)
        sides.append([[level for level in row if level[0] == level[0]] for row in rows])
    add_books(frame, batch, list(zip(*sides, strict=True)))


FORMAT = Format(
    name="wide-snapshots",
    description="a table of whole books with a column per level",
    needs=("ts token_id bids[0].price bids[0].amount asks[0].price asks[0].amount",),
    read=by_parts(add),
)
