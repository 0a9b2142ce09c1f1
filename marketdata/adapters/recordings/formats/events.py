"""Records of events."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.formats.markets import NO_RECORDS
from marketdata.adapters.recordings.points import records_of

_ABOUT = ("title", "event_title", "start_date", "end_date", "status", "tags", "series_id", "series_slug")


def read(file: RecordingFile, _: Reading) -> Iterator[Batch]:
    """The records."""
    frame = records_of(file)
    yield Batch(rows=len(frame), frame=frame)


def fits(file: RecordingFile) -> int:
    """One for each column that records of events have."""
    if first(file.columns, (*NO_RECORDS, "market_id", "condition_id")):
        return 0
    score = having(("event_id", "event_slug"), _ABOUT)(file)
    return score + sum(name in file.columns for name in ("event_id", "event_slug")) if score else 0


FORMAT = Format(
    name="events",
    kind="events",
    description="records of events",
    needs="event_id or event_slug, and title, status or dates; no market, time, token or price",
    fits=fits,
    read=read,
)
