"""Levels of snapshots, one a row."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import LEVEL, SIZE, TIME, TOKEN
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import frames_with_time, level_changes, market_records


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """Snapshots whose rows have one token and time."""
    for frame, batch in frames_with_time(file):
        batch.changes = level_changes(frame, reading, np.ones(len(frame), bool))
        batch.received, batch.markets = np.unique(batch.changes.seen), market_records(frame)
        yield batch


FORMAT = Format(
    name="levels",
    kind="books",
    description="a table of the levels of snapshots",
    needs="a time, a token, side, level, price, and size or amount",
    fits=having(TIME, TOKEN, ("side",), LEVEL, ("price",), SIZE),
    read=read,
    row_per_level=True,
)
