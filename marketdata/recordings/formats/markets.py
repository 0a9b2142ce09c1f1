"""Records of markets."""

from __future__ import annotations

from marketdata.recordings.format import Format
from marketdata.recordings.records import OF_SERIES, RECORD_ROLES, is_history, reader
from marketdata.recordings.table import Table


def proves(table: Table) -> bool:
    """A market has an id, and says what it asks, which tokens it has and what they paid, or its slug."""
    names, columns = table.columns.keys(), set(table.file.columns)
    if "markets" in columns or columns & OF_SERIES:
        return False
    has_id = "market_id" in names or {"id", "condition_id"} & columns
    facts = names & {"token_ids", "token_labels", "question", "slug", "state"}
    if {"market_id", "state"} <= names and ("event_ticker" in columns or "market_id" in table.file.options.columns):
        return True  # the result of a ticker of Kalshi, or of an id that the user names
    if {"market_id", "token_id"} <= names and names & {"payoff", "won"} and "ts" not in names:
        return True  # what each token paid
    if not has_id or not facts & {"token_ids", "question", "slug"}:
        return False
    return bool(facts - {"slug"}) or not names & {"event_id", "event_slug"} or "market_id" in names


FORMAT = Format(
    name="markets",
    kind="markets",
    description="records of markets, with their tokens",
    needs=("market_id token_ids/question/slug", "market_id state"),
    takes=RECORD_ROLES,
    read=reader("markets"),
    proves=proves,
    guards=(is_history,),
)
