"""Rows around moments, with times relative to the moment, and the time to the resolution of a market."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl

from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.columns import Ints, ranges
from marketdata.points.resample import run_ends
from marketdata.points.schema import ID_COLUMNS, Kind, require
from marketdata.resolution import BucketWidth
from marketdata.tidy.backends import Result, Taken, run, series_of
from marketdata.tidy.outcomes import resolution_times
from marketdata.tidy.table import EagerTable
from marketdata.times import SECOND, to_duration

F = TypeVar("F")
_KINDS: tuple[Kind, ...] = ("books", "series")
_LEFT, _MOMENT, _OFFSET = "time_to_resolution", "moment", "offset"
_TIME = pl.Datetime("us", "UTC")


def time_to_resolution(frame: F, outcomes: Any) -> F:
    """Add the time from each row to the resolution of its market.

    Returns the frame, of any tidy kind, with ``time_to_resolution`` [s]: from ``ts``, the start of the bucket, to
    ``resolved_at`` of ``outcomes`` (the result of `outcomes`, or market records), or where it is null ``closed_at``;
    negative after it, null while the market is open. It was not known at the time: group or filter a study by it, do
    not trade on it.

    Examples
    --------
    >>> prices, markets = md.testing.prices("polars", buckets=1), md.testing.markets("polars")
    >>> md.time_to_resolution(prices, markets)["time_to_resolution"].to_list()
    [86400.0, 86400.0]
    """
    ends = resolution_times(outcomes)
    return run(frame, partial(_with_time_left, ends=ends), _KINDS, together="row", further=True)


def _with_time_left(table: EagerTable, ends: dict[str, int]) -> Result:
    require("A tidy frame", ["market_id"], table.names)
    names = [c for c in table.names if c != _LEFT]
    market, ts = table.array("market_id"), table.array("ts")
    codes, first = np.unique(market, return_index=True)
    at = np.array([ends.get(str(name), np.nan) for name in table.texts("market_id", first)], float)
    left = (at[np.searchsorted(codes, market)] - ts) / SECOND
    added = pl.DataFrame({_LEFT: pl.Series(left, dtype=pl.Float64).fill_nan(None)})
    return Result(added, [Taken(table.source, {c: c for c in names}, table.rows)], [*names, _LEFT])


def around(
    frame: F,
    moments: Any,
    *,
    before: str | dt.timedelta,
    after: str | dt.timedelta,
    resolution: str | None = None,
) -> F:
    """Cut windows around moments out of a frame, with times relative to the moment.

    Returns the rows with moment - before <= ts < moment + after, once for each such moment, with the further columns of
    ``moments``, ``moment`` [UTC] and ``offset`` = ts - moment [s]. By moment as in ``moments``, then in tidy order. The
    row at offset 0 contains what happened after the moment; the last one known by then is at minus one bucket.
    MacKinlay (1997), "Event studies in economics and finance".

    Parameters
    ----------
    moments
        Frame of any kind in memory: ``ts`` [UTC], and ``market_id`` or ``market_id token_id``; without ids a moment is
        one of every market. ConfigError if another column is also one of the frame.
    before, after : str or timedelta
        Length of the window before and after the moment: "90s", "30m", "1h", "2d", "1w".
    resolution : str, optional
        Bucket width to round offsets down to, so that windows can be averaged; exact by default.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=5).filter(token_label="Yes")
    >>> moments = prices.slice(2, 1).select("ts", "market_id", news=pl.lit("forecast"))
    >>> md.around(prices, moments, before="1m", after="2m").select("offset", "price", "news").rows()
    [(-60.0, 0.41, 'forecast'), (0.0, 0.43, 'forecast'), (60.0, 0.42, 'forecast')]
    """
    reach = to_duration(before, "before"), to_duration(after, "after")
    width = None if resolution is None else BucketWidth.of(resolution)
    table = series_of(moments, "A frame of moments", ["ts"])
    return run(frame, partial(_windows, moments=table, reach=reach, width=width), _KINDS, together="row", further=True)


def _windows(table: EagerTable, moments: EagerTable, reach: tuple[int, int], width: BucketWidth | None) -> Result:
    keys = [c for c in ID_COLUMNS[:2] if c in moments.names]
    further = [c for c in moments.names if c not in (*ID_COLUMNS, "ts")]
    taken = sorted({*further, _MOMENT, _OFFSET} & set(table.names))
    if taken:
        raise ConfigError(
            f"{', '.join(map(repr, taken))} would be in the result twice; rename the column of one frame."
        )
    require("A frame with moments of markets", keys, table.names)
    ordered = table.book(whole=False) if table.kind == "books" else table.in_order(unique=False)
    at, rows = _around(ordered, moments, keys, reach)
    moment = moments.array("ts")[at]
    offset = ordered.array("ts")[rows] - moment
    if width is not None:
        offset = offset // width.micros * width.micros
    added = pl.DataFrame(
        {_MOMENT: pl.Series(moment).cast(_TIME), _OFFSET: pl.Series(offset / SECOND, dtype=pl.Float64)}
    )
    own = Taken(table.source, {c: c for c in table.names}, ordered.rows[rows])
    # As polars columns: moments may be of another library than the frame.
    brought = [_brought(moments, c).gather(at) for c in further]
    return Result(added.with_columns(brought), [own], [*table.names, *further, _MOMENT, _OFFSET])


def _brought(moments: EagerTable, name: str) -> pl.Series:
    try:
        return pl.Series(name, moments.source.raw(name))
    except OverflowError:
        raise NotTidyError(f"{name} contains a whole number that no column holds; make it a text.") from None


def _around(table: EagerTable, moments: EagerTable, keys: list[str], reach: tuple[int, int]) -> tuple[Ints, Ints]:
    """Places of moments and their rows, by moment and then row; the table is in tidy order."""
    ts, when, (before, after) = table.array("ts"), moments.array("ts"), reach
    heads = table.groups
    ends = run_ends(heads, len(ts))
    owner = list(zip(*(moments.texts(c) for c in keys), strict=True)) if keys else [()] * len(when)
    wanted = defaultdict(list)
    for i, key in enumerate(owner):
        wanted[key].append(i)
    found = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    groups = list(zip(*(table.texts(c, heads) for c in keys), strict=True)) if keys else [()] * len(heads)
    for key, a, b in zip(groups, heads.tolist(), ends.tolist(), strict=True):
        some = np.array(wanted.get(key, ()), np.int64)
        if len(some):
            first = a + np.searchsorted(ts[a:b], when[some] - before)
            lengths = a + np.searchsorted(ts[a:b], when[some] + after) - first
            found.append((np.repeat(some, lengths), ranges(first, lengths)))
    at, rows = (np.concatenate(part) for part in zip(*found, strict=True))
    order = np.lexsort((rows, at))
    return at[order], rows[order]
