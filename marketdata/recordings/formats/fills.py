"""Fills on chain, one row per order that was filled."""

from __future__ import annotations

import polars as pl

from marketdata.recordings.columns import numbers
from marketdata.recordings.format import Batch, Format, by_parts
from marketdata.recordings.trades import add_trades

_ASSETS = ("maker_asset_id", "taker_asset_id")
_AMOUNTS = ("maker_amount", "taker_amount")


def add_fills(frame: pl.DataFrame, batch: Batch) -> None:
    """Add the fills as trades of the token: the asset 0 is money, and the taker did what the maker did not."""
    amounts = frame.select(pl.col(_AMOUNTS).cast(pl.String))
    # Whole numbers are millionths of a share and of a dollar.
    unit = 1 if any(texts.str.contains(r"[.eE]").any() for texts in amounts) else 1e6
    numbers_of = (pl.Series(texts.name, numbers(texts) / unit) for texts in amounts)
    rows = frame.with_columns(pl.col(_ASSETS).cast(pl.String).fill_null(""), *numbers_of)
    maker_pays, taker_pays = (pl.col(asset) == "0" for asset in _ASSETS)
    maker_gives, taker_gives = map(pl.col, _AMOUNTS)
    money = pl.when(maker_pays).then(maker_gives).otherwise(taker_gives)
    shares = pl.when(maker_pays).then(taker_gives).otherwise(maker_gives)
    trades = rows.filter(maker_pays != taker_pays).with_columns(
        (money / shares).alias("price"),
        shares.alias("size"),
        pl.when(maker_pays).then("taker_asset_id").otherwise("maker_asset_id").alias("token_id"),
        pl.when(maker_pays).then(pl.lit("sell")).otherwise(pl.lit("buy")).alias("side"),
    )
    if len(trades) < len(rows):
        batch.left_out["not of a token against money"] += len(rows) - len(trades)
    add_trades(trades, batch)


FORMAT = Format(
    name="fills",
    kind="trades",
    description="a table of filled orders on chain; for `md.read_trades`, as an archive has none",
    needs=(f"ts {' '.join((*_ASSETS, *_AMOUNTS))}",),
    read=by_parts(add_fills),
)
