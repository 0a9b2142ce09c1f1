"""The columns of one frame as verbs see them: normalised, checked, and in memory in tidy order.

Checked, in memory: every row has a time and ids; a token is its market_id and token_id, with the label of its newest
row that has one; equal rows of one key are deduplicated, different ones refused; levels of a side are 0, 1, 2, ... with
the best price first, each with a price and a size. An empty side may be its marker row or no row. Rows that are not in
tidy order, which one pass over the columns finds out, are sorted.
"""

# A table reads the state of tables that were taken from it.
# ruff: noqa: SLF001

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters import normalization
from marketdata.errors import NotTidyError
from marketdata.points.columns import Books, Ints, Side
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import COLUMNS, ID_COLUMNS, LISTS, NOT_0_1, Kind, outside_0_1, values_of
from marketdata.times import to_text

# Rows that are compared at a time, so that what is made in between stays in the processor's cache.
_BLOCK = 1 << 17
_IDENTITY = ID_COLUMNS[:2]
_TYPED = frozenset(c for columns in COLUMNS.values() for c in columns) - {*LISTS}
_NO_TIME = np.iinfo(np.int64).min
_NUMBERS = _TYPED - {"ts", *ID_COLUMNS, "side", "level"}


class Source(Protocol):
    """A native frame: its columns, one by one, and how to make a frame of its kind."""

    @property
    def names(self) -> list[str]:
        """Names of the columns."""

    def __len__(self) -> int: ...

    def raw(self, name: str, rows: Ints | None = None) -> Any:
        """Some rows of a column as a polars Series, or as a list of objects."""

    def integers(self, name: str, rows: Ints | None = None) -> NDArray[Any] | None:
        """`EagerTable.array`, missing times as the least integer, ids as -1; None: not cheaper than by `raw`."""

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None] | None:
        """Ids of some rows; None: not cheaper than by `raw`."""

    def is_tidy(self, name: str) -> bool:
        """Whether rows of a column can be passed on as a column of tidy frames."""


class Sides(NamedTuple):
    """Where snapshots begin (with their bids, if any), where their asks begin, and where they end."""

    starts: Ints
    asks: Ints
    ends: Ints


