"""Open, high, low and close of tokens, one candle a row; the close is the price of the bucket."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.errors import ConfigError
from marketdata.recordings.format import Format
from marketdata.recordings.points import read_points
from marketdata.recordings.roles import ROLES
from marketdata.recordings.table import Batch, Table

_WIDTHS = ("interval", "timeframe", "resolution", "period_interval", "granularity", "bar_size", "candle_interval")


def read(table: Table) -> Iterator[Batch]:
    """The closes as prices."""
    _refuse_several_widths(table)
    table.columns = {**table.columns, "price": table.columns["close"]}
    ends = {*ROLES["end_ts"].names, *ROLES["candle_end"].names}
    for batch in read_points(table, "prices", ("token_id",), numbers_of=("price",)):
        if table.columns["ts"] in ends and "prices" in batch.frames:
            batch.frames["prices"] = _at_starts(batch.frames["prices"], table)
        batch.notes.append("prices are the close of each candle, at its start")
        yield batch


def _at_starts(ends: pl.DataFrame, table: Table) -> pl.DataFrame:
    """The points at the start of their candles, whose width is the finest step between the ends of a token."""
    token = "token_id" if "token_id" in ends.columns else "market_id"
    steps = ends.sort("ts").select(pl.col("ts").diff().over(token)).to_series().drop_nulls()
    widths = [width for width in steps.dt.total_microseconds().to_list() if width > 0]
    if not widths:
        raise ConfigError(
            f"{table.file.name!r} has the ends of candles and one of a token, so their width is not known. Name the "
            "column of their starts with columns={'ts': 'when'}, or bring two candles."
        )
    return ends.with_columns(pl.col("ts") - pl.duration(microseconds=min(widths)))


def _refuse_several_widths(table: Table) -> None:
    """ConfigError for candles of several widths, because short ones would be averaged with long ones."""
    name = next((name for name in _WIDTHS if name in table.file.columns), None)
    if name is None:
        return
    widths = {str(width) for frame in table.file.frames([name]) for width in frame[name].drop_nulls().unique()}
    if len(widths) > 1:
        few = ", ".join(sorted(widths)[:4])
        raise ConfigError(f"{table.file.name!r} has candles of several widths, by {name}: {few}. Keep those of one.")


FORMAT = Format(
    name="candles",
    kind="prices",
    description="a table of candles of tokens: prices are their closes, at the start of the candle",
    needs=("ts token_id close", "ts market_id token_label close"),
    takes="token_id price",
    read=read,
)
