"""Records of series."""

from __future__ import annotations

from marketdata.recordings.format import Format
from marketdata.recordings.points import NO_RECORDS, RECORD_NAMES, read_records

FORMAT = Format(
    name="series",
    kind="series",
    description="records of series",
    needs=("series_id/series_slug title/status/start_date/end_date",),
    read=read_records,
    without=(*NO_RECORDS, "market_id", "event_id", "event_slug"),
    names=RECORD_NAMES,
)