class EagerTable:
    """A frame in memory."""

    def __init__(self, source: Source, kind: Kind, parent: EagerTable | None = None, at: Ints | None = None) -> None:
        self.source, self.kind = source, kind
        self.keys = [c for c in ID_COLUMNS if c in source.names]
        self.identity: Sequence[str] = _IDENTITY if parent is None else parent.identity
        self._parent, self._at = parent, at
        self._columns: dict[str, pl.Series] = {}
        self._arrays: dict[str, NDArray[Any]] = {}
        self._made: set[str] = set() if parent is None else {*parent._made}
        self._rows: Ints | None = None
        self._groups: Ints | None = None
        self._sides: Sides | None = None

    def __len__(self) -> int:
        return len(self.source) if self._at is None else len(self._at)

    @property
    def who(self) -> list[str]:
        """The columns that identify tokens (markets)."""
        return [c for c in self.keys if c in self.identity]

    @property
    def names(self) -> list[str]:
        """Names of the columns of the native frame."""
        return self.source.names

    @property
    def rows(self) -> Ints:
        """The rows of the native frame."""
        if self._rows is None:
            if self._parent is None:
                self._rows = np.arange(len(self), dtype=np.int64)
            else:
                self._rows = self.at if self._parent._parent is None else self._parent.rows[self.at]
        return self._rows

    @property
    def at(self) -> Ints:
        """The rows of the table that it was taken from."""
        assert self._at is not None
        return self._at

    def take(self, rows: Ints) -> EagerTable:
        """The rows at these positions, in this order."""
        return EagerTable(self.source, self.kind, self, rows)

    def moved(self, micros: int) -> EagerTable:
        """The same rows at later times."""
        out = self.take(np.arange(len(self), dtype=np.int64))
        out._groups = self._groups
        out._arrays["ts"] = self.array("ts") + micros
        out._columns["ts"] = pl.Series("ts", out._arrays["ts"]).cast(pl.Datetime("us", "UTC"))
        return out

    def column(self, name: str) -> pl.Series:
        """A column in the type of tidy frames; a missing number is null or NaN."""
        found = self._columns.get(name)
        if found is None:
            if self._parent is not None and self._parent._has_read(name):
                found = self._parent.column(name).gather(self.at)
            else:
                raw = self.source.raw(name, self.places)
                found = (
                    normalization.lists(raw, name)
                    if self.kind == "nested" and name in LISTS
                    else _normalised(raw, name, nullable=self._may_lack(name))
                )
            found = self._columns[name] = found.alias(name)
        return found

    def _has_read(self, name: str) -> bool:
        return name in self._columns or (self._parent is not None and self._parent._has_read(name))

    @property
    def places(self) -> Ints | None:
        """The rows of the native frame; None: all, in order."""
        return None if self._parent is None else self.rows

    def array(self, name: str) -> NDArray[Any]:
        """A column as numpy: int64 microseconds, codes of texts (-1: null), levels (0: null), numbers with NaN."""
        found = self._arrays.get(name)
        if found is None:
            found = self._arrays[name] = self._array(name)
        return found

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self._columns and self._parent is not None and name in self._parent._arrays:
            return self._parent.array(name)[self.at]
        cheap = None if self._has_read(name) else self.source.integers(name, self.places)
        if cheap is not None and (self._may_lack(name) or not len(cheap) or cheap.min() > _missing(name)):
            return cheap
        column = self.column(name)
        if column.dtype.is_float():
            return column.to_numpy()
        codes = column.to_physical()
        if not codes.null_count():
            return codes.to_numpy()
        return codes.fill_null(0).to_numpy() if name == "level" else codes.cast(pl.Int64).fill_null(-1).to_numpy()

    def unchecked(self, name: str) -> NDArray[Any]:
        """`array`, in which a missing time or id may be among the values."""
        if name in self._arrays or self._parent is not None or self._has_read(name):
            return self.array(name)
        cheap = self.source.integers(name)
        return self.array(name) if cheap is None else cheap

    def _may_lack(self, name: str) -> bool:
        """Whether a value may be missing: a label, the level of a marker row, and ids that will be looked up."""
        return name in ("token_label", "level") or (name in self.identity and len(self.identity) > 2)

    def _prove(self, arrays: Mapping[str, NDArray[Any]], rows: Ints) -> bool:
        """Whether nothing is missing, by the rows where it would be first; then the arrays are those of the columns."""
        if any(len(rows) and a[rows].min() == _missing(c) for c, a in arrays.items() if not self._may_lack(c)):
            return False
        self._arrays |= arrays
        return True

    def _any_text(self, name: str) -> pl.Series:
        """A column of ids of any name, as categories; there may be nulls."""
        return (
            self.column(name) if name in ID_COLUMNS else normalization.ids(self.source.raw(name), name, nullable=True)
        )

    def any_texts(self, name: str, rows: Ints) -> list[str | None]:
        """Ids of any column as Python texts."""
        if name in ID_COLUMNS:
            return self.texts(name, rows)
        return self._any_text(name).gather(rows).cast(pl.String).to_list()

    def instants(self, name: str) -> Ints:
        """A column of times of any name as microseconds UTC."""
        if name == "ts":
            return self.array(name)
        return normalization.times(self.source.raw(name), name).to_physical().to_numpy()[self.rows]

    def order(self, ids: Sequence[str], *keys: Ints) -> Ints:
        """Positions of the rows by ids, then by other integers."""
        columns = [*(_ranked(self.column(c)) for c in ids), *map(pl.Series, keys)]
        frame = pl.DataFrame([c.alias(str(i)) for i, c in enumerate(columns)])
        if frame.height < 2 or _is_sorted([c.to_numpy() for c in frame]):
            return np.arange(frame.height, dtype=np.int64)
        by = frame.columns
        return frame.with_row_index("row").sort(*by, "row")["row"].cast(pl.Int64).to_numpy()

    def refuse_doubles(self, rows: Ints, keys: Sequence[NDArray[Any]], names: Sequence[str]) -> None:
        """Refuse different rows with equal keys; the keys rise in the order of these rows."""
        same = np.ones(max(len(rows) - 1, 0), bool)
        for key in keys:
            ordered = key[rows]
            same &= ordered[1:] == ordered[:-1]
        if same.any():
            out = self.take(rows)
            differs = same & ~out._equals_before(self.names)[1:]
            if differs.any():
                raise NotTidyError(
                    f"right has two different rows with the same {', '.join(names)}; a join takes one. Of books give "
                    "md.bbo(books) or md.to_wide(books)."
                )

    def refuse_changes(self, name: str, starts: Ints) -> None:
        """NotTidyError naming a column whose values differ between two of these positions, and the first row."""
        differs = ~self._equals_before([name])
        differs[starts] = False
        if differs.any():
            raise NotTidyError(
                f"{name} differs within a snapshot, first {self.shown(int(np.argmax(differs)))}, and a nested row has "
                "one value of it; drop the column."
            )

    def is_number(self, name: str) -> bool:
        """Whether a column is numeric."""
        return normalization.is_number(self.source.raw(name))

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None]:
        """Ids as Python texts."""
        table = self if rows is None else self.take(rows)
        found = None if name in self._made else self.source.texts(name, table.places)
        # Where one is missing that must not be, the column is refused.
        if found is not None and (self._may_lack(name) or None not in found):
            return found
        return table.column(name).cast(pl.String).to_list()

    def frame(self, *values: str) -> pl.DataFrame:
        """``ts``, the ids and these columns (without any: those of the kind), NaN as null."""
        return pl.DataFrame(self.columns("ts", *self.keys, *(values or values_of(self.kind))))

    def columns(self, *names: str) -> list[pl.Series]:
        """Columns with NaN as null."""
        columns = (self.column(c) for c in names)
        return [c.fill_nan(None) if c.dtype.is_float() else c for c in columns]

    @property
    def groups(self) -> Ints:
        """Where tokens (or markets) begin; of a table that is in order."""
        assert self._groups is not None
        return self._groups

    @property
    def token_numbers(self) -> Ints:
        """The number of each row's token (or market), from 0; of a table that is in order."""
        return np.repeat(np.arange(len(self.groups)), run_ends(self.groups, len(self)) - self.groups)

    @property
    def sides(self) -> Sides:
        """Where snapshots and their asks begin; of a table from `book`."""
        assert self._sides is not None
        return self._sides

    # Order

    def in_order(self, values: Iterable[str] = (), *, unique: bool = True) -> EagerTable:
        """The rows by token and time; ``unique``: equal ``values`` are one row, different ones a NotTidyError."""
        if self._found_order(unique=unique):
            return self
        out = self.take(self._order())._with_one_label()
        if unique:
            out = out._without_doubles(list(values))
        out._found_order(unique=unique)
        return out

    def _found_order(self, *, unique: bool) -> bool:
        who = self.who
        arrays = {c: self.unchecked(c) for c in ("ts", *(self.keys if who else ()))}
        ts, *ids = arrays.values()
        groups = group_starts(*ids) if ids else np.zeros(min(len(ts), 1), np.int64)
        # Where the label alone changes, a token has two, or comes again.
        new = [code[groups[1:]] != code[groups[1:] - 1] for code, c in zip(ids, self.keys, strict=False) if c in who]
        if new and not np.logical_or.reduce(new).all():
            return False
        if not _rises(ts, groups, strictly=unique) or not self._prove(arrays, groups):
            return False
        if not self._heads_rise(who, groups):
            return False
        self._groups = groups
        return True

    def _heads_rise(self, who: Sequence[str], at: Ints) -> bool:
        heads = [[(t is None, t or "") for t in self.texts(c, at)] for c in who]
        return all(a < b for a, b in pairwise(zip(*heads, strict=True)))

    def _order(self, *more: str) -> Ints:
        rest = [self.column("ts").to_physical(), *(self.column(c).to_physical() for c in more)]
        columns = [*(_ranked(self.column(c)) for c in self.who), *rest]
        frame = pl.DataFrame([c.alias(str(i)) for i, c in enumerate(columns)]).with_row_index("row")
        return frame.sort(*frame.columns[1:], "row", nulls_last=True)["row"].cast(pl.Int64).to_numpy()

    def _with_one_label(self) -> EagerTable:
        """A token is its ids: all its rows get the label of the newest row that has one; rows are by token and time."""
        if "token_label" not in self.keys or "token_label" in self.who or not len(self):
            return self
        codes = self.array("token_label")
        groups = group_starts(*(self.array(c) for c in self.who))
        newest = np.maximum.reduceat(np.where(codes >= 0, np.arange(len(codes)), -1), groups)
        rows = np.repeat(np.where(newest >= 0, newest, groups), run_ends(groups, len(codes)) - groups)
        if (codes[rows] != codes).any():
            self._columns["token_label"] = self.column("token_label").gather(rows)
            self._arrays.pop("token_label", None)
            self._made.add("token_label")
        return self

    def is_made(self, name: str) -> bool:
        """Whether a column has other values than the native frame."""
        return name in self._made

    def is_native(self, name: str) -> bool:
        """Whether rows of a column of the native frame can be passed on as those of a tidy frame."""
        return not self.is_made(name) and self.source.is_tidy(name)

    def _without_doubles(self, values: Sequence[str], keys: Sequence[str] = ("ts",)) -> EagerTable:
        """One of the rows that are equal; the table is sorted by these keys."""
        who = [*self.who, *keys]
        same = self._equals_before(who)
        self._explain_nanoseconds(same)
        if not same.any():
            return self
        differs = same & ~self._equals_before(values) if values else np.zeros(len(self), bool)
        if differs.any():
            raise NotTidyError(
                f"Two rows have the same {', '.join(who)} and different {', '.join(values)}, first "
                f"{self.shown(int(np.argmax(differs)))}; keep one of them. Of books give md.bbo(books) or "
                "md.to_wide(books) where a verb takes one row per token and time."
            )
        return self.take(np.flatnonzero(~same))

    def _equals_before(self, names: Iterable[str]) -> NDArray[np.bool_]:
        same = np.ones(len(self), bool)
        same[:1] = False
        for name in names:
            a = self._comparable(name)
            equal = a[1:] == a[:-1]
            if a.dtype.kind == "f":
                equal |= np.isnan(a[1:]) & np.isnan(a[:-1])
            same[1:] &= equal
        return same

    def _comparable(self, name: str) -> NDArray[Any]:
        """A column of any type as an array whose values are equal where those of the column are."""
        if self.kind == "nested" and name in LISTS:
            return self.column(name).hash().to_numpy()
        if name in _TYPED or self.is_number(name):
            return self.array(name)
        raw = self.source.raw(name)
        return (pl.Series(list(map(repr, raw))) if isinstance(raw, list) else raw).hash().to_numpy()[self.rows]

    def shown(self, at: int) -> str:
        """Time and ids of a row, for a message."""
        one = np.array([at], np.int64)
        return " ".join([to_text(int(self.array("ts")[at])), *(str(self.texts(c, one)[0]) for c in self.keys)])

    def _explain_nanoseconds(self, same: NDArray[np.bool_]) -> None:
        """Refuse two times of a token that fall into one microsecond."""
        cut = normalization.cut_nanoseconds(self.source.raw("ts"))
        if cut is None:
            return
        exact = cut.gather(self.rows).to_numpy()
        close = same[1:] & (exact[1:] != exact[:-1])
        if close.any():
            raise NotTidyError(
                f"Two times of a token are less than a microsecond apart, first {self.shown(int(np.argmax(close)))}; "
                "tidy frames have microseconds: keep one row per microsecond."
            )

    def check(self) -> None:
        """Refuse texts in a column of numbers, where the order of rows does not matter."""
        for name in self.names:
            if name in _NUMBERS:
                self.column(name)

    def is_in_order(self) -> bool:
        """Whether rows are by token and time already."""
        if "ts" not in self.names or not self.who:
            return False
        return self._groups is not None or self._found_order(unique=False)

    def owners(self, names: Sequence[str]) -> tuple[Ints, Ints]:
        """A row of each combination of some ids, maybe several, and which of them is that of each row."""
        if names and {*names} <= {*self.who} and self.is_in_order():
            return self.groups, self.token_numbers
        heads = which = np.zeros(len(self), np.int64)
        for name in names:
            codes = self._any_text(name).to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1
            both = which * (int(codes.max(initial=0)) + 1) + codes
            heads, which = np.unique(both, return_index=True, return_inverse=True)[1:]
        return heads[:1] if not names else heads, which

    # Books

    def book(self, *, whole: bool = True) -> EagerTable:
        """The rows of books by token, time, side and level, with `sides`; all levels checked, or the best two."""
        if not self._found_book():
            out = self.take(self._order("side", "level"))._with_one_label()
            out = out._without_doubles(("price", "size"), ("ts", "side", "level"))
            if not out._found_book():
                out._explain_book()
            return out.book(whole=whole)
        self._check_prices(whole=whole)
        return self

    def of_snapshots(self, name: str) -> pl.Series:
        """A column of times or ids of a table that `book` gave, one row per snapshot."""
        return self.column(name).gather(self.sides.starts)

    def _found_book(self) -> bool:
        arrays = {c: self.unchecked(c) for c in ("ts", *self.keys)}
        ts, side, level = arrays["ts"], self.array("side"), self.array("level")
        groups = group_starts(*(arrays[c] for c in self.who))
        # A label changes with its token only.
        if not all(_within(group_starts(arrays[c]), groups) for c in self.keys if c not in self.who):
            return False
        found = _tops(level, side, ts)
        if found is None or not _within(groups, found[0]):
            return False
        tops, times, is_ask = found
        new = np.append(True, times[1:] != times[:-1])[: len(tops)]
        owner = np.searchsorted(tops, groups)
        falls = np.flatnonzero(times[1:] < times[:-1]) + 1
        new[owner] = True
        # A side follows that opens a snapshot, or is the asks behind the bids.
        if not _within(falls, owner) or not (new[1:] | (is_ask[1:] & ~is_ask[:-1])).all():
            return False
        opens = np.flatnonzero(new)
        starts = tops[opens]
        if not self._prove(arrays, groups) or not self._heads_rise(self.who, groups):
            return False
        # The next side is the asks, or the next snapshot; or the first one was.
        after = np.append(tops, len(ts))[1:][opens]
        asks = np.where(is_ask[opens], starts, after) if is_ask[opens].any() else after
        self._groups, self._sides = groups, Sides(starts, asks, run_ends(starts, len(ts)))
        return True

    def _explain_book(self) -> None:
        level, price = self.array("level"), self.array("price")
        new = ~self._equals_before([*self.who, "ts", "side"])
        held = ~np.isnan(price)
        null = self.column("level").is_null().to_numpy()
        wrong = held & null
        if wrong.any():
            raise NotTidyError(f"level is null where price is not, first {self.shown(int(np.argmax(wrong)))}.")
        step = np.diff(level, prepend=-1)
        wrong = np.where(new, level != 0, step != 1)
        at = int(np.argmax(wrong))
        raise NotTidyError(
            f"Levels of a side are 0, 1, 2, ... from the best price, each once; {self.shown(at)} has level {level[at]}"
            f"{' first' if new[at] else f' after {level[at - 1]}'}. Number the levels of each (token, ts, side) anew."
        )

    @property
    def books(self) -> Books:
        """The levels of each snapshot; of a table from `book`."""
        starts = self.sides.starts
        return Books((), starts[:1], starts, *map(_without_markers, self._marked))

    @cached_property
    def _marked(self) -> tuple[Side, Side]:
        """Both sides of each snapshot, in which the marker row of an empty one is a level."""
        starts, asks, ends = self.sides
        price, size = self.array("price"), self.array("size")
        return Side(starts, asks - starts, price, size), Side(asks, ends - asks, price, size)

    def _wrong_tops(self) -> tuple[Ints, Ints]:
        """`_wrong_rows` of the best two levels of each side alone."""
        half, deeper = [], []
        for side, sign in zip(self._marked, (-1, 1), strict=True):
            half.append(side.begins[np.isnan(side.best) != np.isnan(side.best_size)])
            two = side.counts > 1
            rows, best = (side.begins, side.best) if two.all() else (side.begins[two], side.best[two])
            with np.errstate(invalid="ignore"):
                worse = (side.price[rows + 1] - best) * sign
            deeper.append(rows[~(worse >= 0)] + 1)
        return np.concatenate(half), np.concatenate(deeper)

    def _check_prices(self, *, whole: bool) -> None:
        price, size, level = self.array("price"), self.array("size"), self.array("level")
        side = self.array("side")
        if whole:
            half, deeper = _wrong_rows(price, size, level, side)
        else:
            half, deeper = self._wrong_tops()
        if len(half):
            raise NotTidyError(
                f"A level has a price and no size, or a size and no price, first {self.shown(int(half.min()))}; give "
                "both, or neither for the marker row of an empty side."
            )
        with np.errstate(invalid="ignore"):
            rise = price[deeper] - price[deeper - 1]
        wrong = np.isnan(rise) | np.where(side[deeper] != 0, rise < 0, rise > 0)
        if wrong.any():
            first = int(deeper[np.argmax(wrong)])
            raise NotTidyError(
                f"Level {level[first]} of {self.shown(first)} has a better price than the one before, or one of them "
                "is missing or infinite; level 0 is the best price of its side: number the levels anew."
            )


