"""A view as a lazy frame of an engine, computed by polars, market by market for Dask and Spark, or as SQL by DuckDB."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from marketdata.archive.query import Labels, clipped, files_of, has_counts
from marketdata.archive.storage.schema import id_columns
from marketdata.archive.storage.tables import Table
from marketdata.archive.store import ArchiveStore
from marketdata.errors import ConfigError
from marketdata.points.arguments import whole
from marketdata.points.schema import ASK, BID, BOOKS, COUNT, LISTS, uncounted
from marketdata.points.views import View
from marketdata.resolution import BucketWidth
from marketdata.tidy.engines import plain_types
from marketdata.tidy.partitions import home
from marketdata.times import Range, to_datetime

if TYPE_CHECKING:
    import polars as pl

EngineName = Literal["polars", "arrow", "duckdb", "dask", "spark"]
# Partitions of Dask and Spark: few enough that each is worth its start.
_PARTITIONS = 64


@dataclass(frozen=True)
class Query:
    """Rows of one version of a table: of some markets (None: all), ``wanted`` before aggregation.

    ``files`` are those that statistics leave, in tidy order; ``nested``: one row per snapshot with four list columns.
    """

    view: View
    files: tuple[str, ...]
    schema: pa.Schema
    options: dict[str, str] | None
    markets: tuple[str, ...] | None
    wanted: Range
    width: BucketWidth
    base: BucketWidth
    labels: Labels
    levels: int | None = None
    nested: bool = False

    @property
    def has_counts(self) -> bool:
        """Whether means come with the number of their points."""
        return has_counts(self.base, self.width)

    def lazy(self) -> pl.LazyFrame:
        """The rows as a polars query; predicates on ids and ``ts``, columns and limits reach the row groups."""
        import polars as pl

        schema = pl.DataFrame(pl.from_arrow(self.schema.empty_table())).schema
        rows = pl.LazyFrame(schema=schema)
        if self.files:
            # polars takes all options of a storage as text but one.
            options: Any = {k: int(v) if k == "max_retries" else v for k, v in (self.options or {}).items()}
            rows = pl.scan_parquet(
                list(self.files), schema=schema, missing_columns="insert", storage_options=options or None,
                glob=False,
            )  # fmt: skip
        rows, ids = self._within(rows), id_columns(self.view)
        if self.labels:
            rows = rows.with_columns(_label(self.labels))
        if self.view != "books":
            values = [name for name in schema if name not in {"ts", *ids}]
            if self.width == self.base:
                return rows.select("ts", *ids, *values)
            return _means(rows, ids, values, self.width, counts=self.has_counts)
        rows = rows if self.width == self.base else _last(rows, ids, self.width)
        if self.levels is not None:
            rows = rows.with_columns(pl.col(side).list.head(self.levels) for side in LISTS)
        return rows.select("ts", *ids, *LISTS) if self.nested else _levels(rows)

    def _within(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        import polars as pl

        if self.markets is not None:
            rows = rows.filter(pl.col("market_id").is_in(list(self.markets)))
        if self.wanted.start > -(2**60):
            rows = rows.filter(pl.col("ts") >= to_datetime(self.wanted.start))
        if self.wanted.end < 2**60:
            rows = rows.filter(pl.col("ts") < to_datetime(self.wanted.end))
        return rows

    def pandas(self) -> Any:
        """The rows as a pandas frame, with lists as Arrow columns, as Dask turns objects into text."""
        import pandas as pd

        rows = self.lazy().collect()
        if not self.nested:
            return rows.to_pandas()
        lists = {pa.large_list(pa.float64()): pd.ArrowDtype(pa.list_(pa.float64()))}
        return rows.to_arrow().to_pandas(types_mapper=lists.get)


def query_of(
    store: ArchiveStore,
    view: View,
    markets: Sequence[str] | None,
    wanted: Range,
    resolution: str,
    *,
    levels: int | None = None,
    nested: bool = False,
) -> Query:
    """A query of the newest version of a view."""
    if levels is not None:
        whole("levels", levels)
    if (nested or levels is not None) and view != "books":
        what = "nested=True" if nested else f"levels={levels}"
        raise ConfigError(f"{what} is refused for {view}; only books have levels.")
    table, width, base = store.points[view], store.width(resolution), store.base
    version, wanted = table.version(), clipped(wanted, base, width)
    files = files_of(version, None if markets is None else sorted(markets), wanted)
    addresses = tuple(table.store.address(f.path) for f in files)
    some = None if markets is None else tuple(markets)
    options = store.options if table.remote else None
    labels = store.labels(view, markets)
    return Query(view, addresses, version.schema, options, some, wanted, width, base, labels, levels, nested)


def by_market(table: Table, query: Query, markets: Sequence[str]) -> list[Query]:
    """The same query in parts of whole markets that are adjacent in the files."""
    version, ids = table.version(), sorted(markets)
    step = max(1, -(-len(ids) // _PARTITIONS))
    parts = [ids[i : i + step] for i in range(0, len(ids), step)]
    known = set(query.files)
    out = []
    for part in parts:
        files = [table.store.address(f.path) for f in files_of(version, part, query.wanted)]
        labels = {ids: label for ids, label in query.labels.items() if ids[0] in part}
        out.append(replace(query, files=tuple(f for f in files if f in known), markets=tuple(part), labels=labels))
    return out or [query]


def to_arrow(query: Query) -> pa.RecordBatchReader:
    """Batches of rows, each computed on demand."""
    rows = query.lazy()
    schema = rows.collect_schema().to_frame().to_arrow().schema

    def batches() -> Iterator[pa.RecordBatch]:
        for frame in rows.collect_batches(maintain_order=True):
            yield from frame.to_arrow().cast(schema).to_batches()

    return pa.RecordBatchReader.from_batches(schema, batches())


def to_dask(parts: Sequence[Query]) -> Any:
    """A Dask frame with a partition per part."""
    import dask.dataframe as dd

    # The index says that a market is in one partition, so that verbs need no shuffle.
    meta = _at_home(replace(parts[0], files=()), 0)
    numbers = list(range(len(parts) + 1))
    return dd.from_map(_at_home, list(parts), numbers[:-1], meta=meta, divisions=numbers)


def _at_home(part: Query, number: int) -> Any:
    rows = part.pandas()
    return rows.set_axis(home(["market_id"], number, len(rows)))


def to_spark(parts: Sequence[Query]) -> Any:
    """A frame of the running Spark session (else a ConfigError) with a partition per part, computed by its workers."""
    import pickle

    from pyspark.sql import SparkSession
    from pyspark.sql.pandas.types import from_arrow_schema

    session = SparkSession.getActiveSession()
    if session is None:
        raise ConfigError("engine='spark' needs a running session; make one with SparkSession.builder.getOrCreate().")
    schema = plain_types(replace(parts[0], files=()).lazy().collect().to_arrow().schema)

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for body in batch.column(0).to_pylist():
                yield from pickle.loads(body).lazy().collect().to_arrow().cast(schema).to_batches()  # noqa: S301 ours

    sent = session.createDataFrame([(pickle.dumps(part),) for part in parts], "part binary")
    return sent.repartition(len(parts)).mapInArrow(rows, from_arrow_schema(schema))


# -- the rules for polars


def _bucket(width: BucketWidth) -> pl.Expr:
    import polars as pl

    return width.floor(pl.col("ts").dt.epoch("us")).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")  # type: ignore[no-any-return]


def _label(labels: Labels) -> pl.Expr:
    """The label of each row's token, looked up once for rows of one token that follow each other."""
    import polars as pl

    def look_up(rows: pl.Series) -> pl.Series:
        ids = rows.struct.unnest()
        new = ids.select(pl.any_horizontal(pl.col(c).ne_missing(pl.col(c).shift()) for c in ids.columns)).to_series()
        heads = ids.filter(new | (pl.int_range(len(ids), eager=True) == 0))
        found = [labels.get((market, token), label) for market, token, label in heads.iter_rows()]
        run = new.cast(pl.Int64).cum_sum()
        return pl.Series(found, dtype=pl.String).gather(run - (run[0] if len(run) else 0))

    whole = pl.struct("market_id", "token_id", "token_label")
    return whole.map_batches(look_up, return_dtype=pl.String, is_elementwise=True).alias("token_label")


