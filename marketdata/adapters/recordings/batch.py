"""The rows of a recording that are read at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from marketdata.points.columns import Ints, Token
from marketdata.points.rebuild import CHANGE, GAP, SNAPSHOT, Changes, joined, no_changes
from marketdata.points.schema import SNAPSHOT_FIELDS

if TYPE_CHECKING:
    import polars as pl

# The columns of `Changes` as one kind: numpy makes arrays of it three times as fast as of each column.
_ENTRY: Any = np.dtype("i4, i8, i8, i1, i1, f8, f8, 2f8, i8")
# Entries kept as Python objects, which take several times the memory of arrays.
_MOST_OBJECTS = 1 << 16
_NONE = (float("nan"), float("nan"))


@dataclass
class Batch:
    """Rows of a file in their order: changes of books, or a tidy frame of points or records.

    ``rows`` were read, ``left_out`` counts those of them that are neither, by reason; ``diagnostics`` counts what looks
    wrong. ``received`` are times at which the recording is known to have gone on. ``markets`` are records as
    `Archive.add` takes them.
    """

    changes: Changes = field(default_factory=no_changes)
    frame: pl.DataFrame | None = None
    rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    diagnostics: Counter[str] = field(default_factory=Counter)
    received: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    markets: list[dict[str, Any]] = field(default_factory=list)


class Entries:
    """Changes that are collected message by message, with the ``fields`` of their snapshots to keep."""

    def __init__(self, fields: tuple[str, ...] = ()) -> None:
        self._code_of: dict[Token, int] = {}
        self._entries: list[tuple[int, int, int, int, int, float, float, tuple[float, float], int]] = []
        self._values: dict[str, list[Any]] = {name: [] for name in fields}
        self._packed: list[Changes] = []

    def __len__(self) -> int:
        return len(self._entries) + sum(map(len, self._packed))

    def add_snapshot(
        self,
        token: Token,
        ts: int,
        seen: int,
        row: int,
        bids: list[Any],
        asks: list[Any],
        stated: tuple[float, float] = _NONE,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """Add a whole book of (price, size) pairs in any order."""
        code = self._code_of.setdefault(token, len(self._code_of))
        levels = [(side, *level) for side, pairs in enumerate((bids, asks)) for level in pairs]
        event = SNAPSHOT
        for side, price, size in levels or [(0, *_NONE)]:
            self._entries.append((code, ts, seen, event, side, price, size, stated, row))
            event = CHANGE
        for name, column in self._values.items():
            column.extend([(values or {}).get(name)] * max(len(levels), 1))
        if len(self._entries) >= _MOST_OBJECTS:
            self._pack()

    def add_change(
        self,
        token: Token,
        ts: int,
        seen: int,
        row: int,
        level: tuple[int, float, float],
        stated: tuple[float, float],
        values: Mapping[str, Any],
    ) -> None:
        """Add a level, as (side, price, new size), with the best prices that the message states."""
        code = self._code_of.setdefault(token, len(self._code_of))
        self._entries.append((code, ts, seen, CHANGE, *level, stated, row))
        for name, column in self._values.items():
            column.append(values.get(name))

    def add_gap(self, ts: int, seen: int) -> None:
        """All books are unknown from here on."""
        for code in self._code_of.values():
            self._entries.append((code, ts, seen, GAP, 0, *_NONE, _NONE, -1))
            for column in self._values.values():
                column.append(None)

    def collected(self) -> Changes:
        """Return the entries so far, and forget them."""
        self._pack()
        packed, self._packed = self._packed, []
        return joined(packed)

    def _pack(self) -> None:
        entries = np.array(self._entries, _ENTRY)
        arrays = (np.ascontiguousarray(entries[name]) for name in _ENTRY.names)
        token, ts, seen, event, side, price, size, stated, row = arrays
        values = {name: snapshot_values(name, column) for name, column in self._values.items()}
        self._packed.append(
            Changes(tuple(self._code_of), token, ts, seen, event, side, price, size, stated, row, values)
        )
        self._entries, self._values = [], {name: [] for name in self._values}


def snapshot_values(name: str, values: list[Any]) -> np.ndarray[Any, Any]:
    """Values of a field of snapshots, NaN or None where one is missing."""
    if SNAPSHOT_FIELDS[name] == "text":
        return np.array([None if v is None else str(v) for v in values] or [None], object)[: len(values)]
    return np.array([np.nan if v is None or v == "" else float(v) for v in values], float)
