"""Records of events, also with their markets inside."""

from __future__ import annotations

from marketdata.recordings.format import Format
from marketdata.recordings.records import RECORD_ROLES, is_history, reader
from marketdata.recordings.table import Table


def proves(table: Table) -> bool:
    """An event has markets, or names itself and no market."""
    names, columns = table.columns.keys(), set(table.file.columns)
    if "markets" in columns and columns & {"id", "slug", "event_ticker", "ticker", "title"}:
        return True
    if "event_ticker" in columns and "title" in columns and not columns & {"ticker", "market_ticker", "result"}:
        return True
    has_facts = names & {"title", "state"} or columns & {"start_date", "end_date", "tags", "series_id", "series_slug"}
    is_event = names & {"event_id", "event_slug"} and has_facts
    return bool(is_event) and not names & {"market_id", "token_ids"}


FORMAT = Format(
    name="events",
    kind="events",
    kinds=("markets",),
    description="records of events; with markets inside, their records too",
    needs=("event_id/event_slug title/state",),
    takes=RECORD_ROLES,
    read=reader("events"),
    proves=proves,
    guards=(is_history,),
)
