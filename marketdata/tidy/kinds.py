"""What is asked of a frame of any kind: its columns as numpy arrays, without copies where possible."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import narwhals as nw
import numpy as np
from narwhals.dependencies import is_dask_dataframe
from numpy.typing import NDArray

from marketdata.errors import ConfigError, NotTidyError
from marketdata.resolution import Resolution
from marketdata.tidy.runs import group_starts, rises_within
from marketdata.tidy.schema import ASK, BID
from marketdata.wire.columns import Floats, Ints

_NO_TIME = np.iinfo(np.int64).min
_UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
# DuckDB keeps the zone in the connection: only a time with one is the same instant in all of them.
_NAIVE = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP_US")
_AS_UTC = "CAST(ts AS TIMESTAMP) AT TIME ZONE 'UTC'"


class Partitioned:
    """A Dask frame: what it says of itself. The verbs work on its parts, which are pandas frames.

    narwhals is not asked to work on the whole: its way to Dask is a package of its own.
    """

    implementation = nw.Implementation.DASK

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def to_native(self) -> Any:
        """The Dask frame."""
        return self._frame

    def collect_schema(self) -> nw.Schema:
        """Names and types of the columns; nothing is computed."""
        return wrapped(self._frame._meta).collect_schema()  # noqa: SLF001 what Dask itself asks of a frame

    def collect(self) -> nw.DataFrame[Any]:
        """The rows in memory, as a pandas frame."""
        return collected(self._frame.compute())


def wrapped(frame: Any) -> nw.DataFrame[Any] | nw.LazyFrame[Any]:
    """The frame behind one interface.

    Raises
    ------
    NotTidyError
        If it is no frame of a known kind.
    ConfigError
        If the session of a Spark frame has another time zone than UTC.
    """
    if is_dask_dataframe(frame):
        return Partitioned(frame)  # type: ignore[return-value]  # what it lacks, verbs do part by part
    try:
        data: nw.DataFrame[Any] | nw.LazyFrame[Any] = nw.from_native(frame)
    except TypeError:
        raise NotTidyError(
            f"A {type(frame).__name__} is no frame; allowed are pandas, polars (eager and lazy), Arrow, Dask, Spark "
            "and DuckDB frames."
        ) from None
    out: nw.DataFrame[Any] | nw.LazyFrame[Any] = _in_utc(data)
    return out


def _in_utc(data: Any) -> Any:
    """The frame with times that narwhals can work with on its kind."""
    kind, native = data.implementation, data.to_native()
    if kind.is_pyspark() or kind.is_pyspark_connect():
        _check_session(native.sparkSession.conf.get("spark.sql.session.timeZone"))
    looked_at = kind.is_pandas_like() or kind.is_duckdb()
    if not looked_at or "ts" not in native.columns:
        return data
    if kind.is_duckdb():
        naive = str(native.types[native.columns.index("ts")]) in _NAIVE
        return nw.from_native(native.project(f"* REPLACE ({_AS_UTC} AS ts)")) if naive else data
    # narwhals does not know pandas zones with an underscore in their name.
    zone = getattr(native["ts"].dtype, "tz", None)
    if zone is None or str(zone) == "UTC":
        return data
    return nw.from_native(native.assign(ts=native["ts"].dt.tz_convert("UTC")))


def _check_session(zone: str) -> None:
    if zone not in _UTC_NAMES:
        raise ConfigError(
            f"Spark cuts times in the zone of its session, which is {zone!r}, but buckets are UTC; set "
            'spark.conf.set("spark.sql.session.timeZone", "UTC").'
        )


def utc(data: Any, name: str = "ts") -> nw.Expr:
    """A column of times as UTC microseconds; without a zone they are UTC.

    Raises
    ------
    NotTidyError
        If the column holds no times.
    """
    dtype = data.collect_schema()[name]
    if not isinstance(dtype, nw.Datetime):
        raise NotTidyError(f"{name} holds {dtype}, not times; make it a UTC datetime column.")
    ts = nw.col(name)
    if data.implementation.is_duckdb():
        return ts  # an instant; the connection's zone only shows it
    if dtype.time_zone is None:
        ts = ts.dt.replace_time_zone("UTC")
    elif dtype.time_zone != "UTC":
        ts = ts.dt.convert_time_zone("UTC")
    return ts if dtype.time_unit == "us" else ts.cast(nw.Datetime("us", "UTC"))


def truncated(data: Any, resolution: Resolution, name: str) -> Any:
    """A DuckDB relation with the bucket start of ``ts`` beside it, whatever the zone of its connection is."""
    start = f"time_bucket(INTERVAL '{resolution.micros} microseconds', ts AT TIME ZONE 'UTC', TIMESTAMP '1970-01-01')"
    return nw.from_native(data.to_native().project(f"*, ({start}) AT TIME ZONE 'UTC' AS \"{name}\""))


def kind_name(frame: Any) -> str:
    """What to call a frame in a message, for several libraries name theirs DataFrame."""
    return f"{type(frame).__module__.partition('.')[0]} {type(frame).__name__}"


def is_local(data: Any) -> bool:
    """Whether pandas, polars (lazy too) or Arrow has the rows, and no engine elsewhere."""
    kind = data.implementation
    return bool(kind.is_pandas_like() or kind.is_polars() or kind.is_pyarrow())


def collected(frame: Any) -> nw.DataFrame[Any]:
    """The frame in memory; lazy kinds are computed."""
    data = wrapped(frame)
    return data if isinstance(data, nw.DataFrame) else data.collect()


def micros(series: nw.Series[Any]) -> Ints:
    """Times as microseconds since the epoch UTC; without a zone they are UTC.

    Raises
    ------
    NotTidyError
        If the column holds no times, or a null.
    """
    if not isinstance(series.dtype, nw.Datetime):
        raise NotTidyError(f"{series.name} holds {series.dtype}, not times; make it a UTC datetime column.")
    native = series.to_native()
    if series.implementation.is_pandas() and series.dtype.time_unit == "us" and hasattr(native.array, "asi8"):
        out = np.asarray(native.astype("int64"))  # the same memory
    else:
        out = np.asarray(series.dt.timestamp("us").to_numpy())
    if out.dtype != np.int64 or (len(out) and out.min() == _NO_TIME):
        raise NotTidyError(f"{series.name} is null in {series.null_count()} rows; every row needs a time.")
    return out


def floats(series: nw.Series[Any]) -> Floats:
    """Numbers as float64; null is NaN.

    Raises
    ------
    NotTidyError
        If the column holds no numbers.
    """
    if not series.dtype.is_numeric() and not (series.null_count() == len(series)):
        raise NotTidyError(f"{series.name} holds {series.dtype}, not numbers.")
    return np.asarray(series.cast(nw.Float64).to_numpy(), np.float64)


def texts(series: nw.Series[Any]) -> list[str | None]:
    """Values as Python texts; null is None."""
    return [v if isinstance(v, str) else None for v in series.cast(nw.String).to_list()]


def begins_side(level: nw.Series[Any]) -> NDArray[np.bool_]:
    """Where a level is the best one, or null: the first row of a book side."""
    native = level.to_native()
    if level.implementation.is_pandas() and hasattr(native.array, "isna") and level.dtype.is_integer():
        return np.asarray(native.array.to_numpy(dtype="int32", na_value=0) == 0)
    if level.implementation.is_polars() and level.dtype.is_integer():
        return np.asarray((native if not level.null_count() else native.fill_null(0)).to_numpy() == 0)
    numbers = floats(level)
    return np.asarray((numbers == 0) | np.isnan(numbers))


def is_ask(side: nw.Series[Any]) -> NDArray[np.bool_]:
    """Where the side is "ask"."""
    codes = identity(side)
    firsts = np.unique(codes, return_index=True)[1]
    asks = [codes[at] for at, text in zip(firsts, texts(side[firsts]), strict=True) if text == ASK]
    return np.isin(codes, asks)


def check_sides(data: nw.DataFrame[Any]) -> None:
    """Refuse books whose sides have other names.

    Raises
    ------
    NotTidyError
        Naming the values that are no side.
    """
    unknown = sorted(str(v) for v in data["side"].unique().to_list() if v not in (BID, ASK))
    if unknown:
        raise NotTidyError(f"side is {BID!r} or {ASK!r}; the frame also holds {unknown}.")


def new_series(like: nw.DataFrame[Any], name: str, values: NDArray[Any]) -> nw.Series[Any]:
    """A numpy array as a column of the same kind of frame: NaN is null; int64 named ``ts`` is a time UTC."""
    out = nw.new_series(name, values, backend=like.implementation)
    if name == "ts":
        return out.cast(nw.Datetime("us")).dt.replace_time_zone("UTC")
    return out.fill_nan(None) if values.dtype.kind == "f" else out


def identity(series: nw.Series[Any]) -> NDArray[Any]:
    """Integers that are equal exactly where the values are; a null is like any value."""
    native = series.to_native()
    kind = series.implementation
    if kind.is_pandas():
        import pandas as pd

        if isinstance(native.dtype, pd.CategoricalDtype):
            return np.asarray(native.array.codes)  # the accessor would copy them
        return np.asarray(pd.factorize(native)[0])
    if kind.is_polars():
        import polars as pl

        if native.dtype == pl.String:
            native = native.cast(pl.Categorical)
        codes = native.to_physical()
        return np.asarray(codes.to_numpy() if not codes.null_count() else codes.cast(pl.Int64).fill_null(-1).to_numpy())
    if kind.is_pyarrow():
        return _arrow_identity(native)
    return np.unique(np.asarray(series.to_numpy(), dtype=object).astype(str), return_inverse=True)[1]


def tidy_groups(data: nw.DataFrame[Any], keys: list[str], ts: Ints) -> Ints | None:
    """Where each token begins, if the frame is in tidy order by token and time; else None."""
    groups = group_starts(*(identity(data[k]) for k in keys))
    if not rises_within(ts, groups):
        return None
    heads = [[(t is None, t or "") for t in texts(data[k][groups])] for k in keys]
    who = list(zip(*heads, strict=True))
    return groups if all(a < b for a, b in pairwise(who)) else None


def _arrow_identity(native: Any) -> NDArray[Any]:
    import pyarrow as pa

    if pa.types.is_boolean(native.type):
        return np.asarray(native.cast(pa.int8()).to_numpy())
    encoded = native if pa.types.is_dictionary(native.type) else native.dictionary_encode()
    chunks = [c.indices.cast(pa.int64()).fill_null(-1).to_numpy() for c in encoded.unify_dictionaries().chunks]
    return np.concatenate([np.empty(0, np.int64), *chunks])
