"""Trade prints of files, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

from marketdata.adapters.recordings.columns import numbers, tokens
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, ReadOptions, format_of
from marketdata.adapters.recordings.paths import files_of
from marketdata.errors import ConfigError, RecordingWarning, warn
from marketdata.points.columns import Token
from marketdata.points.trades import repeated_legs

TRADE_SIDES = {"buy": "buy", "b": "buy", "bid": "buy", "sell": "sell", "s": "sell", "ask": "sell", "a": "sell"}
_COLUMNS: dict[str, Any] = {
    "ts": pl.Int64, **dict.fromkeys(Token._fields, pl.String), "side": pl.String, "price": pl.Float64,
    "size": pl.Float64, **dict.fromkeys(("transaction_hash", "maker", "taker", "trader_side"), pl.String),
}  # fmt: skip


def trades_frame(rows: Any) -> pl.DataFrame:
    """A frame, or rows as dicts, with all columns of trades, null where there are none."""
    frame = pl.DataFrame(rows)
    missing = [pl.lit(None).alias(name) for name in _COLUMNS if name not in frame.columns]
    return frame.with_columns(missing).select([*_COLUMNS]).cast(pl.Schema(_COLUMNS))


def trades_of_rows(frame: pl.DataFrame, batch: Batch) -> Batch:
    """The batch with the trades of a table; rows without a price or a size are counted in it."""
    names, token = tokens(frame)
    columns: dict[str, Any] = {name: numbers(frame[name]) for name in ("price", "size")}
    columns |= {name: [names[code][i] for code in token.tolist()] for i, name in enumerate(Token._fields)}
    trades = trades_frame(frame.with_columns(pl.Series(name, values) for name, values in columns.items()))
    side = pl.col("side").str.to_lowercase().replace_strict(TRADE_SIDES, default=None, return_dtype=pl.String)
    is_whole = pl.col("price").is_between(0, 1) & (pl.col("size") > 0) & pl.col("size").is_finite()
    batch.frame = trades.filter(is_whole).with_columns(side)
    batch.left_out += Counter({"price outside of 0 to 1, or no size": len(trades) - len(batch.frame)})
    return batch


def recorded_trades(paths: Any, name: str | None, renamed: Mapping[str, str], clock: str) -> pl.DataFrame:
    """The prints by market, token and time; warnings about rows and files that are left out."""
    parts, left_out = [], Counter[str]()
    files, named = files_of(paths)
    for path in files:
        try:
            file = RecordingFile(path, renamed=renamed)
            chosen = format_of(file, name)
            if chosen.trades is None:
                raise ConfigError(f"{path.name!r} has {chosen.kind} ({chosen.needed}), and no trades.")
            for batch in chosen.trades(file, ReadOptions(clock)):
                left_out += batch.left_out
                if batch.frame is not None:
                    parts.append(batch.frame)
        except ConfigError as problem:
            if path in named:
                raise
            warn(f"Left out {problem.problem}", RecordingWarning)
    del left_out["no trades"]
    if left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
        warn(f"Rows were left out of the trades: {reasons}.", RecordingWarning)
    if not parts:
        raise ConfigError("No file has trades.", argument="paths", value=paths)
    market = pl.when(pl.col("market_id") == "").then("token_id").otherwise("market_id")
    rows = pl.concat(parts).with_columns(market.alias("market_id"))
    return rows.filter(~_is_repeated(rows)).sort("market_id", "token_id", "ts", maintain_order=True)


def _is_repeated(rows: pl.DataFrame) -> pl.Series:
    """Which rows are legs that repeat others."""
    roles = {"maker": 0, "taker": 1}
    role = rows["trader_side"].str.to_lowercase().replace_strict(roles, default=-1, return_dtype=pl.Int64)
    accounts = _codes(pl.concat([rows["maker"], rows["taker"]]))
    maker, taker = accounts[: len(rows)], accounts[len(rows) :]
    return pl.Series(repeated_legs(_codes(rows["transaction_hash"]), maker, taker, role.to_numpy()), dtype=pl.Boolean)


def _codes(texts: pl.Series) -> Any:
    return texts.rank("dense").cast(pl.Int64).fill_null(0).to_numpy() - 1
