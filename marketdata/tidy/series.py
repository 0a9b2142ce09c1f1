"""A value over time: open, high, low and close, returns, log-odds."""

from __future__ import annotations

from typing import Any, TypeVar

import narwhals as nw

from marketdata.errors import ConfigError
from marketdata.resolution import Resolution
from marketdata.tidy.book import bbo
from marketdata.tidy.clock import keys_of
from marketdata.tidy.kinds import utc
from marketdata.tidy.partitions import token_by_token
from marketdata.tidy.rules import with_bucket
from marketdata.tidy.schema import BBO, BOOKS, value_columns
from marketdata.tidy.snapshots import closed, opened

F = TypeVar("F")
_BUCKET, _VALUE, _AT = "__bucket", "__value", "__at"
_HOWS = ("simple", "log", "change", "log_odds")


def value_of(frame: Any, value: str | None) -> tuple[Any, list[str], str]:
    """The frame behind one interface with ids, UTC times and one column of numbers; the ids; its name.

    Without ``value`` it is ``price``, or the ``mid`` of books.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids.
    ConfigError
        If the column is not there or holds no numbers, or none can be chosen.
    """
    data = opened(frame)
    names = data.collect_schema().names()
    if set(BOOKS) <= set(names):
        data = opened(bbo(frame))
        names = list(BBO)
    keys = keys_of(names)
    schema = data.collect_schema()
    numeric = [c for c in value_columns(names) if schema[c].is_numeric()]
    chosen = value or next((c for c in ("price", "mid") if c in numeric), None)
    if chosen is None and len(numeric) == 1:
        chosen = numeric[0]
    if chosen not in numeric:
        raise ConfigError(
            f"value={value!r} is no column of numbers of this frame; it has {', '.join(numeric) or 'none'}."
        )
    return data.select(*keys, nw.col(chosen).cast(nw.Float64).fill_nan(None), ts=utc(data)), keys, chosen


@token_by_token
def ohlc(frame: F, resolution: str, value: str | None = None) -> F:
    """First, greatest, least and last value of each bucket.

    Parameters
    ----------
    frame
        Tidy frame of any kind; of books the columns of `bbo` can be taken.
    resolution : {"1m", "10m", "1h", "6h", "1d"}
        Bucket width.
    value : str, optional
        Which column; without it ``price``, or the ``mid`` of books.

    Returns
    -------
    frame of the same kind
        One row per token (market) and bucket: ``ts``, the ids of the frame, ``open high low close points``: in the unit
        of the value, and how many values there were. Nulls are left out; a bucket without a value has no row. ``ts``
        is the bucket start [UTC]. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids.
    ConfigError
        If the resolution or the column does not exist.

    Notes
    -----
    Of prices at 1m these are the extremes of means over a minute, not of trades.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00", "2026-01-01T00:10", "2026-01-01T00:20"], "market_id": "m",
    ...     "token_id": "1", "token_label": "Yes", "price": [0.25, 0.75, 0.5],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.ohlc(prices, "1h").select("open", "high", "low", "close", "points").row(0)
    (0.25, 0.75, 0.25, 0.5, 3)
    """
    width = Resolution.of(resolution)
    data, keys, chosen = value_of(frame, value)
    data = with_bucket(data, width, _BUCKET).with_columns(nw.col(chosen).alias(_VALUE))
    data = data.filter(~nw.col(_VALUE).is_null())
    ends = nw.col("ts").min().over(*keys, _BUCKET), nw.col("ts").max().over(*keys, _BUCKET)
    data = data.with_columns(__first=ends[0], __last=ends[1])
    data = data.with_columns(
        open=nw.when(nw.col("ts") == nw.col("__first")).then(nw.col(_VALUE)),
        close=nw.when(nw.col("ts") == nw.col("__last")).then(nw.col(_VALUE)),
    )
    out = data.group_by(*keys, _BUCKET).agg(
        nw.col("open").max(),
        nw.col(_VALUE).max().alias("high"),
        nw.col(_VALUE).min().alias("low"),
        nw.col("close").max(),
        nw.len().alias("points"),
    )
    points = nw.col("points").cast(nw.Int64)
    out = out.select(nw.col(_BUCKET).alias("ts"), *keys, "open", "high", "low", "close", points)
    return closed(out.sort(*keys, "ts", nulls_last=True), frame)  # type: ignore[no-any-return]


