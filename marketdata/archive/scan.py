"""A view as a lazy polars frame of tidy rows, read only where a query needs it, and never all at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from marketdata.archive import points
from marketdata.archive.layout import who
from marketdata.archive.reading import coarser
from marketdata.archive.table import Table
from marketdata.resolution import Resolution
from marketdata.tidy.schema import ASK, BID, BOOKS
from marketdata.times import SECOND, Range, to_datetime, to_micros
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


_DAY = 86_400 * SECOND
# Days of a market of two tokens that are in memory at once: some two million level rows.
_DAYS = 14


def scan_coarse(
    table: Table, view: View, resolution: Resolution, stretches: Iterable[tuple[str, Range]]
) -> pl.LazyFrame:
    """Tidy rows at a resolution, stretch by stretch, so that memory does not grow with the archive.

    Parameters
    ----------
    stretches
        Market and range of what is held together in memory; no bucket of the market may lie in two of them.
    """
    import polars as pl
    from polars.io.plugins import register_io_source

    from marketdata.tidy.frames import to_frame

    state, some = table.state(), list(stretches)
    schema = _tidy(pl.LazyFrame(schema=_schema(table)), view).collect_schema()

    def source(
        columns: list[str] | None, predicate: pl.Expr | None, limit: int | None, _size: int | None
    ) -> Iterator[pl.DataFrame]:
        left = limit
        for market_id, rng in some:
            if left == 0:
                return
            part = coarser(points.read(table, view, market_id, rng, state=state), resolution)
            rows = to_frame(part, "polars").lazy().cast(dict.fromkeys(who(view), pl.String))
            have = rows.collect_schema()
            rows = rows.select(
                name if name in have else pl.lit(None, kind).alias(name) for name, kind in schema.items()
            )
            if predicate is not None:
                rows = rows.filter(predicate)
            if columns is not None:
                rows = rows.select(columns)
            frame = (rows if left is None else rows.head(left)).collect()
            left = None if left is None else left - frame.height
            yield frame

    return register_io_source(source, schema=schema, is_pure=True, explain_name=f"{view} at {resolution}")


def stretches(held: Range, tokens: int) -> Iterator[Range]:
    """A range cut at days: few at a time where a market has many tokens."""
    step = max(1, 2 * _DAYS // max(tokens, 2)) * _DAY
    for start in range(held.start // _DAY * _DAY, held.end, step):
        yield Range(max(start, held.start), min(start + step, held.end))


def within(rows: pl.LazyFrame, markets: Iterable[str] | None, start: Any, end: Any) -> pl.LazyFrame:
    """The rows of these markets with start <= ts < end; each may be None."""
    import polars as pl

    if markets is not None:
        rows = rows.filter(pl.col("market_id").is_in(list(markets)))
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
