"""Frames of engines elsewhere, Spark and DuckDB: tidy columns as expressions, which the engine computes.

A frame that would be refused in memory when it is opened is refused when the engine computes, by an error of the engine
with the same text. Duplicate rows and the order of levels are not checked there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals as nw

from marketdata.errors import ConfigError, NotTidyError
from marketdata.resolution import BucketWidth
from marketdata.tidy import normalization
from marketdata.tidy.schema import (
    ASK,
    BID,
    ID_COLUMNS,
    LISTS,
    NOT_0_1,
    ROUNDING,
    Kind,
    outside_0_1,
    require,
    values_of,
)
from marketdata.tidy.table import EagerTable
from marketdata.times import SECOND

_UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
# DuckDB has the zone in the connection: only a time with one is the same instant in all of them.
_NAIVE = ("TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMP_US")


class EngineTable:
    """A `Table` of an engine: ``data`` is the frame behind narwhals, its tidy columns in their types."""

    is_eager = False

    def __init__(self, data: Any, kind: Kind) -> None:
        self.data, self.kind, self.names = data, kind, data.collect_schema().names()
        self.keys = [c for c in ID_COLUMNS if c in self.names]
        self.is_duckdb = data.implementation.is_duckdb()

    @classmethod
    def checked(cls, native: Any, kind: Kind) -> EngineTable:
        """A table of a native frame of this kind, its columns made tidy."""
        out = cls(nw.from_native(native), kind)
        out.data = out._tidy(native)
        return out

    @classmethod
    def of_times(cls, native: Any, times: list[str]) -> EngineTable:
        """A table of any columns, of which these are times."""
        out = cls(nw.from_native(native), "series")
        require("A frame to join", times, out.names)
        out.data = out._instants(native, out.data, times)
        return out

    def _instants(self, native: Any, data: Any, times: list[str]) -> Any:
        if not self.is_duckdb:
            _check_session(native.sparkSession.conf.get("spark.sql.session.timeZone"))
            return data.with_columns(utc(data, c).alias(c) for c in times)
        for name in times:
            utc(data, name)
            if str(native.types[native.columns.index(name)]) in _NAIVE:
                native = _replaced(native, {name: f"CAST({name} AS TIMESTAMP) AT TIME ZONE 'UTC'"}, duckdb=True)
        return nw.from_native(native)

    def frame(self, *values: str) -> Any:
        """``ts``, the ids and these columns (without any: those of the kind), NaN as null."""
        names = values or values_of(self.kind)
        schema = self.data.collect_schema()
        kept = (*_TEXTS, *(LISTS if self.kind == "nested" else ()))
        return self.data.select("ts", *self.keys, *(_number(schema, c) if c not in kept else c for c in names))

    def is_number(self, name: str) -> bool:
        """Whether a column is numeric."""
        return bool(self.data.collect_schema()[name].is_numeric())

    def _tidy(self, native: Any) -> Any:
        if not self.is_duckdb:
            _check_session(native.sparkSession.conf.get("spark.sql.session.timeZone"))
        normalization.check_ids(self.data.collect_schema())
        own = [c for c in values_of(self.kind) if c in self.names]
        checks = [f"{c} IS NULL" for c in ("ts", *self.keys) if c in self.names and c != "token_label"]
        if self.kind == "books":
            half = " <> ".join(f"({c} IS NULL OR isnan(CAST({c} AS DOUBLE)))" for c in ("price", "size"))
            checks += ["side IS NULL", f"side NOT IN ('{BID}', '{ASK}')", half]
        nested = LISTS if self.kind == "nested" else ()
        length = "len" if self.is_duckdb else "array_size"
        for price, size in zip(nested[::2], nested[1::2], strict=True):
            checks.append(f"coalesce({length}({price}), 0) <> coalesce({length}({size}), 0)")
        out = nw.from_native(_checked(native, checks, self.is_duckdb))
        numbers = [_number(out.collect_schema(), c) for c in own if c not in (*_TEXTS, *nested)]
        texts = [nw.col(c).cast(nw.String) for c in (*self.keys, *(["side"] if "side" in own else []))]
        level = [nw.col("level").cast(nw.Int32)] if self.kind == "books" else []
        out = out.with_columns(utc(out).alias("ts"), *texts, *numbers, *level)
        return _with_lists(out, nested, self.is_duckdb) if nested else out

    def with_micros(self, name: str) -> Any:
        """The frame with ``ts`` as microseconds since the epoch in one more column."""
        return self._added(self.data, name, "epoch_us(ts)" if self.is_duckdb else "unix_micros(ts)")

    def with_bucket(self, data: Any, width: BucketWidth, name: str) -> Any:
        """The frame with the start of the bucket of ``ts``, UTC, in one more column."""
        if self.is_duckdb:
            origin = f"make_timestamp({width.offset})"
            start = f"time_bucket(INTERVAL '{width.micros} microseconds', ts AT TIME ZONE 'UTC', {origin})"
            return self._added(data, name, f"{start} AT TIME ZONE 'UTC'")
        step = f"floor((unix_seconds(ts) - {width.offset // SECOND}) / {width.seconds}) * {width.seconds}"
        start = f"timestamp_seconds({step} + {width.offset // SECOND})"
        return self._added(data, name, start)

    def _added(self, data: Any, name: str, sql: str) -> Any:
        native = data.to_native()
        return nw.from_native(
            native.project(f'*, {sql} AS "{name}"') if self.is_duckdb else native.selectExpr("*", f"{sql} AS `{name}`")
        )


_TEXTS = (*ID_COLUMNS, "side", "ts")


def _number(schema: Any, name: str) -> nw.Expr:
    if name == "level":
        return nw.col(name)
    if not schema[name].is_numeric():
        raise NotTidyError(f"{name} contains {schema[name]}, not numbers; make it a column of floats.")
    return nw.col(name).cast(nw.Float64).fill_nan(None)


def _with_lists(data: Any, names: tuple[str, ...], duckdb: bool) -> Any:
    """The frame with lists of float64 in these columns, empty ones where one is missing."""
    schema = data.collect_schema()
    for name in names:
        if not isinstance(schema[name], nw.List | nw.Array) or not schema[name].inner.is_numeric():
            raise NotTidyError(
                f"{name} contains {schema[name]}, not lists of numbers; nested books have a list per side and snapshot."
            )
    lists = "coalesce(CAST({} AS DOUBLE[]), [])" if duckdb else "coalesce(CAST({} AS array<double>), array())"
    return nw.from_native(_replaced(data.to_native(), {c: lists.format(c) for c in names}, duckdb))


def _replaced(native: Any, columns: Mapping[str, str], duckdb: bool) -> Any:
    """The native frame with columns computed anew by SQL."""
    if duckdb:
        return native.project(f"* REPLACE ({', '.join(f'{sql} AS {c}' for c, sql in columns.items())})")
    from pyspark.sql import functions

    return native.withColumns({c: functions.expr(sql) for c, sql in columns.items()})


def _checked(native: Any, conditions: list[str], duckdb: bool) -> Any:
    """The frame, whose ``ts`` is an error of the engine where one of the conditions is true."""
    error = "CAST(error('{}') AS TIMESTAMPTZ)" if duckdb else "raise_error('{}')"
    text = "NotTidyError: a row has {}."
    cases = " ".join(f"WHEN {c} THEN {error.format(text.format(c.replace(chr(39), '')))}" for c in conditions)
    value = "ts"
    if duckdb:
        ts = str(native.types[native.columns.index("ts")])
        if not ts.startswith("TIMESTAMP"):  # a text would be read as a time
            raise NotTidyError(normalization.not_times("ts", ts))
        value = "CAST(ts AS TIMESTAMP) AT TIME ZONE 'UTC'" if ts in _NAIVE else "CAST(ts AS TIMESTAMPTZ)"
    return _replaced(native, {"ts": f"CASE {cases} ELSE {value} END"}, duckdb)


def within_0_1(data: Any, *names: str) -> Any:
    """The rows; NotTidyError (of an engine, when it computes) where a column is no probability, but say cents."""
    if isinstance(data, EagerTable | nw.DataFrame):
        for name in names:
            values = data.array(name) if isinstance(data, EagerTable) else data[name].to_numpy()
            wrong = outside_0_1(values)
            if wrong.any():
                raise NotTidyError(f"{name} is {values[wrong][0]:g}, {NOT_0_1} md.check lists such rows.")
        return data
    native, is_duckdb = data.to_native(), data.implementation.is_duckdb()
    for name in names:
        error = f"CAST({'error' if is_duckdb else 'raise_error'}('NotTidyError: {name} is {NOT_0_1}') AS DOUBLE)"
        case = f"CASE WHEN {name} < {-ROUNDING} OR {name} > {1 + ROUNDING} THEN {error} ELSE {name} END"
        native = _replaced(native, {name: case}, is_duckdb)
    return nw.from_native(native)


def _check_session(zone: str) -> None:
    if zone not in _UTC_NAMES:
        raise ConfigError(
            f"Spark cuts times in the zone of its session, which is {zone!r}, but buckets are UTC; set "
            'spark.conf.set("spark.sql.session.timeZone", "UTC").'
        )


def utc(data: Any, name: str = "ts") -> nw.Expr:
    """A column of times as UTC microseconds, without a zone taken for UTC; NotTidyError if it has no times."""
    dtype = data.collect_schema()[name]
    if not isinstance(dtype, nw.Datetime):
        raise NotTidyError(normalization.not_times(name, dtype))
    ts = nw.col(name)
    if data.implementation.is_duckdb():
        return ts  # an instant; the connection's zone only shows it
    if dtype.time_zone is None:
        ts = ts.dt.replace_time_zone("UTC")
    elif dtype.time_zone != "UTC":
        ts = ts.dt.convert_time_zone("UTC")
    return ts if dtype.time_unit == "us" else ts.cast(nw.Datetime("us", "UTC"))
