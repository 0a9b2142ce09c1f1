"""Changed levels, one a row, with a flag for the rows of whole books."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import SIZE, TIME, TOKEN
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import frames_with_time, level_changes


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """Changed levels and snapshots."""
    for frame, batch in frames_with_time(file):
        is_snapshot = frame["is_snapshot"].cast(pl.String).str.to_lowercase().is_in(["true", "1"])
        batch.changes = level_changes(frame, reading, is_snapshot.fill_null(value=False).to_numpy())
        batch.received = np.unique(batch.changes.seen)
        yield batch


FORMAT = Format(
    name="incremental",
    kind="books",
    description="a table of changed levels",
    needs="a time, a token, is_snapshot, side, price, and size or amount",
    fits=having(TIME, TOKEN, ("is_snapshot",), ("side",), ("price",), SIZE),
    read=read,
    changes=True,
    row_per_level=True,
)
