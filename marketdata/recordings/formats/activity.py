"""Answers of Polymarket's Data API: trades, and activities of accounts, which include trades."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.recordings.format import Format
from marketdata.recordings.points import typed
from marketdata.recordings.rows import converted
from marketdata.recordings.table import Batch, Table
from marketdata.recordings.trades import add_prints
from marketdata.wire.trades import trades

_OURS = {
    "market_id": "conditionId", "token_id": "asset", "token_label": "outcome", "transaction_hash": "transactionHash",
    "outcome_index": "outcomeIndex", "activity": "type", "account": "proxyWallet",
}  # fmt: skip


def proves(table: Table) -> bool:
    """The names of the Data API together."""
    names = set(table.file.columns)
    is_activity = names >= {"condition_id", "asset", "side", "size", "price", "timestamp"}
    return is_activity and bool(names & {"transaction_hash", "outcome_index"})


def read(table: Table) -> Iterator[Batch]:
    """The prints; redeems, merges and splits are left out by their type."""
    for frame, batch in table.rows():
        named = frame.with_columns(typed(frame[n]) for n in ("price", "size", "outcome_index") if is_text(frame, n))
        rows = []
        for found in named.drop("__row", "__seen").to_dicts():
            row = {_OURS.get(name, name): value for name, value in found.items()}
            kind = str(row.get("type") or "TRADE").upper()
            if kind == "TRADE":
                rows.append({**row, "side": str(row["side"]).upper(), "timestamp": row["ts"]})
            else:
                batch.left_out[f"of the type {kind[:40]}"] += 1
        parts, bad = converted(rows, trades)
        batch.left_out["damaged"] += bad
        add_prints(parts, batch)
        yield batch


def is_text(frame: pl.DataFrame, name: str) -> bool:
    """Whether a column is there and has texts."""
    return name in frame.columns and frame[name].dtype == pl.String


FORMAT = Format(
    name="activity",
    kind="trades",
    description="answers of the Data API, trades and activity",
    needs=("ts market_id token_id side size price transaction_hash",),
    read=read,
    proves=proves,
)
