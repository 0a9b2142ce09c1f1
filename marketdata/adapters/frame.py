"""A native frame in memory as a function sees it: columns as numpy arrays, and a frame of its library from columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters import normalization
from marketdata.errors import NotTidyError
from marketdata.points.columns import Columns, Floats, Ints
from marketdata.points.schema import COLUMNS, ID_COLUMNS, LISTS, OBSERVED, Kind
from marketdata.resolution import BucketWidth
from marketdata.times import to_text

Native = Any
"""A frame as its library has it."""
_NUMBERS = {c for columns in COLUMNS.values() for c in columns} - {"ts", *ID_COLUMNS, "side", "level", *LISTS}
# Texts keep the type that the native frame has for them.
TEXTS = (*ID_COLUMNS, "side")


class Texts(NamedTuple):
    """A column of texts: ``texts[codes[i]]``, null where the code is -1, repeated ``lengths[i]`` times."""

    codes: NDArray[np.integer]
    texts: list[str | None]
    lengths: Ints | None = None

    @classmethod
    def of(cls, values: list[str | None]) -> Texts:
        """A list of texts, its entries in their order."""
        place = {text: i for i, text in enumerate(sorted({text for text in values if text is not None}))}
        return cls(np.array([-1 if text is None else place[text] for text in values], np.int64), [*place])


class Passed(NamedTuple):
    """A column of a native frame in its own type, at these rows; None takes all rows, -1 gives a null."""

    frame: Frame
    name: str
    rows: Ints | None


Column = NDArray[Any] | pl.Series | list[str | None] | Texts | Passed


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """Some rows of a native frame. It never changes: `frames.sorted_rows` and its like return the frame in order.

    The class of a library reads a column (`raw`) and makes a frame (`build`).
    """

    native: Native
    names: tuple[str, ...]
    kind: Kind = "series"
    rows: Ints | None = None
    """The rows of the native frame that these are; None: all, as they are."""
    entries: Columns | None = None
    """The tokens and times of the rows, None as long as their order is not known."""
    is_keyed_by_label: bool = False
    """Whether labels tell tokens apart, as ids are missing."""
    has_mixed_labels: bool = False
    """Whether the rows of a token have several labels."""
    width: BucketWidth | None = None
    """The bucket width that the frame of the user carries."""
    is_whole: bool = False
    """Whether these are all rows of a frame in memory, which a warning or an error about their times needs."""
    _arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    """Columns that were read from these rows, so that none is converted twice."""
    _origin: tuple[Mapping[str, NDArray[Any]], Ints] | None = None
    """Columns that were read from the frame that these rows were taken from, and their positions in it."""

    @classmethod
    def of(cls, native: Native) -> Self:
        """All rows of a native frame, as they are."""
        names = tuple(str(c) for c in native.columns)
        if [*names] != list(native.columns):
            # Names of columns are texts in every library but pandas, where reset_index() or a pivot makes others.
            native = native.set_axis(names, axis=1)
        return cls(native, names)

    def __len__(self) -> int:
        return len(self.native) if self.rows is None else len(self.rows)

    @property
    def ids(self) -> list[str]:
        """The columns of ids that there are."""
        return [c for c in ID_COLUMNS if c in self.names]

    @property
    def keys(self) -> list[str]:
        """The columns that identify tokens (markets)."""
        return [c for c in self.ids if c != "token_label" or self.is_keyed_by_label]

    # Methods that a library implements

    @abstractmethod
    def raw(self, name: str, rows: Ints | None = None) -> normalization.Raw:
        """A column as a polars Series, or as a list of objects: these rows of the native frame, by default ``rows``."""

    @abstractmethod
    def is_tidy(self, name: str) -> bool:
        """Whether a column has the type that it has in tidy frames."""

    @abstractmethod
    def build(self, columns: Mapping[str, Column], height: int) -> Native:
        """A native frame; texts take the type that this frame has for the column."""

    # Methods that follow from these

    def read(self, *names: str) -> list[NDArray[Any]]:
        """Columns as arrays, by the rule of each name; a column of a tidy type is not copied.

        ``ts`` is in microseconds UTC. ``side`` is 0 for a bid and 1 for an ask. ``level`` is 0 where it is null. Ids
        are codes, -1 where one is missing. Others are numbers, NaN where missing.
        """
        for name in names:
            if name not in self._arrays:
                self._arrays[name] = self._read(name)
        return [self._arrays[name] for name in names]

    def _read(self, name: str) -> NDArray[Any]:
        if self._origin is not None and name in self._origin[0]:
            columns, positions = self._origin
            return columns[name][positions]
        return self.array(name, is_tidy=self.is_tidy(name))

    def array(self, name: str, *, is_tidy: bool) -> NDArray[Any]:  # noqa: ARG002 a library may have a short way
        """A column by the rule of its name, for `read`."""
        return normalization.RULES.get(name, normalization.numbers)(self.raw(name), name)

    def take(self, rows: Ints) -> Self:
        """The rows at these positions, in this order."""
        return replace(
            self,
            rows=rows if self.rows is None else self.rows[rows],
            entries=None if self.entries is None else self.entries.take(rows),
            _arrays={},
            _origin=(self._arrays, rows),
        )

    def without(self, name: str) -> Self:
        """The same without a column, so that a made column does not take its type."""
        return replace(self, names=tuple(c for c in self.names if c != name))

    def can_pass_on(self, name: str) -> bool:
        """Whether a tidy frame can have the column as it is, without a conversion."""
        return self.is_tidy(name) and not (name == "token_label" and self.has_mixed_labels)

    def times(self, name: str) -> Ints:
        """A column of times as microseconds UTC; NotTidyError if one is missing."""
        return self.read(name)[0] if name == "ts" else normalization.micros(self.raw(name), name)

    def codes(self, name: str, *, nullable: bool = False) -> NDArray[np.integer]:
        """A column as integers, equal for equal texts. A missing label is -1; any other missing text is refused."""
        values = self.read(name)[0] if name in ID_COLUMNS else normalization.codes(self.raw(name), name)
        if not nullable and name != "token_label" and values.min(initial=0) < 0:
            count = int((values < 0).sum())
            raise NotTidyError(f"{name} is null in {count} rows; every row needs one: fill or drop those rows.")
        return values

    def texts(self, name: str, rows: Ints | None = None) -> list[str | None]:
        """Ids as Python texts, of all rows or some."""
        raw = self.raw(name, self.rows if rows is None else rows if self.rows is None else self.rows[rows])
        whole = normalization.ids(raw, name) if isinstance(raw, list) or raw.dtype.is_float() else raw
        return whole.cast(pl.String).to_list()

    def missing_levels(self) -> NDArray[np.bool_]:
        """True where the column ``level`` is null."""
        return normalization.levels(self.raw("level")).is_null().to_numpy()

    def numbers(self, name: str) -> Floats:
        """A column of numbers, NaN where one is missing."""
        return normalization.numbers(self.raw(name), name) if name in normalization.RULES else self.read(name)[0]

    def observed(self) -> NDArray[np.bool_]:
        """False for rows that were filled in, by the column ``observed``; all True without it."""
        if OBSERVED not in self.names:
            return np.ones(len(self), bool)
        raw = self.raw(OBSERVED)
        return np.array([one is None or bool(one) for one in raw], bool) if isinstance(raw, list) else (
            raw.cast(pl.Boolean).fill_null(value=True).to_numpy()
        )  # fmt: skip

    def flags(self, name: str) -> Floats:
        """A column of flags as 1 and 0, NaN where one is missing; NotTidyError for other values."""
        raw = pl.Series(self.raw(name), strict=False)
        is_missing = raw.is_null() | raw.is_nan() if raw.dtype.is_float() else raw.is_null()
        values = raw.cast(pl.Float64, strict=False)
        if not (values.is_in([0.0, 1.0]).fill_null(value=False) | is_missing).all():
            raise NotTidyError(f"{name} has other values than true, false and null.")
        return values.fill_null(np.nan).to_numpy()

    def lists(self, name: str) -> pl.Series:
        """A column of lists of numbers; a missing list is empty."""
        return normalization.lists(self.raw(name), name)

    def is_number(self, name: str) -> bool:
        """Whether a column is numeric."""
        return normalization.is_number(self.raw(name))

    def check_numbers(self) -> None:
        """NotTidyError if a column that is numbers in tidy frames has texts."""
        self.read(*(name for name in self.names if name in _NUMBERS))

    def comparable(self, name: str) -> NDArray[Any]:
        """A column of any type as an array whose values are equal if the rows are equal."""
        if name in normalization.RULES and (self.kind == "books" or name not in ("side", "level")):
            return self.read(name)[0]
        raw = self.raw(name)
        if name in LISTS and self.kind == "nested":
            raw = normalization.lists(raw, name)
        elif normalization.is_number(raw):
            return self.numbers(name)
        return (pl.Series(list(map(repr, raw))) if isinstance(raw, list) else raw).hash().to_numpy()

    def nanoseconds(self) -> NDArray[np.int64] | None:
        """The times in nanoseconds, if microseconds lose digits."""
        raw = self.raw("ts")
        if isinstance(raw, list) or raw.dtype.time_unit != "ns":
            return None
        whole: NDArray[np.int64] = raw.to_physical().to_numpy()
        return whole if (whole % 1000 != 0).any() else None

    def shown(self, at: int) -> str:
        """Time and ids of a row, for a message."""
        row = np.array([at], np.int64)
        return " ".join([to_text(int(self.read("ts")[0][at])), *(str(self.texts(c, row)[0]) for c in self.ids)])
