"""Frames of Spark and DuckDB: the engine gives whole tokens as Arrow batches, to which a function in memory is applied.

The engine sorts and spills; this process holds the rows of a few tokens at a time. Spark calls the function in its
workers when the result is computed. DuckDB cannot run one query of a connection inside another, so a relation is
computed when the function is called, and its result is a relation of Arrow rows.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from marketdata.adapters.frame import Native
from marketdata.errors import ConfigError, MarketDataWarning, NotTidyError
from marketdata.points.schema import ID_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa

Function = Callable[[Native], Native]
# Rows that a function gets at a time, if tokens are not longer: fewer cost calls, more memory.
_ROWS = 500_000
_BATCH = 100_000
_UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")
_SOURCE, _KEY = "__of", "__key"


def is_spark(frame: object) -> bool:
    """Whether a frame is one of Spark, which has been imported then."""
    spark: Any = sys.modules.get("pyspark.sql")
    return spark is not None and isinstance(frame, spark.DataFrame)


def is_engine(frame: object) -> bool:
    """Whether a frame is one of Spark or DuckDB."""
    duckdb: Any = sys.modules.get("duckdb")
    return is_spark(frame) or (duckdb is not None and isinstance(frame, duckdb.DuckDBPyRelation))


def apply(frame: Native, function: Function, keys: Sequence[str], *, all_rows: bool = False) -> Native:
    """Apply a function of Arrow tables to whole groups of equal `keys` in order; with ``all_rows`` to all at once."""
    import pyarrow as pa

    keys = [c for c in keys if c in frame.columns]
    if not is_spark(frame):
        schema = frame.limit(0).to_arrow_table().schema
        types = schema, _result_types(schema, function)
        reader = (_in_order(frame, keys) if keys else frame).to_arrow_reader(_BATCH)
        batches = _applied(reader, function=function, keys=keys, types=types, all_rows=all_rows)
        return _relation(frame, pa.Table.from_batches(batches, types[1]))
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    zone = frame.sparkSession.conf.get("spark.sql.session.timeZone")
    if zone not in _UTC_NAMES:
        raise ConfigError(
            f"Spark cuts times in the zone of its session, which is {zone!r}, but buckets are UTC; set "
            'spark.conf.set("spark.sql.session.timeZone", "UTC").'
        )
    schema = to_arrow_schema(frame.schema, timezone="UTC")
    types = schema, _result_types(schema, function)
    parts = frame.coalesce(1) if all_rows else _in_order(frame, keys) if keys else frame
    call = partial(_applied, function=function, keys=keys, types=types, all_rows=all_rows)
    return parts.mapInArrow(call, from_arrow_schema(types[1]))


def apply_to_both(
    left: Native, right: Native, function: Callable[[Native, Native], Native], keys: Sequence[str]
) -> Native:
    """Call a function of two Arrow tables for the rows of two frames that have equal keys."""
    new_names, parts = [], []
    for place, (frame, side) in enumerate(zip((left, right), ("__left_", "__right_"), strict=True)):
        new_names.append({c: side + c for c in frame.columns})
        texts = [f"{_as_text(frame, c)} AS {_KEY}_{i}" for i, c in enumerate(keys)]
        columns = [f"{_quoted(frame, c)} AS {_quoted(frame, new)}" for c, new in new_names[-1].items()]
        parts.append(_select(frame, [*texts, f"{place} AS {_SOURCE}", *columns]))

    def apart(rows: pa.Table) -> Native:
        import pyarrow.compute as pc

        tables = (
            rows.filter(pc.equal(rows[_SOURCE], place)).select([*names.values()]).rename_columns([*names])
            for place, names in enumerate(new_names)
        )
        return function(*tables)

    both = parts[0].unionByName(parts[1], allowMissingColumns=True) if is_spark(left) else _union(*parts)
    return apply(both, apart, [f"{_KEY}_{i}" for i in range(len(keys))])


def selected(frame: Native, names: Sequence[str]) -> Native:
    """Some columns of a frame."""
    return frame if list(frame.columns) == list(names) else _select(frame, [_quoted(frame, c) for c in names])


def _select(frame: Native, expressions: Sequence[str]) -> Native:
    return frame.selectExpr(*expressions) if is_spark(frame) else frame.project(", ".join(expressions))


def small(frame: Native, table: pl.DataFrame) -> Native:
    """Rows of polars as a frame in the session or connection of another one."""
    rows = table.to_arrow()
    return frame.sparkSession.createDataFrame(rows) if is_spark(frame) else _relation(frame, rows)


def collected(frame: Native) -> pl.DataFrame:
    """The rows as a polars frame."""
    return pl.DataFrame(pl.from_arrow(frame.toArrow() if is_spark(frame) else frame.to_arrow_table()))


def in_order_of(frame: Native, names: Sequence[str]) -> Native:
    """The rows sorted by some columns."""
    return frame.orderBy(*names) if is_spark(frame) else frame.order(", ".join(_quoted(frame, c) for c in names))


def plain_types(schema: pa.Schema) -> pa.Schema:
    """The rows in types that every engine has: plain texts and lists instead of views and categories."""
    import pyarrow as pa

    def plain(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_dictionary(kind) or pa.types.is_string_view(kind) or pa.types.is_large_string(kind):
            return pa.string()
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return pa.list_(plain(kind.value_type))
        return kind

    return pa.schema([pa.field(f.name, plain(f.type)) for f in schema])


def _result_types(schema: pa.Schema, function: Function) -> pa.Schema:
    """The types of the result, found on no rows; columns that are passed on keep theirs."""
    import pyarrow as pa

    try:
        nothing = schema.empty_table()
    except pa.ArrowNotImplementedError:
        unions = [f"{f.name} ({f.type})" for f in schema if pa.types.is_union(f.type)]
        raise NotTidyError(
            f"Columns of types that cannot be read: {', '.join(unions)}; CAST them AS VARCHAR, or leave them out."
        ) from None
    result = function(nothing).schema
    passed = pl.DataFrame(pl.from_arrow(nothing)).to_arrow().schema
    kept = {f.name: f.type for f in passed if not pa.types.is_dictionary(f.type)}
    same = [kept.get(f.name) == f.type for f in result]
    return pa.schema([schema.field(f.name) if s else f for s, f in zip(same, plain_types(result), strict=True)])


def _parts(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, keys: Sequence[str], *, all_rows: bool
) -> Iterator[pa.Table]:
    """Join batches, sorted by the keys, to tables of many rows that keep rows of equal keys together."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    count, enough = 0, _ROWS
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count < enough or all_rows:
            continue
        table, cut = pa.Table.from_batches(waiting, schema), count
        if keys:
            # The first of the rows at the end that have the keys of the last row.
            values = pl.DataFrame(pl.from_arrow(table.select(keys)))
            last = (pl.col(c).ne_missing(pl.col(c).last()) for c in keys)
            changes = values.select(pl.any_horizontal(last)).to_series().arg_true()
            cut = int(changes[-1]) + 1 if len(changes) else 0
        if cut:
            yield table.slice(0, cut)
        waiting = table.slice(cut).to_batches()
        count -= cut
        # Doubling the wait keeps the search for the end of a long token from being quadratic.
        enough = max(_ROWS, 2 * count)
    if count or all_rows:
        yield pa.Table.from_batches(waiting, schema)


