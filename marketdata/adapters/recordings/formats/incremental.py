"""Changed levels, one a row, with a flag for the rows of whole books."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.tables import level_changes


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """Changed levels and snapshots."""
    for frame, batch in FORMAT.rows(file, options):
        is_snapshot = frame["is_snapshot"].cast(pl.String).str.to_lowercase().is_in(["true", "1"])
        batch.changes = level_changes(frame, options, is_snapshot.fill_null(value=False).to_numpy())
        batch.received = batch.changes.seen
        yield batch


FORMAT = Format(
    name="incremental",
    kind="books",
    description="a table of changed levels",
    needs=("ts token_id is_snapshot side price size",),
    read=read,
    changes=True,
    row_per_level=True,
)
