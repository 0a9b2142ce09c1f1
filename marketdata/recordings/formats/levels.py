"""Levels of snapshots, one per row. Levels with equal token and time are one snapshot."""

from __future__ import annotations

from marketdata.recordings.format import Format, by_parts
from marketdata.recordings.tables import add_levels

FORMAT = Format(
    name="levels",
    description="a table of the levels of snapshots",
    needs=("ts token_id side level price size",),
    read=by_parts(add_levels),
    row_per_level=True,
)
