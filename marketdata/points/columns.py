"""The data of every layer: numpy arrays with one entry per point, the entries of a token adjacent.

Pages, frames, files and engines are read into `Series` (prices, metrics, any numbers) and `Books`; every rule is a
function of these. Times are microseconds since the epoch UTC; a missing number is NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress
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
    """Entries ``bounds[i]`` to ``bounds[i + 1]`` belong to ``tokens[i]``; ``ts`` has their times, tokens are distinct.

    In tidy order (`sort`) tokens are by their sort key, and the times of each rise.
    """

    tokens: tuple[Token, ...]
    bounds: Ints
    ts: Ints

    def __len__(self) -> int:
        return len(self.ts)

    @property
    def starts(self) -> Ints:
        """The first entry of each token."""
        return self.bounds[:-1]

    @cached_property
    def token(self) -> Codes:
        """The number of the token of each entry."""
        return np.repeat(np.arange(len(self.tokens), dtype=np.int32), np.diff(self.bounds))

    def take(self, index: Ints) -> Self:
        """The entries at these positions, in this order within each token; a token without an entry is left out."""
        return self._at(index).grouped(self.tokens, np.searchsorted(self.bounds, index, side="right") - 1)

    def part(self, first: int, last: int) -> Self:
        """The entries of tokens ``first`` to ``last - 1``, without a copy of their values."""
        edges = self.bounds[first : last + 1]
        entries = self._at(slice(edges[0], edges[-1]))
        return replace(entries, tokens=self.tokens[first:last], bounds=edges - edges[0])

    def with_tokens(self, tokens: Sequence[Token], bounds: Ints) -> Self:
        """Give the entries to other tokens; a token without an entry is left out."""
        has_entries = np.diff(bounds) > 0
        present = tuple(compress(tokens, has_entries.tolist()))
        return replace(self, tokens=present, bounds=bounds[np.append(has_entries, True)])

    def grouped(self, tokens: Sequence[Token], token: NDArray[np.integer]) -> Self:
        """Give entry i to ``tokens[token[i]]``. Equal tokens become one, in tidy order; entries are not sorted."""
        distinct = sorted(set(tokens), key=lambda t: t.sort_key)
        place = {t: i for i, t in enumerate(distinct)}
        codes = np.array([place[t] for t in tokens], np.int64)[token]
        order = np.argsort(codes, kind="stable")
        return self._at(order).with_tokens(distinct, np.searchsorted(codes[order], np.arange(len(place) + 1)))

    def steps(self) -> Ints:
        """Time from each entry but the last to the next one [microseconds]; between two tokens the largest number."""
        out = np.diff(self.ts)
        borders = self.bounds[(self.bounds > 0) & (self.bounds < len(self))]
        out[borders - 1] = np.iinfo(np.int64).max
        return out

    @cached_property
    def is_sorted(self) -> bool:
        """Whether entries are in tidy order."""
        keys = [t.sort_key for t in self.tokens]
        return keys == sorted(keys) and bool((self.steps() >= 0).all())

    def sort(self) -> Self:
        """The same entries in tidy order; stable for equal times."""
        if self.is_sorted:
            return self
        by_time = np.argsort(self.ts, kind="stable")
        return self._at(by_time).grouped(self.tokens, self.token[by_time])

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
class Trades(Columns):
    """One entry per print, where several may be of one time, with the values ``side price size`` and further ones.

    ``side`` is what the taker did: "buy" or "sell", None where it is not known. A value is a number, NaN where it is
    missing, or a text in an array of objects, None where it is missing.
    """

    values: Mapping[str, NDArray[Any]]

    @classmethod
    def of(
        cls, tokens: Sequence[Token], token: NDArray[np.integer], ts: Ints, values: Mapping[str, NDArray[Any]]
    ) -> Trades:
        """Prints in tidy order, or at one time in the order given; ``tokens[token[i]]`` is the token of print i.

        A token has the newest of its labels.
        """
        newest = np.full(len(tokens), np.iinfo(np.int64).min)
        np.maximum.at(newest, token, ts)
        by_time = (tokens[i] for i in np.argsort(newest, kind="stable").tolist())
        labels = {one[:2]: one.token_label for one in by_time if one.token_label is not None}
        named = [one._replace(token_label=labels.get(one[:2])) for one in tokens]
        return cls((), np.zeros(1, np.int64), ts, values).grouped(named, token).sort()

    @classmethod
    def empty(cls) -> Trades:
        """No prints."""
        texts, numbers = np.empty(0, object), np.empty(0)
        no_ints = np.empty(0, np.int64)
        return cls.of((), no_ints, no_ints, {"side": texts, "price": numbers, "size": numbers})

    def _at(self, index: Ints | slice) -> Self:
        return replace(super()._at(index), values={name: v[index] for name, v in self.values.items()})


@dataclass(frozen=True, eq=False)
class Side:
    """One side of many books: levels ``begins[i]`` to ``begins[i] + counts[i]`` belong to book i, best first.

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
        price, size = np.full((2, len(self)), np.nan)
        has_levels = self.counts > 0
        best = self.begins[has_levels]
        price[has_levels], size[has_levels] = self.price[best], self.size[best]
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
    def levels(self) -> Ints | slice:
        """Positions of all levels, book after book; a slice, which copies nothing, if they are stored so."""
        return positions(self.begins, self.counts, len(self.price))

    def take(self, index: Ints | slice) -> Side:
        """The books at these positions."""
        return replace(self, begins=self.begins[index], counts=self.counts[index])

    def head(self, levels: int) -> Side:
        """The best levels alone."""
        return replace(self, counts=np.minimum(self.counts, levels))

    def total(self, values: Floats) -> Floats:
        """Sums over the levels of each book of values in the order of ``price``; 0 for an empty side."""
        out = np.zeros(len(self.counts))
        has_levels = self.counts > 0
        begins, ends = self.begins[has_levels], (self.begins + self.counts)[has_levels]
        if (begins[1:] < ends[:-1]).any():  # books in another order than their levels
            return replace(self, begins=np.cumsum(self.counts) - self.counts).total(values[self.levels])
        if len(begins):
            # numpy adds up between all borders, and every second sum is between two books.
            borders = np.stack((begins, ends), axis=1).ravel()
            borders = borders[:-1] if borders[-1] == len(values) else borders
            out[has_levels] = np.add.reduceat(values, borders)[::2]
        return out


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

        ``counts[2 * i]`` bid levels and ``counts[2 * i + 1]`` ask levels belong to entry i, best first. Its bids come
        before its asks, and both before the levels of the next entry.
        """
        begins = np.cumsum(counts) - counts
        bids, asks = (Side(begins[i::2], counts[i::2], price, size) for i in (0, 1))
        return cls(tuple(tokens), bounds, ts, bids, asks, values or {})

    @cached_property
    def counts(self) -> Ints:
        """Numbers of levels as `of_levels` takes them: of bids and asks alternating."""
        return np.stack((self.bids.counts, self.asks.counts), axis=1).ravel()

    def levels(self) -> tuple[Floats, Floats]:
        """Prices and sizes as `of_levels` takes them, without a copy if they are stored so."""
        bids, asks, begins_of_asks = self.bids, self.asks, self.asks.begins
        price, size = bids.price, bids.size
        if price is not asks.price or size is not asks.size:
            begins_of_asks = begins_of_asks + len(price)
            price, size = np.concatenate((price, asks.price)), np.concatenate((size, asks.size))
        at = positions(np.stack((bids.begins, begins_of_asks), axis=1).ravel(), self.counts, len(price))
        return price[at], size[at]

    def series(self, values: Mapping[str, NDArray[np.float64]]) -> Series:
        """Numbers of each entry as a series of the same tokens and times."""
        return Series(self.tokens, self.bounds, self.ts, values)

    def cut(self, levels: int) -> Books:
        """At most the best ``levels`` levels of each side."""
        return replace(self, bids=self.bids.head(levels), asks=self.asks.head(levels))

    def best_first(self) -> tuple[Books, Ints]:
        """The books with the best level of each side first, and the sides that were not so, counted as in `counts`.

        Levels of one price stay in their order.
        """
        (price, size), counts = self.levels(), self.counts
        is_ask = np.repeat((np.arange(len(counts)) & 1).astype(bool), counts)
        better = (price[1:] != price[:-1]) & ((price[1:] > price[:-1]) != is_ask[1:])
        better[np.cumsum(counts[counts > 0])[:-1] - 1] = False
        if not better.any():
            return self, np.empty(0, np.int64)
        side = np.repeat(np.arange(len(counts)), counts)
        order = np.lexsort((np.where(is_ask, price, -price), side))
        head = self.tokens, self.bounds, self.ts
        return Books.of_levels(*head, counts, price[order], size[order], self.values), np.unique(side[1:][better])

    @cached_property
    def mid(self) -> Floats:
        """(best bid + best ask) / 2, NaN where a side is missing."""
        return mid_of(self.bids.best, self.asks.best)  # type: ignore[no-any-return]

    @cached_property
    def spread(self) -> Floats:
        """Best ask - best bid."""
        return spread_of(self.bids.best, self.asks.best)  # type: ignore[no-any-return]

    def _at(self, index: Ints | slice) -> Self:
        values = {name: v[index] for name, v in self.values.items()}
        return replace(super()._at(index), bids=self.bids.take(index), asks=self.asks.take(index), values=values)


Data = Books | Series | Trades
D = TypeVar("D", bound=Columns)
# Pages, archive, service and charts follow these names, so a further metric needs no other line.
METRICS = ("volume", "liquidity", "spread")


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """A page of a history endpoint (interface 2.2 to 2.6), points in its order, label by label.

    ``labels`` has the token id of each label, also without points, and is empty for metrics. ``next_cursor`` is None on
    the last page; an empty text is kept, as it says neither. ``notes`` counts repairs and diagnostics by name.
    ``date`` is the time of the answer [Unix s].
    """

    columns: Data
    market_id: str
    resolution: str
    labels: dict[str, str | None]
    count: int | None
    limit: int | None
    next_cursor: str | None
    notes: Counter[str] = field(default_factory=Counter)
    date: float | None = None

    @property
    def points(self) -> int:
        """Points of the page: label x bucket."""
        return len(self.columns)


def mid_of(best_bid: Any, best_ask: Any) -> Any:
    """The middle of two prices, also of two expressions of an engine."""
    return (best_bid + best_ask) / 2


def spread_of(best_bid: Any, best_ask: Any) -> Any:
    """The distance of two prices, also of two expressions of an engine."""
    return best_ask - best_bid


def positions(begins: Ints, counts: Ints, stored: int) -> Ints | slice:
    """Positions of the levels of books, book after book; a slice if all that is stored is in this order."""
    if counts.sum() == stored and (begins == np.cumsum(counts) - counts).all():
        return slice(None)
    return ranges(begins, counts)


def ranges(starts: Ints, lengths: Ints) -> Ints:
    """Concatenated ``arange(start, start + length)`` of each pair."""
    steps: Ints = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    return np.arange(len(steps), dtype=np.int64) + steps


def interleave(counts: Ints, bids: Floats, asks: Floats, out: Floats) -> None:
    """Write values of all bids and of all asks, each book after book, into ``out`` as `Books.of_levels` takes them."""
    is_ask = np.repeat(np.tile(np.array([False, True]), len(counts) // 2), counts)
    out[~is_ask], out[is_ask] = bids, asks


def joined(parts: Sequence[D]) -> D:
    """All entries of all parts, tokens in tidy order; the entries of a token are part after part, not by time."""
    if len(parts) == 1:
        return parts[0]
    tokens = [token for part in parts for token in part.tokens]
    offsets = np.cumsum([0, *(len(part.tokens) for part in parts[:-1])])
    codes = np.concatenate([part.token + offset for part, offset in zip(parts, offsets, strict=True)])
    ts, no_bounds = np.concatenate([part.ts for part in parts]), np.zeros(1, np.int64)
    types = {name: v.dtype for part in parts for name, v in part.values.items()}  # type: ignore[attr-defined]
    values = {name: np.concatenate([values_of(part, name, types[name]) for part in parts]) for name in types}
    if isinstance(parts[0], Trades):  # a part may know no label
        return Trades.of(tokens, codes, ts, values)  # type: ignore[return-value]
    entries: Data = Series((), no_bounds, ts, values)
    books = [part for part in parts if isinstance(part, Books)]
    if books:
        counts = np.concatenate([part.counts for part in books])
        price, size = (np.concatenate(levels) for levels in zip(*(part.levels() for part in books), strict=True))
        entries = Books.of_levels((), no_bounds, ts, counts, price, size, values)
    return entries.grouped(tokens, codes)  # type: ignore[return-value]


def values_of(columns: Any, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Values of the entries by name, all missing where the columns have none."""
    missing = np.full(len(columns), None if dtype.hasobject else np.nan, object if dtype.hasobject else float)
    return columns.values.get(name, missing)  # type: ignore[no-any-return]


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """True where a text is None, or a number NaN."""
    if values.dtype.hasobject:
        return np.asarray(values == None, bool)  # noqa: E711 of each value
    return np.isnan(values)  # type: ignore[no-any-return]


def ratio(dividend: Floats, divisor: Floats) -> Floats:
    """The quotient, NaN where the divisor is not above 0."""
    out = np.full(len(divisor), np.nan)
    np.divide(dividend, divisor, out=out, where=divisor > 0)
    return out


def group_sums(group: NDArray[np.integer], values: Floats, count: int) -> Floats:
    """The sum of the values of each group, 0 for one without any; groups are numbered from 0.

    `np.bincount` adds one value after the other: the sum of a million equal ones is off by 1e-11. Here they are added
    in pairs, which has the error of a few additions only.
    """
    out = np.zeros(count)
    if not len(values):
        return out
    if count == 1:
        out[0] = values.sum()
        return out
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    out[group[order[starts]]] = np.add.reduceat(values[order], starts)
    return out
