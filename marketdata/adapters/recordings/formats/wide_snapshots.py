"""Whole books, one a row, with a column per level."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import TIME, TOKEN, clocks, numbers, tokens
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import frames_with_time, kept_values, row_numbers
from marketdata.points.rebuild import ASKS, BIDS, CHANGE, SNAPSHOT, Changes

_PRICE = re.compile(r"(bids|asks)\[(\d+)\]\.price")


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """Books of their own moments."""
    matches = [match for match in map(_PRICE.fullmatch, file.columns) if match]
    levels = [match.group().removesuffix(".price") for match in matches]
    side = np.array([BIDS if match[1] == "bids" else ASKS for match in matches], np.int8)
    for frame, batch in frames_with_time(file):
        ts, seen = clocks(frame, reading.clock)
        names, token = tokens(frame)
        price, size = (
            np.stack([numbers(frame[f"{level}.{value}"]) for level in levels], axis=1).ravel()
            for value in ("price", "amount")
        )
        event = np.full(len(price), CHANGE, np.int8)
        event[:: len(levels)] = SNAPSHOT
        of = np.repeat(np.arange(len(frame)), len(levels))
        values = {name: v[of] for name, v in kept_values(frame, reading).items()}
        batch.changes = Changes(
            names, token[of], ts[of], seen[of], event, np.tile(side, len(frame)), price, size,
            np.full((len(of), 2), np.nan), row_numbers(frame)[of], values,
        )  # fmt: skip
        batch.received = np.unique(seen)
        yield batch


FORMAT = Format(
    name="wide-snapshots",
    kind="books",
    description="a table of whole books with a column per level",
    needs="a time, a token, bids[0].price, bids[0].amount, asks[0].price, asks[0].amount",
    fits=having(TIME, TOKEN, *((f"{s}[0].{v}",) for s in ("bids", "asks") for v in ("price", "amount"))),
    read=read,
)
