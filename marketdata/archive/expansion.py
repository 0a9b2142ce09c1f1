"""Level rows of nested books as a query of each engine; `adapters.frames.expanded` makes them from columns.

A snapshot has a row per level, bids first and the best level first. An empty side has a sentinel row: level, price and
size are null. ``tests/archive/test_scan_engines.py`` compares the engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from marketdata.points.schema import ASK, BID, BOOKS, LISTS
from marketdata.points.views import VIEWS


def levels_in_polars(snapshots: Any, fields: Sequence[str]) -> Any:
    """Level rows of a frame or a query of polars; ``fields`` of the snapshot are repeated."""
    import polars as pl

    sides, nothing = pl.Enum([BID, ASK]), pl.lit([None], dtype=pl.List(pl.Float64))
    lists = {name: pl.when(pl.col(name).list.len() > 0).then(name).otherwise(nothing) for name in LISTS}
    # Both sides of a snapshot as one list, so that one step makes rows of it.
    both = {what: pl.concat_list(lists[f"{BID}_{what}"], lists[f"{ASK}_{what}"]) for what in ("price", "size")}
    bids = lists[f"{BID}_price"].list.len().cast(pl.Int32)
    rows = snapshots.select("ts", *VIEWS["books"].ids, *fields, bids=bids, **both)
    place = pl.int_ranges(pl.col("price").list.len(), dtype=pl.Int32)
    levels = rows.with_columns(place=place).explode("place", "price", "size", empty_as_null=False)
    is_bid = pl.col("place") < pl.col("bids")
    return levels.with_columns(
        side=pl.when(is_bid).then(pl.lit(BID, dtype=sides)).otherwise(pl.lit(ASK, dtype=sides)),
        level=pl.when(pl.col("price").is_not_null()).then(pl.col("place") - pl.when(is_bid).then(0).otherwise("bids")),
    ).select(*BOOKS, *fields)


def levels_in_duckdb(snapshots: Any) -> Any:
    """Level rows of a DuckDB relation."""
    ids = ["ts", *VIEWS["books"].ids]
    lists = [f"CASE WHEN len({name}) > 0 THEN {name} ELSE [NULL] END AS {name}" for name in LISTS]
    both = [f"unnest(list_concat({BID}_{what}, {ASK}_{what})) AS {what}" for what in ("price", "size")]
    places = ["unnest(range(len(bid_price) + len(ask_price))) AS __place", "len(bid_price) AS __bids"]
    side = f"if(__place < __bids, '{BID}', '{ASK}') AS side"
    level = "if(price IS NULL AND size IS NULL, NULL, __place - if(__place < __bids, 0, __bids))"
    rows = snapshots.project(", ".join([*ids, *lists])).project(", ".join([*ids, *both, *places]))
    return rows.project(", ".join([*ids, side, f"CAST({level} AS INT) AS level", "price", "size"]))
