"""Time without looking ahead: when a bucket is known, joins as of then, holes, and common grids."""

from __future__ import annotations

import datetime as dt
from typing import Any, TypeVar

import narwhals as nw
import numpy as np

from marketdata.errors import ConfigError, NotTidyError
from marketdata.resolution import Resolution
from marketdata.tidy.kinds import is_local, kind_name, utc
from marketdata.tidy.partitions import row_by_row, token_by_token
from marketdata.tidy.schema import WHO
from marketdata.tidy.snapshots import closed, opened
from marketdata.times import SECOND, Range, to_datetime, to_micros

F = TypeVar("F")
KNOWN = "available_at"
FILLS = ("null", "previous")
_LEFT, _SEEN, _TIME = "__left", "__seen", "__time"
_NEVER = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_MICROS = nw.Datetime("us", "UTC")


def keys_of(names: list[str]) -> list[str]:
    """The columns that say who a row is about.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ``market_id`` and ``token_id``.
    """
    missing = [] if "ts" in names else ["ts"]
    if not {"market_id", "token_id"} & set(names):
        missing += ["market_id"]
    if missing:
        raise NotTidyError.from_missing("A tidy frame", missing, names)
    return [c for c in WHO if c in names]


@row_by_row
def available_at(frame: F, resolution: str) -> F:
    """Add when each row was known at the earliest: the end of its bucket.

    A bucket is named by its start, but holds what happened until its end: who uses it at its ``ts`` looks ahead.

    Parameters
    ----------
    frame
        Tidy frame of any sort and kind.
    resolution : {"1m", "10m", "1h", "6h", "1d"}
        Bucket width of the frame.

    Returns
    -------
    frame of the same kind
        The frame with one more column ``available_at`` [UTC], rows and order as they were.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids.
    ConfigError
        If the resolution does not exist.

    Notes
    -----
    available_at = ts + width of the bucket.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"], "market_id": "m", "token_id": "1", "token_label": "Yes", "price": [0.25],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.available_at(prices, "1h")["available_at"].to_list()[0].isoformat()
    '2026-01-01T01:00:00+00:00'
    """
    width = Resolution.of(resolution)
    data = opened(frame)
    keys_of(data.collect_schema().names())
    return closed(data.with_columns(_ends(data, width).alias(KNOWN)), frame)  # type: ignore[no-any-return]


def _ends(data: Any, width: Resolution) -> nw.Expr:
    return utc(data).dt.offset_by(f"{width.seconds}s")


def asof_join(
    left: F, right: Any, *, resolution: str | None = None, on: str = "ts", strict: bool = True, suffix: str = "_right"
) -> F:
    """Add to each row the latest row of another frame that was known before.

    Parameters
    ----------
    left
        Frame of any kind with times and ids: the moments at which you want to know.
    right
        Tidy frame of the same kind with one row per (token, ts) or (market, ts): what was known. Books have more
        than one: give `bbo` or `to_wide` of them.
    resolution : {"1m", "10m", "1h", "6h", "1d"}, optional
        Bucket width of ``right``; not needed when it has ``available_at``.
    on : str
        Time column of ``left``.
    strict : bool
        Use only what was known before the moment; False: at the moment too.
    suffix : str
        What is put behind a column of ``right`` that ``left`` has too.

    Returns
    -------
    frame of the kind of ``left``
        The rows of ``left`` with the columns of ``right`` beside them, ids once, its ``ts`` as ``ts_right``, and the
        ``available_at`` of what was found. Null where nothing was known yet. Rows are matched by ``token_id``,
        or by ``market_id`` where one of both has no tokens. By ids, then time.

    Raises
    ------
    NotTidyError
        If a frame lacks times or ids, or ``right`` in memory has two rows of one (token, ts).
    ConfigError
        If the bucket width of ``right`` is unknown, or both frames are of different kinds.

    Notes
    -----
    Matched is the row with the greatest ``available_at`` < ``on`` (<= without ``strict``). `pandas.merge_asof` and
    polars' `join_asof` on ``ts`` would take the bucket that has just begun, and with it what is not known yet.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> market = archive.records("markets")[0]["id"]
    >>> out = archive.prices(market).md.asof_join(archive.metrics(market), resolution="1m")
    >>> bool((out["available_at"].dropna() < out["ts"][out["available_at"].notna()]).all())
    True
    """
    a, b = opened(left), opened(right)
    if a.implementation != b.implementation or isinstance(a, nw.LazyFrame) != isinstance(b, nw.LazyFrame):
        raise ConfigError(
            f"left is {kind_name(left)}, right is {kind_name(right)}; a join takes two frames of one kind."
        )
    if a.implementation.is_dask():
        raise ConfigError("Dask frames are not joined as of a time; compute() both, or write Parquet and use polars.")
    names, others = a.collect_schema().names(), b.collect_schema().names()
    if on not in names:
        raise NotTidyError.from_missing("The left frame", [on], names)
    keys_of(["ts", *names])
    keys_of(others)
    if KNOWN not in others:
        if resolution is None:
            raise ConfigError(
                "resolution is missing: the bucket width of right says when its rows are known; or add it with "
                "md.available_at(right, resolution)."
            )
        b = b.with_columns(_ends(b, Resolution.of(resolution)).alias(KNOWN))
    by = "token_id" if "token_id" in names and "token_id" in others else "market_id"
    taken = {c: c + suffix for c in b.collect_schema().names() if c in names and c not in WHO}
    b = b.drop(*(c for c in WHO if c in names and c != by and c in others)).rename(taken)
    if a.implementation.is_polars():
        # Plain texts, as a scan gives them, and categories are the same ids.
        b = b.with_columns(nw.col(by).cast(a.collect_schema()[by]))
    out = latest(a, b, by, on, taken.get(KNOWN, KNOWN), strict=strict)
    order = [c for c in WHO if c in names]
    return closed(out.sort(*order, on, nulls_last=True), left)  # type: ignore[no-any-return]


