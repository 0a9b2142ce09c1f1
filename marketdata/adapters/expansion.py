"""Level rows of nested books: from columns, and as a query of polars and of DuckDB.

A snapshot has a row per level, bids first and the best level first. An empty side has a sentinel row: level, price and
size are null. ``tests/archive/test_scan_engines.py`` compares the engines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from marketdata.points.columns import Books, Columns, Ints
from marketdata.points.order import LevelRows
from marketdata.points.schema import ASK, BID, BOOKS, LISTS
from marketdata.points.views import VIEWS


class Rows(NamedTuple):
    """Level rows in tidy order, an entry per row, and their levels.

    ``edges`` are the first rows of the bids and the asks of each snapshot, and at the end the number of rows.
    """

    entries: Columns
    levels: LevelRows
    edges: Ints


def expanded(books: Books) -> Rows:
    """Level rows of books, a sentinel row for each empty side."""
    counts = books.counts
    lengths = np.maximum(counts, 1)
    edges = np.append(0, np.cumsum(lengths))
    ts = np.repeat(books.ts, lengths.reshape(-1, 2).sum(axis=1))
    level = np.arange(len(ts), dtype=np.int32) - np.repeat(edges[:-1].astype(np.int32), lengths)
    side = np.repeat(np.tile(np.array([0, 1], np.int8), len(books)), lengths)
    price, size = books.levels()
    if (counts == 0).any():
        is_level, (levels_price, levels_size) = np.repeat(counts > 0, lengths), (price, size)
        price, size = np.full((2, len(ts)), np.nan)
        price[is_level], size[is_level] = levels_price, levels_size
    return Rows(Columns(books.tokens, edges[2 * books.bounds], ts), LevelRows(ts, side, level, price, size), edges)


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
