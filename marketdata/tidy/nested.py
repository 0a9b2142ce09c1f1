"""Nested books, as archives store them: one row per snapshot with lists of prices and sizes per side, best level first.

Best prices are the first entries; level rows are made where a verb needs them, by numpy over the values of all lists,
which are contiguous.
"""

# Lists are made clean in the table that they belong to.
# ruff: noqa: SLF001

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from marketdata.adapters.normalization import from_codes
from marketdata.errors import NotTidyError
from marketdata.points.columns import Books, Floats, Ints, Side
from marketdata.points.schema import ASK, BID, LISTS
from marketdata.tidy.table import EagerTable, Sides

_PAIRS = (LISTS[:2], LISTS[2:])
_OF = "__of"
_ROWS = ("side", "level", "price", "size")


def in_order(table: EagerTable, *, whole: bool = True) -> EagerTable:
    """Snapshots by token and time, each once, levels (without ``whole`` the best two) checked; errors as by `book`."""
    table = table.in_order(LISTS)
    counts = level_counts(table)
    if not all(_is_sound(table, counts[i::2], i, whole=whole) for i in (0, 1)):
        # This raises the error of the rule that is broken; a list of one null is an empty side.
        clean = lists(EagerTable(_Levels(table), "books").book(whole=whole))
        table._columns |= {name: clean[name] for name in LISTS}
    return table


def _is_sound(table: EagerTable, counts: Ints, side: int, *, whole: bool) -> bool:
    """Whether entries of bids or asks, of so many each, are numbers, and prices get no better."""
    prices, sizes = (_values(table.column(name)) for name in _PAIRS[side])
    begins = np.cumsum(counts) - counts
    tops, deeper = begins[counts > 0], begins[counts > 1] + 1
    if whole:
        is_deeper = np.ones(len(prices), bool)
        is_deeper[tops] = False
        tops, deeper = np.arange(len(prices)), np.flatnonzero(is_deeper)
    step = prices[deeper] - prices[deeper - 1]
    better = step < 0 if side else step > 0
    return not (np.isnan(prices[tops]).any() or np.isnan(sizes[tops]).any() or np.isnan(step).any() or better.any())


def _values(lists: pl.Series) -> Floats:
    """The entries of all lists, one list after the other; a null is NaN."""
    return lists.explode(empty_as_null=False).to_numpy()


def _lengths(lists: pl.Series) -> Ints:
    return lists.list.len().cast(pl.Int64).to_numpy()


def books(table: EagerTable) -> Books:
    """The levels of each snapshot; of a table that `in_order` gave."""
    sides = []
    for names in _PAIRS:
        counts = _lengths(table.column(names[0]))
        sides.append(Side(np.cumsum(counts) - counts, counts, *(_values(table.column(c)) for c in names)))
    return Books((), sides[0].begins[:1], sides[0].begins, *sides)


class _Levels:
    """Level rows of snapshots; a column is made when it is read, as few verbs read the ids of every row."""

    def __init__(self, snapshots: EagerTable) -> None:
        self.snapshots, self.counts = snapshots, level_counts(snapshots)
        self.rows = np.maximum(self.counts, 1)
        self.ends = np.cumsum(self.rows)
        self.names = ["ts", *snapshots.keys, *_ROWS]
        self._numbers: tuple[pl.Series, ...] | None = None

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    @cached_property
    def of(self) -> Ints:
        """The snapshot of each row."""
        return np.repeat(np.arange(len(self.snapshots)), self.rows.reshape(-1, 2).sum(axis=1))

    def raw(self, name: str, rows: Ints | None = None) -> Any:
        if name in ("price", "size"):
            if self._numbers is None:
                both = level_values(self.snapshots, self.counts, self.rows)
                self._numbers = tuple(pl.Series(values).fill_nan(None) for values in both)
            column = self._numbers[name == "size"]
        elif name in _ROWS:
            codes = self.integers(name)
            column = from_codes(codes, pl.Enum([BID, ASK])) if name == "side" else pl.Series(codes)
            empty = self.raw("price").is_null() if name == "level" else None
            column = column if empty is None or not empty.any() else column.set(empty, None)
        else:
            column = self.snapshots.column(name).gather(self.of)
        return column if rows is None else column.gather(rows)

    def texts(self, name: str, rows: Ints | None = None) -> None:
        """None: not cheaper than by `raw`."""

    def integers(self, name: str, rows: Ints | None = None) -> Any:
        if name == "side":
            found = np.repeat((np.arange(len(self.rows)) & 1).astype(np.uint8), self.rows)
        elif name == "level":
            found = np.arange(len(self), dtype=np.int32)
            found -= np.repeat((self.ends - self.rows).astype(np.int32), self.rows)
        else:
            return None
        return found if rows is None else found[rows]

    def is_tidy(self, _name: str) -> bool:
        return False


