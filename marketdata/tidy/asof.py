"""Time without looking ahead: when a bucket is known, joins as of then, and what is missing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple, TypeVar

import narwhals as nw
import numpy as np
import polars as pl
from narwhals.dependencies import is_dask_dataframe

from marketdata.errors import ConfigError, NotTidyError
from marketdata.resolution import BucketWidth
from marketdata.tidy.backends import Result, Taken, closed, in_query, kind_name, read, run, source_of
from marketdata.tidy.engines import EngineTable
from marketdata.tidy.grids import warn_if_coarser, warn_of_grid
from marketdata.tidy.schema import ID_COLUMNS, Kind, check_names, require
from marketdata.tidy.table import EagerTable
from marketdata.times import SECOND, to_duration
from marketdata.wire.columns import Ints

F = TypeVar("F")
KNOWN = "available_at"
_KINDS: tuple[Kind, ...] = ("books", "series")
_LEFT, _SEEN, _TIME, _BUCKET = "__left", "__seen", "__time", "__bucket"
_NEVER = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
_MICROS = nw.Datetime("us", "UTC")
_NO_TIME = np.iinfo(np.int64).min


def available_at(frame: F, resolution: str) -> F:
    """Add when each row was known at the earliest: the end of its bucket.

    A bucket is named by its start, but covers what happened until its end: using it at its ``ts`` looks ahead. Returns
    the frame, of any tidy kind, with one more column ``available_at`` [UTC]: ``ts`` + ``resolution``, the bucket width.
    CoarseGridWarning if all times look like wider buckets.

    Examples
    --------
    >>> prices = md.testing.prices("polars", buckets=1, resolution="1h")
    >>> md.available_at(prices, "1h")["available_at"][0].isoformat()
    '2026-01-01T01:00:00+00:00'
    """
    width = BucketWidth.of(resolution)
    watch = warn_if_coarser(width, "resolution")
    return run(frame, partial(_available_at, width=width), _KINDS, together="token", further=True, watch=watch)


def _available_at(table: Any, width: BucketWidth) -> Any:
    if not table.is_eager:
        return table.data.with_columns(nw.col("ts").dt.offset_by(f"{width.seconds}s").alias(KNOWN))
    table.in_order(unique=False)  # for its checks
    known = pl.Series(KNOWN, table.array("ts") + width.micros).cast(pl.Datetime("us", "UTC"))
    names = [c for c in table.names if c != KNOWN]
    return Result(known.to_frame(), [Taken(table.source, {c: c for c in names}, table.rows)], [*names, KNOWN])


def asof_join(
    left: F,
    right: Any,
    *,
    on: str = "ts",
    by: str | Iterable[str] | None = None,
    right_resolution: str | None = None,
    tolerance: str | dt.timedelta | None = None,
    allow_exact_matches: bool = False,
    suffix: str = "_right",
) -> F:
    """Add to each row the latest row of another frame that was known before.

    Returns the rows of ``left`` by ids, then time, with the columns of ``right``, its ``ts`` as ``ts_right``, and the
    ``available_at`` of the match: the greatest below ``on``. Null where nothing was known yet. A join on ``ts``, as by
    `pandas.merge_asof`, would match the bucket that has just begun and so look ahead.

    Parameters
    ----------
    left, right
        Frames of the same kind, ``right`` with one row per id and time (of books pass `bbo` or `to_wide`). NotTidyError
        if it has two different ones.
    on, suffix : str
        Time column of ``left``; ending of the names of columns of ``right`` that ``left`` has too.
    by : str or list of str, optional
        Columns to match; by default the ids that both frames have. ``()`` matches by time alone, for data about no
        market (an index, weather, polls).
    right_resolution : str, optional
        Bucket width of ``right``, if it has no column ``available_at``. CoarseGridWarning if its times look like wider
        buckets.
    tolerance : str or timedelta, optional
        Greatest age of a match: ``on`` - ``available_at`` ("30m", "2h", "1d").
    allow_exact_matches : bool
        Also match what became known at the moment itself.

    Examples
    --------
    >>> prices, metrics = md.testing.prices("polars"), md.testing.metrics("polars")
    >>> md.asof_join(prices, metrics, right_resolution="1m")["volume"].to_list()
    [None, None, 100.0, None, None, 100.0]
    """
    left, right = read(left), read(right)
    how = _Join(
        on,
        (by,) if isinstance(by, str) else None if by is None else tuple(by),
        None if right_resolution is None else BucketWidth.of(right_resolution),
        None if tolerance is None else to_duration(tolerance, "tolerance"),
        allow_exact_matches,
        suffix,
    )
    if is_dask_dataframe(left) or is_dask_dataframe(right):
        raise ConfigError("Dask frames are not joined as of a time; compute() both, or write Parquet and use polars.")
    if kind_name(left) != kind_name(right):
        raise ConfigError(
            f"left is {kind_name(left)}, right is {kind_name(right)}; a join takes two frames of one kind."
        )
    joined: Any
    if isinstance(left, pl.LazyFrame):
        joined = in_query(left, lambda rows, others: _joined(rows, others, how), right)
    else:
        joined = _joined(left, right, how)
    return joined  # type: ignore[no-any-return]


class _Join(NamedTuple):
    on: str
    by: tuple[str, ...] | None
    width: BucketWidth | None
    tolerance: int | None
    exact: bool
    suffix: str


def _joined(left: Any, right: Any, how: _Join) -> Any:
    sources, on, by = [source_of(f) for f in (left, right)], how.on, how.by
    if None in sources:
        time = KNOWN if KNOWN in nw.from_native(right).collect_schema().names() else "ts"
        tables: list[Any] = [EngineTable.of_times(left, [on]), EngineTable.of_times(right, [time])]
    else:
        tables = [EagerTable(source, "series") for source in sources]
    names, others = (t.names for t in tables)
    check_names(names)
    check_names(others)
    require("The left frame", [on], names)
    keys = tuple(c for c in ID_COLUMNS[:2] if c in names and c in others) if by is None else by
    missing = [c for c in keys if c not in names or c not in others]
    if missing or (by is None and not keys):
        raise NotTidyError.from_missing("A join by ids (by=() joins by time alone)", missing or ["market_id"], others)
    require("The right frame", [] if KNOWN in others else ["ts"], others)
    if KNOWN not in others and how.width is None:
        raise ConfigError(
            "right_resolution is missing: the bucket width of right determines when its rows are known; or add it with "
            "md.available_at(right, resolution)."
        )
    if None in sources:
        return _joined_rows(*tables, keys=keys, how=how)
    return closed(_found(*tables, keys=keys, how=how), left)


def _renamed(left: list[str], right: list[str], keys: tuple[str, ...], suffix: str) -> dict[str, str]:
    """The columns of ``right`` that are added, by their new names; ConfigError if one would be in the result twice."""
    ids = {*keys, *ID_COLUMNS}
    out = {c: c + suffix if c in left else c for c in right if not (c in left and c in ids)}
    stamp = () if KNOWN in right else (KNOWN + suffix if KNOWN in left else KNOWN,)
    names = [*left, *out.values(), *stamp]
    taken = sorted({c for c in names if names.count(c) > 1})
    if taken:
        raise ConfigError(
            f"suffix={suffix!r} is refused: {', '.join(map(repr, taken))} would be in the result twice; give another "
            "suffix, or rename the columns."
        )
    return out


def _found(left: EagerTable, right: EagerTable, *, keys: tuple[str, ...], how: _Join) -> Result:
    on, tolerance, suffix = how.on, how.tolerance, how.suffix
    left.check()
    right.check()
    known = _known(right, how.width)
    moments = left.instants(on)
    codes = _codes(left, right, keys)
    sought, kept = left.order([], codes[0], moments), right.order([], codes[1], known)
    right.refuse_doubles(kept, [codes[1], known], [*keys, KNOWN])
    a = pl.DataFrame({"id": codes[0][sought], "at": moments[sought] - (not how.exact)})
    b = pl.DataFrame({"id": codes[1][kept], "at": known[kept], "row": kept})
    both = a.join_asof(b, on="at", by="id", strategy="backward", check_sortedness=False)
    rows = np.empty(len(left), np.int64)
    rows[sought] = both["row"].fill_null(-1).to_numpy()
    known = np.append(known, _NO_TIME)
    if tolerance is not None:
        rows = np.where((rows >= 0) & (moments - known[rows] <= tolerance), rows, -1)
    order = None
    if on != "ts" or not left.is_in_order():
        order = left.order([c for c in ID_COLUMNS[:2] if c in left.names], moments)
        rows = rows[order]
    more = _renamed(left.names, right.names, keys, suffix)
    taken = [Taken(left.source, {c: c for c in left.names}, order), Taken(right.source, more, rows)]
    if KNOWN in right.names:
        return Result(pl.DataFrame(), taken, [*left.names, *more.values()])
    name = KNOWN + suffix if KNOWN in left.names else KNOWN
    stamps = pl.DataFrame({name: known[rows]}).with_columns(pl.when(pl.col(name) > _NO_TIME).then(name))
    return Result(stamps.cast(pl.Datetime("us", "UTC")), taken, [*left.names, *more.values(), name])


def _known(right: EagerTable, width: BucketWidth | None) -> Ints:
    if KNOWN in right.names:
        return right.instants(KNOWN)
    assert width is not None
    ts = right.array("ts")
    warn_of_grid(ts, width, "right_resolution")
    return ts + width.micros


def _codes(left: EagerTable, right: EagerTable, keys: tuple[str, ...]) -> tuple[Ints, Ints]:
    """One integer for each row of both frames, equal where the ids are; a missing id equals none."""
    place: dict[tuple[str, ...], int] = {}
    out = []
    for none, table in ((-1, left), (-2, right)):
        heads, which = table.owners(keys)
        texts = zip(*(table.any_texts(c, heads) for c in keys), strict=True) if keys else [()] * len(heads)
        codes = [none if None in t else place.setdefault(t, len(place)) for t in texts]
        out.append(np.array(codes, np.int64)[which])
    return out[0], out[1]


def _joined_rows(left: EngineTable, right: EngineTable, *, keys: tuple[str, ...], how: _Join) -> Any:
    """The join as expressions: one sequence per id, the last known row carried along; windows only, for any engine."""
    a, b, on, tolerance = left.data, right.data, how.on, how.tolerance
    if how.width is not None and KNOWN not in right.names:
        b = b.with_columns(nw.col("ts").dt.offset_by(f"{how.width.seconds}s").alias(KNOWN))
    more = _renamed(left.names, b.collect_schema().names(), keys, how.suffix)
    known = more.get(KNOWN, KNOWN)
    b = b.select(*keys, *(nw.col(c).alias(new) for c, new in more.items()))
    by = [*keys] or [_LEFT]
    if not keys:
        a, b = a.with_columns(nw.lit(0).alias(_LEFT)), b.with_columns(nw.lit(0).alias(_LEFT))
    # Of equal times the one that may be seen is first.
    rank = (1, 0) if how.exact else (0, 1)
    # DuckDB has one sort of instant, and does not take the zone of a type.
    never = nw.lit(_NEVER) if left.is_duckdb else nw.lit(_NEVER).cast(_MICROS)
    moments = a.select(*by, nw.col(on).alias(_TIME)).unique()
    facts = b.select(*by, nw.col(known).alias(_TIME))
    both = nw.concat(
        [
            moments.with_columns(nw.lit(rank[0]).alias(_BUCKET), never.alias(_SEEN)).select(*by, _TIME, _BUCKET, _SEEN),
            facts.with_columns(nw.lit(rank[1]).alias(_BUCKET), nw.col(_TIME).alias(_SEEN)).select(
                *by, _TIME, _BUCKET, _SEEN
            ),
        ]
    )
    both = both.with_columns(nw.col(_SEEN).cum_max().over(*by, order_by=[_TIME, _BUCKET]))
    seen = both.filter(nw.col(_BUCKET) == rank[0]).select(*by, _TIME, _SEEN)
    if tolerance is not None:
        near = between(left, _SEEN, _TIME) <= tolerance
        seen = seen.with_columns(nw.when(near).then(nw.col(_SEEN)).alias(_SEEN))
    out = a.with_columns(nw.col(on).alias(_TIME)).join(seen, on=[*by, _TIME], how="left")
    out = out.join(b.with_columns(nw.col(known).alias(_SEEN)), on=[*by, _SEEN], how="left")
    out = out.sort(*(c for c in ID_COLUMNS if c in left.names), on, nulls_last=True)
    return out.select(*left.names, *more.values()).to_native()


def between(table: EngineTable, first: str, last: str) -> nw.Expr:
    """Microseconds from one column of times to another."""
    if not table.is_duckdb:
        # narwhals has no durations on Spark; a time as a number is whole seconds.
        ends = [nw.col(c).cast(nw.Int64) * SECOND + nw.col(c).dt.microsecond() for c in (last, first)]
        return ends[0] - ends[1]
    return (nw.col(last) - nw.col(first)).dt.total_microseconds()


def gaps(frame: F, resolution: str) -> F:
    """Ranges of missing buckets between the first and the last row of each token.

    One row per gap of a token (market): ids and ``start end missing``, the half-open range [start, end) [UTC] and its
    number of buckets. A row off the grid counts for the bucket that contains it. CoarseGridWarning if all times look
    like buckets wider than ``resolution``.

    Examples
    --------
    >>> md.gaps(md.testing.prices("polars", buckets=4)[[0, 3]], "1m")["missing"].to_list()
    [2]
    """
    width = BucketWidth.of(resolution)
    return run(frame, partial(_gaps, width=width), _KINDS, watch=warn_if_coarser(width, "resolution"))


def _gaps(table: Any, width: BucketWidth) -> Any:
    if not table.is_eager:
        return _gap_rows(table, width)
    table = table.in_order(unique=False)
    ts = width.floor(table.array("ts"))
    step = np.diff(ts, prepend=ts[:1])
    step[table.groups] = 0
    at = np.flatnonzero(step > width.micros)
    data = {c: table.column(c).gather(at) for c in table.keys}
    data |= {
        name: pl.Series(v).cast(pl.Datetime("us", "UTC"))
        for name, v in (("start", ts[at - 1] + width.micros), ("end", ts[at]))
    }
    return pl.DataFrame({**data, "missing": pl.Series(step[at] // width.micros - 1)})


def _gap_rows(table: EngineTable, width: BucketWidth) -> Any:
    keys = table.keys
    data = table.with_bucket(table.data.select("ts", *keys), width, _BUCKET)
    rows = data.select(*keys, end=nw.col(_BUCKET)).unique()
    rows = rows.with_columns(__before=nw.col("end").shift(1).over(*keys, order_by="end"))
    rows = rows.filter(~nw.col("__before").is_null())
    rows = rows.with_columns(
        start=nw.col("__before").dt.offset_by(f"{width.seconds}s"),
        missing=((between(table, "__before", "end") - 1) // width.micros).cast(nw.Int64),
    )
    rows = rows.filter(nw.col("missing") > 0).select(*keys, "start", "end", "missing")
    return rows.sort(*keys, "start", nulls_last=True)
