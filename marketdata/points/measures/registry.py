"""The registry of measures: a formula on books, and what its columns mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.points.columns import Books
from marketdata.points.views import View

# Each array must have one value per book: a number, NaN for null, or a truth value.
Values = NDArray[Any] | Mapping[str, NDArray[Any]]
Formula = TypeVar("Formula", bound=Callable[..., Values])


@dataclass(frozen=True)
class Measure:
    """A formula on books, with the units of its columns and where they are null."""

    formula: Callable[..., Values]
    needs: Literal["top", "levels"]
    """Whether it looks at best prices and sizes alone, so that bbo frames are enough, or at all levels."""
    units: Mapping[str, str]
    null: str
    source: str = ""
    is_function: bool = True
    """Whether it is a function ``md.<name>``; if not, only a feature."""

    @property
    def name(self) -> str:
        """The name of the formula."""
        return self.formula.__name__

    def columns(self, books: Books, arguments: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        """The columns for these books; ConfigError if the formula does not return one value per book."""
        values = self.formula(books if self.needs == "levels" else books.cut(1), **arguments)
        columns = dict(values) if isinstance(values, Mapping) else {self.name: values}
        arrays = {name: np.asarray(column) for name, column in columns.items()}
        for name, array in arrays.items():
            if array.shape != (len(books),) or array.dtype.kind not in "fiub":
                raise ConfigError(
                    f"The measure {self.name!r} returned {array.shape} values of {array.dtype} as {name!r} for "
                    f"{len(books)} books; return a numpy array with one number per book, or a dict of such arrays."
                )
        return {name: array if array.dtype == bool else array.astype(float) for name, array in arrays.items()}


MEASURES: dict[str, Measure] = {}


def measure(
    *, needs: Literal["top", "levels"], units: Mapping[str, str], null: str, source: str = "", is_function: bool = True
) -> Callable[[Formula], Formula]:
    """Register a formula as a measure; the formula itself is returned as it is."""

    def register(formula: Formula) -> Formula:
        MEASURES[formula.__name__] = Measure(formula, needs, units, null, source, is_function)
        return formula

    return register


def units_of(view: View) -> dict[str, str]:
    """The unit of each column of a view, and of what measures add to it."""
    units = {"ts": "start of the bucket, UTC", "level": "0 is the best"}
    units |= dict.fromkeys(("price", "bid_price", "ask_price"), "probability, 0 to 1")
    units |= dict.fromkeys(("size", "bid_size", "ask_size", "bid_total", "ask_total"), "shares")
    for measure in MEASURES.values():
        units |= measure.units
    if view == "metrics":
        units |= dict.fromkeys(("volume", "liquidity"), "in the unit of the service, which names none")
        units["spread"] = "probability, of the market and not of a book"
    return units
