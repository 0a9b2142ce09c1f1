"""Records of series."""

from __future__ import annotations

from marketdata.recordings.format import Format
from marketdata.recordings.records import OF_SERIES, RECORD_ROLES, is_history, reader
from marketdata.recordings.table import Table


def proves(table: Table) -> bool:
    """A series has neither a market nor an event; one of Kalshi has a frequency and sources."""
    names, columns = table.columns.keys(), set(table.file.columns)
    if "ticker" in columns and columns & OF_SERIES and not columns & {"event_ticker", "status"}:
        return True
    if names & {"event_id", "event_slug"}:
        return False
    described = names & {"title", "state"} or "start_date" in table.file.columns
    return bool(names & {"series_id", "series_slug"} and described) and not names & {"market_id", "token_ids"}


FORMAT = Format(
    name="series",
    kind="series",
    description="records of series",
    needs=("series_id/series_slug title/state",),
    takes=RECORD_ROLES,
    read=reader("series"),
    proves=proves,
    guards=(is_history,),
)
