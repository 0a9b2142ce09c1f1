"""Changed levels, one a row, with a flag for the rows of whole books."""

from __future__ import annotations

import polars as pl

from marketdata.recordings.format import Format, by_parts
from marketdata.recordings.roles import flags
from marketdata.recordings.table import Batch
from marketdata.recordings.tables import add_levels


def add(frame: pl.DataFrame, batch: Batch) -> None:
    """Add changed levels and snapshots."""
    add_levels(frame, batch, flags(frame["is_snapshot"]).fill_null(value=False))
    batch.received = batch.changes.arrivals()


FORMAT = Format(
    name="incremental",
    description="a table of changed levels",
    needs=("ts token_id is_snapshot side price size",),
    takes="best_bid best_ask level",
    read=by_parts(add, "price", "best_bid", "best_ask"),
    changes=True,
    row_per_level=True,
)
