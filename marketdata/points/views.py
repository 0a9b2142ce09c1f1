"""The table of views: the kinds of history, with their columns, ids and JSON fields."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

from marketdata.points.columns import METRICS, AnyColumns, BookColumns, MetricColumns, PriceColumns, Token

View = Literal["books", "prices", "metrics"]


class ViewSpec(NamedTuple):
    """All that is particular to a view.

    ``ids``: what a row is about, a token of a market or a market; ``names``: columns of a tidy frame after the ids;
    ``fields``: JSON fields of a point to columns, empty for books; ``point_bytes``: size in a tidy frame, a book taken
    to have 40 levels; ``optional``: whether a field may be absent, its column then null.
    """

    columns: type[AnyColumns]
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


VIEWS: dict[View, ViewSpec] = {
    "books": ViewSpec(BookColumns, Token._fields, ("side", "level", "price", "size"), {}, 1700),
    "prices": ViewSpec(PriceColumns, Token._fields, ("price",), {"p": "price"}, 40),
    "metrics": ViewSpec(MetricColumns, Token._fields[:1], METRICS, {m: m for m in METRICS}, 56, optional=True),
}


def empty(view: View) -> AnyColumns:
    """Columns without an entry."""
    codes, ts = np.empty(0, np.int32), np.empty(0, np.int64)
    columns = VIEWS[view].columns
    if issubclass(columns, BookColumns):
        return columns((), codes, ts, np.empty(0, np.int64), np.empty((0, 2)))
    return columns((), codes, ts, {name: np.empty(0) for name in VIEWS[view].names})
