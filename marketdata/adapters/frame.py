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
from marketdata.points.order import NO_TIME
from marketdata.points.schema import COLUMNS, ID_COLUMNS, LISTS, Kind
from marketdata.times import to_text

Native = Any
"""A frame as its library has it."""
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

    @classmethod
    def of(cls, values: list[str | None]) -> Texts:
        """A list of texts, its entries in their order."""
        texts = sorted({text for text in values if text is not None})
        place = {text: i for i, text in enumerate(texts)}
        return cls(np.array([place.get(text, -1) if text is not None else -1 for text in values], np.int64), [*texts])


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
Column = NDArray[Any] | list[Any] | Lists | Texts | Levels | Values | Passed
Rule = Callable[[normalization.Raw, str], pl.Series]


class Frame:
    """Some rows of a native frame; a library says how its columns are read and made in a class of its own."""

    def __init__(self, native: Native, names: list[str], kind: Kind = "series") -> None:
        self.native, self.names, self.kind = native, names, kind
        self.ids = [c for c in ID_COLUMNS if c in names]
        self.keys = [c for c in self.ids if c != "token_label"]
        """The columns that identify tokens (markets)."""
        self.rows: Ints | None = None
        self._converted: dict[tuple[str, Rule], NDArray[Any]] = {}

    def __len__(self) -> int:
        return len(self.native) if self.rows is None else len(self.rows)

    # What a library says

    @abstractmethod
    def raw(self, name: str) -> normalization.Raw:
        """A column as a polars Series, or as a list of objects."""

    @abstractmethod
    def fast(self, name: str) -> NDArray[Any] | None:
        """`integers` of a column of a tidy type, without a copy; a missing time or code is the least."""

    @abstractmethod
    def is_tidy(self, name: str) -> bool:
        """Whether rows of a column can be passed on as a column of tidy frames."""

    @abstractmethod
    def build(self, columns: Mapping[str, Column], height: int) -> Native:
        """A native frame; texts of a column that this one has come in its type."""

    def matrix(self, ts: Ints, names: list[str], values: Floats) -> Native:
        """A native frame of a row per time with a column of numbers per name; of pandas indexed by ``ts``."""
        columns: dict[str, Column] = {"ts": ts.view("M8[us]")}
        return self.build({**columns, **{name: values[:, i] for i, name in enumerate(names)}}, len(ts))

    # What follows

    def take(self, rows: Ints) -> Self:
        """The rows at these positions, in this order."""
        out = copy.copy(self)
        out.rows = self.native_rows(rows)
        out._converted = {key: values[rows] for key, values in self._converted.items()}  # noqa: SLF001 of this class
        return out

    def without(self, name: str) -> Self:
        """The same without a column, whose type is none for what is made."""
        out = copy.copy(self)
        out.names, out.ids, out.keys = ([c for c in some if c != name] for some in (self.names, self.ids, self.keys))
        return out

    def native_rows(self, rows: Ints | None) -> Ints | None:
        """Rows of the native frame, of which -1 is none."""
        if self.rows is None or rows is None:
            return self.rows if rows is None else rows
        return np.where(rows < 0, -1, self.rows[rows]) if len(self.rows) else rows

    def integers(self, name: str) -> NDArray[Any]:
        """``ts``, ``side`` (0 for a bid, 1 for an ask), ``level`` (0 where null), or an id of any name as codes.

        A missing time or code is the least.
        """
        found = self.fast(name)
        return self._read(name, normalization.INTEGERS.get(name, normalization.codes)) if found is None else found

    def times(self, name: str) -> Ints:
        """A column of times as microseconds UTC; NotTidyError if one is missing."""
        found = self.integers(name) if name == "ts" else self._read(name, normalization.micros)
        return _present(found, name, NO_TIME, "a time: drop")

    def codes(self, name: str) -> NDArray[np.integer]:
        """A column of ids as integers, equal where the texts are; NotTidyError if one but of a label is missing."""
        found = self.integers(name)
        return found if name == "token_label" else _present(found, name, -1, "one: fill or drop")

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None]:
        """Ids as Python texts."""
        some = self if rows is None else self.take(rows)
        return normalization.ids(some.raw(name), name, nullable=True).cast(pl.String).to_list()

    def missing_levels(self) -> NDArray[np.bool_]:
        """Where the column ``level`` is null."""
        return normalization.levels(self.raw("level")).is_null().to_numpy()

    def numbers(self, name: str) -> Floats:
        """A column of numbers, NaN where one is missing."""
        return self._read(name, normalization.numbers)

    def lists(self, name: str) -> Lists:
        """A column of lists of numbers; a missing list is empty."""
        lists = normalization.lists(self.raw(name), name)
        counts = lists.list.len().cast(pl.Int64).to_numpy()
        return Lists(counts, lists.explode(empty_as_null=False).to_numpy())

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

    def _read(self, name: str, rule: Rule) -> NDArray[Any]:
        """A column of a foreign type, converted once."""
        key = name, rule
        if key not in self._converted:
            self._converted[key] = rule(self.raw(name), name).to_numpy()
        return self._converted[key]


def _present(values: NDArray[Any], name: str, missing: int, needs: str) -> NDArray[Any]:
    if len(values) and values.min() <= missing:
        count = int((values <= missing).sum())
        raise NotTidyError(f"{name} is null in {count} rows; every row needs {needs} those rows.")
    return values
