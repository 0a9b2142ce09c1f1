"""Trade prints of files, each once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import polars as pl

from marketdata.adapters.recordings.columns import identified, numbers
from marketdata.adapters.recordings.files import ReadOptions, RecordingFile, files_of
from marketdata.adapters.recordings.format import Batch, format_of
from marketdata.errors import ConfigError, RecordingWarning, warn

TRADE_SIDES = {"buy": "buy", "b": "buy", "bid": "buy", "sell": "sell", "s": "sell", "ask": "sell", "a": "sell"}
_TEXTS = ("side", "transaction_hash", "maker", "taker", "trader_side")


def add_trades(frame: pl.DataFrame, batch: Batch) -> None:
    """Add the trades of a table; rows without a price or a size are counted as left out."""
    texts = [pl.col(n).cast(pl.String) if n in frame.columns else pl.lit(None, pl.String).alias(n) for n in _TEXTS]
    trades = frame.select("ts", *texts, *(pl.Series(n, numbers(frame[n])) for n in ("price", "size")))
    trades = trades.with_columns(
        *identified(frame),
        pl.col("side").str.to_lowercase().replace_strict(TRADE_SIDES, default=None, return_dtype=pl.String),
        pl.col("trader_side").str.to_lowercase(),
    )
    is_whole = pl.col("price").is_between(0, 1) & (pl.col("size") > 0) & pl.col("size").is_finite()
    batch.frame = trades.filter(is_whole)
    batch.left_out += Counter({"price outside of 0 to 1, or no size": len(trades) - len(batch.frame)})


def recorded_trades(paths: Any, options: ReadOptions) -> pl.DataFrame:
    """The prints by market, token and time; warnings about rows and files that are left out."""
    parts, left_out = [], Counter[str]()
    for path, is_named in files_of(paths).items():
        file = RecordingFile(path, options)
        try:
            chosen = format_of(file)
            read = chosen.read if chosen.kind == "trades" else chosen.trades
            if read is None:
                raise ConfigError(f"{path.name!r} has {chosen.kind} ({chosen.needed}), and no trades.")
            for batch in read(chosen, file):
                left_out += batch.left_out
                parts.append(batch.frame)
        except ConfigError as problem:
            if is_named:
                raise
            warn(f"Left out {problem.problem}", RecordingWarning)
        if file.damage:
            warn(file.damage, RecordingWarning)
    del left_out["no trades"]
    if left_out:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in left_out.most_common())
        warn(f"Rows were left out of the trades: {reasons}.", RecordingWarning)
    if not parts:
        raise ConfigError("No file has trades.", argument="paths", value=paths)
    market = pl.when(pl.col("market_id") == "").then("token_id").otherwise("market_id")
    rows = pl.concat(parts).with_columns(market.alias("market_id"))
    return _without_repeated_legs(rows).sort("market_id", "token_id", "ts", maintain_order=True)


def _without_repeated_legs(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows without legs of takers that repeat the sum of the makers' legs of their transaction.

    A leg repeats others if its maker is the taker of another leg. So does the leg of a taker beside the leg of a maker.
    """
    is_maker, is_taker = (pl.col("trader_side").eq_missing(role) for role in ("maker", "taker"))
    is_beside_maker = pl.col("transaction_hash").is_not_null() & is_maker.any().over("transaction_hash")
    is_known = pl.all_horizontal(pl.col("transaction_hash", "maker", "taker").is_not_null())
    takers = rows.filter(is_known, pl.col("maker") != pl.col("taker")).select(
        pl.struct("transaction_hash", maker="taker").unique().implode()
    )
    is_taker_of_another = is_known & pl.struct("transaction_hash", "maker").is_in(takers.to_series())
    return rows.filter(~(is_taker_of_another | (is_taker & is_beside_maker)))
