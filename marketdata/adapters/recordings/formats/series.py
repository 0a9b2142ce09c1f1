"""Records of series."""

from __future__ import annotations

from marketdata.adapters.recordings.format import Format, having
from marketdata.adapters.recordings.formats.events import read
from marketdata.adapters.recordings.formats.markets import NO_RECORDS

FORMAT = Format(
    name="series",
    kind="series",
    description="records of series",
    needs="series_id or series_slug, and title, status or dates; no event, market, time, token or price",
    fits=having(
        ("series_id", "series_slug"),
        ("title", "series_title", "start_date", "end_date", "status"),
        without=(*NO_RECORDS, "event_id", "event_slug", "market_id", "condition_id"),
    ),
    read=read,
)
