"""What rows of books say: levels in cells, changes, and records of the markets that they name."""

from __future__ import annotations

import ast
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.decimals import to_number
from marketdata.points.columns import Floats, Ints, ranges
from marketdata.points.views import SNAPSHOT_FIELDS
from marketdata.recordings.changes import BIDS, CHANGE, SNAPSHOT, STATED, Changes
from marketdata.recordings.roles import ROLES, numbers, sides, tokens
from marketdata.recordings.table import Batch
from marketdata.wire.records import first

Levels = list[tuple[float, float]]
Sides = tuple[Levels, Levels]
_PRICE, _SIZE = ("price", "p", "px"), (*ROLES["size"].names, "s", "sz", "count")


def levels_of(cell: Any) -> Levels:
    """The (price, size) pairs of a side: JSON text, pairs, structs, or a mapping of prices to sizes.

    ValueError for another value, also for none: an unknown side is not an empty one.
    """
    if cell is None or cell == "":
        raise ValueError("a side without levels is unknown")
    if isinstance(cell, str | bytes):
        return levels_of(printed(cell))
    if isinstance(cell, Mapping):
        return [(_number(price), _number(size)) for price, size in cell.items()]
    levels = list(cell)
    if levels and isinstance(levels[0], Mapping):
        # The levels of a side have the same names.
        price_name, size_name = first(levels[0], _PRICE), first(levels[0], _SIZE)
        return [(_number(level[price_name]), _number(level[size_name])) for level in levels]
    return [(_number(price), _number(size)) for price, size in levels]


def _number(value: Any) -> float:
    """The price or size of a level; ValueError for another value."""
    if math.isnan(number := to_number(value)):
        raise ValueError("a level without a number")
    return number


def printed(text: str | bytes) -> Any:
    """The value of JSON, or of what Python prints; ValueError for another text."""
    try:
        return msgspec.json.decode(text)
    except ValueError:
        try:
            return ast.literal_eval(text if isinstance(text, str) else text.decode())
        except (SyntaxError, MemoryError, RecursionError) as problem:
            raise ValueError(str(problem)) from None


def sides_of(bids: Any, asks: Any) -> Sides | None:
    """The levels of both sides of a book; None if one is unknown or cannot be read."""
    try:
        return levels_of(bids), levels_of(asks)
    except (KeyError, TypeError, ValueError):
        return None


def readable(frame: pl.DataFrame, books: Sequence[Any], batch: Batch) -> tuple[pl.DataFrame, list[Any]]:
    """The rows whose book can be read, and their books; the others are counted in the batch."""
    is_readable = np.array([book is not None for book in books], bool)
    batch.left_out += Counter({"damaged": int((~is_readable).sum())})
    return frame.filter(is_readable), [book for book in books if book is not None]


def add_books(frame: pl.DataFrame, batch: Batch, books: Sequence[Sides | None]) -> None:
    """Add a whole book for each row."""
    frame, readable_books = readable(frame.drop("side", "price", "size", strict=False), books, batch)
    batch.changes = changes_of(frame, batch, np.full(len(frame), SNAPSHOT, np.int8), readable_books)
    batch.markets = batch.markets or market_records(frame)


def add_levels(frame: pl.DataFrame, batch: Batch, is_snapshot: pl.Series | None = None) -> None:
    """Add a level for each row; without ``is_snapshot`` all rows belong to snapshots."""
    of_snapshot = pl.Series(np.ones(len(frame), bool)) if is_snapshot is None else is_snapshot
    is_level = ~pl.Series(np.isnan(numbers(frame["price"])) & _said(frame["price"]))
    rows = frame.select(pl.struct(pl.exclude("__row"))).to_series()
    is_copy = is_level & of_snapshot & ~rows.is_last_distinct()
    batch.left_out += Counter({"whose price is no number": (~is_level).sum(), "equal to another row": is_copy.sum()})
    kept = is_level & ~is_copy
    left = frame.drop("best_bid", "best_ask", strict=False).filter(kept)
    batch.changes = changes_of(left, batch, np.where(of_snapshot.filter(kept), SNAPSHOT, CHANGE).astype(np.int8))
    batch.markets = market_records(frame)


