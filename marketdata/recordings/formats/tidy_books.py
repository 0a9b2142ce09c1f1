"""Tidy books: a row per level, an empty side as a row without a level."""

from __future__ import annotations

from collections.abc import Iterator

from marketdata.points.schema import BOOKS
from marketdata.recordings.files import RecordingFile
from marketdata.recordings.format import Batch, Format
from marketdata.recordings.points import read_points

_NEEDED = ("ts", "token_id", "side", "level", "price", "size")


def read(_: Format, file: RecordingFile) -> Iterator[Batch]:
    """The level rows."""
    columns = {name: name for name in (*BOOKS, *file.options.keep) if name in file.columns}
    return read_points(file, columns, "ts", "token_id", "side")


FORMAT = Format(
    name="books",
    description="tidy books, as `archive.books` gives them",
    needs=(" ".join(_NEEDED),),
    read=read,
    # Each column counts twice, as tidy books are a table of levels too.
    also=_NEEDED,
    names={**{name: (name,) for name in _NEEDED}, "received_at": ()},
)
