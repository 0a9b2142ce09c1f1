"""Metrics of markets, one time a row."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.points.columns import METRICS
from marketdata.recordings.format import Format
from marketdata.recordings.points import read_points
from marketdata.recordings.table import Batch, Table


def read(table: Table) -> Iterator[Batch]:
    """The metrics; further columns of numbers are metrics too."""
    return read_points(table, "metrics", ("market_id",), optional=(*METRICS, "open_interest"), extra=True)


FORMAT = Format(
    name="metrics",
    kind="metrics",
    description="a table of metrics of markets, which are averaged over each bucket",
    needs=(f"ts market_id {'/'.join((*METRICS, 'open_interest'))}",),
    read=read,
    # Records of markets have a volume too, and so have candles of tokens.
    never="state token_ids open high low token_label",
)
