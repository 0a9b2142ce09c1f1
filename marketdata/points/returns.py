"""Values over time: bars, returns and log-odds of a series, in which a missing value is NaN."""

from __future__ import annotations

from typing import Literal

import numpy as np

from marketdata.points.columns import Floats, Series
from marketdata.points.resample import buckets, in_buckets
from marketdata.resolution import BucketWidth

How = Literal["simple", "log", "change", "log_odds"]


def ohlc(series: Series, value: str, width: BucketWidth) -> Series:
    """First, greatest, least and last value of each bucket that has one, and their number."""
    values = series.values[value]
    missing = np.isnan(values)
    if missing.any():
        series = series.take(np.flatnonzero(~missing))
        values = series.values[value]
    edges = buckets(series, width)
    starts, ends = edges[:-1], edges[1:]
    bars = {
        "open": values[starts],
        "high": np.maximum.reduceat(values, starts) if len(starts) else values,
        "low": np.minimum.reduceat(values, starts) if len(starts) else values,
        "close": values[ends - 1],
        "points": ends - starts,
    }
    return in_buckets(series, edges, width, bars)  # type: ignore[arg-type] # a number of points is whole


def returns(series: Series, value: str, how: How, width: BucketWidth | None = None) -> Floats:
    """Change from the entry before of the same token; with a width only from the bucket just before."""
    v = series.values[value]
    out = np.full(len(v), np.nan)
    move = out[1:]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        if how == "log":
            v = np.log(v, where=v > 0, out=np.full(len(v), np.nan))
        elif how == "log_odds":
            v = np.log(v / (1 - v), where=(v > 0) & (v < 1), out=np.full(len(v), np.nan))
        if how == "simple":
            np.divide(v[1:], v[:-1], out=move)
            move -= 1
        else:
            np.subtract(v[1:], v[:-1], out=move)
    move[np.isinf(move)] = np.nan
    out[series.bounds[:-1]] = np.nan
    if width is not None:
        move[np.diff(series.ts) != width.micros] = np.nan
    return out
