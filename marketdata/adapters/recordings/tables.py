"""Parts that the formats of tables share: levels in cells, changes of books, records of markets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters.recordings.columns import NAMES, first, numbers, sides, tokens
from marketdata.adapters.recordings.format import Batch, ReadOptions
from marketdata.points.columns import ranges
from marketdata.points.rebuild import BIDS, CHANGE, SNAPSHOT, Changes
from marketdata.points.schema import SNAPSHOT_FIELDS

Levels = list[tuple[float, float]]
Sides = tuple[Levels, Levels]
_PRICE, _SIZE = (*NAMES["price"], "px"), (*NAMES["size"], "s", "sz", "count")


def levels_of(cell: Any) -> Levels:
    """The (price, size) pairs of a side: JSON text, pairs, structs, or a mapping of prices to sizes."""
    if cell is None or (isinstance(cell, str) and cell == ""):
        return []
    if isinstance(cell, str | bytes):
        return levels_of(msgspec.json.decode(cell))
    if isinstance(cell, Mapping):
        return [(float(price), float(size)) for price, size in cell.items()]
    return [_level(level) for level in cell]


def _level(level: Any) -> tuple[float, float]:
    if isinstance(level, Mapping):
        return float(level[first(level, _PRICE)]), float(level[first(level, _SIZE)])
    price, size = level
    return float(price), float(size)


def sides_of(bids: Any, asks: Any) -> Sides | None:
    """The levels of both sides of a book; None if one cannot be read."""
    try:
        return levels_of(bids), levels_of(asks)
    except (KeyError, TypeError, ValueError, msgspec.MsgspecError):
        return None


def readable(frame: pl.DataFrame, books: Sequence[Any], batch: Batch) -> tuple[pl.DataFrame, list[Any]]:
    """The rows whose book can be read, and their books; the others are counted in the batch."""
    is_readable = np.array([book is not None for book in books], bool)
    batch.left_out += Counter({"damaged": int((~is_readable).sum())})
    return frame.filter(is_readable), [book for book in books if book is not None]


def book_batch(batch: Batch, frame: pl.DataFrame, options: ReadOptions, books: Sequence[Sides | None]) -> Batch:
    """The batch with a whole book for each row."""
    frame, readable_books = readable(frame.drop("side", "price", "size", strict=False), books, batch)
    batch.changes = changes_of_rows(frame, options, np.ones(len(frame), bool), readable_books)
    batch.markets = batch.markets or market_records(frame)
    return batch


def changes_of_rows(
    frame: pl.DataFrame,
    options: ReadOptions,
    is_book: NDArray[np.bool_],
    books: Iterable[Sides],
) -> Changes:
    """Changes with one entry per level for a row that is a book, and one for a row that is a changed level."""
    levels_of_books = [[(side, *level) for side, levels in enumerate(book) for level in levels] for book in books]
    lengths = np.ones(len(frame), np.int64)
    lengths[is_book] = [max(len(levels), 1) for levels in levels_of_books]
    row, begins = np.repeat(np.arange(len(frame)), lengths), np.cumsum(lengths) - lengths
    in_books = ranges(begins[is_book], lengths[is_book])
    event = np.full(len(row), CHANGE, np.int8)
    event[begins[is_book]] = SNAPSHOT
    names, token = tokens(frame)
    nothing = np.full(len(frame), np.nan)
    price, size, bid, ask = (
        numbers(frame[name])[row] if name in frame.columns else nothing[row]
        for name in ("price", "size", "best_bid", "best_ask")
    )
    side = (sides(frame["side"]) if "side" in frame.columns else np.full(len(frame), BIDS, np.int8))[row]
    in_row = [level for levels in levels_of_books for level in levels or [(BIDS, np.nan, np.nan)]]
    side[in_books], price[in_books], size[in_books] = np.array(in_row).reshape(-1, 3).T
    ask[ask == 0] = 1.0  # a side without levels
    values = {
        name: snapshot_values(name, frame[name].to_list() if name in frame.columns else [None] * len(frame))[row]
        for name in options.keep
    }
    ts, seen, number = (frame[name].to_numpy()[row] for name in ("ts", "__seen", "__row"))
    stated = np.stack((bid, ask), axis=1)
    return Changes(names, token[row], ts, seen, event, side, price, size, stated, number, values)


def level_changes(frame: pl.DataFrame, options: ReadOptions, is_snapshot: NDArray[np.bool_]) -> Changes:
    """Changes of a table with one row per level; SNAPSHOT in all rows of a snapshot."""
    levels = frame.drop("best_bid", "best_ask", strict=False)
    changes = changes_of_rows(levels, options, np.zeros(len(frame), bool), [])
    changes.event[is_snapshot] = SNAPSHOT
    return changes


def snapshot_values(name: str, values: list[Any]) -> NDArray[Any]:
    """Values of a field of snapshots, NaN or None where one is missing."""
    if SNAPSHOT_FIELDS[name] == "text":
        return np.array([None if v is None else str(v) for v in values], object)
    return np.array([np.nan if v is None or v == "" else float(v) for v in values], float)


def market_records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Records of the markets that the rows name with a question or a slug."""
    present = [name for name in ("market_id", "question", "slug") if name in frame.columns]
    if "market_id" not in present or len(present) == 1:
        return []
    records = frame.select(pl.col(present).cast(pl.String)).drop_nulls("market_id").unique("market_id")
    is_named = pl.any_horizontal(pl.col(present[1:]) != pl.col("market_id"))
    return [{k: v for k, v in row.items() if v} for row in records.filter(is_named).iter_rows(named=True)]


def derived_markets(labels: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """Records of markets without ids, which are derived: the slug, and for a token ``slug:outcome``."""
    return [
        {
            "market_id": slug, "slug": slug, "token_ids": [f"{slug}:{label}" for label in of_market],
            "token_labels": list(of_market), "ids_are_derived": True,
        }
        for slug, of_market in labels.items()
        if slug
    ]  # fmt: skip
