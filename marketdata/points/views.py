"""The table of views: the kinds of history, with their columns, ids and JSON fields."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from marketdata.points.columns import METRICS, Books, Data, Series, Token

View = Literal["books", "prices", "metrics"]


class ViewSpec(NamedTuple):
    """All that is particular to a view.

    - ``ids``: the columns that identify a row, by a token of a market or by a market
    - ``names``: the columns of a tidy frame after the ids
    - ``fields``: the column of each JSON field of a point, empty for books
    - ``point_bytes``: the size of a point in a tidy frame [bytes], with 40 levels of a book
    - ``optional``: whether a field may be absent, its column then null
    """

    columns: type[Data]
    ids: tuple[str, ...]
    names: tuple[str, ...]
    fields: dict[str, str]
    point_bytes: int
    optional: bool = False

    @property
    def has_tokens(self) -> bool:
        """Whether a row is about a token; else it is about a market."""
        return "token_id" in self.ids

    @property
    def required(self) -> tuple[str, ...]:
        """The columns that a frame must have beside ``ts``: labels, and often markets, are looked up."""
        return ("token_id" if self.has_tokens else "market_id", *(() if self.optional else self.names))


# Pages, frames, archives and the service follow this table, so a view is defined only here.
VIEWS: dict[View, ViewSpec] = {
    "books": ViewSpec(Books, Token._fields, ("side", "level", "price", "size"), {}, 1700),
    "prices": ViewSpec(Series, Token._fields, ("price",), {"p": "price"}, 40),
    "metrics": ViewSpec(Series, Token._fields[:1], METRICS, {m: m for m in METRICS}, 56, optional=True),
}


def empty(view: View) -> Data:
    """Columns without an entry."""
    none, bounds = np.empty(0), np.zeros(1, np.int64)
    ts = none.astype(np.int64)
    if view == "books":
        return Books.of_levels((), bounds, ts, ts, none, none)
    return Series((), bounds, ts, dict.fromkeys(VIEWS[view].names, none))


def view_of(columns: Data) -> View:
    """The view of columns; the first value of a series names it."""
    if isinstance(columns, Books):
        return "books"
    first = next(iter(columns.values))
    return next(view for view, spec in VIEWS.items() if spec.names[0] == first)
