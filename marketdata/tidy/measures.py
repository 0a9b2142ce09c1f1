"""Measures of books on frames of any kind: one measure, several in one pass, or your own."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from inspect import Parameter, getdoc, signature
from typing import Any, Literal, NamedTuple

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import F, Reduction, run
from marketdata.adapters.frame import Column, Frame, Native
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice
from marketdata.points.columns import Books, Series
from marketdata.points.measures import MEASURES, Measure, Values
from marketdata.points.measures.quotes import bbo
from marketdata.points.schema import Kind

TOP_KINDS: tuple[Kind, ...] = ("nested", "books", "quotes")
Feature = str | Callable[..., Any] | tuple[str | Callable[..., Any], Mapping[str, Any]]


class _Chosen(NamedTuple):
    """A measure with its arguments; ``column`` if only one column was asked for, and the suffix of the names."""

    measure: Measure
    arguments: Mapping[str, Any]
    column: str | None = None
    suffix: str = ""

    def columns(self, books: Books) -> dict[str, Any]:
        """The columns of the measure by their names in the result."""
        columns = self.measure.columns(books, self.arguments)
        names = columns if self.column is None else [self.column]
        return {name + self.suffix: columns[name] for name in names}


def features(frame: F, measures: Iterable[Feature]) -> F:
    """Many measures of every book in one pass over its levels.

    One row per (token, ts): ts, ids and the columns of each measure, whose units and nulls its own function says.
    Columns of a measure with arguments have these in their names: ``imbalance_levels_5``. ConfigError if two
    columns have one name.

    Parameters
    ----------
    measures : list
        Names such as ``"imbalance"``, ``"locked"``, ``"crossed"``, or of one column such as ``"best_bid"``; functions
        that `measure` made; pairs of one of these and its arguments: ``("depth", {"levels": 5})``.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> measures = md.features(
    ...     books, ["mid", "imbalance", ("imbalance", {"levels": 1})]
    ... )
    >>> measures.columns[4:]
    ['mid', 'imbalance', 'imbalance_levels_1']
    """
    if isinstance(measures, str) or not isinstance(measures, Iterable):
        raise ConfigError(f"measures={measures!r} is refused; allowed is a list of names, or pairs of name and dict.")
    chosen = [_chosen(measure) for measure in measures]
    if not chosen:
        raise ConfigError(f"measures is empty; allowed are {', '.join(map(repr, MEASURES))}.")
    return _evaluated(frame, chosen)


def measure(
    formula: Callable[..., Values] | None = None,
    *,
    needs: Literal["levels", "top"] = "levels",
    units: Mapping[str, str] | None = None,
    null: str = "",
    source: str = "",
) -> Any:
    """Turn a formula on books into a function of frames of any kind.

    Returns a decorator, or with a formula the function itself: one row per (token, ts) with ts, ids and the columns of
    the formula. The function works on pandas, polars (lazy too), Arrow, Dask, Spark, DuckDB and nested books.
    `features` takes it, or its name.

    Parameters
    ----------
    formula : function
        Takes ``books``, then its own arguments. ``books.bids`` and ``books.asks`` have ``best`` and ``best_size``
        (arrays with one number per book, NaN where the side is missing), ``depth`` and ``head(levels)``; ``books.mid``
        and ``books.spread`` follow from them. Returns one number per book, or a dict of such arrays; NaN becomes null.
        ConfigError if it returns anything else.
    needs : {"levels", "top"}
        Whether it looks at all levels, or at best prices and sizes alone; then it takes bbo frames too.
    units, null, source
        What columns mean, by name; where they are null; who described it. They are shown in its docstring.

    Examples
    --------
    >>> @md.measure(needs="top", units={"skew": "-1 to 1"}, null="a side is missing")
    ... def skew(books):
    ...     bid, ask = books.bids.best_size, books.asks.best_size
    ...     return (bid - ask) / (bid + ask)
    >>> skew(md.testing.books("polars", buckets=1))["skew"].to_list()
    [-0.5, 0.5]
    """
    choice("needs", needs, ("levels", "top"))

    def register(formula: Callable[..., Values]) -> Callable[..., Any]:
        name = getattr(formula, "__name__", "")
        if name in MEASURES and MEASURES[name].formula.__module__.startswith("marketdata."):
            raise ConfigError(f"The measure {name!r} exists; give the function another name.")
        if not name.isidentifier():
            raise ConfigError(f"{formula!r} has no name; define it with def.")
        MEASURES[name] = Measure(formula, needs, units or {}, null, source)
        return on_frames(MEASURES[name])

    return register if formula is None else register(formula)


def on_frames(measure: Measure) -> Callable[..., Any]:
    """The function of frames that a measure is to users."""

    def function(frame: F, *args: Any, **kwargs: Any) -> F:
        return _evaluated(frame, [_Chosen(measure, _bound(measure, args, kwargs))])

    takes = signature(measure.formula)
    frame = Parameter("frame", Parameter.POSITIONAL_OR_KEYWORD)
    function.__name__ = function.__qualname__ = measure.name
    function.__code__ = function.__code__.replace(co_name=measure.name)  # tracebacks and errors name it
    function.__doc__ = _documented(measure)
    function.__signature__ = takes.replace(  # type: ignore[attr-defined] # what help() shows
        parameters=[frame, *[*takes.parameters.values()][1:]], return_annotation=Parameter.empty
    )
    function.measure = measure  # type: ignore[attr-defined] # by which `features` knows it
    return function


def sorted_top(frame: Frame) -> tuple[Frame, Series]:
    """The frame in order with one row per snapshot of its books, nested or not, and their best prices and sizes."""
    frame, books = frames.sorted_books(frame, all_levels=False)
    # Rows of levels repeat the further columns of their snapshot.
    return frame.take(books.bids.begins) if frame.kind == "books" else frame, books.series(bbo(books))


def _evaluated(frame: F, chosen: Sequence[_Chosen]) -> F:
    """One row per (token, ts): ts, ids and the columns of the measures."""
    all_levels = any(one.measure.needs == "levels" for one in chosen)
    kinds, reduction = (TOP_KINDS[:2], None) if all_levels else (TOP_KINDS, Reduction(_best_rows))
    rule = partial(_rows, chosen=chosen, all_levels=all_levels)
    return run(frame, rule, kinds, partition_by="snapshot", reduction=reduction)


def _rows(frame: Frame, chosen: Sequence[_Chosen], *, all_levels: bool) -> Native:
    frame, books = frames.sorted_books(frame, all_levels=all_levels)
    values: dict[str, Column] = {}
    for one in chosen:
        columns = one.columns(books)
        doubled = sorted(columns.keys() & values.keys())
        if doubled:
            raise ConfigError(f"measures gives {', '.join(map(repr, doubled))} twice; give each measure once.")
        values |= columns
    return frames.to_frame(frame, books, values)


def _best_rows(frame: Frame) -> Native:
    """The best two levels of each side, which show whether the best comes first, and each sentinel row."""
    rows = np.arange(len(frame))
    if frame.kind == "books":
        level, price = frame.read("level", "price")
        rows = np.flatnonzero((level <= 1) | np.isnan(price))
    return frames.rows_to_frame(frame, rows)


def _chosen(feature: object) -> _Chosen:
    name, arguments = feature if isinstance(feature, tuple) and len(feature) == 2 else (feature, {})
    if not isinstance(arguments, Mapping) or not (isinstance(name, str) or hasattr(name, "measure")):
        pair = '("depth", {"levels": 5})'
        raise ConfigError(
            f"{feature!r} is not a measure; allowed are a name, a function of md.measure, or a pair such as {pair}."
        )
    if not isinstance(name, str):
        rule, column = name.measure, None
    elif name in MEASURES:
        rule, column = MEASURES[name], None
    else:
        rule, column = _of_column(name), name
    bound = _bound(rule, (), arguments)
    suffix = "".join(f"_{name}_{value}" for name, value in bound.items() if isinstance(value, str | int | float))
    return _Chosen(rule, bound, column, suffix)


def _of_column(name: str) -> Measure:
    """The measure without needed arguments that has a column of this name."""
    for one in MEASURES.values():
        others = [*signature(one.formula).parameters.values()][1:]
        if name in one.units and all(other.default is not Parameter.empty for other in others):
            return one
    near = "".join(f"; did you mean {one!r}?" for one in get_close_matches(name, MEASURES, n=1))
    raise ConfigError(f"The measure {name!r} does not exist{near}; allowed are {', '.join(map(repr, MEASURES))}.")


def _bound(measure: Measure, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a formula by name; ConfigError if it does not take them."""
    takes = signature(measure.formula)
    try:
        return dict([*takes.bind(None, *args, **kwargs).arguments.items()][1:])
    except TypeError as wrong:
        allowed = ", ".join([*takes.parameters][1:]) or "none"
        raise ConfigError(f"{measure.name}(): {wrong}; its arguments are: {allowed}.") from None


def _documented(measure: Measure) -> str:
    """The docstring of the formula with a paragraph on rows, units and nulls after the first line."""
    first, _, rest = (getdoc(measure.formula) or f"The measure {measure.name!r}.").partition("\n")
    columns = ", ".join(f"`{name}` [{unit}]" for name, unit in measure.units.items()) or f"`{measure.name}`"
    source = "books or bbo" if measure.needs == "top" else "books"
    rows = f"One row per (token, ts) of {source}: ts, ids and {columns}."
    rows += f" Null where {measure.null}." if measure.null else ""
    rows = rows.replace("`", "``")  # names of columns and arguments are no links
    rows += f" {measure.source}." if measure.source else ""
    return f"{first}\n\n{textwrap.fill(rows, 100)}\n{rest}"
