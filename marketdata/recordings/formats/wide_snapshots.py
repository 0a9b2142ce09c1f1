"""Whole books, one a row, with a column per level."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import polars as pl

from marketdata.recordings.book_rows import add_books
from marketdata.recordings.format import Format, by_parts
from marketdata.recordings.roles import numbers
from marketdata.recordings.table import Batch, Table

_LEVEL = re.compile(
    r"(bid|ask)s?[\[_]?(price|size|qty|volume|amount|px|sz)?[\[_]?(\d+)\]?[._]?(price|size|qty|amount|volume|px|sz)?"
)
_SIZES = ("size", "qty", "volume", "amount", "sz")


def levels_in(columns: Iterable[str]) -> dict[tuple[str, int], dict[str, str]]:
    """The columns of price and size of each side and level."""
    found: dict[tuple[str, int], dict[str, str]] = {}
    for column in columns:
        match = _LEVEL.fullmatch(column)
        what = match and (match[2] or match[4])
        if match and what:
            found.setdefault((match[1], int(match[3])), {})["size" if what in _SIZES else "price"] = column
    return {level: pair for level, pair in sorted(found.items()) if len(pair) == 2}


def proves(table: Table) -> bool:
    """A level of each side, with the time and the token."""
    sides = {side for side, _ in levels_in(table.file.columns)}
    is_named = "token_id" in table.columns or {"market_id", "token_label"} <= table.columns.keys()
    return sides == {"bid", "ask"} and "ts" in table.columns and is_named


def add(frame: pl.DataFrame, batch: Batch) -> None:
    """Add books of their own moments."""
    levels = levels_in(frame.columns)
    sides = []
    for side in ("bid", "ask"):
        pairs = [(numbers(frame[c["price"]]), numbers(frame[c["size"]])) for (of, _), c in levels.items() if of == side]
        rows = zip(*(zip(price.tolist(), size.tolist(), strict=True) for price, size in pairs), strict=True)
        sides.append([[level for level in row if not np.isnan(level[0])] for row in rows])
    # A side without a level is empty where the other has one; a row without any level is one that failed.
    add_books(frame, batch, [both if any(both) else None for both in zip(*sides, strict=True)])


FORMAT = Format(
    name="wide-snapshots",
    description="a table of whole books with a column per level, such as `bids[0].price` or `bid_price_1`",
    needs=("ts token_id bids[0].price bids[0].amount asks[0].price asks[0].amount",),
    read=by_parts(add),
    proves=proves,
)