def latest(left: Any, right: Any, by: str, on: str, known: str, *, strict: bool) -> Any:
    """Each row of ``left`` with the row of ``right`` that has the greatest ``known`` before ``on``.

    Both are put in one row of time per id, where the greatest ``known`` so far runs along; windows only, so
    that no engine needs a join of its own for it.
    """
    moments = left.select(by, **{_TIME: utc(left, on)}).unique()
    facts = right.select(by, **{_TIME: utc(right, known)})
    _refuse_doubles(facts, by)
    # Of equal times the one that may be seen stands first.
    rank = (0, 1) if strict else (1, 0)
    # DuckDB has one sort of instant, and does not take the zone of a type.
    never = nw.lit(_NEVER) if left.implementation.is_duckdb() else nw.lit(_NEVER).cast(_MICROS)
    both = nw.concat(
        [
            moments.with_columns(nw.lit(rank[0]).alias(_LEFT), never.alias(_SEEN)).select(by, _TIME, _LEFT, _SEEN),
            facts.with_columns(nw.lit(rank[1]).alias(_LEFT), nw.col(_TIME).alias(_SEEN)).select(
                by, _TIME, _LEFT, _SEEN
            ),
        ]
    )
    both = both.with_columns(nw.col(_SEEN).cum_max().over(by, order_by=[_TIME, _LEFT]))
    seen = both.filter(nw.col(_LEFT) == rank[0]).select(by, _TIME, _SEEN)
    out = left.with_columns(utc(left, on).alias(_TIME)).join(seen, on=[by, _TIME], how="left")
    right = right.with_columns(utc(right, known).alias(_SEEN))
    return out.join(right, on=[by, _SEEN], how="left").drop(_TIME, _SEEN)


def _refuse_doubles(facts: Any, by: str) -> None:
    if isinstance(facts, nw.DataFrame) and facts.is_duplicated().any():
        raise NotTidyError(
            f"Two rows of one {by} stand at the same time; a join takes one. Of books give md.bbo(books) or "
            "md.to_wide(books)."
        )


