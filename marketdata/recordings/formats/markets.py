"""Records of markets."""

from __future__ import annotations

from marketdata.recordings.format import Format
from marketdata.recordings.records import RECORD_ROLES, is_listing, reader
from marketdata.recordings.table import Table


def proves(table: Table) -> int:
    """A market has an id, and says what it asks, which tokens it has, or its slug."""
    names, columns = table.columns.keys(), set(table.file.columns)
    if not is_listing(table) or "markets" in columns:
        return 0
    has_id = "market_id" in names or {"id", "condition_id"} & columns
    facts = names & {"token_ids", "token_labels", "question", "slug", "state"}
    if not has_id or not facts & {"token_ids", "question", "slug"}:
        return 0
    if not facts - {"slug"} and names & {"event_id", "event_slug"} and "market_id" not in names:
        return 0
    return 4 + len(facts)


FORMAT = Format(
    name="markets",
    kind="markets",
    description="records of markets, with their tokens",
    needs=("market_id token_ids/question/slug",),
    takes=RECORD_ROLES,
    read=reader("markets"),
    proves=proves,
)
