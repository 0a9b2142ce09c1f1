"""The data of every layer: numpy arrays with one entry per point, those of a token beside each other.

Pages, frames, files and engines are read into `Series` (prices, metrics, any numbers) and `Books`; every rule is a
function of these. Times are microseconds since the epoch UTC; a missing number is NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from marketdata.times import to_text

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


@dataclass(frozen=True, eq=False)
class Columns:
    """Entries ``bounds[i]`` to ``bounds[i + 1]`` are those of ``tokens[i]``, at the times ``ts``; tokens are distinct.

    ``place`` is the row of what was read that an entry comes from (of books that of their first level), None: row i is
    entry i. In tidy order (`sort`) tokens are by their sort key, and the times of each rise.
    """

    tokens: tuple[Token, ...]
    bounds: Ints
    ts: Ints
    place: Ints | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def starts(self) -> Ints:
        """Where the entries of each token begin."""
        return self.bounds[:-1]

    @cached_property
    def token(self) -> Codes:
        """The number of the token of each entry."""
        return np.repeat(np.arange(len(self.tokens), dtype=np.int32), np.diff(self.bounds))

    @property
    def rows(self) -> Ints:
        """``place``, written out."""
        return np.arange(len(self), dtype=np.int64) if self.place is None else self.place

    def take(self, index: Ints) -> Self:
        """The entries at these positions, in this order within each token; a token without an entry is left out."""
        if (index[1:] >= index[:-1]).all():
            bounds = np.searchsorted(index, self.bounds)
        else:
            codes = np.searchsorted(self.bounds, index, side="right") - 1
            if (codes[1:] < codes[:-1]).any():
                order = np.argsort(codes, kind="stable")
                index, codes = index[order], codes[order]
            bounds = np.searchsorted(codes, np.arange(len(self.tokens) + 1))
        return self._at(index).of_tokens(self.tokens, bounds)

    def of_tokens(self, tokens: Sequence[Token], bounds: Ints) -> Self:
        """The same entries as those of other tokens; a token without an entry is left out."""
        empty = bounds[1:] == bounds[:-1]
        if empty.any():
            tokens = [token for token, none in zip(tokens, empty.tolist(), strict=True) if not none]
            bounds = bounds[np.append(~empty, True)]
        return replace(self, tokens=tuple(tokens), bounds=bounds)

    def of_codes(self, tokens: Sequence[Token], token: NDArray[np.integer]) -> Self:
        """The same entries, entry i as one of ``tokens[token[i]]``, brought together by token; tokens may be equal."""
        place: dict[Token, int] = {}
        same = [place.setdefault(t, len(place)) for t in tokens]
        codes = np.asarray(token) if len(place) == len(same) else np.array(same)[token]
        out = self
        if (codes[1:] < codes[:-1]).any():
            order = np.argsort(codes, kind="stable")
            out, codes = self._at(order), codes[order]
        return out.of_tokens(list(place), np.searchsorted(codes, np.arange(len(place) + 1)))

    def is_sorted(self) -> bool:
        """Whether entries are in tidy order."""
        keys = [t.sort_key for t in self.tokens]
        falls = np.flatnonzero(self.ts[1:] < self.ts[:-1]) + 1
        return keys == sorted(keys) and bool(np.isin(falls, self.bounds).all())

    def sort(self) -> Self:
        """The same entries in tidy order; stable for equal times."""
        if self.is_sorted():
            return self
        order = sorted(range(len(self.tokens)), key=lambda i: self.tokens[i].sort_key)
        lengths = np.diff(self.bounds)[order]
        index = ranges(self.starts[order], lengths)
        token = np.repeat(np.arange(len(order)), lengths)
        index = index[np.lexsort((self.ts[index], token))]
        bounds = np.append(0, np.cumsum(lengths))
        return replace(self._at(index), tokens=tuple(self.tokens[i] for i in order), bounds=bounds)

    def between(self, start: int, end: int) -> Self:
        """The entries with start <= ts < end."""
        inside = (self.ts >= start) & (self.ts < end)
        return self if inside.all() else self.take(np.flatnonzero(inside))

    def shown(self, at: int) -> str:
        """Time and token of an entry, for a message."""
        token = self.tokens[int(np.searchsorted(self.bounds, at, side="right")) - 1]
        return " ".join([to_text(int(self.ts[at])), *(str(text) for text in token if text is not None)])

    def _at(self, index: Ints) -> Self:
        """Entries in another order, whose tokens are yet to be set."""
        return replace(self, ts=self.ts[index], place=index if self.place is None else self.place[index])


@dataclass(frozen=True, eq=False)
class Series(Columns):
    """One entry per point with its numbers by name: ``price``, or `METRICS` of tokens without an id, or others."""

    values: Mapping[str, Floats]

    def _at(self, index: Ints) -> Self:
        return replace(super()._at(index), values={name: v[index] for name, v in self.values.items()})


@dataclass(frozen=True, eq=False)
class Side:
    """One side of many books: levels ``begins[i]`` to ``begins[i] + counts[i]`` are those of book i, best first.

    Levels are never moved: both sides of all books may be in one array of prices and one of sizes.
    """

    begins: Ints
    counts: Ints
    price: Floats
    size: Floats

    def __len__(self) -> int:
        return len(self.begins)

    @cached_property
    def best(self) -> Floats:
        """Best price of each book [probability]."""
        return self._first(self.price)

    @cached_property
    def best_size(self) -> Floats:
        """Shares at the best price."""
        return self._first(self.size)

    @cached_property
    def depth(self) -> Floats:
        """Shares of all levels; 0 for an empty side."""
        return self.total(self.size)

    @property
    def levels(self) -> Ints:
        """Positions of all levels, book after book."""
        return ranges(self.begins, self.counts)

    def take(self, index: Ints) -> Side:
        """The books at these positions."""
        return replace(self, begins=self.begins[index], counts=self.counts[index])

    def head(self, levels: int) -> Side:
        """The best levels alone."""
        return replace(self, counts=np.minimum(self.counts, levels))

    def total(self, values: Floats) -> Floats:
        """Sums over the levels of each book of values that lie as ``price`` and ``size`` do; 0 for an empty side."""
        out = np.zeros(len(self))
        some = np.flatnonzero(self.counts)
        if len(some):
            begins, ends = self.begins[some], self.begins[some] + self.counts[some]
            if (begins[1:] < ends[:-1]).any():  # levels of books in another order: brought together
                return replace(self, begins=np.cumsum(self.counts) - self.counts).total(values[self.levels])
            # numpy adds up between all borders: every second sum is of what lies between two books.
            flat = np.stack((begins, ends), axis=1).ravel()
            flat = flat[:-1] if flat[-1] == len(values) else flat
            out[some] = np.add.reduceat(values, flat)[::2]
        return out

    def _first(self, values: Floats) -> Floats:
        if not len(values):
            return np.full(len(self), np.nan)
        empty = self.counts == 0
        if not empty.any():
            return values[self.begins]
        return np.where(empty, np.nan, values[np.minimum(self.begins, len(values) - 1)])


@dataclass(frozen=True, eq=False)
class Books(Columns):
    """One entry per snapshot, with both of its sides."""

    bids: Side
    asks: Side

    @classmethod
    def of_levels(
        cls, tokens: Sequence[Token], bounds: Ints, ts: Ints, counts: Ints, price: Floats, size: Floats
    ) -> Books:
        """Books of levels in one piece.

        ``counts[2 * i]`` bid levels and ``counts[2 * i + 1]`` ask levels belong to entry i, best first: bids of entry
        i, its asks, bids of entry i + 1, and so on.
        """
        begins = np.cumsum(counts) - counts
        sides = (Side(begins[i::2], counts[i::2], price, size) for i in (0, 1))
        return cls(tuple(tokens), bounds, ts, *sides)

    @cached_property
    def counts(self) -> Ints:
        """Numbers of levels as `of_levels` takes them: of bids and asks alternating."""
        return np.stack((self.bids.counts, self.asks.counts), axis=1).ravel()

    def levels(self) -> tuple[Floats, Floats]:
        """Prices and sizes as `of_levels` takes them, without a copy where they lie so."""
        begins = np.stack((self.bids.begins, self.asks.begins), axis=1).ravel()
        bids, asks, counts = self.bids, self.asks, self.counts
        if bids.price is asks.price and bids.size is asks.size:
            some = counts > 0
            if (begins[some] == (np.cumsum(counts) - counts)[some]).all() and counts.sum() == len(bids.price):
                return bids.price, bids.size
            at = ranges(begins, counts)
            return bids.price[at], bids.size[at]
        ends, out = np.cumsum(counts), np.empty((2, int(counts.sum())))
        for i, side in enumerate((bids, asks)):
            at = ranges((ends - counts)[i::2], side.counts)
            out[0, at], out[1, at] = side.price[side.levels], side.size[side.levels]
        return out[0], out[1]

    def cut(self, levels: int) -> Books:
        """At most the best ``levels`` levels of each side."""
        return replace(self, bids=self.bids.head(levels), asks=self.asks.head(levels))

    @cached_property
    def mid(self) -> Floats:
        """(best bid + best ask) / 2, NaN where a side is missing."""
        return (self.bids.best + self.asks.best) / 2

    @cached_property
    def spread(self) -> Floats:
        """Best ask - best bid."""
        return self.asks.best - self.bids.best

    def _at(self, index: Ints) -> Self:
        return replace(super()._at(index), bids=self.bids.take(index), asks=self.asks.take(index))


Data = Books | Series
D = TypeVar("D", Books, Series)


def joined(parts: Sequence[D]) -> D:
    """All entries of all parts, those of a token part after part; ``sort`` brings them into tidy order."""
    if len(parts) == 1:
        return parts[0]
    ts, bounds = np.concatenate([part.ts for part in parts]), parts[0].bounds
    every: Sequence[Data] = parts
    books = [part for part in every if isinstance(part, Books)]
    series = [part for part in every if isinstance(part, Series)]
    out: Data
    if books:
        counts = np.concatenate([part.counts for part in books])
        price, size = (np.concatenate(numbers) for numbers in zip(*(part.levels() for part in books), strict=True))
        out = Books.of_levels((), bounds, ts, counts, price, size)
    else:
        names = dict.fromkeys(name for part in series for name in part.values)
        none = (np.full(len(part), np.nan) for part in series)
        pairs = list(zip(series, none, strict=True))
        values = {name: np.concatenate([part.values.get(name, nan) for part, nan in pairs]) for name in names}
        out = Series((), bounds, ts, values)
    tokens = [token for part in parts for token in part.tokens]
    lengths = np.concatenate([np.diff(part.bounds) for part in parts])
    return out.of_codes(tokens, np.repeat(np.arange(len(tokens)), lengths))  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, eq=False)
class CodedColumns:
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
class BookColumns(CodedColumns):
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
class NumberColumns(CodedColumns):
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
