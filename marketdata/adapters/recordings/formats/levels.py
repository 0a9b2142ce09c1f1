"""Levels of snapshots, one a row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.tables import level_changes, market_records


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """Snapshots whose rows have one token and time."""
    for frame, batch in FORMAT.rows(file, options):
        batch.changes = level_changes(frame, options, np.ones(len(frame), bool))
        batch.markets = market_records(frame)
        yield batch


FORMAT = Format(
    name="levels",
    kind="books",
    description="a table of the levels of snapshots",
    needs=("ts token_id side level price size",),
    read=read,
    row_per_level=True,
)
