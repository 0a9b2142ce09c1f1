"""Points of the service as columns, the data between pages, archive and service: numpy arrays, one entry per point.

Times are microseconds since the epoch UTC; a missing number is NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Floats = NDArray[np.float64]


class Token(NamedTuple):
    """The token of a row. A metric row has a market only; a label that the service does not map has no id."""

    market_id: str
    token_id: str | None = None
    token_label: str | None = None

    @property
    def sort_key(self) -> tuple[str, bool, str, str]:
        """Order of tidy frames: by market, then token id (a missing one last), then label."""
        return self.market_id, self.token_id is None, self.token_id or "", self.token_label or ""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Base of the three: entry i is of ``tokens[token[i]]`` at ``ts[i]``."""

    tokens: tuple[Token, ...]
    token: Codes
    ts: Ints

    def __len__(self) -> int:
        return len(self.ts)

    def take(self, index: NDArray[Any]) -> Self:
        """The entries at these positions, in this order."""
        raise NotImplementedError

    def is_sorted(self) -> bool:
        """Whether entries are in tidy order: tokens by their sort key, times rising."""
        keys = [t.sort_key for t in self.tokens]
        if keys != sorted(keys):
            return False
        step = np.diff(self.token)
        return bool(np.all((step > 0) | ((step == 0) & (np.diff(self.ts) >= 0))))

    def sort(self) -> Self:
        """The same entries in tidy order; stable for equal times."""
        if self.is_sorted():
            return self
        order = sorted(range(len(self.tokens)), key=lambda i: self.tokens[i].sort_key)
        rank = np.empty(max(len(order), 1), dtype=np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        codes = rank[self.token] if len(self) else self.token
        out = replace(self, tokens=tuple(self.tokens[i] for i in order), token=codes)
        return out.take(np.lexsort((out.ts, out.token)))

    def level_borders(self, borders: list[int]) -> list[int]:
        """Where in ``levels``, if there are any, the entries at these positions begin."""
        return borders

    def between(self, start: int, end: int) -> Self:
        """The entries with start <= ts < end."""
        inside = (self.ts >= start) & (self.ts < end)
        return self if inside.all() else self.take(np.flatnonzero(inside))


@dataclass(frozen=True, slots=True, eq=False)
class BookColumns(Columns):
    """One entry per snapshot.

    ``counts[2 * i]`` bid levels and ``counts[2 * i + 1]`` ask levels belong to entry i; ``levels`` has their (price,
    size) pairs one after the other, best first: bids of entry i, its asks, bids of entry i + 1, and so on.
    """

    counts: Ints
    levels: Floats

    def take(self, index: NDArray[Any]) -> BookColumns:
        """The snapshots at these positions, in this order."""
        per_entry = self.counts.reshape(-1, 2).sum(axis=1)
        starts = np.concatenate(([0], np.cumsum(per_entry)))[:-1]
        lengths = per_entry[index]
        rows = ranges(starts[index], lengths)
        counts = self.counts.reshape(-1, 2)[index].reshape(-1)
        return BookColumns(self.tokens, self.token[index], self.ts[index], counts, self.levels[rows])

    def level_borders(self, borders: list[int]) -> list[int]:
        """Where in ``levels`` the snapshots at these positions begin."""
        ends = np.concatenate(([0], np.cumsum(self.counts)))
        return [int(at) for at in ends[2 * np.array(borders)]]

    def slice(self, a: int, b: int, first: int, last: int) -> BookColumns:
        """Entries a to b, whose levels are ``first`` to ``last``, without a copy."""
        return BookColumns(
            self.tokens, self.token[a:b], self.ts[a:b], self.counts[2 * a : 2 * b], self.levels[first:last]
        )

    def cut(self, levels: int) -> BookColumns:
        """At most the best ``levels`` levels of each side."""
        kept = np.minimum(self.counts, levels)
        if kept.sum() == len(self.levels):
            return self
        starts = np.concatenate(([0], np.cumsum(self.counts)))[:-1]
        return BookColumns(self.tokens, self.token, self.ts, kept, self.levels[ranges(starts, kept)])


@dataclass(frozen=True, slots=True, eq=False)
class NumberColumns(Columns):
    """One entry per point; ``values`` has its numbers by the name of their column."""

    values: dict[str, Floats]

    def with_values(self, tokens: tuple[Token, ...], token: Codes, ts: Ints, values: dict[str, Floats]) -> Self:
        """The same kind of columns with other content."""
        return type(self)(tokens, token, ts, values)

    def take(self, index: NDArray[Any]) -> Self:
        """The points at these positions, in this order."""
        values = {k: v[index] for k, v in self.values.items()}
        return self.with_values(self.tokens, self.token[index], self.ts[index], values)

    def slice(self, a: int, b: int, _first: int, _last: int) -> Self:
        """Entries a to b, without a copy."""
        values = {k: v[a:b] for k, v in self.values.items()}
        return self.with_values(self.tokens, self.token[a:b], self.ts[a:b], values)


class PriceColumns(NumberColumns):
    """One entry per token and bucket: its price, a probability 0 to 1, and whatever numbers came with it."""

    __slots__ = ()

    @property
    def price(self) -> Floats:
        """The prices."""
        return self.values["price"]


# The columns of every metrics frame, and the fields of its points: pages, archive, service and charts follow.
METRICS = ("volume", "liquidity", "spread")


class MetricColumns(NumberColumns):
    """One entry per market and bucket: `METRICS`, and whatever numbers came with them; ``tokens`` name markets only."""

    __slots__ = ()


AnyColumns = BookColumns | PriceColumns | MetricColumns
_SHORT = 8  # entries of a slice that are sorted one by one before the slice is cut out
C = TypeVar("C", BookColumns, PriceColumns, MetricColumns)


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """One answer of a history endpoint (interface 2.2 to 2.6), points in its order, label by label.

    ``labels``: token label to token id, also without points, empty for metrics. ``next_cursor`` None: complete; an
    empty text is kept, as it proves nothing. ``notes``: number of repairs and oddities by name.
    """

    columns: AnyColumns
    market_id: str
    resolution: str
    labels: dict[str, str | None]
    count: int | None
    limit: int | None
    next_cursor: str | None
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def points(self) -> int:
        """Points of the page: label x bucket."""
        return len(self.columns)


def ranges(starts: NDArray[Any], lengths: NDArray[Any]) -> Ints:
    """Concatenated ``arange(start, start + length)`` of each pair."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    steps: Ints = np.repeat(starts - (ends - lengths), lengths)
    return np.arange(total, dtype=np.int64) + steps


def concat(parts: Sequence[C]) -> C:
    """All entries of all parts, part after part; equal tokens become one. `merged` brings them into tidy order."""
    if len(parts) == 1:
        return parts[0]
    index: dict[Token, int] = {}
    maps: dict[int, Codes] = {}  # pages of one market share their tuple of tokens
    for p in parts:
        if id(p.tokens) not in maps:
            maps[id(p.tokens)] = np.array([index.setdefault(t, len(index)) for t in p.tokens] or [0], np.int32)
    codes = [maps[id(p.tokens)][p.token] if len(p) else p.token for p in parts]
    return _joined(parts, tuple(index), np.concatenate(codes))


def merged(parts: Sequence[C]) -> C:
    """All entries of all parts in tidy order.

    Pages have token after token and follow each other in time, so slices of tokens are joined and no entry is moved by
    itself; where that does not give the order, or slices are short, entries are sorted.
    """
    short = sum(map(len, parts)) < _SHORT * sum(len(p.tokens) for p in parts)
    if len(parts) == 1 or short or not all(np.all(p.token[1:] >= p.token[:-1]) for p in parts):
        return concat(parts).sort()
    slices: dict[Token, list[C]] = {}
    for part in parts:
        borders = np.searchsorted(part.token, np.arange(len(part.tokens) + 1)).tolist()
        levels = part.level_borders(borders)
        for i, token in enumerate(part.tokens):
            a, b = borders[i : i + 2]
            slices.setdefault(token, []).append(part.slice(a, b, levels[i], levels[i + 1]))
    tokens = sorted(slices, key=lambda t: t.sort_key)
    ordered = [part for token in tokens for part in slices[token]]
    lengths = [sum(map(len, slices[token])) for token in tokens]
    codes = np.repeat(np.arange(len(tokens), dtype=np.int32), lengths)
    return _joined(ordered, tuple(tokens), codes, order="F").sort()


def _joined(parts: Sequence[C], tokens: tuple[Token, ...], token: Codes, order: Literal["C", "F"] = "C") -> C:
    ts = np.concatenate([p.ts for p in parts])
    first = parts[0]
    if isinstance(first, BookColumns):
        counts = np.concatenate([p.counts for p in parts])
        # Prices beside prices: what becomes a frame is not copied once more.
        levels = np.empty((sum(len(p.levels) for p in parts), 2), order=order)
        np.concatenate([p.levels for p in parts], out=levels)
        return BookColumns(tokens, token, ts, counts, levels)
    names = dict.fromkeys(name for p in parts for name in p.values)
    values = {
        name: np.concatenate([p.values[name] if name in p.values else np.full(len(p), np.nan) for p in parts])
        for name in names
    }
    return first.with_values(tokens, token, ts, values)
