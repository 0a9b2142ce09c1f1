"""Prices of Yes and No of markets, one row a moment."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.errors import ConfigError
from marketdata.recordings.format import Format
from marketdata.recordings.formats.outcome_quotes import is_of_records
from marketdata.recordings.points import (
    add_points,
    last_of_each,
    left,
    one_batch,
    outcomes_of,
    tokens_of_both,
    with_prices,
)
from marketdata.recordings.table import Batch, Table

_PRICES = ("yes_price", "no_price")


def read(table: Table) -> Iterator[Batch]:
    """Two prices a row; the price of No that is not stated is 1 less that of Yes."""
    rows, batch = one_batch(table, _PRICES)
    if not len(rows):
        yield batch
        return
    stated = [name for name in _PRICES if name in rows.columns]
    rows = left(rows, pl.col("market_id").is_not_null(), "without a market_id", batch)
    rows = with_prices(rows, stated, batch)
    if "no_price" not in stated:
        rows = rows.with_columns(no_price=(1 - pl.col("yes_price")).round(9))
    _refuse_prices_of_labels(rows, stated)
    rows = last_of_each(rows.with_columns(pl.col("market_id").cast(pl.String)), ("ts", "market_id"), batch)
    both = pl.concat(
        rows.select("ts", "market_id", token.alias("token_id"), pl.lit(label).alias("token_label"), price=name)
        for label, token, name in zip(outcomes_of(table), tokens_of_both(rows, table, batch), _PRICES, strict=True)
    )
    batch.frames = add_points(Batch(), "prices", both.drop_nulls("price")).frames
    yield batch


def _refuse_prices_of_labels(rows: pl.DataFrame, stated: list[str]) -> None:
    """ConfigError for rows of both outcomes whose prices of Yes differ: these may be of the row's own outcome."""
    if "token_label" not in rows.columns:
        return
    by_time = rows.group_by("market_id", "ts").agg(pl.col("token_label", *stated).n_unique())
    of_both = by_time.filter(pl.col("token_label") > 1)
    differing = of_both.filter(pl.col(stated[0]) > 1)
    if len(differing) * 2 > len(of_both):
        raise ConfigError(
            f"{stated[0]} differs between the outcomes of a market at {len(differing):,} times, so it may be the price "
            "of the row's own outcome. Rename the column price, or keep the rows of one outcome."
        )


FORMAT = Format(
    name="outcome-prices",
    kind="prices",
    description="a table of prices of Yes and No",
    needs=("ts market_id yes_price",),
    takes="no_price token_id",
    read=read,
    guards=(is_of_records,),
)
