"""Tidy books: a row per level, an empty side as a row without a level."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.points.schema import ASK, BID, BOOKS
from marketdata.recordings.format import Format
from marketdata.recordings.points import read_tidy_books
from marketdata.recordings.table import Batch, Table

_NEEDED = ("ts", "token_id", "side", "level", "price", "size")


def proves(table: Table) -> bool | None:
    """Our own names: the file itself has all of them, with values of their kind, and sides are bids and asks."""
    names = {meaning.column for meaning in table.meanings if meaning.taken and meaning.column == meaning.role}
    if not names.issuperset(_NEEDED) or {"received_at", "is_snapshot", "event_type"} & {*table.file.columns}:
        return False
    sides = table.file.sample["side"].cast(pl.String).is_in([BID, ASK])
    if not sides.any():
        return False
    return True if table.file.options.columns.keys().isdisjoint(_NEEDED) else None


def read(table: Table) -> Iterator[Batch]:
    """The level rows."""
    keep = table.file.options.keep
    return read_tidy_books(table, [name for name in (*BOOKS, *keep) if name in table.file.columns])


FORMAT = Format(
    name="books",
    description="tidy books, as `archive.books` gives them",
    needs=(" ".join(_NEEDED),),
    read=read,
    proves=proves,
)
