"""Records of events."""

from __future__ import annotations

from marketdata.recordings.format import Format
from marketdata.recordings.points import NO_RECORDS, RECORD_NAMES, read_records

FORMAT = Format(
    name="events",
    kind="events",
    description="records of events",
    needs=("event_id/event_slug title/status/start_date/end_date/tags/series_id/series_slug",),
    read=read_records,
    also=("event_id", "event_slug"),
    without=(*NO_RECORDS, "market_id"),
    names=RECORD_NAMES,
)
