"""An archive in DuckDB: its tables as views, and the aggregation rules in SQL."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa

from marketdata.archive.scan import Query
from marketdata.archive.storage.schema import id_columns
from marketdata.archive.storage.tables import Table
from marketdata.errors import ArchiveError, ConfigError, not_installed
from marketdata.points.schema import ASK, BID, COUNT, LISTS, uncounted
from marketdata.times import SECOND, to_text

TABLES = ("books", "snapshots", "prices", "metrics", "markets", "events", "series", "coverage")
_ROWS, _LABELS = "stored", "stored_labels"


def connect() -> Any:
    """A new DuckDB connection with times in UTC; ModuleNotFoundError if it is not installed."""
    try:
        import duckdb
    except ModuleNotFoundError as problem:
        raise not_installed("SQL on an archive", "duckdb", "duckdb") from problem
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def relation(table: Table, query: Query) -> Any:
    """The rows of a query as a DuckDB relation."""
    connection = connect()
    connection.register(_ROWS, dataset(table, query))
    _register_labels(connection, query)
    rows = connection.sql(statement(query), params={"markets": list(query.markets)} if query.markets else None)
    return _levels(rows) if query.view == "books" and not query.nested else rows


def dataset(table: Table, query: Query) -> Any:
    """The files of a query as an Arrow dataset that compares page checksums."""
    import pyarrow.dataset as ds

    if not query.files:
        return ds.dataset(query.schema.empty_table())
    options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
    style = ds.ParquetFileFormat(default_fragment_scan_options=options)
    return table.store.dataset(query.files, query.schema, style)


def define(connection: Any, table: Table, query: Query) -> None:
    """Create a view of the rows of a query, named like it, or ``snapshots`` for books."""
    name = "snapshots" if query.view == "books" else query.view
    if query.width == query.base and not query.labels:
        connection.register(name, dataset(table, query))
        return
    _register_labels(connection, query)
    rows = f"{_ROWS}_{name}"
    connection.register(rows, dataset(table, query))
    connection.execute(f"create view {name} as {statement(query, rows)}")


def _register_labels(connection: Any, query: Query) -> None:
    """Make the labels of tokens a table, the same for all views of a connection."""
    if query.labels:
        ids = list(zip(*query.labels, strict=True))
        columns = {"market_id": ids[0], "token_id": ids[1], "label": list(query.labels.values())}
        connection.register(_LABELS, pa.table({name: pa.array(texts, pa.string()) for name, texts in columns.items()}))


def statement(query: Query, stored: str = _ROWS) -> str:
    """The query as SQL on its rows; books as one row per snapshot."""
    ids = ", ".join(id_columns(query.view))
    limits = ["market_id in (select unnest($markets))"] if query.markets else []
    if query.wanted.start > -(2**60):
        limits.append(f"ts >= TIMESTAMPTZ '{to_text(query.wanted.start)}'")
    if query.wanted.end < 2**60:
        limits.append(f"ts < TIMESTAMPTZ '{to_text(query.wanted.end)}'")
    rows = f"select * from {stored}" + (f" where {' and '.join(limits)}" if limits else "")
    if query.labels:
        known = f"({rows}) as rows left join {_LABELS} as known using (market_id, token_id)"
        rows = f"select rows.* replace (coalesce(known.label, rows.token_label) as token_label) from {known}"
    origin = f"make_timestamp({query.width.offset})"
    step = f"INTERVAL '{query.width.micros} microseconds'"
    bucket = f"time_bucket({step}, ts AT TIME ZONE 'UTC', {origin}) AT TIME ZONE 'UTC'"
    if query.view != "books":
        values = [name for name in query.schema.names if name not in {"ts", *id_columns(query.view)}]
        if query.width == query.base:
            return f"select ts, {ids}, {', '.join(map(_quoted, values))} from ({rows})"
        means = ", ".join(f"sum({v}) / nullif(count({v}), 0) as {v}" for v in map(_quoted, values))
        if query.has_counts:
            means += "".join(f", count({_quoted(v)}) as {_quoted(v + COUNT)}" for v in uncounted(values))
        return f"select {bucket} as ts, {ids}, {means} from ({rows}) group by {bucket}, {ids}"
    cut = "" if query.levels is None else f"[1:{query.levels}]"
    lists = ", ".join(f"{side}{cut} as {side}" for side in LISTS)
    books = f"select ts, {ids}, {lists} from ({rows})"
    if query.width != query.base:
        newest = f"row_number() over (partition by {ids}, {bucket} order by ts desc) = 1"
        books = f"select * replace ({bucket} as ts) from ({books} qualify {newest})"
    return books


def define_books(connection: Any) -> None:
    """Create the view ``books`` of tidy rows over the view ``snapshots``."""
    _levels(connection.view("snapshots")).create_view("books")


def _levels(snapshots: Any) -> Any:
    """Level rows of snapshots, and a marker row per empty side."""
    ids = ["ts", *id_columns("books")]
    sides = {what: [f"{side}_{what}" for side in (BID, ASK)] for what in ("price", "size")}
    both = {what: [f"CASE WHEN len({c}) > 0 THEN {c} ELSE [NULL] END" for c in some] for what, some in sides.items()}
    lists = [f"list_concat({', '.join(some)}) AS {what}" for what, some in both.items()]
    each = ["unnest(price) AS price", "unnest(size) AS size", "unnest(range(len(price))) AS __place"]
    level = "CASE WHEN price IS NULL AND size IS NULL THEN NULL WHEN __place < __bids THEN __place "
    level += "ELSE __place - __bids END"
    side = f"CASE WHEN __place < __bids THEN '{BID}' ELSE '{ASK}' END AS side"
    rows = snapshots.project(", ".join([*ids, *lists, "greatest(len(bid_price), 1) AS __bids"]))
    rows = rows.project(", ".join([*ids, "__bids", *each]))
    return rows.project(", ".join([*ids, side, f"CAST({level} AS INT) AS level", "price", "size"]))


def answer(connection: Any, text: str) -> pa.Table:
    """The rows of a statement; ConfigError if DuckDB refuses it, ArchiveError if the storage failed."""
    import duckdb

    try:
        found = connection.sql(text)
        if found is None:
            raise ConfigError("archive.sql takes a statement that gives rows: select ... from prices.")
        return _plain(found.to_arrow_table())
    except duckdb.Error as problem:
        # Errors of an Arrow reader arrive as errors of input.
        if isinstance(problem, duckdb.IOException) or "IOError: " in str(problem):
            raise ArchiveError(f"The archive could not be read: {problem}") from problem
        raise ConfigError(f"DuckDB refused the statement: {problem}") from problem


def _plain(rows: pa.Table) -> pa.Table:
    """Columns that frames have: of different names, durations instead of intervals."""
    names: list[str] = []
    for name in rows.schema.names:
        free = itertools.chain([name], (f"{name}_{k}" for k in itertools.count(1)))
        names.append(next(one for one in free if one not in names))
    columns = []
    for name, column in zip(names, rows.columns, strict=True):
        if column.type == pa.month_day_nano_interval():
            values = column.to_pylist()
            if any(value is not None and value.months for value in values):
                raise ConfigError(f"The column {name} has months, which are not of one length; cast it to varchar.")
            micros = [None if v is None else v.days * 86_400 * SECOND + v.nanoseconds // 1000 for v in values]
            column = pa.array(micros, pa.duration("us"))  # noqa: PLW2901
        columns.append(column)
    return pa.table(columns, names=names)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
