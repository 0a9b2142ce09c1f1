"""Metrics of markets, one time a row."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.points.columns import METRICS
from marketdata.recordings.format import Batch, Format, Table
from marketdata.recordings.points import read_points


def read(table: Table) -> Iterator[Batch]:
    """The metrics; further columns of numbers are metrics too."""
    # A slug is looked up in the archive.
    is_slug = table.columns["market_id"] in ("slug", "market_slug")
    market = "slug" if is_slug else "market_id"
    return read_points(table, "metrics", (market,), optional=(*METRICS, "open_interest"), extra=True)


def proves(table: Table) -> int:
    """Records of markets have a volume too, and candles, which are of tokens."""
    from marketdata.recordings.format import UNDECIDED

    return 0 if table.columns.keys() & {"state", "token_ids", "open", "high", "low", "token_label"} else UNDECIDED


FORMAT = Format(
    name="metrics",
    kind="metrics",
    description="a table of metrics of markets, which are averaged over each bucket",
    needs=(f"ts market_id {'/'.join((*METRICS, 'open_interest'))}",),
    read=read,
    proves=proves,
)
