"""Scans: the rows of a query as lazy frames of every engine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from marketdata.adapters.engines import plain_types
from marketdata.adapters.expansion import levels_in_polars
from marketdata.adapters.partitions import home
from marketdata.adapters.polars import signed, write_file
from marketdata.archive.arrow import to_table
from marketdata.archive.coverage.policy import MINUTE, whole_buckets
from marketdata.archive.query import ALL_TIME, Query, pruned
from marketdata.archive.records import Labels
from marketdata.archive.storage.files import hull
from marketdata.archive.storage.tables import Version
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ArchiveError, ConfigError, not_installed
from marketdata.points.arguments import whole
from marketdata.points.bars import BARS
from marketdata.points.schema import COUNT, LISTS, uncounted
from marketdata.points.views import VIEWS, View
from marketdata.resolution import BucketWidth
from marketdata.times import Range

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

EngineName = Literal["polars", "arrow", "duckdb", "dask", "spark"]
_PARTITIONS = 64  # of Dask and Spark: few enough that each is worth its start


def schema_of(query: Query) -> dict[str, pl.DataType]:
    """The columns of the rows; books have lists."""
    import polars as pl

    out: dict[str, pl.DataType] = {"ts": pl.Datetime("us", "UTC")} | dict.fromkeys(VIEWS[query.view].ids, pl.String())
    spec, types = VIEWS[query.view], {"text": pl.String(), "number": pl.Float64(), "flag": pl.Boolean()}
    if query.view == "books":
        return out | dict.fromkeys(LISTS, pl.List(pl.Float64())) | {n: types[spec.known[n]] for n in _fields(query)}
    if query.as_bars:
        return out | dict.fromkeys(BARS, pl.Float64()) | {"count": pl.Int64()}
    values = [name for name in query.version.schema.names if name not in out]
    counts = [v + COUNT for v in uncounted(values)] if query.counts else []
    named = spec.with_derived({name: pl.lit(0.0) for name in values})
    ordered = [n for n in (*spec.names, *spec.known) if n in named]
    return (
        out | {n: types[spec.type_of(n)] for n in dict.fromkeys((*ordered, *named))} | dict.fromkeys(counts, pl.Int64())
    )


def _fields(query: Query) -> list[str]:
    """The fields of snapshots that the table has."""
    return [name for name in VIEWS["books"].known if name in query.version.schema.names]


def lazy(query: Query, *, checked: bool = False) -> pl.LazyFrame:
    """The rows as a polars query.

    Rows at the base are read by polars, so that predicates, columns and limits reach the row groups, unless every page
    checksum is to be compared.
    """
    import polars as pl

    if checked or not query.is_stored:
        return computed(query)
    rows: pl.LazyFrame = _as_asked(query, _stored(query))
    return rows if query.books is None else pl.concat([rows, _tops(query, _stored(query.books))])


def _as_asked(query: Query, rows: Any) -> Any:
    """The rows; books that are not asked for nested have a row per level."""
    return levels_in_polars(rows, _fields(query)) if query.view == "books" and not query.nested else rows


def _tops(query: Query, books: pl.LazyFrame) -> Any:
    """Quotes that are the top of nested books."""
    import polars as pl

    best = zip(VIEWS["quotes"].names, (pl.col(name).list.first() for name in LISTS), strict=True)
    return _whole(query, books.with_columns(first.alias(name) for name, first in best))


def _whole(query: Query, rows: Any) -> Any:
    """Rows with all columns of a query, in order; some follow from others, and missing ones are null."""
    import polars as pl

    stored, spec = set(rows.collect_schema()), VIEWS[query.view]
    columns = {name: pl.col(name) if name in stored else pl.lit(None) for name in schema_of(query)}
    columns |= spec.with_derived({name: columns[name] for name in spec.names}) if spec.derived else {}
    return rows.select(columns[name].cast(kind).alias(name) for name, kind in schema_of(query).items())


def computed(query: Query) -> pl.LazyFrame:
    """The rows of `points`, every page checksum compared."""
    import polars as pl
    from polars.io.plugins import register_io_source

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        for points in query.points():
            # A further column of another market is null in every row of these.
            rows = _as_asked(query, _whole(query, pl.DataFrame(pl.from_arrow(to_table(points)))))
            # polars applies a limit of rows before the predicate.
            if n_rows is not None:
                rows = rows.head(n_rows)
                n_rows -= rows.height
            rows = rows if predicate is None else rows.filter(predicate)
            yield rows if columns is None else rows.select(columns)
            if n_rows == 0:
                return

    return register_io_source(source, schema=_as_asked(query, pl.DataFrame(schema=schema_of(query))).schema)


def export(query: Query, path: Path) -> None:
    """Write the rows to a file; see `write_file`."""
    import polars as pl

    try:
        write_file(lazy(query, checked=True), path)
    except (OSError, pl.exceptions.PolarsError) as problem:
        raise ArchiveError(f"Writing {path.name!r} failed: {problem}. The archive is as it was.") from problem


def _stored(query: Query) -> Any:
    """The rows as polars reads the files: at the base it takes predicates and columns further than we can."""
    import polars as pl

    schema = pl.DataFrame(pl.from_arrow(query.version.schema.empty_table())).schema
    # polars takes all options of a storage as text but one.
    options: Any = {k: int(v) if k == "max_retries" else v for k, v in (query.table.options or {}).items()} or None
    query.table.check(query.version)
    files = [f"{query.table.store.uri}/{file.path}" for file in query.version.files]
    more: Any = {"missing_columns": "insert", "storage_options": options, "glob": False}
    rows = pl.scan_parquet(files, schema=schema, **more) if files else pl.LazyFrame(schema=schema)
    if query.markets is not None:
        rows = rows.filter(pl.col("market_id").is_in(list(query.markets)))
    if query.wanted != ALL_TIME:
        start, end = (pl.lit(at, pl.Int64).cast(pl.Datetime("us", "UTC")) for at in query.wanted)
        rows = rows.filter((pl.col("ts") >= start) & (pl.col("ts") < end))
    if query.labels is not None:
        rows = rows.with_columns(_label(query.labels))
    if query.levels is not None:
        rows = rows.with_columns(pl.col(side).list.head(query.levels) for side in LISTS)
    return _whole(query, rows)


def query_of(
    store: ArchiveStore,
    view: View,
    markets: Iterable[str] | None,
    wanted: Range | Mapping[str, Range],
    resolution: str | BucketWidth | None,
    version: Version | None = None,
    **more: Any,
) -> Query:
    """A query of a view, by default at its newest version, with only the files that may have its rows.

    ``more``: the fields token_id, levels, nested and counts of `Query`.
    """
    for name in ("levels", "nested"):
        if more.get(name) and view != "books":
            raise ConfigError(f"{name}={more[name]} is refused for {view}; only books have levels.")
    if more.get("levels") is not None:
        whole("levels", more["levels"])
    base = store.base
    # Rows with times of their own are in buckets only if these are asked for.
    is_stored = not VIEWS[view].is_grid and resolution is None
    width = base if is_stored else store.width(resolution)
    more["as_bars"] = not (VIEWS[view].is_grid or is_stored)
    # A range of base points is whole minutes, unless seconds are read as widths below a minute.
    clip = whole_buckets if base.micros < MINUTE <= width.micros else Range._make
    ranges = None if isinstance(wanted, Range) else {market: clip(one) for market, one in wanted.items()}
    span = clip(wanted) if isinstance(wanted, Range) else hull((ranges or {}).values())
    ids: Sequence[str] | None = None if markets is None else tuple(sorted(set(markets)))
    version = version or store.points[view].version()
    if view == "quotes":
        ids, without = store.quoted(ids, version)
        if without is None or without:
            more["books"] = query_of(store, "books", without, wanted, resolution, nested=True)
    version = pruned(version, ids, span)
    labels = store.catalog["markets"].labels(ids) if VIEWS[view].has_tokens else None
    # Means of seconds come with the number of their points, because nothing else tells them from 1m points.
    more["counts"] = more.get("counts", base.micros < MINUTE) and width != base
    return Query(view, store.points[view], version, ids, span, ranges, width, base, labels, **more)


def by_market(query: Query, markets: Iterable[str]) -> list[Query]:
    """The same query in parts of whole markets that are adjacent in the files."""
    ids = sorted(set(markets))
    step = max(1, -(-len(ids) // _PARTITIONS))
    return [query.of_markets(ids[i : i + step]) for i in range(0, len(ids), step)] or [query]


def to_arrow(query: Query) -> pa.RecordBatchReader:
    """Batches of rows, each computed on demand."""
    rows = lazy(query)
    schema = signed(rows.collect_schema().to_frame().to_arrow()).schema

    def batches() -> Iterator[pa.RecordBatch]:
        for frame in rows.collect_batches(maintain_order=True):
            yield from frame.to_arrow().cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def to_dask(parts: Sequence[Query]) -> Any:
    """A Dask frame with a partition per part."""
    try:
        import dask.dataframe as dd
    except ModuleNotFoundError as problem:
        raise not_installed("engine='dask'", "dask", "dask") from problem

    # The index says that a market is in one partition, so that functions need no shuffle.
    meta = _at_home(parts[0].without_rows(), 0)
    numbers = list(range(len(parts) + 1))
    return dd.from_map(_at_home, list(parts), numbers[:-1], meta=meta, divisions=numbers)


def _at_home(part: Query, number: int) -> pd.DataFrame:
    import pandas as pd

    rows = lazy(part).collect()
    # Lists are Arrow columns, as Dask turns objects into text.
    lists = {pa.large_list(pa.float64()): pd.ArrowDtype(pa.list_(pa.float64()))}
    frame: pd.DataFrame = rows.to_arrow().to_pandas(types_mapper=lists.get) if part.nested else rows.to_pandas()
    return frame.set_axis(home(["market_id"], number, len(frame)))


def to_spark(parts: Sequence[Query]) -> Any:
    """A frame of the running Spark session (else a ConfigError) with a partition per part, computed by its workers."""
    import pickle

    try:
        from pyspark.sql import SparkSession
        from pyspark.sql.pandas.types import from_arrow_schema
    except ModuleNotFoundError as problem:
        raise not_installed("engine='spark'", "pyspark", "spark") from problem

    session = SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("engine='spark' needs a running session; make one with SparkSession.builder.getOrCreate().")
    schema = plain_types(lazy(parts[0].without_rows()).collect().to_arrow().schema)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for body in batch.column(0).to_pylist():
                yield from lazy(pickle.loads(body)).collect().to_arrow().cast(schema).to_batches()  # noqa: S301 ours

    sent = session.createDataFrame([(pickle.dumps(part),) for part in parts], "part binary")
    return sent.repartition(len(parts)).mapInArrow(rows, from_arrow_schema(schema))


def _label(labels: Labels) -> pl.Expr:
    """The label of each row's token, looked up once for rows of one token that follow each other."""
    import polars as pl

    def look_up(rows: pl.Series) -> pl.Series:
        run = rows.rle_id()
        tokens = rows.gather(run.arg_unique()).struct.unnest()
        if not len(tokens):
            return tokens["token_label"]
        near = labels.table_between(*tokens.select(pl.min("market_id").alias("first"), pl.max("market_id")).row(0))
        newest = tokens.join(near, on=["market_id", "token_id"], how="left", maintain_order="left", suffix="_now")
        return newest.select(pl.coalesce("token_label_now", "token_label")).to_series().gather(run)

    whole = pl.struct("market_id", "token_id", "token_label")
    return whole.map_batches(look_up, return_dtype=pl.String, is_elementwise=True).alias("token_label")