def refuse_cents(table: EagerTable, *names: str) -> None:
    """NotTidyError where a column is no probability."""
    for name in names:
        values = table.array(name)
        wrong = outside_0_1(values)
        if wrong.any():
            raise NotTidyError(f"{name} is {values[wrong][0]:g}, {NOT_0_1} md.check lists such rows.")


def _without_markers(side: Side) -> Side:
    missing = np.isnan(side.best)
    return replace(side, counts=np.where(missing, 0, side.counts)) if missing.any() else side


def _missing(name: str) -> int:
    return _NO_TIME if name == "ts" else -1


def _normalised(raw: Any, name: str, *, nullable: bool) -> pl.Series:
    if name == "ts":
        return normalization.times(raw, name)
    if name in ID_COLUMNS:
        return normalization.ids(raw, name, nullable=nullable or name == "token_label")
    if name == "side":
        return normalization.sides(raw, name)
    if name == "level":
        return normalization.levels(raw, name)
    return normalization.numbers(raw, name)


def _ranked(column: pl.Series) -> pl.Series:
    """Integers in the order of the texts, a missing one last."""
    codes = column.to_physical().cast(pl.Int64).fill_null(-1)
    heads = codes.arg_unique()
    found = pl.DataFrame({"code": codes.gather(heads), "text": column.gather(heads).cast(pl.String)})
    found = found.sort("text", nulls_last=True)
    ranks = np.zeros(int(codes.max() or 0) + 2, np.int64)  # type: ignore[arg-type]
    ranks[found["code"].to_numpy()] = np.arange(found.height)
    return pl.Series(ranks[codes.to_numpy()])


