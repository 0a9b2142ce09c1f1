"""The data of every layer: numpy arrays with one entry per point, those of a token beside each other.

Pages, frames, files and engines are read into `Series` (prices, metrics, any numbers) and `Books`; every rule is a
function of these. Times are microseconds since the epoch UTC; a missing number is NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, Self, TypeVar

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
        market_id, token_id, label = self
        return market_id, token_id is None, token_id or "", label or ""


@dataclass(frozen=True, eq=False)
class Columns:
    """Entries ``bounds[i]`` to ``bounds[i + 1]`` are those of ``tokens[i]``, at the times ``ts``; tokens are distinct.

    In tidy order (`sort`) tokens are by their sort key, and the times of each rise.
    """

    tokens: tuple[Token, ...]
    bounds: Ints
    ts: Ints

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
        out = replace(self._at(index), bounds=bounds)
        return out if (bounds[1:] > bounds[:-1]).all() else out.of_tokens(self.tokens, bounds)

    def part(self, first: int, last: int) -> Self:
        """The entries of some tokens, from the ``first`` to the one before the ``last``; no copies of their values."""
        edges = self.bounds[first : last + 1]
        entries = self._at(slice(edges[0], edges[-1]))
        return replace(entries, tokens=self.tokens[first:last], bounds=edges - edges[0])

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

    def steps(self) -> Ints:
        """Time from each entry but the last to the next one [microseconds]; between two tokens the largest number."""
        out = np.diff(self.ts)
        borders = self.bounds[(self.bounds > 0) & (self.bounds < len(self))]
        out[borders - 1] = np.iinfo(np.int64).max
        return out

    def is_sorted(self) -> bool:
        """Whether entries are in tidy order."""
        return self._is_sorted

    @cached_property
    def _is_sorted(self) -> bool:
        keys = [t.sort_key for t in self.tokens]
        return keys == sorted(keys) and bool((self.steps() >= 0).all())

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

    def token_at(self, at: int) -> Token:
        """The token of an entry."""
        return self.tokens[int(np.searchsorted(self.bounds, at, side="right")) - 1]

    def shown(self, at: int) -> str:
        """Time and token of an entry, for a message."""
        return " ".join([to_text(int(self.ts[at])), *(str(text) for text in self.token_at(at) if text is not None)])

    def _at(self, index: Ints | slice) -> Self:
        """Entries in another order, whose tokens are yet to be set."""
        return replace(self, ts=self.ts[index])


@dataclass(frozen=True, eq=False)
class Series(Columns):
    """One entry per point with its numbers by name: ``price``, or `METRICS` of tokens without an id, or others."""

    values: Mapping[str, Floats]

    @property
    def price(self) -> Floats:
        """The values of prices [probability]."""
        return self.values["price"]

    def _at(self, index: Ints | slice) -> Self:
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
    def top(self) -> tuple[Floats, Floats]:
        """Price and size of the best level of each book, NaN where there is none."""
        empty, levels = self.counts == 0, (self.price, self.size)
        if not empty.any():
            return self.price[self.begins], self.size[self.begins]
        at = np.minimum(self.begins, len(self.price) - 1)
        none = np.full(len(self), np.nan)
        price, size = (np.where(empty, none, values[at]) if len(values) else none for values in levels)
        return price, size

    @property
    def best(self) -> Floats:
        """Best price of each book [probability]."""
        return self.top[0]

    @property
    def best_size(self) -> Floats:
        """Shares at the best price."""
        return self.top[1]

    @cached_property
    def depth(self) -> Floats:
        """Shares of all levels; 0 for an empty side."""
        return self.total(self.size)

    @property
    def levels(self) -> Ints:
        """Positions of all levels, book after book."""
        return ranges(self.begins, self.counts)

    def take(self, index: Ints | slice) -> Side:
        """The books at these positions."""
        return replace(self, begins=self.begins[index], counts=self.counts[index])

    def head(self, levels: int) -> Side:
        """The best levels alone."""
        return replace(self, counts=np.minimum(self.counts, levels))

    def total(self, values: Floats) -> Floats:
        """Sums over the levels of each book of values that lie as ``price`` and ``size`` do; 0 for an empty side."""
        out = np.zeros(len(self.counts))
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

    @property
    def is_scattered(self) -> bool:
        """Whether levels do not lie book after book, or others lie among them."""
        ends = np.cumsum(self.counts)
        return int(self.counts.sum()) != len(self.price) or not (self.begins == ends - self.counts).all()


@dataclass(frozen=True, eq=False)
class Books(Columns):
    """One entry per snapshot, with both of its sides, and values of the whole snapshot by name.

    A value is a number, NaN where it is missing, or a text in an array of objects, None where it is missing.
    """

    bids: Side
    asks: Side
    values: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of_levels(
        cls,
        tokens: Sequence[Token],
        bounds: Ints,
        ts: Ints,
        counts: Ints,
        price: Floats,
        size: Floats,
        values: Mapping[str, NDArray[Any]] | None = None,
    ) -> Books:
        """Books of levels in one piece.

        ``counts[2 * i]`` bid levels and ``counts[2 * i + 1]`` ask levels belong to entry i, best first: bids of entry
        i, its asks, bids of entry i + 1, and so on.
        """
        begins = np.cumsum(counts) - counts
        bids, asks = (Side(begins[i::2], counts[i::2], price, size) for i in (0, 1))
        out = cls(tuple(tokens), bounds, ts, bids, asks, values or {})
        out.__dict__.update(counts=counts, _is_one_piece=True)  # known here, so that nobody has to look
        return out

    @cached_property
    def counts(self) -> Ints:
        """Numbers of levels as `of_levels` takes them: of bids and asks alternating."""
        return np.stack((self.bids.counts, self.asks.counts), axis=1).ravel()

    def levels(self) -> tuple[Floats, Floats]:
        """Prices and sizes as `of_levels` takes them, without a copy where they lie so."""
        bids, asks, counts = self.bids, self.asks, self.counts
        if self._is_one_piece:
            return bids.price, bids.size
        if bids.price is asks.price and bids.size is asks.size:
            at = ranges(self._begins, counts)
            return bids.price[at], bids.size[at]
        price, size = np.empty((2, counts.sum()))
        some = [one.levels if one.is_scattered else slice(None) for one in (bids, asks)]
        lay_together(counts, bids.price[some[0]], asks.price[some[1]], price)
        lay_together(counts, bids.size[some[0]], asks.size[some[1]], size)
        return price, size

    @property
    def _begins(self) -> Ints:
        return np.stack((self.bids.begins, self.asks.begins), axis=1).ravel()

    @cached_property
    def _is_one_piece(self) -> bool:
        """Whether levels lie as `of_levels` takes them."""
        if self.bids.price is not self.asks.price or self.bids.size is not self.asks.size:
            return False
        counts, ends = self.counts, np.cumsum(self.counts)
        begins = np.where(counts > 0, self._begins, ends - counts)
        return int(counts.sum()) == len(self.bids.price) and bool((begins == ends - counts).all())

    def series(self, values: Mapping[str, NDArray[np.float64]]) -> Series:
        """Numbers of each entry as a series of the same tokens and times."""
        return Series(self.tokens, self.bounds, self.ts, values)

    def cut(self, levels: int) -> Books:
        """At most the best ``levels`` levels of each side."""
        return replace(self, bids=self.bids.head(levels), asks=self.asks.head(levels))

    @cached_property
    def mid(self) -> Floats:
        """(best bid + best ask) / 2, NaN where a side is missing."""
        return (self.bids.top[0] + self.asks.top[0]) / 2

    @cached_property
    def spread(self) -> Floats:
        """Best ask - best bid."""
        return self.asks.top[0] - self.bids.top[0]

    def _at(self, index: Ints | slice) -> Self:
        values = {name: v[index] for name, v in self.values.items()}
        return replace(super()._at(index), bids=self.bids.take(index), asks=self.asks.take(index), values=values)


Data = Books | Series
# Columns of one kind.
D = TypeVar("D", bound=Columns)
# The columns of every metrics frame, and the fields of its points: pages, archive, service and charts follow.
METRICS = ("volume", "liquidity", "spread")


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page of a history endpoint (interface 2.2 to 2.6), points in its order, label by label.

    ``labels``: token label to token id, also without points, empty for metrics. ``next_cursor`` None: the last page; an
    empty text is kept, as it says neither. ``notes``: number of repairs and oddities by name.
    """

    columns: Data
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


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Concatenated ``arange(start, start + length)`` of each pair."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    steps: Ints = np.repeat(starts - (ends - lengths), lengths)
    return np.arange(total, dtype=np.int64) + steps


