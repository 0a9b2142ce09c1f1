"""Records of series."""

from __future__ import annotations

from marketdata.recordings.format import Format, Table
from marketdata.recordings.records import RECORD_ROLES, is_listing, reader


def proves(table: Table) -> int:
    """A series has neither a market nor an event."""
    names = table.columns.keys()
    if not is_listing(table) or names & {"event_id", "event_slug"}:
        return 0
    described = names & {"title", "state"} or "start_date" in table.file.columns
    return 2 if names & {"series_id", "series_slug"} and described and not names & {"market_id", "token_ids"} else 0


FORMAT = Format(
    name="series",
    kind="series",
    description="records of series",
    needs=("series_id/series_slug title/state",),
    takes=RECORD_ROLES,
    read=reader("series"),
    proves=proves,
)
