"""Prices of the outcomes of one event, a column for each, as the site of a venue exports them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.points.probability import no_probability
from marketdata.recordings.book_rows import derived_markets
from marketdata.recordings.format import Format
from marketdata.recordings.points import add_points, last_of_each, one_batch, with_prices
from marketdata.recordings.roles import is_number, is_time, numbers
from marketdata.recordings.table import Batch, Table
from marketdata.wire.records import OUTCOME_PAIRS

_TOKEN = re.compile(r"\d{20,}|0x[0-9a-fA-F]{64}")
# Columns of time that the site of a venue exports beside those of its outcomes.
_OF_A_SITE = {"date_utc", "timestamp_utc"}


def outcomes(table: Table) -> list[str]:
    """The columns of numbers that have no other meaning."""
    sample = table.file.sample
    return [name for name in table.others if is_number(sample[name].drop_nulls()) and not is_time(sample[name])]


def proves(table: Table) -> bool:
    """Columns are called as tokens or as the outcomes of a market, or the site of a venue exports such files.

    Columns of prices that add up to 1 may be anything else, so such a file needs ``format=``.
    """
    names = outcomes(table)
    if (
        "ts" not in table.columns
        or table.decisive
        or "market_id" in table.columns
        or (len(names) < 2 and not _are_tokens(names))
    ):
        return False
    prices = np.stack([numbers(table.file.sample[name]) for name in names])
    is_price = not no_probability(prices).any()
    is_pair = {name.title() for name in names} in [{*pair} for pair in OUTCOME_PAIRS]
    is_said = table.file.options.format is not None or {*table.file.columns} >= _OF_A_SITE
    return is_price and (_are_tokens(names) or is_pair or is_said)


def _are_tokens(names: list[str]) -> bool:
    return bool(names) and all(map(_TOKEN.fullmatch, names))


def read(table: Table) -> Iterator[Batch]:
    """A price for each column of a row: its token, or an outcome of a market that is called as the file."""
    names = outcomes(table)
    rows, batch = one_batch(table, tuple(names))
    if not len(rows):
        yield batch
        return
    market = table.file.path.name.split(".")[0]
    rows = last_of_each(with_prices(rows, names, batch), ("ts",), batch)
    labels = {name: table.file.original_name(name) for name in names}
    long = rows.unpivot(names, index="ts", variable_name="column", value_name="price").drop_nulls("price")
    if _are_tokens(names):
        points = long.select("ts", "price", pl.col("column").alias("token_id"))
        batch.frames = add_points(Batch(), "prices", points).frames
        yield batch
        return
    label = pl.col("column").replace(labels)
    points = long.select(
        "ts", "price", market_id=pl.lit(market), token_id=pl.format("{}:{}", pl.lit(market), label), token_label=label
    )
    batch.markets = derived_markets({market: labels.values()}, {})
    batch.frames = add_points(Batch(), "prices", points).frames
    batch.notes.append(f"the market is called {market!r} as the file, and each outcome as its column")
    yield batch


FORMAT = Format(
    name="wide-prices",
    kind="prices",
    description="a table of prices with a column for each token, or for each outcome of an event with `format=`",
    needs=("ts one-column-per-outcome",),
    read=read,
    proves=proves,
)
