"""Tidy books: a row per level, an empty side as a row without a level."""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.points import points_of
from marketdata.points.schema import BOOKS

_NEEDED = ("ts", "token_id", "side", "level", "price", "size")


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """The level rows."""
    names = (*BOOKS, *reading.keep)
    for batch in points_of(file, lambda present: {n: n for n in names if n in present}, ("ts", "token_id", "side")):
        if batch.frame is not None and file.form != "parquet":
            numbers = [pl.col(c).cast(pl.Float64) for c in ("price", "size") if batch.frame[c].dtype != pl.Float64]
            batch.frame = batch.frame.with_columns(numbers)
        yield batch


FORMAT = Format(
    name="books",
    kind="books",
    description="tidy books, as `archive.books` gives them",
    needs=" ".join(_NEEDED),
    # Twice as much as the columns of levels, which these are too.
    fits=lambda file: 2 * having(*((name,) for name in _NEEDED))(file),
    read=read,
)