def lay_together(counts: Ints, bids: Floats, asks: Floats, out: Floats) -> None:
    """Write values of all bids and of all asks, each book after book, into ``out`` as `Books.of_levels` takes them."""
    is_ask = np.repeat(np.tile(np.array([False, True]), len(counts) // 2), counts)
    out[~is_ask], out[is_ask] = bids, asks


def joined(parts: Sequence[D]) -> D:
    """All entries of all parts: tokens in tidy order, and those of a token part after part, which `sort` puts by time.

    Pages have token after token, so slices of them are put together, and no entry is moved by itself.
    """
    if len(parts) == 1:
        return parts[0]
    number = {t: i for i, t in enumerate(sorted({t for p in parts for t in p.tokens}, key=lambda t: t.sort_key))}
    codes = np.array([number[token] for part in parts for token in part.tokens], np.int64)
    order = np.argsort(codes, kind="stable")
    lengths = np.concatenate([part.bounds[1:] - part.bounds[:-1] for part in parts])
    index = ranges((np.cumsum(lengths) - lengths)[order], lengths[order])
    bounds = np.append(0, np.cumsum(np.bincount(codes, lengths, len(number)).astype(np.int64)))
    borders = [part.bounds for part in parts]

    def together(arrays: Sequence[NDArray[Any]], borders: Sequence[Ints]) -> NDArray[Any]:
        slices = [array[a:b] for array, edges in zip(arrays, borders, strict=True) for a, b in pairwise(edges.tolist())]
        return np.concatenate([arrays[0][:0], *(slices[i] for i in order.tolist())])

    head = (tuple(number), bounds, np.concatenate([part.ts for part in parts])[index])
    known = {name: v.dtype for part in parts for name, v in part.values.items()}  # type: ignore[attr-defined]
    values = {name: together([values_of(part, name, known[name]) for part in parts], borders) for name in known}
    if isinstance(parts[0], Books):
        books = [part for part in parts if isinstance(part, Books)]
        every = np.concatenate([part.counts for part in books])
        counts, ends = every.reshape(-1, 2)[index].ravel(), np.append(0, np.cumsum(every))
        firsts = accumulate([0, *map(len, books[:-1])])
        borders = [ends[2 * (first + part.bounds)] - ends[2 * first] for first, part in zip(firsts, books, strict=True)]
        prices, sizes = zip(*(part.levels() for part in books), strict=True)
        price, size = together(prices, borders), together(sizes, borders)
        return Books.of_levels(*head, counts, price, size, values)  # type: ignore[return-value]
    return Series(*head, values)  # type: ignore[return-value]


def values_of(columns: Any, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values of the entries by name, all missing where the columns have none."""
    if name in columns.values:
        values: NDArray[Any] = columns.values[name]
        return values
    return np.full(len(columns), None if dtype.hasobject else np.nan, object if dtype.hasobject else float)
