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
    # Two steps, side then level, so that the sides of a snapshot stay together; an empty list becomes a null row.
    both = pl.concat_list(
        pl.struct(
            side=pl.lit(side, dtype=sides),
            level=pl.int_ranges(pl.col(f"{side}_price").list.len(), dtype=pl.Int32),
            price=pl.col(f"{side}_price"),
            size=pl.col(f"{side}_size"),
        )
        for side in (BID, ASK)
    )
    return (
        rows.select("ts", *who(view), both.alias("book"))
        .explode("book")
        .unnest("book")
        .explode("level", "price", "size", empty_as_null=True)
        .select(*BOOKS)
    )
