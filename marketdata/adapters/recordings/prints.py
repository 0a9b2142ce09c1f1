"""Trade prints of files, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import polars as pl

from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Reading, format_of
from marketdata.adapters.recordings.paths import files_of
from marketdata.errors import ConfigError, RecordingWarning, warn
from marketdata.points.trades import repeated_legs


def recorded_trades(paths: Any, name: str | None, renamed: Mapping[str, str], clock: str) -> pl.DataFrame:
    """The prints by market, token and time; warnings about rows and files that are left out."""
    parts, left_out = [], Counter[str]()
    files, named = files_of(paths)
    for path in files:
        try:
            file = RecordingFile(path, renamed=renamed)
            chosen = format_of(file, name)
            if chosen.trades is None:
                raise ConfigError(f"{path.name!r} has {chosen.kind} ({chosen.needs}), and no trades.")
            for batch in chosen.trades(file, Reading(clock)):
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
    rows = pl.concat(parts)
    market = pl.when(pl.col("market_id") == "").then("token_id").otherwise("market_id")
    rows = rows.filter(~_repeated(rows)).with_columns(market.alias("market_id"))
    return rows.sort("market_id", "token_id", "ts", maintain_order=True)


def _repeated(rows: pl.DataFrame) -> pl.Series:
    """Which rows are legs that repeat others."""
    accounts = _codes(pl.concat([rows["maker"], rows["taker"]]))
    roles = {"maker": 0, "taker": 1}
    role = rows["role"].str.to_lowercase().replace_strict(roles, default=-1, return_dtype=pl.Int64)
    count = len(rows)
    legs = repeated_legs(_codes(rows["transaction"]), accounts[:count], accounts[count:], role.to_numpy())
    return pl.Series(legs, dtype=pl.Boolean)


def _codes(texts: pl.Series) -> Any:
    return texts.rank("dense").cast(pl.Int64).fill_null(0).to_numpy() - 1
