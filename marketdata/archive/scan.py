"""A view as a lazy polars frame, read only where a query needs it, and never all at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from marketdata.archive.query import files_of
from marketdata.archive.storage.schema import id_columns
from marketdata.archive.storage.tables import Table
from marketdata.resolution import Resolution
from marketdata.tidy.schema import ASK, BID, BOOKS
from marketdata.times import Range, to_datetime
from marketdata.wire.columns import View

if TYPE_CHECKING:
    import polars as pl


def scan(
    table: Table,
    view: View,
    options: dict[str, str] | None,
    markets: Sequence[str] | None,
    wanted: Range,
    resolution: Resolution,
) -> pl.LazyFrame:
    """Tidy rows of a table: of some markets (None: all), with start <= ts < end before they are aggregated.

    The files are those of one version that statistics leave; predicates on ids and ``ts``, the choice of columns and
    limits reach their row groups. Books are aggregated as whole snapshots, before their levels become rows.
    """
    import polars as pl

    version = table.version()
    files = files_of(version, None if markets is None else sorted(markets), wanted)
    schema = pl.DataFrame(pl.from_arrow(version.schema.empty_table())).schema
    if files:
        rows = pl.scan_parquet(
            [table.store.address(f.path) for f in files],
            schema=schema,
            missing_columns="insert",
            storage_options=options if table.remote else None,
        )
    else:
        rows = pl.LazyFrame(schema=schema)
    rows = _within(rows, markets, wanted)
    ids = id_columns(view)
    if view == "books":
        return _levels(rows if resolution is Resolution.M1 else _last(rows, ids, resolution))
    values = [name for name in schema if name not in {"ts", *ids}]
    return rows.select("ts", *ids, *values) if resolution is Resolution.M1 else _means(rows, ids, values, resolution)


def _within(rows: pl.LazyFrame, markets: Iterable[str] | None, wanted: Range) -> pl.LazyFrame:
    import polars as pl

    if markets is not None:
        rows = rows.filter(pl.col("market_id").is_in(list(markets)))
    if wanted.start > -(2**60):
        rows = rows.filter(pl.col("ts") >= to_datetime(wanted.start))
    if wanted.end < 2**60:
        rows = rows.filter(pl.col("ts") < to_datetime(wanted.end))
    return rows


def _bucket(resolution: Resolution) -> pl.Expr:
    """Start of the bucket of ``ts``, counted from the epoch."""
    import polars as pl

    width = resolution.micros
    micros = pl.col("ts").dt.epoch("us")
    return (micros // width * width).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")


def _means(rows: pl.LazyFrame, ids: Sequence[str], values: Sequence[str], resolution: Resolution) -> pl.LazyFrame:
    """The mean of each value over the points of a bucket, missing ones left out."""
    import polars as pl

    # As sum / count: a group mean differs between runs in the last bits.
    known = {v: pl.col(v).fill_nan(None) for v in values}
    means = [pl.when(x.count() > 0).then(x.sum() / x.count()).alias(v) for v, x in known.items()]
    return rows.group_by(*ids, _bucket(resolution).alias("ts")).agg(means).select("ts", *ids, *values)


def _last(rows: pl.LazyFrame, ids: Sequence[str], resolution: Resolution) -> pl.LazyFrame:
    """The last snapshot of each token and bucket: first its time, of which there are few, then the whole of it."""
    import polars as pl

    keys = [*ids, "ts"]
    times = rows.group_by(*ids, _bucket(resolution).alias("bucket")).agg(pl.col("ts").max()).select(keys)
    last = rows.join(times, on=keys, how="semi", nulls_equal=True)
    return last.with_columns(_bucket(resolution).alias("ts"))


def _levels(rows: pl.LazyFrame) -> pl.LazyFrame:
    """One row per level of a side, and a row of nulls for an empty side."""
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