def _is_sorted(keys: Sequence[NDArray[Any]]) -> bool:
    equal = np.ones(len(keys[0]) - 1, bool)
    for key in keys:
        step = key[1:] - key[:-1]
        if (equal & (step < 0)).any():
            return False
        equal &= step == 0
    return True


def _rises(ts: Ints, groups: Ints, *, strictly: bool) -> bool:
    for first in range(1, len(ts), _BLOCK):
        a, b = ts[first - 1 : first + _BLOCK - 1], ts[first : first + _BLOCK]
        falls = np.flatnonzero(b[: len(b)] <= a[: len(b)] if strictly else b < a[: len(b)])
        if len(falls) and not _within(falls + first, groups):
            return False
    return True


def _wrong_rows(price: NDArray[Any], size: NDArray[Any], level: NDArray[Any], side: NDArray[Any]) -> tuple[Ints, Ints]:
    """Rows with half a level, and rows below the best price that are not worse than the one before, or may not be."""
    half, deeper = [], []
    for first in range(0, len(price), _BLOCK):
        block = slice(first, first + _BLOCK)
        half.append(np.flatnonzero(np.isnan(price[block]) != np.isnan(size[block])) + first)
        start, last = max(first, 1), min(first + _BLOCK, len(price))
        here = slice(start, last)
        worse = price[here] - price[start - 1 : last - 1]
        # The price of an ask rises from level to level, that of a bid falls.
        worse *= side[here] * 2.0 - 1.0
        fine = worse >= 0
        fine |= level[here] == 0
        deeper.append(np.flatnonzero(~fine) + start)
    empty = np.zeros(0, np.int64)
    return np.concatenate([empty, *half]), np.concatenate([empty, *deeper])


def _within(some: Ints, every: Ints) -> bool:
    """Whether each of these positions is one of the others; both rise."""
    at = np.searchsorted(every, some)
    return bool(len(some) == 0 or (at[-1] < len(every) and (every[at] == some).all()))


def _tops(level: NDArray[np.int32], side: NDArray[Any], ts: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]] | None:
    """Where sides begin, their times, and whether they are asks; None where a row does not follow the one before."""
    found = [(np.arange(0), ts[:0], side[:0] != 0)]
    for a in range(0, len(level), _BLOCK):
        b = min(a + _BLOCK, len(level))
        here, before = slice(max(a, 1), b), slice(max(a, 1) - 1, b - 1)
        begins = np.ones(b - a, bool)
        inner = begins[here.start - a :]
        np.not_equal(level[here] - level[before], 1, out=inner)
        inner |= side[here] != side[before]
        inner |= ts[here] != ts[before]
        at = np.flatnonzero(begins) + a
        # Levels count up from a 0 to the next row where something else changes, so there it must be 0 again.
        if level[at].any():
            return None
        found.append((at, ts[at], side[at] != 0))
    tops, times, is_ask = (np.concatenate(part) for part in zip(*found, strict=True))
    return tops, times, is_ask
