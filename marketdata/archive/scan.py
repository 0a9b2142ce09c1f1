"""A view as a lazy polars frame of tidy rows, read file by file only where a query needs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from marketdata.archive.layout import who
from marketdata.archive.table import Table
from marketdata.tidy.schema import ASK, BID, BOOKS
from marketdata.times import to_datetime, to_micros
from marketdata.wire.columns import View

if TYPE_CHECKING:
    import polars as pl


def scan(table: Table, view: View, options: dict[str, str] | None) -> pl.LazyFrame:
    """Tidy rows of a table; predicates on ids and ``ts``, columns and limits reach files and row groups."""
    import polars as pl

    state = table.state()
    if not state.files:
        return _tidy(pl.LazyFrame(schema=_schema(table)), view)
    rows = pl.scan_parquet(
        [table.store.uri(f.path) for f in state.files],
        schema=_schema(table),
        missing_columns="insert",
        storage_options=options if table.remote else None,
    )
    return _tidy(rows, view)


def within(rows: pl.LazyFrame, start: Any, end: Any) -> pl.LazyFrame:
    """The rows with start <= ts < end; either may be None."""
    import polars as pl

    if start is not None:
        rows = rows.filter(pl.col("ts") >= to_datetime(to_micros(start, "start")))
    if end is not None:
        rows = rows.filter(pl.col("ts") < to_datetime(to_micros(end, "end")))
    return rows


def _schema(table: Table) -> Any:
    import polars as pl
    import pyarrow as pa

    plain = pa.schema([pa.field(f.name, f.type) for f in table.schema])
    return pl.Schema(pl.DataFrame(pl.from_arrow(plain.empty_table())).schema)


def _tidy(rows: pl.LazyFrame, view: View) -> pl.LazyFrame:
    import polars as pl

    if view != "books":
        rest = [n for n in rows.collect_schema().names() if n not in {"ts", *who(view)}]
        return rows.select("ts", *who(view), *rest)
    sides = pl.Enum([BID, ASK])
    bids = pl.col("bid_price").list.len().fill_null(0)
    # Both sides of a snapshot as one list, so that one step makes rows of it; an empty side becomes a null row.
    both = [pl.concat_list(_or_null("bid", what), _or_null("ask", what)).alias(what) for what in ("price", "size")]
    lists = rows.select("ts", *who(view), *both, bids=pl.max_horizontal(bids, 1).cast(pl.Int32))
    place = pl.int_ranges(pl.col("price").list.len(), dtype=pl.Int32)
    levels = lists.with_columns(place=place).explode("place", "price", "size")
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
