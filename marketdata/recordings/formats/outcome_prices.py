"""Prices of Yes and No of markets, one row a moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import polars as pl

from marketdata.errors import ConfigError
from marketdata.recordings.format import Format
from marketdata.recordings.formats.outcome_quotes import is_of_records
from marketdata.recordings.points import (
    OUTCOMES,
    add_points,
    last_of_each,
    left,
    one_batch,
    outcomes_of,
    tokens_of_both,
    with_prices,
)
from marketdata.recordings.roles import numbers
from marketdata.recordings.table import Batch, Table
from marketdata.wire.records import as_list

_PRICES = ("yes_price", "no_price")
_COLUMNS = ("__row", "ts", "market_id", "token_id", "token_label", "price")


def read(table: Table) -> Iterator[Batch]:
    """Two prices a row; the price of No that is not stated is 1 less that of Yes."""
    if "yes_price" not in table.columns:
        yield from _read_lists(table)
        return
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


def _read_lists(table: Table) -> Iterator[Batch]:
    """A price for each entry of a list, of the token and outcome in its place; two are Yes and No."""
    rows, batch = one_batch(table)
    if len(rows):
        prices = [as_list(cell) for cell in rows["outcome_prices"].to_list()]
        labels, tokens = (
            [as_list(cell) for cell in rows[name].to_list()] if name in rows.columns else [None] * len(rows)
            for name in ("token_labels", "token_ids")
        )
        points = [
            {"__row": row, "ts": ts, "market_id": market, "token_id": token, "token_label": label, "price": price}
            for row, ts, market, of_row, names, ids in zip(
                rows["__row"], rows["ts"], rows["market_id"].cast(pl.String), prices, labels, tokens, strict=True
            )
            for price, label, token in _entries(of_row, names, ids)
        ]
        schema = {n: pl.Int64 if n in ("__row", "ts") else pl.String for n in _COLUMNS}
        found = pl.DataFrame(points, schema=schema, orient="row")
        lacking = len(rows) - found["__row"].n_unique()
        batch.left_out += Counter({"without prices of its outcomes": lacking})
        derived = pl.coalesce("token_id", pl.format("{}:{}", "market_id", "token_label"))
        found = found.with_columns(derived, pl.Series("price", numbers(found["price"])).fill_nan(None))
        batch.frames = add_points(Batch(), "prices", found.drop_nulls("price")).frames
    yield batch


def _entries(prices: list[str] | None, labels: list[str] | None, tokens: list[str] | None) -> list[tuple[Any, ...]]:
    """The price, label and token of each outcome of a row; none where lists differ in length."""
    labels = labels or ([*OUTCOMES] if prices and len(prices) == len(OUTCOMES) else None)
    if not prices or not labels or len(labels) != len(prices) or (tokens and len(tokens) != len(prices)):
        return []
    return list(zip(prices, labels, tokens or repeat(None), strict=False))


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
    description="a table of prices of Yes and No, or of a list of prices of the outcomes of each market",
    needs=("ts market_id yes_price", "ts market_id outcome_prices"),
    takes="no_price token_id",
    read=read,
    guards=(is_of_records,),
)