def _applied(
    batches: Iterable[pa.RecordBatch],
    function: Function,
    keys: Sequence[str],
    types: tuple[pa.Schema, pa.Schema],
    *,
    all_rows: bool,
) -> Iterator[pa.RecordBatch]:
    for part in _parts(batches, types[0], keys, all_rows=all_rows):
        with warnings.catch_warnings():
            # Warnings are about whole frames; a part would repeat or contradict them.
            warnings.simplefilter("ignore", MarketDataWarning)
            rows = function(part)
        yield from rows.cast(types[1]).to_batches()


def _in_order(frame: Native, keys: Sequence[str]) -> Native:
    """The rows sorted by keys, then in tidy order, so that no frame in memory needs a sort."""
    names = [*keys, *(c for c in ("token_id", "ts", "side", "level") if c in frame.columns and c not in keys)]
    texts = [_as_text(frame, c) if c in ID_COLUMNS else _quoted(frame, c) for c in names]
    if not is_spark(frame):
        return frame.order(", ".join(text + " DESC" * (c == "side") for c, text in zip(names, texts, strict=True)))
    from pyspark.sql import functions

    columns = [functions.expr(text) for text in texts]
    order = [o.desc() if c == "side" else o.asc_nulls_last() for c, o in zip(names, columns, strict=True)]
    # Ranges of the keys, so that the result is in their order without a sort.
    return frame.repartitionByRange(*order[: len(keys)]).sortWithinPartitions(*order)


def _quoted(frame: Native, name: str) -> str:
    mark = "`" if is_spark(frame) else '"'
    return mark + name.replace(mark, 2 * mark) + mark


def _as_text(frame: Native, name: str) -> str:
    return f"CAST({_quoted(frame, name)} AS STRING)"


def _union(left: Native, right: Native) -> Native:
    import duckdb

    __marketdata_rows = right  # found by a name that no table of a user has
    try:
        return left.query("__left", "SELECT * FROM __left UNION ALL BY NAME SELECT * FROM __marketdata_rows")
    except duckdb.InvalidInputException:
        raise ConfigError(
            "The two DuckDB relations are of different connections, which cannot read each other; make both with one "
            "connection (con.from_arrow(other.to_arrow_table()) copies one)."
        ) from None


def _relation(frame: Native, rows: pa.Table) -> Native:
    """Arrow rows in the connection of a relation."""
    __marketdata_rows = rows  # found by a name that no table of a user has
    return frame.query("__frame", "SELECT * FROM __marketdata_rows")
