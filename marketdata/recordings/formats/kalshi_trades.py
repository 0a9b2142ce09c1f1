"""Prints of Kalshi: prices of Yes and No in cents or dollars, and which of both the taker bought."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import polars as pl

from marketdata.recordings.format import Format
from marketdata.recordings.roles import flags, numbers
from marketdata.recordings.rows import converted
from marketdata.recordings.table import Batch, Table
from marketdata.recordings.trades import add_rows
from marketdata.wire.kalshi import others
from marketdata.wire.trades import trades

_PRICES = ("yes_price", "no_price")
# A print about which only the words of a row are of interest.
_ANY = {"ticker": "ANY", "created_time": "2026-01-01T00:00:00Z", "count_fp": "1", "yes_price_dollars": "0.5"}


def read(table: Table) -> Iterator[Batch]:
    """The prints as trades of the Yes and No tokens."""
    cents = {name: _is_cents(table, name) for name in _PRICES if name in table.columns}
    for frame, batch in table.rows():
        size = "size" if "size" in frame.columns else "count"
        yes, no = (
            numbers(frame[name]) / (100 if cents[name] else 1) if name in cents else np.full(len(frame), np.nan)
            for name in _PRICES
        )
        rows = _with_meaning(frame).with_columns(pl.Series("yes", yes), pl.Series("no", no))
        is_yes = rows["token_label"].to_numpy() == "Yes"
        price, other = np.where(is_yes, yes, no), np.where(is_yes, no, yes)
        ticker = pl.col("market_id").cast(pl.String)
        prints = rows.select(
            "ts", "side", "role", "token_label", market_id=ticker,
            token_id=ticker + ":" + pl.col("token_label").str.to_lowercase(),
            price=pl.Series(np.where(np.isnan(price), others(other), price)).fill_nan(None),
            size=pl.Series(numbers(frame[size])).fill_nan(None),
            **({"trade_id": pl.col("trade_id").cast(pl.String)} if "trade_id" in rows.columns else {}),
            **({"is_block": flags(frame["is_block"]).cast(pl.Float64)} if "is_block" in rows.columns else {}),
            **({"fee": pl.Series(numbers(frame["fee"])).fill_nan(None)} if "fee" in rows.columns else {}),
        )  # fmt: skip
        is_read = pl.col("token_label").is_not_null() & (pl.col("market_id").fill_null("") != "")
        batch.left_out["damaged"] += len(prints) - len(read_rows := prints.filter(is_read))
        add_rows(read_rows, batch)
        yield batch


def _with_meaning(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows with ``token_label``, ``side`` and ``role``: what `wire` says to each combination of words, once."""
    said: dict[str, Any] = {
        name: pl.col(column).cast(pl.String).str.to_lowercase() for name, column in _said(frame).items()
    }
    if "is_taker" in frame.columns:
        said["is_taker"] = flags(frame["is_taker"])
    words = frame.select(**said) if said else pl.DataFrame({"side": pl.Series([None] * len(frame), dtype=pl.String)})
    every = words.unique()
    meanings = []
    for row in every.to_dicts():
        parts, _ = converted([{**_ANY, **row}], trades)
        found = parts[0] if parts and len(parts[0]) else None
        texts = {} if found is None else {n: found.values[n][0] for n in ("side", "role") if n in found.values}
        label = None if found is None else found.tokens[0].token_label
        meanings.append((label, texts.get("side"), texts.get("role")))
    columns = ("__label", "__side", "__role")
    known = every.with_columns(pl.DataFrame(meanings, dict.fromkeys(columns, pl.String), orient="row"))
    found_rows = words.join(known, on=words.columns, how="left", nulls_equal=True, maintain_order="left")
    names = dict(zip(columns, ("token_label", "side", "role"), strict=True))
    return frame.drop(names.values(), strict=False).hstack(found_rows.select(columns).rename(names))


def _said(frame: pl.DataFrame) -> dict[str, str]:
    """The columns that say what was bought, as prints call it: by the taker, or by the account whose fills they are."""
    if "taker_outcome" in frame.columns:
        said = {"taker_outcome_side": "taker_outcome", "taker_side": "older_taker_outcome"}
        return {name: column for name, column in said.items() if column in frame.columns}
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
