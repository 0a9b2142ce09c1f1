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
from marketdata.wire import kalshi

_PRICES = ("yes_price", "no_price")


def read(table: Table) -> Iterator[Batch]:
    """The prints as trades of the Yes and No tokens."""
    cents = {name: _is_cents(table, name) for name in _PRICES if name in table.columns}
    for rows_of, batch in table.rows():
        frame = rows_of if "taker_outcome" in rows_of.columns else _with_taker(rows_of)
        prices = {
            f"{name}_dollars": pl.Series(numbers(frame[name]) / (100 if in_cents else 1)).fill_nan(None)
            for name, in_cents in cents.items()
        }
        size = "size" if "size" in frame.columns else "count"
        side = "taker_outcome" if "taker_outcome" in frame.columns else "side"
        rows = frame.select(
            ticker=pl.col("market_id").cast(pl.String),
            created_time=pl.col("ts").cast(pl.Datetime("us")).dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ"),
            trade_id=(pl.col("trade_id") if "trade_id" in frame.columns else pl.lit("")).cast(pl.String).fill_null(""),
            count_fp=pl.Series(numbers(frame[size])).fill_nan(None),
            taker_side=(pl.col(side) if side in frame.columns else pl.lit(None)).cast(pl.String).str.to_lowercase(),
            **prices,
        ).to_dicts()  # fmt: skip
        parts, bad = converted(rows, kalshi.trades)
        batch.left_out["damaged"] += bad
        add_prints(parts, batch)
        yield batch


def _with_taker(frame: pl.DataFrame) -> pl.DataFrame:
    """The outcome that the taker bought, from own fills: their outcome, side and whether they were the taker."""
    if not {"outcome_side", "action", "is_taker"} <= set(frame.columns):
        return frame
    texts = [frame[name].cast(pl.String).str.to_lowercase() for name in ("outcome_side", "action")]
    takes_yes = ((texts[0] == "yes") == (texts[1] == "buy")) == flags(frame["is_taker"])
    named = takes_yes.replace_strict({True: "yes", False: "no"}, return_dtype=pl.String)
    return frame.with_columns(named.alias("taker_outcome"))


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
    description="prints of Kalshi, in cents or dollars; for `md.read_trades`, as an archive has none",
    needs=("ts market_id yes_price/no_price count/size",),
    takes="account token_id trade_id taker_outcome no_price side price order_id size count",
    read=read,
)
