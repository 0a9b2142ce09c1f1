"""Records of series."""

from __future__ import annotations

from marketdata.recordings.format import Format
from marketdata.recordings.records import RECORD_ROLES, is_listing, reader
from marketdata.recordings.table import Table

_OF_KALSHI = {"frequency", "settlement_sources", "contract_url", "contract_terms_url"}


def proves(table: Table) -> int:
    """A series has neither a market nor an event; one of Kalshi has a frequency and sources."""
    names, columns = table.columns.keys(), set(table.file.columns)
    if "ticker" in columns and columns & _OF_KALSHI and not columns & {"event_ticker", "status"}:
        return 30
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
