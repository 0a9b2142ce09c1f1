"""Frames of a few rows."""

from __future__ import annotations

import datetime as dt
from typing import Any

import polars as pl

T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


IDS = {"market_id": "m", "token_id": "1", "token_label": "Yes"}


def at(minutes: float) -> dt.datetime:
    return T0 + dt.timedelta(minutes=minutes)


def prices(times: list[float], values: list[Any] | None = None, **ids: Any) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "ts": [at(t) for t in times],
            **IDS,
            **ids,
            "price": values or [0.25 + i % 48 / 64 for i in range(len(times))],
        },
        schema_overrides={"ts": pl.Datetime("us", "UTC")},
    )


def book(minutes: float = 0, bids: Any = ((0.25, 10.0),), asks: Any = ((0.75, 20.0),), **ids: Any) -> pl.DataFrame:
    rows = [("bid", k, *level) for k, level in enumerate(bids)] + [("ask", k, *level) for k, level in enumerate(asks)]
    names = ["side", "level", "price", "size"]
    frame = pl.DataFrame(rows, schema=names, orient="row")
    return frame.select(
        pl.lit(at(minutes)).dt.cast_time_unit("us").alias("ts"),
        *(pl.lit(v).alias(c) for c, v in {**IDS, **ids}.items()),
        *names,
    )
