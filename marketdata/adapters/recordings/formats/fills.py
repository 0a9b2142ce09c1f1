"""Fills on chain, one row per order that was filled."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.adapters.recordings.columns import numbers
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.trades import trades_of_rows

_ASSETS = ("maker_asset_id", "taker_asset_id")


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """The fills as trades of the token: the asset 0 is money, and the taker did what the maker did not."""
    for frame, batch in FORMAT.rows(file, options):
        rows = frame.with_columns(pl.col(_ASSETS).cast(pl.String).fill_null(""))
        maker_pays, taker_pays = (rows[asset] == "0" for asset in _ASSETS)
        texts = rows.select(pl.col("maker_amount", "taker_amount").cast(pl.String))
        has_decimals = any(column.str.contains(r"[.eE]").any() for column in texts)
        # Whole numbers are millionths of a share and of a dollar.
        given, received = (numbers(column) / (1 if has_decimals else 1e6) for column in texts)
        money, shares = np.where(maker_pays, given, received), np.where(maker_pays, received, given)
        with np.errstate(divide="ignore", invalid="ignore"):
            price = money / shares
        rows = rows.with_columns(
            pl.Series("price", price),
            pl.Series("size", shares),
            pl.when(maker_pays).then("taker_asset_id").otherwise("maker_asset_id").alias("token_id"),
            pl.when(maker_pays).then(pl.lit("sell")).otherwise(pl.lit("buy")).alias("side"),
        )
        is_trade = maker_pays != taker_pays
        if not is_trade.all():
            batch.left_out["not of a token against money"] += int((~is_trade).sum())
        yield trades_of_rows(rows.filter(is_trade), batch)


FORMAT = Format(
    name="fills",
    kind="trades",
    description="a table of filled orders on chain; for `md.read_trades`, as an archive has none",
    needs=(f"ts {' '.join(_ASSETS)} maker_amount taker_amount",),
    read=read,
    trades=read,
)
