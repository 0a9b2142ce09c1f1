"""The aggregation rules of the service (interface 4.2 to 4.4), written once.

As narwhals expressions they hold for every kind of frame, lazy ones included. A sorted frame in memory takes
the run kernel instead, which gives the same rows.

1. A bucket is ``floor(ts / width)`` from the epoch in UTC, named by its start.
2. Books, and what was derived from books: the rows with the greatest ``ts`` of each token and bucket.
3. Prices and metrics: sum / count over the points, nulls left out. No point, no row.
4. Means compose: each value carries the count of its base points in ``<value>_count``.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeVar

import narwhals as nw
import numpy as np

from marketdata.errors import LeftOutWarning, NotTidyError, UnweightedMeanWarning, warn
from marketdata.resolution import Resolution
from marketdata.tidy import runs
from marketdata.tidy.filling import check_fill, filled
from marketdata.tidy.kinds import floats, is_ask, is_local, micros, new_series, tidy_groups, truncated, utc, wrapped
from marketdata.tidy.partitions import by_partition
from marketdata.tidy.schema import ASK, COUNT, METRICS, PRICES, WHO, kind_of, value_columns
from marketdata.wire.columns import ranges

F = TypeVar("F")
_BUCKET = "__bucket"
_COARSE = Resolution.M10.micros
# Buckets that some engines can not truncate to in one step: truncate to the first, then step by the second.
_STEPS: dict[Resolution, tuple[str, str, range]] = {
    Resolution.M10: ("1h", "m", range(10, 60, 10)),
    Resolution.H6: ("1d", "h", range(6, 24, 6)),
}


def resample(frame: F, resolution: str, *, fill: str | None = None) -> F:
    """Aggregate a tidy frame to coarser buckets by the rule of the service for its kind.

    Parameters
    ----------
    frame
        Tidy books, prices, metrics or bbo of any frame kind; ``ts`` in any zone (without one: UTC).
    resolution : {"1m", "10m", "1h", "6h", "1d"}
        Bucket width.
    fill : {"null", "previous"}, optional
        What stands for a bucket without data between the first and the last row of the frame. None: no row, as the
        service has it. "null": a row of nulls, of books the marker rows of both sides; "previous": the whole row, of
        books the whole snapshot, of the bucket before. pandas, polars and Arrow only.

    Returns
    -------
    frame of the same kind
        Books and bbo: the rows of the last snapshot, one snapshot per token and bucket. Prices and metrics: one row
        per token (market) and bucket with the mean of each value and, in ``<value>_count``, the number of
        base points behind it. ``ts`` is the bucket start [UTC, microseconds]. Tidy order. With ``fill`` one more column
        ``observed`` [true or false] is false in every row that was filled in; its counts are 0.

    Raises
    ------
    NotTidyError
        If the frame is not tidy; the message names what is missing.
    ConfigError
        If the resolution or the fill does not exist, or the kind of frame can not be filled.

    Warns
    -----
    UnweightedMeanWarning
        If values that the service had averaged (on a grid of 10m or coarser, without counts) are averaged again.
        A lazy frame is not looked into, so it does not warn.
    LeftOutWarning
        If further columns hold no numbers and are left out of means.

    Notes
    -----
    Source: interface 4.2, 4.3, 4.4; readings "averages", "last book", "empty bucket".

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:01", "2026-01-01T00:30"], "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "price": [0.25, 0.75]}).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.resample(prices, "1h")["price"].to_list()
    [0.5]
    """
    width = Resolution.of(resolution)
    if fill is not None:
        check_fill(frame, fill)
        return filled(resample(frame, resolution), width, fill)
    data = wrapped(frame)
    kind = kind_of(data.collect_schema().names(), ("books", "bbo", "metrics", "prices", "quotes"))
    keys = list(WHO[:1] if kind == "metrics" else WHO)
    values = _averaged(data) if kind in ("metrics", "prices") else None
    if data.implementation.is_dask():
        aggregate = partial(_native, keys=keys, values=values, width=width)
        return by_partition(data.to_native(), keys, aggregate)  # type: ignore[no-any-return]
    out = _aggregated(data, keys, values, width)
    if values:
        _warn_unweighted(data, out, values)
    return nw.maybe_reset_index(out).to_native()  # type: ignore[no-any-return]


def _native(frame: Any, keys: list[str], values: list[str] | None, width: Resolution) -> Any:
    return _aggregated(wrapped(frame), keys, values, width).to_native()


def _aggregated(data: Any, keys: list[str], values: list[str] | None, width: Resolution) -> Any:
    """The means of values, or without values the last rows."""
    eager = isinstance(data, nw.DataFrame)
    if values is None:
        fast = _last_runs(data, keys, width) if eager else None
        return last_rows(data, keys, width) if fast is None else fast
    fast = _mean_runs(data, keys, values, width) if eager else None
    return mean_rows(data, keys, values, width) if fast is None else fast


def with_bucket(data: Any, resolution: Resolution, name: str) -> Any:
    """The frame with the start of the bucket of ``ts``, UTC, in one more column."""
    if data.implementation.is_duckdb():
        utc(data)  # refuses what is no time
        return truncated(data, resolution, name)
    return data.with_columns(bucket(data, resolution).alias(name))


def bucket(data: Any, resolution: Resolution) -> nw.Expr:
    """The start of the bucket of ``ts``, UTC, as an expression on ``data``."""
    ts = utc(data)
    if resolution not in _STEPS or is_local(data):
        return ts.dt.truncate(str(resolution)).cast(nw.Datetime("us", "UTC"))
    whole, unit, steps = _STEPS[resolution]
    start = ts.dt.truncate(whole)
    part = ts.dt.minute() if unit == "m" else ts.dt.hour()
    out = start
    for step in steps:
        out = nw.when(part >= step).then(start.dt.offset_by(f"{step}{unit}")).otherwise(out)
    return out


def last_rows(data: Any, keys: list[str], resolution: Resolution) -> Any:
    """Rule 2 as expressions: the rows with the greatest ``ts`` of each token and bucket."""
    columns = data.collect_schema().names()
    data = with_bucket(data, resolution, _BUCKET)
    last = nw.col("ts") == nw.col("ts").max().over(*keys, _BUCKET)
    data = data.filter(last).with_columns(nw.col(_BUCKET).alias("ts"))
    if "side" not in columns:
        return data.select(columns).sort(*keys, "ts", nulls_last=True)
    order = (nw.col("side").cast(nw.String) == ASK).alias(_BUCKET)
    return data.with_columns(order).sort(*keys, "ts", _BUCKET, "level", nulls_last=True).select(columns)


def mean_rows(data: Any, keys: list[str], values: list[str], resolution: Resolution) -> Any:
    """Rules 3 and 4 as expressions."""
    present = data.collect_schema().names()
    parts = []
    for v in values:
        value = nw.col(v).cast(nw.Float64).fill_nan(None)
        weight = nw.col(v + COUNT).fill_null(1) if v + COUNT in present else nw.lit(1)
        parts += [
            (value * weight).fill_null(0.0).alias(v),
            nw.when(~value.is_null()).then(weight).otherwise(0).cast(nw.Int64).alias(v + COUNT),
        ]
    sums = [nw.col(c).sum() for v in values for c in (v, v + COUNT)]
    data = with_bucket(data, resolution, _BUCKET).select(*keys, _BUCKET, *parts).group_by(*keys, _BUCKET).agg(*sums)
    mean = [nw.when(nw.col(v + COUNT) > 0).then(nw.col(v) / nw.col(v + COUNT)).alias(v) for v in values]
    ordered = [nw.col(_BUCKET).alias("ts"), *keys, *mean, *(v + COUNT for v in values)]
    return data.select(*ordered).sort(*keys, "ts", nulls_last=True)


def _averaged(data: Any) -> list[str]:
    """The columns that are averaged; others are left out with a warning."""
    schema = data.collect_schema()
    values = value_columns(schema.names())
    numeric = [v for v in values if schema[v].is_numeric()]
    other = sorted(set(values) - set(numeric))
    text = [v for v in other if v in (*PRICES, *METRICS) and schema[v] == nw.String]
    if text:
        raise NotTidyError(f"{text} hold texts, not numbers; make them floats.")
    if other:
        warn(f"{other} hold no numbers and are left out of the means.", LeftOutWarning)
    return numeric


def _warn_unweighted(data: Any, out: Any, values: list[str]) -> None:
    if not isinstance(data, nw.DataFrame) or len(out) == len(data) or any(v + COUNT in data.columns for v in values):
        return
    # Finer values betray themselves at once.
    if all(np.all(micros(ts) % _COARSE == 0) for ts in (data["ts"].head(100), data["ts"])):
        warn(
            "These values stand on a grid of 10m or coarser and carry no counts, so they look like means already; each "
            "is given the same weight. Resample from 1m values for the mean over their base points.",
            UnweightedMeanWarning,
        )


def _last_runs(data: nw.DataFrame[Any], keys: list[str], resolution: Resolution) -> nw.DataFrame[Any] | None:
    """Rule 2 by runs, or None where the frame is not in tidy order."""
    ts = micros(data["ts"])
    groups = tidy_groups(data, keys, ts)
    if groups is None:
        return None
    begins, lengths = runs.last_runs(ts, runs.bucket_starts(ts, groups, resolution.micros))
    rows = ranges(begins, lengths)
    out = data[rows].with_columns(new_series(data, "ts", runs.floor(ts[rows], resolution.micros)))
    if "side" in data.columns:
        snapshot = np.repeat(np.arange(len(begins)), lengths)
        ask = is_ask(out["side"])
        level = np.nan_to_num(floats(out["level"]), nan=0.0)
        key = snapshot * 2 + ask
        if np.any(np.diff(key) < 0) or np.any((np.diff(key) == 0) & (np.diff(level) < 0)):
            return None
    return out


def _mean_runs(
    data: nw.DataFrame[Any], keys: list[str], values: list[str], resolution: Resolution
) -> nw.DataFrame[Any] | None:
    """Rules 3 and 4 by runs, or None where the frame is not in tidy order."""
    ts = micros(data["ts"])
    groups = tidy_groups(data, keys, ts)
    if groups is None:
        return None
    starts = runs.bucket_starts(ts, groups, resolution.micros)
    series, counts = [new_series(data, "ts", runs.floor(ts[starts], resolution.micros))], []
    for v in values:
        weights = np.nan_to_num(floats(data[v + COUNT]), nan=1.0) if v + COUNT in data.columns else None
        mean, count = runs.means(floats(data[v]), weights, starts)
        series.append(new_series(data, v, mean))
        counts.append(new_series(data, v + COUNT, count))
    out = data.select(*keys)[starts].with_columns(*series, *counts)
    return out.select("ts", *keys, *values, *(c.name for c in counts))