@token_by_token
def gaps(frame: F, resolution: str) -> F:
    """Stretches of buckets that are missing between two that are there.

    Parameters
    ----------
    frame
        Tidy frame of any sort and kind.
    resolution : {"1m", "10m", "1h", "6h", "1d"}
        Bucket width of the frame.

    Returns
    -------
    frame of the same kind
        One row per hole of a token (market): the ids of the frame, then ``start end missing``: the half-open range
        [start, end) [UTC] without a row, and how many buckets that is. What lies before the first and after the last
        row of a token is no hole: the frame can not know. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids.
    ConfigError
        If the resolution does not exist.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00", "2026-01-01T03:00"], "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "price": [0.25, 0.5]}).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.gaps(prices, "1h")["missing"].to_list()
    [2]
    """
    width = Resolution.of(resolution)
    data = opened(frame)
    keys = keys_of(data.collect_schema().names())
    rows = data.select(*keys, end=utc(data)).unique()
    rows = rows.with_columns(__before=nw.col("end").shift(1).over(*keys, order_by="end"))
    rows = rows.filter(~nw.col("__before").is_null())
    step = _between(data, "__before", "end")
    rows = rows.with_columns(
        start=nw.col("__before").dt.offset_by(f"{width.seconds}s"),
        missing=((step - 1) // width.micros).cast(nw.Int64),
    )
    rows = rows.filter(nw.col("missing") > 0).select(*keys, "start", "end", "missing")
    return closed(rows.sort(*keys, "start", nulls_last=True), frame)  # type: ignore[no-any-return]


def _between(data: Any, first: str, last: str) -> nw.Expr:
    """Microseconds from one column of times to another."""
    if data.implementation.is_spark_like():
        # narwhals has no durations there; a time as a number is whole seconds.
        ends = [nw.col(c).cast(nw.Int64) * SECOND + nw.col(c).dt.microsecond() for c in (last, first)]
        return ends[0] - ends[1]
    return (nw.col(last) - nw.col(first)).dt.total_microseconds()


def align(frame: F, resolution: str, *, start: Any = None, end: Any = None, fill: str = "null") -> F:
    """Put every token on one common grid of buckets.

    Parameters
    ----------
    frame
        Tidy frame with one row per (token, ts) or (market, ts), on the grid already (see `resample`); of books give
        `bbo` or `to_wide`. pandas, polars (eager and lazy) or Arrow.
    resolution : {"1m", "10m", "1h", "6h", "1d"}
        Step of the grid.
    start, end
        Half-open range of the grid, as `client.books` takes it; without them from the first to the last
        row of the frame.
    fill : {"null", "previous"}
        What stands where a bucket has no row: nulls, or the whole row before, as far back as it may lie. A null that
        was observed stays null: only missing rows are filled.

    Returns
    -------
    frame of the same kind
        One row per token (market) and bucket: the columns of the frame and ``observed`` [true or false], false where
        the row was filled. A token without a row in the grid still has its rows. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids, or several rows of one (token, ts).
    ConfigError
        If an argument is not one of those allowed, or a row does not stand on the grid.

    Notes
    -----
    "previous" looks back only, so it is safe in a backtest; it is not what the service says: no point, no row.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> prices = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00", "2026-01-01T02:00"], "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "price": [0.25, 0.5]}).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.align(prices, "1h").select("price", "observed").rows()
    [(0.25, True), (None, False), (0.5, True)]
    >>> md.align(prices, "1h", fill="previous")["price"].to_list()
    [0.25, 0.25, 0.5]
    """
    width = Resolution.of(resolution)
    if fill not in FILLS:
        raise ConfigError(f"fill={fill!r} does not exist; allowed are 'null' and 'previous'.")
    data = opened(frame)
    if not is_local(data):
        raise ConfigError(f"A {kind_name(frame)} is not aligned; give pandas, polars or Arrow frames.")
    names = data.collect_schema().names()
    keys = keys_of(names)
    if "side" in names:
        raise NotTidyError("Books have several rows per snapshot; align md.bbo(books) or md.to_wide(books).")
    data = data.with_columns(ts=utc(data))
    grid = _grid(data, width, start, end)
    by = "token_id" if "token_id" in keys else "market_id"
    every = data.select(*keys).unique().join(grid, how="cross")
    rest = data.drop(*(c for c in keys if c != by)).rename({"ts": _TIME + "_of"})
    out = latest(every, rest, by, "ts", _TIME + "_of", strict=False)
    seen = nw.when(nw.col(_TIME + "_of") == nw.col("ts")).then(1.0).otherwise(0.0)
    out = out.with_columns(observed=seen > 0)
    values = [c for c in names if c not in keys and c != "ts"]
    if fill == "null" and values:
        out = out.with_columns(*(nw.when(nw.col("observed")).then(nw.col(c)).alias(c) for c in values))
    return closed(out.select(*names, "observed").sort(*keys, "ts", nulls_last=True), frame)  # type: ignore[no-any-return]


def _grid(data: Any, width: Resolution, start: Any, end: Any) -> Any:
    """The bucket starts as a frame of the kind of ``data``."""
    at = nw.col("ts").dt.timestamp("us")
    facts = data.select(first=at.min(), last=at.max(), off=(at % width.micros).max(), rows=nw.len())
    facts = facts.collect() if isinstance(facts, nw.LazyFrame) else facts
    first, last, off, rows = (facts[c].to_list()[0] for c in ("first", "last", "off", "rows"))
    none = not rows
    if not none and off:
        raise ConfigError(
            f"Some rows stand off the grid of {width}; use md.resample(frame, '{width}') first. The first row is at "
            f"{to_datetime(int(first)).isoformat()}."
        )
    rng = Range(
        (0 if none else int(first)) if start is None else to_micros(start, "start"),
        (0 if none else int(last) + 1) if end is None else to_micros(end, "end"),
    )
    begin = -(-rng.start // width.micros) * width.micros
    stamps = np.arange(begin, max(begin, rng.end), width.micros, dtype=np.int64)
    series = (
        nw.new_series("ts", stamps, backend=data.implementation).cast(nw.Datetime("us")).dt.replace_time_zone("UTC")
    )
    grid = series.to_frame()
    return grid.lazy() if isinstance(data, nw.LazyFrame) else grid