def _means(
    rows: pl.LazyFrame, ids: Sequence[str], values: Sequence[str], width: BucketWidth, *, counts: bool
) -> pl.LazyFrame:
    import polars as pl

    # As sum / count: a group mean differs between runs in the last bits.
    known = {v: pl.col(v).fill_nan(None) for v in values}
    means = [pl.when(x.count() > 0).then(x.sum() / x.count()).alias(v) for v, x in known.items()]
    of = uncounted(values) if counts else []
    means += [known[v].count().cast(pl.Int64).alias(v + COUNT) for v in of]
    names = dict.fromkeys(["ts", *ids, *values, *(v + COUNT for v in of)])
    return rows.group_by(*ids, _bucket(width).alias("ts")).agg(means).select(*names)


def _last(rows: pl.LazyFrame, ids: Sequence[str], width: BucketWidth) -> pl.LazyFrame:
    """The last snapshot of each token and bucket: first its time, then the whole of it."""
    import polars as pl

    keys = [*ids, "ts"]
    times = rows.group_by(*ids, _bucket(width).alias("bucket")).agg(pl.col("ts").max()).select(keys)
    last = rows.join(times, on=keys, how="semi", nulls_equal=True)
    return last.with_columns(_bucket(width).alias("ts"))


def _levels(rows: pl.LazyFrame) -> pl.LazyFrame:
    import polars as pl

    sides = pl.Enum([BID, ASK])
    bids = pl.col("bid_price").list.len().fill_null(0)
    # Both sides of a snapshot as one list, so that one step makes rows of it; an empty side becomes a null row.
    both = [pl.concat_list(_or_null("bid", what), _or_null("ask", what)).alias(what) for what in ("price", "size")]
    ids = id_columns("books")
    lists = rows.select("ts", *ids, *both, bids=pl.max_horizontal(bids, 1).cast(pl.Int32))
    place = pl.int_ranges(pl.col("price").list.len(), dtype=pl.Int32)
    levels = lists.with_columns(place=place).explode("place", "price", "size", empty_as_null=False)
    is_bid = pl.col("place") < pl.col("bids")
    level = pl.when(is_bid).then("place").otherwise(pl.col("place") - pl.col("bids"))
    return levels.with_columns(
        side=pl.when(is_bid).then(pl.lit(BID, dtype=sides)).otherwise(pl.lit(ASK, dtype=sides)),
        level=pl.when(pl.col("price").is_not_null()).then(level),
    ).select(*BOOKS)


def _or_null(side: str, what: str) -> pl.Expr:
    import polars as pl

    nothing = pl.lit([None], dtype=pl.List(pl.Float64))
    is_empty = pl.col(f"{side}_price").list.len().fill_null(0) == 0
    return pl.when(is_empty).then(nothing).otherwise(pl.col(f"{side}_{what}"))
