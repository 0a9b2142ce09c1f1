"""Values over time: open, high, low and close, returns, log-odds."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeVar, get_args

import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.columns import Floats
from marketdata.points.resample import run_ends
from marketdata.points.schema import Kind, value_columns
from marketdata.resolution import BucketWidth
from marketdata.tidy.backends import Result, beside, run
from marketdata.tidy.grids import is_upsampled, known_width, warn_if_coarser
from marketdata.tidy.measures import top
from marketdata.tidy.table import EagerTable, refuse_cents

F = TypeVar("F")
How = Literal["simple", "log", "change", "log_odds"]
KINDS: tuple[Kind, ...] = ("nested", "books", "series")


def value_of(table: EagerTable, value: str | None) -> tuple[EagerTable, str]:
    """A table with one row per token (market) and time, and the name of a column of numbers in it.

    By default ``price``, or the ``mid`` of books; in order. NotTidyError if rows of one token and time
    differ, ConfigError if the column has no numbers or none can be chosen.
    """
    if table.kind in ("books", "nested"):
        table = top(table)
    columns = value_columns(table.names)
    chosen = value or next((c for c in ("price", "mid") if c in columns), None)
    numbers = [c for c in columns if c == chosen or table.is_number(c)]
    if chosen is None and len(numbers) == 1:
        chosen = numbers[0]
    if chosen is None or chosen not in numbers or (value and not table.is_number(value) and len(table)):
        numbers = [c for c in numbers if c != value]
        raise ConfigError(
            f"value={value!r} is not a column of numbers of this frame; it has {', '.join(numbers) or 'none'}."
        )
    return table.in_order([chosen]), chosen


def probability_of(table: EagerTable) -> tuple[EagerTable, str]:
    """`value_of` for prices or mids; NotTidyError where one is no probability."""
    table, value = value_of(table, None)
    refuse_cents(table, value)
    return table, value


def _result(ordered: EagerTable, **values: Floats) -> Result:
    numbers = [pl.Series(name, v, nan_to_null=True) for name, v in values.items()]
    return beside(ordered, ["ts", *ordered.keys], numbers)


def ohlc(frame: F, resolution: str, value: str | None = None, *, resolution_of: str | None = None) -> F:
    """First, greatest, least and last value of each bucket.

    One row per token (market) and bucket: ``ts`` (bucket start, UTC), ids, ``open high low close`` and ``points``, the
    number of values. ``value`` is a column of the frame, or of `bbo` for books; by default ``price``, or the ``mid`` of
    books; ``resolution`` and ``resolution_of`` are bucket widths as in `resample`. Nulls are left out; a bucket without
    a value has no row. Of prices at 1m these are extremes of means over a minute, not of trades.

    Examples
    --------
    >>> md.ohlc(md.testing.prices("polars"), "1h").select("open", "high", "low", "close", "points").row(0)
    (0.4, 0.43, 0.4, 0.43, 3)
    """
    width, own = BucketWidth.of(resolution), known_width(resolution_of)
    is_upsampled(own, width)
    watch = warn_if_coarser(width, "resolution_of") if own is None else None
    return run(frame, partial(_ohlc, width=width, value=value), KINDS, further=True, watch=watch)


def _ohlc(table: EagerTable, width: BucketWidth, value: str | None) -> Result:
    table, chosen = value_of(table, value)
    values = table.array(chosen)
    there = np.flatnonzero(~np.isnan(values))
    values, ts = values[there], width.floor(table.array("ts")[there])
    token = np.searchsorted(table.groups, there, side="right")
    new = np.ones(len(there), bool)
    new[1:] = (ts[1:] != ts[:-1]) | (token[1:] != token[:-1])
    starts = np.flatnonzero(new)
    ends = run_ends(starts, len(there))
    numbers = {
        "ts": ts[starts],
        "open": values[starts],
        "high": np.maximum.reduceat(values, starts) if len(starts) else values,
        "low": np.minimum.reduceat(values, starts) if len(starts) else values,
        "close": values[ends - 1],
        "points": ends - starts,
    }
    out = pl.DataFrame(numbers).cast({"ts": pl.Datetime("us", "UTC")})
    return beside(table.take(there[starts]), table.keys, out)._replace(order=["ts", *table.keys, *out.columns[1:]])


def returns(frame: F, value: str | None = None, *, how: How = "simple", resolution: str | None = None) -> F:
    """Change of a value v from u, its value in the row before of the same token.

    One row per (token, ts): ts, ids and ``returns``, null where v or u is, in the first row of a token, and where the
    formula has no finite value. For ``value`` see `ohlc`.

    Parameters
    ----------
    how : {"simple", "log", "change", "log_odds"}
        v / u - 1, ln(v / u), v - u, or the change of `log_odds`.
    resolution : str, optional
        Only between neighbouring buckets of this width, null across a gap. By default however far back u is.

    Examples
    --------
    >>> md.returns(md.testing.prices("polars", buckets=2))["returns"].round(3).to_list()
    [None, 0.025, None, -0.017]
    """
    if how not in get_args(How):
        raise ConfigError(f"how={how!r} does not exist; allowed are {', '.join(map(repr, get_args(How)))}.")
    width = None if resolution is None else BucketWidth.of(resolution)
    watch = None if width is None else warn_if_coarser(width, "resolution")
    return run(frame, partial(_returns, value=value, how=how, width=width), KINDS, further=True, watch=watch)


def _returns(table: EagerTable, value: str | None, how: How, width: BucketWidth | None) -> Result:
    table, chosen = value_of(table, value)
    ts, v = table.array("ts"), table.array(chosen)
    if how == "log_odds":
        v = _odds(v)
    before = np.empty(len(v))
    before[1:] = v[:-1]
    before[table.groups] = np.nan
    if width is not None:
        before[1:][np.diff(ts) != width.micros] = np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        if how == "simple":
            move = v / before
            move -= 1
            move[before == 0] = np.nan
        elif how == "log":
            move = np.where((before > 0) & (v > 0), np.log(v / before), np.nan)
        else:
            move = v - before
    return _result(table, returns=move)


def log_odds(frame: F, value: str | None = None) -> F:
    """Natural logarithm of the odds of a probability: ln(p / (1 - p)).

    One row per (token, ts): ts, ids and ``log_odds``, null where p is null, at or below 0, or at or above 1. The other
    token of a market has the same with opposite sign. For ``value`` see `ohlc`.

    Examples
    --------
    >>> md.log_odds(md.testing.prices("polars", buckets=1))["log_odds"].round(3).to_list()
    [-0.405, 0.405]
    """
    return run(frame, partial(_log_odds, value=value), KINDS, further=True)


def _log_odds(table: EagerTable, value: str | None) -> Result:
    table, chosen = value_of(table, value)
    return _result(table, log_odds=_odds(table.array(chosen)))


def _odds(p: Floats) -> Floats:
    inner = np.where((p > 0) & (p < 1), p, np.nan)
    return np.asarray(np.log(inner / (1 - inner)))
