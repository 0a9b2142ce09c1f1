"""Changed levels, one a row, with a flag for the rows of whole books."""

from __future__ import annotations

import polars as pl

from marketdata.recordings.format import Batch, Format, by_parts
from marketdata.recordings.tables import add_levels


def add(frame: pl.DataFrame, batch: Batch) -> None:
    """Add changed levels and snapshots."""
    is_snapshot = frame["is_snapshot"].cast(pl.String).str.to_lowercase().is_in(["true", "1"])
    add_levels(frame, batch, is_snapshot.fill_null(value=False))
    batch.received = batch.changes.seen


FORMAT = Format(
    name="incremental",
    description="a table of changed levels",
    needs=("ts token_id is_snapshot side price size",),
    read=by_parts(add),
    changes=True,
    row_per_level=True,
)
