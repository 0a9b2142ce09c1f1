"""Scans of every engine as plain rows."""

from __future__ import annotations

from typing import Any

import polars as pl

IDS = ["market_id", "token_id", "token_label"]


def fetched(frame: Any) -> pl.DataFrame:
    """The rows of what an engine gave."""
    if isinstance(frame, pl.LazyFrame):
        return frame.collect()
    if hasattr(frame, "read_all"):
        return pl.DataFrame(pl.from_arrow(frame.read_all()))
    if hasattr(frame, "pl"):
        return frame.pl()
    return (
        pl.DataFrame(pl.from_arrow(frame.toArrow())) if hasattr(frame, "toArrow") else pl.from_pandas(frame.compute())
    )


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    """Ids and sides as texts, rows in one order."""
    texts = [c for c in (*IDS, "side") if c in frame.columns]
    keys = [c for c in ("market_id", "token_id", "ts", "side", "level") if c in frame.columns]
    return frame.with_columns(pl.col(c).cast(pl.String) for c in texts).sort(keys)
