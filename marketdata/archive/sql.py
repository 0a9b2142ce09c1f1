"""An archive in DuckDB: its tables as views, of files at the base and of computed rows at other widths."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute

from marketdata.adapters.expansion import levels_in_duckdb
from marketdata.archive.arrow import TS
from marketdata.archive.query import Query
from marketdata.archive.records import Labels
from marketdata.archive.scan import schema_of, to_arrow
from marketdata.errors import ArchiveError, ConfigError, not_installed
from marketdata.points.records import RECORD_KINDS
from marketdata.points.schema import ID_COLUMNS, LISTS
from marketdata.points.views import VIEWS
from marketdata.times import DAY

T = TypeVar("T")
_POLL = 0.05  # between looks at a thread that runs a statement [s]
TABLES = ("snapshots", *VIEWS, *RECORD_KINDS, "coverage")

_IDS = ("ts", *ID_COLUMNS)
# Types that frames lack, or that reach them with other values.
_NESTED = {"array", "list", "map", "struct"}
_FOREIGN = {
    "bignum",
    "bit",
    "geometry",
    "map with nested keys",
    "time with time zone",
    "time_ns",
    "uhugeint",
    "union",
    "variant",
}


def connect(memory_limit: str | None = None) -> Any:
    """A new DuckDB connection with times in UTC; ModuleNotFoundError if it is not installed."""
    try:
        import duckdb
    except ModuleNotFoundError as problem:
        raise not_installed("SQL on an archive", "duckdb", "duckdb") from problem
    try:
        connection = duckdb.connect(config={} if memory_limit is None else {"memory_limit": memory_limit})
    except (duckdb.Error, TypeError) as problem:
        why = 'is refused; allowed are texts such as "500MB" and "2GB".'
        raise ConfigError(why, argument="memory_limit", value=memory_limit) from problem
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def relation(query: Query) -> Any:
    """The rows of a query as a DuckDB relation."""
    rows = _points(connect(), query)
    return levels_in_duckdb(rows) if query.view == "books" and not query.nested else rows


class _Stream:
    """The rows of a query as Arrow batches, computed at each read."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return to_arrow(self._query).__arrow_c_stream__(requested_schema)


class _LabelStream:
    """The labels of tokens as Arrow batches, read once a row is asked for."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        schema = pa.schema(dict.fromkeys(ID_COLUMNS, pa.string()))

        def batches() -> Iterator[pa.RecordBatch]:
            yield from self._labels.table.to_arrow().cast(schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches()).__arrow_c_stream__(requested_schema)


def _points(connection: Any, query: Query) -> Any:
    """The rows of a query, books as one row per snapshot; predicates of the base reach the row groups."""
    if not query.is_stored:
        return connection.from_arrow(_Stream(replace(query, nested=True)))
    rows = connection.from_arrow(_dataset(query)).set_alias("rows")
    derived = VIEWS[query.view].derived
    chosen = {name: f"rows.{_quoted(name)}" for name in schema_of(query) if name not in derived}
    if query.labels is not None:
        # A label a token: DuckDB leaves out this join, and reads no label, where a statement needs none.
        labels = connection.from_arrow(_LabelStream(query.labels)).set_alias("stored")
        each = labels.aggregate("market_id, token_id, any_value(token_label) as label", "market_id, token_id")
        same = " and ".join(f"rows.{name} = labels.{name}" for name in ("market_id", "token_id"))
        rows = rows.join(each.set_alias("labels"), same, how="left")
        chosen |= {"token_label": "coalesce(labels.label, rows.token_label)"}
    if query.levels is not None:
        chosen |= {side: f"{chosen[side]}[1:{query.levels}]" for side in LISTS}
    rows = rows.project(", ".join(f"{text} as {_quoted(name)}" for name, text in chosen.items()))
    if query.books is not None:
        tops = dict(zip(VIEWS["quotes"].names, (f"{side}[1]" for side in LISTS), strict=True))
        tops |= {name: _quoted(name) for name in _IDS}
        top_rows = (f"{tops.get(name, 'NULL')} as {_quoted(name)}" for name in chosen)
        rows = rows.union(_points(connection, query.books).project(", ".join(top_rows)))
    return _with_derived(query, rows) if derived else rows


def _with_derived(query: Query, rows: Any) -> Any:
    """The rows with the columns that follow from others."""
    import duckdb

    columns = VIEWS[query.view].with_derived({name: duckdb.ColumnExpression(name) for name in rows.columns})
    return rows.select(*(columns[name].alias(name) for name in schema_of(query)))


def _dataset(query: Query) -> Any:
    """The files of a query as an Arrow dataset that compares page checksums."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    store, schema = query.table.store, query.version.schema
    query.table.check(query.version)
    if not query.version.files:
        return ds.dataset(schema.empty_table())
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    style = ds.ParquetFileFormat(default_fragment_scan_options=options)
    rows = ds.dataset([f.path for f in query.version.files], schema=schema, format=style, filesystem=store.files)
    if query.markets is not None:
        rows = rows.filter(pc.field("market_id").isin(list(query.markets)))
    start, end = (pa.scalar(at, TS) for at in query.wanted)
    return rows.filter((pc.field("ts") >= start) & (pc.field("ts") < end))


