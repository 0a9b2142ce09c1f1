"""The table of views: the kinds of history, with their columns, ids and JSON fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from marketdata.points.columns import METRICS, Books, Data, Series, Token, Trades, mid_of, spread_of

View = Literal["books", "prices", "metrics", "quotes", "trades"]
FieldType = Literal["number", "text", "flag"]
T = TypeVar("T")


class ViewSpec(NamedTuple):
    """All that is particular to a view.

    - ``ids``: the columns that identify a row, by a token of a market or by a market
    - ``names``: the columns of a tidy frame after the ids that are data
    - ``fields``: the column of each JSON field of a point, empty for books
    - ``point_bytes``: the size of a point in a tidy frame [bytes], with 40 levels of a book
    - ``optional``: columns that may be absent, and are null then
    - ``known``: the types of further columns, which are there where they are known
    - ``derived``: further columns of a tidy frame, each a function of the best bid and ask; they are never stored
    - ``is_mean``: whether a coarser bucket has the mean of its points, else it has its last one
    - ``in_interface``: whether services of the interface have it
    - ``is_grid``: whether a token has one row per bucket; else rows keep their own times, and several may share one
    """

    columns: type[Data]
    ids: tuple[str, ...]
    names: tuple[str, ...]
    fields: dict[str, str]
    point_bytes: int
    optional: tuple[str, ...] = ()
    known: Mapping[str, FieldType] = {}
    derived: Mapping[str, Callable[[Any, Any], Any]] = {}
    is_mean: bool = True
    in_interface: bool = True
    is_grid: bool = True

    @property
    def has_tokens(self) -> bool:
        """Whether a row is about a token; else it is about a market."""
        return "token_id" in self.ids

    @property
    def required(self) -> tuple[str, ...]:
        """The columns that a frame must have beside ``ts``: labels, and often markets, are looked up."""
        return ("token_id" if self.has_tokens else "market_id", *(n for n in self.names if n not in self.optional))

    def type_of(self, name: str) -> FieldType:
        """The type of a column after the ids."""
        return "text" if name == "side" else self.known.get(name, "number")

    def with_derived(self, values: Mapping[str, T]) -> dict[str, T]:
        """The columns of a frame after the ids, from those that are stored: arrays, or expressions of an engine."""
        best = [values[name] for name in ("best_bid", "best_ask")] if self.derived else []
        derived = {name: rule(*best) for name, rule in self.derived.items()}
        return {name: values[name] for name in self.names} | derived | dict(values)


# Pages, frames, archives and recordings follow these, so a further value of a snapshot or a print is a line here.
SNAPSHOT_FIELDS: dict[str, FieldType] = {"hash": "text", "last_trade_price": "number", "tick_size": "number"}
PRINT_FIELDS: dict[str, FieldType] = {
    "trade_id": "text", "transaction_hash": "text", "log_index": "number", "maker": "text", "taker": "text",
    "account": "text", "role": "text", "is_block": "flag", "fee": "number",
}  # fmt: skip
# Pages, frames, archives and the service follow this table, so a view is defined only here.
VIEWS: dict[View, ViewSpec] = {
    "books": ViewSpec(
        Books, Token._fields, ("side", "level", "price", "size"), {}, 1700, known=SNAPSHOT_FIELDS, is_mean=False
    ),
    "prices": ViewSpec(Series, Token._fields, ("price",), {"p": "price"}, 40),
    "metrics": ViewSpec(Series, Token._fields[:1], METRICS, {m: m for m in METRICS}, 56, optional=METRICS),
    "quotes": ViewSpec(
        Series, Token._fields, ("best_bid", "best_bid_size", "best_ask", "best_ask_size"), {}, 80,
        optional=("best_bid_size", "best_ask_size"), derived={"mid": mid_of, "spread": spread_of},
        is_mean=False, in_interface=False,
    ),
    "trades": ViewSpec(
        Trades, Token._fields, ("side", "price", "size"), {}, 80, optional=("side",), known=PRINT_FIELDS,
        is_mean=False, in_interface=False, is_grid=False,
    ),
}  # fmt: skip
INTERFACE_VIEWS: tuple[View, ...] = tuple(view for view, spec in VIEWS.items() if spec.in_interface)


def empty(view: View) -> Data:
    """Columns without an entry."""
    none, bounds = np.empty(0), np.zeros(1, np.int64)
    ts = none.astype(np.int64)
    if view == "books":
        return Books.of_levels((), bounds, ts, ts, none, none)
    if view == "trades":
        return Trades.empty()
    return Series((), bounds, ts, dict.fromkeys(VIEWS[view].names, none))


def view_of(columns: Data) -> View:
    """The view of columns; the first value of a series names it. Bars are of trades."""
    if isinstance(columns, Books | Trades):
        return "books" if isinstance(columns, Books) else "trades"
    first = next(iter(columns.values))
    return next((view for view, spec in VIEWS.items() if spec.names[0] == first), "trades")


def quotes_of(books: Books) -> Series:
    """The quotes that are the top of books: best prices and sizes, NaN where a side is missing."""
    top = (*books.bids.top, *books.asks.top)
    return books.series(dict(zip(VIEWS["quotes"].names, top, strict=True)))
