"""The rows of a recording that are read at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from marketdata.points.columns import Ints, Token
from marketdata.points.rebuild import CHANGE, GAP, SNAPSHOT, Changes, joined

# Rows that are kept as objects, which take several times the memory of arrays.
_ROWS = 1 << 16
# The columns of `Changes`, from the token on. As one kind: numpy makes arrays of it three times as fast as of each.
_ROW: Any = np.dtype("i4, i8, i8, i1, i1, f8, f8, 2f8")
# No best prices are stated, or there is no level.
_NAN = (float("nan"), float("nan"))


@dataclass
class Batch:
    """Changes of a recording, in the order of their messages.

    ``heard`` are the times at which the feed is known to have gone on; ``messages`` counts what was read, ``left_out``
    by kind what is no book; ``markets`` are records as `Archive.add` takes them.
    """

    changes: Changes | None = None
    heard: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    messages: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    markets: list[dict[str, Any]] = field(default_factory=list)


class Rows:
    """Changes that are collected message by message."""

    def __init__(self) -> None:
        self._tokens: dict[Token, int] = {}
        self._rows: list[tuple[int, int, int, int, int, float, float, tuple[float, float]]] = []
        self._packed: list[Changes] = []

    def __len__(self) -> int:
        return len(self._rows) + sum(map(len, self._packed))

    def snapshot(
        self, token: Token, ts: int, seen: int, bids: list[Any], asks: list[Any], stated: tuple[float, float] = _NAN
    ) -> None:
        """A whole book of (price, size) pairs in any order."""
        code = self._tokens.setdefault(token, len(self._tokens))
        levels = [(side, *level) for side, levels in enumerate((bids, asks)) for level in levels]
        event = SNAPSHOT
        for side, price, size in levels or [(0, *_NAN)]:
            self._rows.append((code, ts, seen, event, side, price, size, stated))
            event = CHANGE
        if len(self._rows) >= _ROWS:
            self._pack()

    def change(
        self, token: Token, ts: int, seen: int, side: int, price: float, size: float, stated: tuple[float, float]
    ) -> None:
        """A level and its new size, with the best prices that the message states."""
        code = self._tokens.setdefault(token, len(self._tokens))
        self._rows.append((code, ts, seen, CHANGE, side, price, size, stated))

    def gap(self, ts: int, seen: int) -> None:
        """All books are unknown from here on."""
        for code in self._tokens.values():
            self._rows.append((code, ts, seen, GAP, 0, *_NAN, _NAN))

    def collected(self) -> Changes:
        """The rows so far, which are then forgotten."""
        self._pack()
        packed, self._packed = self._packed, []
        return joined(packed)

    def _pack(self) -> None:
        rows = np.array(self._rows, _ROW)
        self._packed.append(Changes(tuple(self._tokens), *(np.ascontiguousarray(rows[name]) for name in _ROW.names)))
        self._rows = []