def _define(connection: Any, queries: Iterable[Query], records: Mapping[str, pa.Table]) -> list[Any]:
    """Create the tables that statements name; returns the objects that must live as long as the tables are used."""
    made: list[Any] = []
    for query in queries:
        rows = _points(connection, query)
        views = {"snapshots": rows, "books": levels_in_duckdb(rows)} if query.view == "books" else {query.view: rows}
        made += views.values()
        for name, view in views.items():
            view.create_view(name)
    for name, table in records.items():
        connection.register(name, table)
    # A statement sees these tables alone: no files and no other databases. There is no folder for what exceeds memory,
    # because a statement could read it.
    connection.execute("SET temp_directory = ''")
    connection.execute("SET enable_external_access = false; SET python_enable_replacements = false")
    connection.execute("SET lock_configuration = true")
    return made


def answer(
    connection: Any,
    text: str,
    queries: Sequence[Query],
    records: Mapping[str, pa.Table],
    stop: threading.Event | None = None,
    max_rows: int | None = None,
) -> pa.Table:
    """The first rows of a statement over views and records.

    ConfigError if it is refused or stopped, ArchiveError if the storage failed.
    """
    import duckdb

    def rows_of_statement() -> pa.Table:
        _made = _define(connection, queries, records)
        rows = connection.sql(text)
        if rows is None:
            raise ConfigError("archive.sql takes a statement that gives rows: select ... from prices.")
        rows = rows.project("*")  # which gives columns of one name numbers
        _check_types(rows)
        return _plain((rows if max_rows is None else rows.limit(max_rows)).to_arrow_table())

    try:
        return _interruptible(connection, rows_of_statement, stop)
    except (duckdb.InterruptException, RuntimeError) as problem:  # the latter while a table is made
        if isinstance(problem, RuntimeError) and not (stop is not None and stop.is_set()):
            raise
        raise ConfigError("The statement was stopped before its end.") from None
    except duckdb.OutOfMemoryException as problem:
        hint = 'Ask for fewer rows or groups; a relation of archive.scan(view, engine="duckdb") may use the disk.'
        raise ConfigError(f"The statement needs too much memory: {problem}", hint=hint) from problem
    except duckdb.Error as problem:
        # Errors of an Arrow reader arrive as errors of input.
        if isinstance(problem, duckdb.IOException) or "IOError: " in str(problem):
            raise ArchiveError(f"The archive could not be read: {problem}") from problem
        raise ConfigError(f"DuckDB refused the statement: {problem}") from problem


def _interruptible(connection: Any, work: Callable[[], T], stop: threading.Event | None) -> T:
    """What ``work`` returns; it runs in a thread, because Ctrl-C does not reach a thread that waits for DuckDB.

    Ctrl-C, and ``stop`` once it is set, interrupt what the connection runs.
    """
    results: list[T] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:
            problems.append(problem)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL)
            if stop is not None and stop.is_set():
                connection.interrupt()
    finally:
        # A thread that keeps the connection while the interpreter ends would abort the process. An interrupt before
        # the statement runs has no effect, so it is repeated.
        while thread.is_alive():
            connection.interrupt()
            thread.join(_POLL)
    if problems:
        raise problems[0]
    return results[0]


def _check_types(rows: Any) -> None:
    """ConfigError for a column of a type that frames lack, or with which values would change."""
    for name, kind in zip(rows.columns, rows.types, strict=True):
        foreign = _FOREIGN if kind.id == "interval" else {*_FOREIGN, "interval"}
        if not foreign.isdisjoint(_type_names(kind)):
            raise ConfigError(f"The column {name} is of {kind}, which no frame has; cast it: {name}::varchar.")


def _type_names(kind: Any) -> Iterator[str]:
    """The name of a DuckDB type, and the names of the types inside it."""
    yield kind.id
    if kind.id == "map" and kind.children[0][1].id in _NESTED:
        yield "map with nested keys"
    if kind.id in _NESTED:
        for _, part in kind.children:
            if not isinstance(part, int):  # the length of an array
                yield from _type_names(part)


def _plain(rows: pa.Table) -> pa.Table:
    """Columns that frames have: durations instead of intervals, and times that a calendar has."""
    for place, (name, column) in enumerate(zip(rows.schema.names, rows.columns, strict=True)):
        if column.type == pa.month_day_nano_interval():
            values = column.to_pylist()
            if any(value is not None and value.months for value in values):
                raise ConfigError(f"The column {name} has months, which are not of one length; cast it to varchar.")
            micros = [None if v is None else v.days * DAY + v.nanoseconds // 1000 for v in values]
            rows = rows.set_column(place, name, pa.array(micros, pa.duration("us")))
        elif not all(_within_calendar(leaf) for leaf in _leaves(column.combine_chunks())):
            raise ConfigError(
                f"The column {name} has a time that is infinite or outside of the years 1 to 9999, which no frame "
                f"has; cast it: {name}::varchar."
            )
    return rows


def _leaves(column: pa.Array) -> Iterator[pa.Array]:
    """The arrays of plain values in an array, through lists, maps and structs."""
    if pa.types.is_struct(column.type):
        for part in column.flatten():
            yield from _leaves(part)
    elif pa.types.is_map(column.type):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif pa.types.is_nested(column.type):
        yield from _leaves(column.flatten())
    else:
        yield column


def _within_calendar(column: pa.Array) -> bool:
    """Whether all times of a column are in the years 1 to 9999; True for a column of another type."""
    if not (pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)):
        return True
    bounds = pa.compute.min_max(column)
    unit: Any = "D" if pa.types.is_date(column.type) else column.type.unit
    first, last = -(2**63) + 2, 2**63 - 2  # nanoseconds end in 2262, and the last of them is infinity
    if unit != "ns":
        first, last = (
            int(np.datetime64(day, unit).astype(int)) for day in ("0001-01-01", "9999-12-31T23:59:59.999999")
        )
    return all(value is None or first <= value <= last for value in (bounds["min"].value, bounds["max"].value))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