class LevelTable(EagerTable):
    """The books of a nested table: one row per level and a marker row per empty side; NotTidyError as `in_order`."""

    def __init__(self, table: EagerTable) -> None:
        snapshots = in_order(table)
        source = _Levels(snapshots)
        super().__init__(source, "books")
        begins = source.ends - source.rows
        self.snapshots, self.levels = snapshots, source
        self._sides = Sides(begins[::2], begins[1::2], source.ends[1::2])
        self._groups = begins[::2][snapshots.groups]

    def book(self, *, whole: bool = True) -> EagerTable:  # noqa: ARG002 all was looked at
        """The table itself."""
        return self

    def of_snapshots(self, name: str) -> pl.Series:
        """See `EagerTable.of_snapshots`."""
        return self.snapshots.column(name)


def level_counts(table: EagerTable) -> Ints:
    """Numbers of bid and ask levels of each snapshot, alternating."""
    out = np.empty((len(table), 2), np.int64)
    for i, names in enumerate(_PAIRS):
        price, size = (_lengths(table.column(name)) for name in names)
        differs = np.flatnonzero(price != size)
        if len(differs):
            at = int(differs[0])
            raise NotTidyError(
                f"{names[0]} has {price[at]} entries and {names[1]} has {size[at]}, first {table.shown(at)}; the two "
                "lists of a side have one entry per level."
            )
        out[:, i] = price
    return out.ravel()


def level_values(table: EagerTable, counts: Ints, rows: Ints) -> tuple[Floats, Floats]:
    """Prices and sizes of all snapshots, where each side has so many rows; NaN in those without a level."""
    begins = np.cumsum(rows) - rows
    price, size = np.full((2, int(rows.sum())), np.nan)
    for i, names in enumerate(_PAIRS):
        count = counts[i::2]
        at = np.repeat(begins[i::2] - (np.cumsum(count) - count), count) + np.arange(int(count.sum()))
        price[at], size[at] = (_values(table.column(name)) for name in names)
    return price, size


def lists(book: EagerTable) -> pl.DataFrame:
    """Times, ids and the four lists of a book, one row per snapshot; an empty side is an empty list."""
    starts, asks, ends = book.sides
    held = ~np.isnan(book.array("price"))
    out = [book.column(c).gather(starts) for c in ("ts", *book.keys)]
    for first, last, names in ((starts, asks, _PAIRS[0]), (asks, ends, _PAIRS[1])):
        counts = np.where((first < last) & held[np.minimum(first, len(held) - 1)], last - first, 0)
        at = np.repeat(first - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        out += _ragged(counts, dict(zip(names, (book.column(c).gather(at) for c in ("price", "size")), strict=True)))
    return pl.DataFrame(out)


def _ragged(counts: Ints, values: dict[str, pl.Series]) -> list[pl.Series]:
    """Columns of lists, ``counts`` values each."""
    some = np.flatnonzero(counts)
    keys = pl.Series(_OF, np.repeat(some, counts[some])).set_sorted()
    found = pl.DataFrame([keys, *(v.alias(name) for name, v in values.items())])
    found = found.group_by(_OF, maintain_order=True).agg(pl.all())
    places = pl.Series(np.where(counts > 0, np.cumsum(counts > 0) - 1, -1))
    places = places.set(places < 0, None)
    return [found[name].gather(places).fill_null([]) for name in values]
