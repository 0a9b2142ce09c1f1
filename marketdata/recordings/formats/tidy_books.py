"""Tidy books: a row per level, an empty side as a row without a level."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.points.schema import BOOKS
from marketdata.recordings.format import UNDECIDED, Batch, Format, Table
from marketdata.recordings.points import read_tidy_books

_NEEDED = ("ts", "token_id", "side", "level", "price", "size")


def proves(table: Table) -> int:
    """Our own names: the file itself has all of them."""
    names = set(table.file.columns)
    if not names.issuperset(_NEEDED) or {"received_at", "is_snapshot", "event_type"} & names:
        return 0
    return 2 * len(_NEEDED) if table.file.options.columns.keys().isdisjoint(_NEEDED) else UNDECIDED


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
