"""A native frame in memory as a verb sees it: columns as numpy arrays, and a frame of its library from columns."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters import normalization
from marketdata.errors import NotTidyError
from marketdata.points.columns import Codes, Floats, Ints
from marketdata.points.schema import COLUMNS, ID_COLUMNS, LISTS, Kind, check_names
from marketdata.times import to_text

NO_TIME = np.iinfo(np.int64).min
_NUMBERS = {c for columns in COLUMNS.values() for c in columns} - {"ts", *ID_COLUMNS, "side", "level", *LISTS}
# Columns of texts that come back in the type that the native frame has for them.
TEXTS = (*ID_COLUMNS, "side")


class Lists(NamedTuple):
    """A column of lists: how many values each has, and the values of all, list after list."""

    counts: Ints
    values: Floats


class Texts(NamedTuple):
    """A column of texts: entry i is ``texts[codes[i]]``, null where the code is -1."""

    codes: NDArray[np.integer]
    texts: list[str | None]


class Levels(NamedTuple):
    """A column of levels, null where they are missing."""

    level: Codes
    missing: NDArray[np.bool_]


class Values(NamedTuple):
    """A column of Python values of one type, None where one is missing."""

    type: Literal["text", "bool", "int", "texts", "numbers"]
    values: Sequence[object]


class Passed(NamedTuple):
    """A column of a native frame, passed on in its own type: the rows (None: all in order; -1: null)."""

    frame: Frame
    name: str
    rows: Ints | None


# Numbers with NaN, whole numbers, truth values, datetime64 in microseconds UTC, or one of the above.
Column = NDArray[Any] | list[Any] | pl.Series | Lists | Texts | Levels | Values | Passed


class Frame:
    """Some rows of a native frame; a library says how its columns are read and made in a class of its own."""

    def __init__(self, native: Any, names: list[str], kind: Kind = "series") -> None:
        check_names(names)
        self.native, self.names, self.kind = native, names, kind
        self.ids = [c for c in ID_COLUMNS if c in names]
        self.rows: Ints | None = None
        self.relabelled = False
        self._found: dict[tuple[str, str], Any] = {}
        self._before: tuple[Frame, Ints] | None = None

    def __len__(self) -> int:
        return self._count() if self.rows is None else len(self.rows)

    # What a library says

    @abstractmethod
    def _count(self) -> int:
        """Number of rows of the native frame."""

    @abstractmethod
    def raw(self, name: str) -> Any:
        """A column as a polars Series, or as a list of objects."""

    @abstractmethod
    def fast(self, name: str) -> Any:
        """A column of a tidy type as an array without a look at it: missing times, codes and levels are the least."""

    @abstractmethod
    def fast_texts(self, name: str, rows: Ints) -> list[str | None] | None:
        """Texts of some rows of the native frame; None: not cheaper than by `raw`."""

    @abstractmethod
    def is_tidy(self, name: str) -> bool:
        """Whether rows of a column can be passed on as a column of tidy frames."""

    @abstractmethod
    def build(self, columns: Mapping[str, Column], height: int) -> Any:
        """A native frame; texts of a column that this one has come in its type."""

    def matrix(self, ts: Ints, names: list[str], values: Any) -> Any:
        """A native frame of a row per time with a column of numbers per name; of pandas indexed by ``ts``."""
        columns: dict[str, Column] = {"ts": ts.view("M8[us]")}
        return self.build({**columns, **{name: values[:, i] for i, name in enumerate(names)}}, len(ts))

    # What follows

    def take(self, rows: Ints) -> Self:
        """The rows at these positions, in this order."""
        out = copy.copy(self)
        out._found, out._before = {}, (self, rows)  # noqa: SLF001 of this class
        out.rows = rows if self.rows is None else self.rows[rows]
        return out

    def without(self, name: str) -> Self:
        """The same without a column, whose type is none for what is made."""
        out = copy.copy(self)
        out.names, out.ids = ([c for c in some if c != name] for some in (self.names, self.ids))
        return out

    def native_rows(self, rows: Ints | None) -> Ints | None:
        """Rows of the native frame, of which -1 is none."""
        if self.rows is None or rows is None:
            return self.rows if rows is None else rows
        return np.where(rows < 0, -1, self.rows[rows]) if len(self.rows) else rows

    def times(self, name: str) -> Ints:
        """A column of times as microseconds UTC; NotTidyError if one is missing."""
        found = self.integers(name)
        if len(found) and found.min() == NO_TIME:
            count = int((found == NO_TIME).sum())
            raise NotTidyError(f"{name} is null in {count} rows; every row needs a time: drop those rows.")
        return found

    def codes(self, name: str) -> NDArray[Any]:
        """A column of ids as integers, equal where the texts are; NotTidyError if one but of a label is missing."""
        found = self.integers(name)
        if name != "token_label" and len(found) and found.min() < 0:
            count = int((found < 0).sum())
            raise NotTidyError(f"{name} is null in {count} rows; every row needs one: fill or drop those rows.")
        return found

    def integers(self, name: str) -> NDArray[Any]:
        """Times, ids (a missing one is the least), ``side`` (0 for a bid, 1 for an ask) or ``level`` (0 where null)."""
        return self._read("integers", name, self._integers_of)  # type: ignore[no-any-return]

    def other_codes(self, name: str) -> Ints:
        """A column of ids of any name as integers, -1 where one is missing."""
        if name in ID_COLUMNS:
            return self.integers(name)
        return _physical(normalization.ids(self.raw(name), name, nullable=True))

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None]:
        """Ids as Python texts."""
        own = rows if self.rows is None else self.rows if rows is None else self.rows[rows]
        own = np.arange(len(self)) if own is None else own
        found = self.fast_texts(name, own)
        if found is None:
            some = self if rows is None else self.take(rows)
            found = normalization.ids(some.raw(name), name, nullable=True).cast(pl.String).to_list()
        return found

    def missing_levels(self) -> NDArray[np.bool_]:
        """Where the column ``level`` is null."""
        return normalization.levels(self.raw("level")).is_null().to_numpy()

    def numbers(self, name: str) -> Floats:
        """A column of numbers, NaN where one is missing."""
        return self._read("numbers", name, lambda _: normalization.numbers(self.raw(name), name).to_numpy())  # type: ignore[no-any-return]

    def lists(self, name: str) -> Lists:
        """A column of lists of numbers; a missing list is empty."""
        key = ("lists", name)
        if key not in self._found:
            lists = normalization.lists(self.raw(name), name)
            counts = lists.list.len().cast(pl.Int64).to_numpy()
            self._found[key] = Lists(counts, lists.explode(empty_as_null=False).to_numpy())
        return self._found[key]  # type: ignore[no-any-return]

    def is_number(self, name: str) -> bool:
        """Whether a column is numeric."""
        return normalization.is_number(self.raw(name))

    def check_numbers(self) -> None:
        """NotTidyError for texts in a column of numbers of tidy frames."""
        for name in self.names:
            if name in _NUMBERS:
                self.numbers(name)

    def comparable(self, name: str) -> NDArray[Any]:
        """A column of any type as an array whose values are equal where those of the column are."""
        if name in ("ts", *ID_COLUMNS) or (self.kind == "books" and name in ("side", "level")):
            return self.integers(name)
        raw = self.raw(name)
        if name in LISTS and self.kind == "nested":
            raw = normalization.lists(raw, name)
        elif normalization.is_number(raw):
            return self.numbers(name)
        return (pl.Series(list(map(repr, raw))) if isinstance(raw, list) else raw).hash().to_numpy()

    def nanoseconds(self) -> NDArray[np.int64] | None:
        """The times in nanoseconds, if microseconds lose digits."""
        cut = normalization.cut_nanoseconds(self.raw("ts"))
        return None if cut is None else cut.to_numpy()

    def shown(self, at: int) -> str:
        """Time and ids of a row, for a message."""
        one = np.array([at], np.int64)
        return " ".join([to_text(int(self.integers("ts")[at])), *(str(self.texts(c, one)[0]) for c in self.ids)])

    def _integers_of(self, name: str) -> NDArray[Any]:
        """Times, ids, sides or levels, as the library has them if it has them so."""
        cheap = self.fast(name)
        if cheap is not None and not (name == "side" and len(cheap) and cheap.min() < 0):
            return cheap  # type: ignore[no-any-return]
        raw = self.raw(name)
        if name in ID_COLUMNS:
            return _physical(normalization.ids(raw, name, nullable=True))
        if name == "side":
            return _physical(normalization.sides(raw))
        if name == "level":
            return normalization.levels(raw).fill_null(0).to_numpy()
        return _physical(normalization.times(raw, name))

    def _read(self, what: str, name: str, read: Callable[[str], Any]) -> Any:
        key = (what, name)
        if key not in self._found:
            before = self._before
            known = before is not None and key in before[0]._found  # noqa: SLF001 of this class
            self._found[key] = before[0]._found[key][before[1]] if known and before else read(name)  # noqa: SLF001
        return self._found[key]


def _physical(column: pl.Series) -> NDArray[Any]:
    codes = column.to_physical()
    return codes.cast(pl.Int64).fill_null(-1).to_numpy() if codes.null_count() else codes.to_numpy()
