"""Fills on chain, one row per order that was filled."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import TIME, first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import frames_with_time, trades_of_rows

_AMOUNTS = (("maker_amount_filled", "maker_amount"), ("taker_amount_filled", "taker_amount"))
_ASSETS = ("maker_asset_id", "taker_asset_id")
# Amounts in whole numbers are millionths of a share and of a dollar.
_UNITS = 1e6


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """The fills as trades of the token: the asset 0 is money, and the taker did what the maker did not."""
    maker_amount, taker_amount = (str(first(file.columns, names)) for names in _AMOUNTS)
    for frame, batch in frames_with_time(file):
        rows = frame.with_columns(pl.col(_ASSETS).cast(pl.String))
        maker_pays = (rows["maker_asset_id"] == "0").fill_null(value=False)
        taker_pays = (rows["taker_asset_id"] == "0").fill_null(value=False)
        amounts = [_amounts(rows[name]) for name in (maker_amount, taker_amount)]
        money, shares = (np.where(maker_pays.to_numpy(), *pair) for pair in (amounts, amounts[::-1]))
        with np.errstate(divide="ignore", invalid="ignore"):
            price = money / shares
        rows = rows.with_columns(
            pl.Series("price", price),
            pl.Series("size", shares),
            pl.when(maker_pays).then(pl.col("taker_asset_id")).otherwise(pl.col("maker_asset_id")).alias("token_id"),
            pl.when(maker_pays).then(pl.lit("sell")).otherwise(pl.lit("buy")).alias("side"),
        )
        is_trade = maker_pays != taker_pays
        if not is_trade.all():
            batch.left_out["not of a token against money"] += int((~is_trade).sum())
        batch.frame = trades_of_rows(rows.filter(is_trade), reading, batch)
        yield batch


def _amounts(column: pl.Series) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    texts = column.cast(pl.String)
    values = texts.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    is_whole = not texts.str.contains(r"[.eE]").any()
    return values / _UNITS if is_whole else values


FORMAT = Format(
    name="fills",
    kind="trades",
    description="a table of filled orders on chain; for `md.read_trades`, as an archive has none",
    needs="a time, maker_asset_id, taker_asset_id, maker_amount_filled and taker_amount_filled",
    fits=having(TIME, *((name,) for name in _ASSETS), *_AMOUNTS),
    read=read,
    trades=read,
)