@token_by_token
def returns(frame: F, value: str | None = None, *, how: str = "simple", resolution: str | None = None) -> F:
    """How a value moved since the row before of the same token.

    Parameters
    ----------
    frame
        Tidy frame of any kind; of books the columns of `bbo` can be taken.
    value : str, optional
        Which column; without it ``price``, or the ``mid`` of books.
    how : {"simple", "log", "change", "log_odds"}
        Relative move, difference of logarithms, difference, or difference of `log_odds`.
    resolution : {"1m", "10m", "1h", "6h", "1d"}, optional
        Only moves between neighbouring buckets of this width; across a hole the result is null. Without it the
        row before counts, however far back.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts``, the ids of the frame, ``return`` [1; of "change" the unit of the value]. Null
        in the first row of a token, where this or the previous value is null, and where the formula has no finite
        value. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids.
    ConfigError
        If an argument is not one of those allowed.

    Notes
    -----
    simple: v / u - 1; log: ln(v / u); change: v - u; log_odds: ln(v / (1 - v)) - ln(u / (1 - u)); u is the value
    before.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00", "2026-01-01T00:10"], "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "price": [0.25, 0.5]}).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.returns(prices)["return"].to_list()
    [None, 1.0]
    """
    if how not in _HOWS:
        raise ConfigError(f"how={how!r} does not exist; allowed are {', '.join(map(repr, _HOWS))}.")
    width = None if resolution is None else Resolution.of(resolution)
    data, keys, chosen = value_of(frame, value)
    now = nw.col(chosen) if how != "log_odds" else _odds(nw.col(chosen))
    data = data.with_columns(**{_VALUE: now})
    before = nw.col(_VALUE, "ts").shift(1).over(*keys, order_by="ts")
    data = data.with_columns(before.name.prefix(_AT))
    v, u = nw.col(_VALUE), nw.col(_AT + _VALUE)
    good = ~v.is_null() & ~u.is_null()
    if width is not None:
        beside = nw.col("ts") == nw.col(_AT + "ts").dt.offset_by(f"{width.seconds}s")
        good = good & beside.fill_null(value=False)
    if how == "simple":
        move = nw.when(good & (u != 0)).then(v / u - 1)
    elif how == "log":
        move = nw.when(good & (u > 0) & (v > 0)).then(v / u).log()
    else:
        move = nw.when(good).then(v - u)
    out = data.select("ts", *keys, move.alias("return"))
    return closed(out.sort(*keys, "ts", nulls_last=True), frame)  # type: ignore[no-any-return]


@token_by_token
def log_odds(frame: F, value: str | None = None) -> F:
    """Logarithm of the odds that a probability means.

    Parameters
    ----------
    frame
        Tidy frame of any kind; of books the columns of `bbo` can be taken.
    value : str, optional
        Which column of probabilities; without it ``price``, or the ``mid`` of books.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts``, the ids of the frame, ``log_odds`` [natural logarithm]. Null where the value is
        null, and where the odds are not finite: at or below 0, at or above 1. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids.
    ConfigError
        If the column does not exist.

    Notes
    -----
    log_odds = ln(p / (1 - p)). The token of the other side has the same with the other sign.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"], "market_id": "m", "token_id": "1", "token_label": "Yes", "price": [0.5],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.log_odds(prices)["log_odds"].to_list()
    [0.0]
    """
    data, keys, chosen = value_of(frame, value)
    out = data.select("ts", *keys, _odds(nw.col(chosen)).alias("log_odds"))
    return closed(out.sort(*keys, "ts", nulls_last=True), frame)  # type: ignore[no-any-return]


def _odds(p: nw.Expr) -> nw.Expr:
    # The choice stands inside, so that no engine warns of a logarithm of 0.
    return nw.when((p > 0) & (p < 1)).then(p / (1 - p)).log()
