"""Whole books, one a row, with a column per level."""

from __future__ import annotations

import re
from collections.abc import Iterator

from marketdata.adapters.recordings.columns import numbers
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Batch, Format, ReadOptions
from marketdata.adapters.recordings.tables import book_batch

_LEVEL = re.compile(r"((?:bids|asks)\[\d+\])\.price")


def read(file: RecordingFile, options: ReadOptions) -> Iterator[Batch]:
    """Books of their own moments."""
    levels = [match[1] for match in map(_LEVEL.fullmatch, file.columns) if match]
    for frame, batch in FORMAT.rows(file, options):
        columns = {n: numbers(frame[n]).tolist() for level in levels for n in (f"{level}.price", f"{level}.amount")}
        sides = []
        for side in ("bids", "asks"):
            pairs = [zip(columns[f"{n}.price"], columns[f"{n}.amount"], strict=True) for n in levels if n[:4] == side]
            sides.append([[level for level in row if level[0] == level[0]] for row in zip(*pairs, strict=True)])
        yield book_batch(batch, frame, options, list(zip(*sides, strict=True)))


FORMAT = Format(
    name="wide-snapshots",
    kind="books",
    description="a table of whole books with a column per level",
    needs=("ts token_id bids[0].price bids[0].amount asks[0].price asks[0].amount",),
    read=read,
)
