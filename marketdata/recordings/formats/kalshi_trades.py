"""Prints of Kalshi: prices of Yes and No in cents or dollars, and which of both the taker bought."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.recordings.format import Format
from marketdata.recordings.roles import flags, numbers
from marketdata.recordings.rows import converted
from marketdata.recordings.table import Batch, Table
from marketdata.recordings.trades import add_prints
from marketdata.wire.trades import trades

_PRICES = ("yes_price", "no_price")
_FLAGS = {"is_taker": "is_taker", "is_block": "is_block_trade"}


def read(table: Table) -> Iterator[Batch]:
    """The prints as trades of the Yes and No tokens."""
    cents = {name: _is_cents(table, name) for name in _PRICES if name in table.columns}
    for frame, batch in table.rows():
        prices = {
            f"{name}_dollars": pl.Series(numbers(frame[name]) / (100 if in_cents else 1)).fill_nan(None)
            for name, in_cents in cents.items()
        }
        size = "size" if "size" in frame.columns else "count"
        rows = frame.select(
            ticker=pl.col("market_id").cast(pl.String),
            ts="ts",
            count_fp=pl.Series(numbers(frame[size])).fill_nan(None),
            **{name: pl.col(column).cast(pl.String).str.to_lowercase() for name, column in _said(frame).items()},
            **{ours: flags(frame[name]) for name, ours in _FLAGS.items() if name in frame.columns},
            **({"fee_cost": pl.Series(numbers(frame["fee"])).fill_nan(None)} if "fee" in frame.columns else {}),
            **({"trade_id": pl.col("trade_id").cast(pl.String)} if "trade_id" in frame.columns else {}),
            **prices,
        ).to_dicts()  # fmt: skip
        parts, bad = converted(rows, trades)
        batch.left_out["damaged"] += bad
        add_prints(parts, batch)
        yield batch


def _said(frame: pl.DataFrame) -> dict[str, str]:
    """The columns that say what was bought, as prints call it: by the taker, or by the account whose fills they are."""
    if "taker_outcome" in frame.columns:
        return {"taker_side": "taker_outcome"}
    if {"outcome_side", "action"} <= set(frame.columns):
        return {"side": "outcome_side", "action": "action"}
    return {"taker_side": "side"} if "side" in frame.columns else {}


def _is_cents(table: Table, name: str) -> bool:
    """Whether a column has cents: whole numbers, under a name that does not say dollars."""
    column = table.columns[name]
    if column.endswith("_dollars"):
        return False
    values = np.concatenate([numbers(frame[column]) for frame in table.file.frames([column])])
    known = values[np.isfinite(values)]
    return bool(np.all(known == np.rint(known)))


FORMAT = Format(
    name="kalshi-trades",
    kind="trades",
    description="prints of Kalshi, in cents or dollars",
    needs=("ts market_id yes_price/no_price count/size",),
    takes="account token_id trade_id taker_outcome no_price side price order_id size count",
    read=read,
)