def _flat(books: Sequence[Sides]) -> tuple[Ints, Ints, Floats]:
    """The number of bids and of levels of each book, and the prices and sizes of all levels, bids first."""
    bids = np.array([len(book[0]) for book in books], np.int64)
    counts = bids + np.array([len(book[1]) for book in books], np.int64)
    numbers_of = chain.from_iterable(level for book in books for side in book for level in side)
    return bids, counts, np.fromiter(numbers_of, np.float64).reshape(-1, 2)


def _said(column: pl.Series) -> NDArray[np.bool_]:
    """The rows in which a column says something."""
    return (column.cast(pl.String, strict=False).str.strip_chars().fill_null("") != "").to_numpy()


def changes_of(
    frame: pl.DataFrame, batch: Batch, event: NDArray[np.int8], books: Sequence[Sides] | None = None
) -> Changes:
    """Changes with one entry per row, or with ``books`` one per level for rows of snapshots: these are their books.

    Rows whose side is neither bid nor ask are counted in the batch.
    """
    keep = batch.keep
    if "side" in frame.columns:
        is_side = (sides(frame["side"]) >= 0) | ((event == SNAPSHOT) & (books is not None))
        batch.left_out += Counter({"whose side is neither bid nor ask": int((~is_side).sum())})
        frame, event = frame.filter(is_side), event[is_side]
    is_book = (event == SNAPSHOT) & (books is not None)
    lengths = np.ones(len(frame), np.int64)
    bids, counts, levels = _flat(books or ())
    in_book = np.maximum(counts, 1)
    lengths[is_book] = in_book
    row, begins = np.repeat(np.arange(len(frame)), lengths), np.cumsum(lengths) - lengths
    in_books = ranges(begins[is_book], lengths[is_book])
    events = event[row]
    events[in_books] = CHANGE
    events[begins[is_book]] = SNAPSHOT
    columns = ("side", "price", "size", "best_bid", "best_ask", *keep)
    frame = frame.with_columns(pl.lit(None).alias(name) for name in columns if name not in frame.columns)
    names, token = tokens(frame)
    side = sides(frame["side"])[row]
    price, size, bid, ask = (numbers(frame[name])[row] for name in columns[1:5])
    of_book = np.repeat(np.arange(len(counts)), in_book)
    place = np.arange(len(of_book)) - (np.cumsum(in_book) - in_book)[of_book]
    has_level = (counts > 0)[of_book]
    side[in_books], price[in_books], size[in_books] = BIDS, np.nan, np.nan
    at = in_books[has_level]
    side[at] = (place >= bids[of_book])[has_level]
    price[at], size[at] = levels.T
    ask[ask == 0] = 1.0  # venues state 0 for a side without asks
    is_text = {name: SNAPSHOT_FIELDS[name] == "text" for name in keep}
    values = {
        name: (frame[name].cast(pl.String).to_numpy() if text else numbers(frame[name]))[row]
        for name, text in is_text.items()
    }
    ts, seen, number = (frame[name].to_numpy()[row] for name in ("ts", "__seen", "__row"))
    values |= zip(STATED, (bid, ask), strict=True)
    return Changes(names, token[row], ts, seen, events, side, price, size, number, values)


def market_records(frame: pl.DataFrame) -> list[dict[str, Any]]:
    """Records of the markets that the rows name with a question or a slug."""
    present = [name for name in ("market_id", "question", "slug") if name in frame.columns]
    if "market_id" not in present or len(present) == 1:
        return []
    records = frame.select(pl.col(present).cast(pl.String)).drop_nulls("market_id").unique("market_id")
    is_named = pl.any_horizontal(pl.col(present[1:]) != pl.col("market_id"))
    return [{k: v for k, v in row.items() if v} for row in records.filter(is_named).iter_rows(named=True)]


def derived_markets(labels: Mapping[str, Iterable[str]], winners: Mapping[str, str]) -> list[dict[str, Any]]:
    """Records of markets without ids, which are derived: the slug, and for a token ``slug:outcome``."""
    records: list[dict[str, Any]] = []
    for slug, of_market in labels.items():
        token_ids = {label: f"{slug}:{label}" for label in of_market}
        records.append({
            "market_id": slug, "slug": slug, "token_ids": [*token_ids.values()], "token_labels": [*token_ids],
            "ids_are_derived": True,
        })  # fmt: skip
        if won := winners.get(slug):
            records[-1] |= {"resolved_token_id": f"{slug}:{won}", "resolved_token_label": won}
    return records
