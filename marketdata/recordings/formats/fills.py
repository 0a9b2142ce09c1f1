"""Fills on chain, one row per order that was filled."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.recordings.format import Format
from marketdata.recordings.roles import numbers
from marketdata.recordings.table import DENIED, Batch, Table
from marketdata.recordings.trades import add_trades

_ASSETS = ("maker_asset_id", "taker_asset_id")
_AMOUNTS = ("maker_amount", "taker_amount")


def read(table: Table) -> Iterator[Batch]:
    """The fills as trades of the token: the asset 0 is money, and the taker did what the maker did not.

    Newer contracts name one token and the side of the maker's order, 0 to buy it and 1 to sell it.
    """
    for frame, batch in table.rows():
        if not len(frame):
            yield batch
            continue
        amounts = frame.select(pl.col(_AMOUNTS).cast(pl.String))
        # Whole numbers are millionths of a share and of a dollar.
        unit = 1 if any(texts.str.contains(r"[.eE]").any() for texts in amounts) else 1e6
        rows = frame.with_columns(pl.Series(texts.name, numbers(texts) / unit) for texts in amounts)
        if "token_id" in rows.columns:
            # The side column tells the side of the maker's order; the role of sides takes no numbers.
            maker_pays = pl.col(_side_column(rows)).cast(pl.String).str.to_uppercase().is_in(["0", "BUY"])
            taker_pays = ~maker_pays
            token = pl.col("token_id").cast(pl.String)
        else:
            rows = rows.with_columns(pl.col(_ASSETS).cast(pl.String).fill_null(""))
            maker_pays, taker_pays = (pl.col(asset) == "0" for asset in _ASSETS)
            token = pl.when(maker_pays).then("taker_asset_id").otherwise("maker_asset_id")
        maker_gives, taker_gives = map(pl.col, _AMOUNTS)
        money = pl.when(maker_pays).then(maker_gives).otherwise(taker_gives)
        shares = pl.when(maker_pays).then(taker_gives).otherwise(maker_gives)
        sold = pl.when(maker_pays).then(pl.lit("sell")).otherwise(pl.lit("buy"))
        against_money = rows.filter(maker_pays != taker_pays)
        trades = against_money.with_columns(
            (money / shares).alias("price"), shares.alias("size"), token.alias("token_id"), sold.alias("side")
        )
        batch.left_out["not of a token against money"] += len(rows) - len(trades)
        add_trades(trades, batch)
        yield batch


def _side_column(rows: pl.DataFrame) -> str:
    return next(name for name in ("side", f"side{DENIED}", "maker_side") if name in rows.columns)


FORMAT = Format(
    name="fills",
    kind="trades",
    description="a table of filled orders on chain",
    needs=(f"ts {' '.join((*_ASSETS, *_AMOUNTS))}", f"ts token_id {' '.join(_AMOUNTS)}"),
    takes="transaction_hash maker taker account side trade_id price size",
    read=read,
)
