"""Trade prints of files, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

from marketdata.adapters import frames
from marketdata.adapters.frame import Texts
from marketdata.errors import ConfigError, RecordingWarning, warn
from marketdata.points.schema import ID_COLUMNS
from marketdata.recordings.columns import identified, numbers, renamed_columns
from marketdata.recordings.files import ReadOptions, RecordingFile, files_of
from marketdata.recordings.format import Batch, format_of
from marketdata.tidy.frames import FrameKind, frame_kind

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


def read_trades(
    paths: Any,
    *,
    format: str | None = None,  # noqa: A002  as the option of the command is called
    columns: Mapping[str, str] | None = None,
    clock: str = "timestamp",
    frame: FrameKind = "pandas",
) -> Any:
    """Trade prints of recordings and trade tables.

    Files are messages of a market channel, hourly event files, tables of trades, and tables of fills on chain. The
    taker's own leg of a fill repeats the sum of its makers' legs, so it is left out where accounts or roles tell it.

    Parameters
    ----------
    paths : path or list of paths
        Files, folders and patterns, as for `Archive.add_files`.
    format : str, optional
        Name of the format of all files, where their columns fit several.
    columns : dict, optional
        The column of the files that has one of our names, such as ``{"ts": "when"}``.
    clock : str
        "timestamp", the time of the venue, "received", or the name of a column.
    frame : {"pandas", "polars"}
        Kind of the result.

    Returns
    -------
    frame
        One row per print, by market, token and time: ``ts market_id token_id token_label side price size`` [UTC,
        probability, shares]. ``side`` is what the taker did: "buy" or "sell". A token whose market is not known is a
        market by itself.

    Raises
    ------
    ConfigError
        A file that was named has no trades.

    Warns
    -----
    RecordingWarning
        Rows without a price, a size or a time were left out, or a file of a folder has no trades.

    Examples
    --------
    >>> import tempfile
    >>> path = f"{tempfile.mkdtemp()}/trades.csv"
    >>> trade = {"timestamp": 1767225600, "asset_id": "7", "side": "BUY"}
    >>> pl.DataFrame([{**trade, "price": 0.48, "size": 30}]).write_csv(path)
    >>> md.read_trades(path)[["token_id", "side", "price", "size"]].to_numpy().tolist()
    [['7', 'buy', 0.48, 30.0]]
    """
    kind = frame_kind(frame)
    rows = recorded_trades(paths, ReadOptions(clock, format=format, columns=renamed_columns(columns)))
    return frames.new(kind).build(
        {
            "ts": frames.times(rows["ts"].to_numpy()),
            **{name: Texts.of(rows[name].to_list()) for name in (*ID_COLUMNS, "side")},
            **{name: rows[name].to_numpy() for name in ("price", "size")},
        },
        len(rows),
    )


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
