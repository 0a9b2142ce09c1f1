"""Many measures of a book in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from inspect import signature
from typing import Any

from marketdata.adapters.dispatch import F
from marketdata.errors import ConfigError
from marketdata.points.book import OF_LEVELS, OF_TOP, Values
from marketdata.points.columns import Books
from marketdata.tidy.measures import of_books

Feature = str | tuple[str, Mapping[str, Any]]
# Every measure by name.
MEASURES: dict[str, Callable[..., Values]] = OF_TOP | OF_LEVELS


def features(frame: F, measures: Iterable[Feature]) -> F:
    """Many measures of every book in one pass over its levels.

    One row per (token, ts): ts, ids and the columns of each measure, with the units and nulls of the function of that
    name. ``measures`` are ``bbo`` or one of its columns, ``microprice``, ``spread_bps``, ``locked``, ``crossed``,
    ``depth``, ``imbalance``, ``fill_price``, ``sweep``; with arguments as a pair, ``("depth", {"levels": 5})``. Of a
    measure that is given more than once the arguments follow the name: ``imbalance_levels_5``; ConfigError if two are
    the same.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> measures = md.features(
    ...     books, ["mid", "imbalance", ("imbalance", {"levels": 1})]
    ... )
    >>> measures.columns[4:]
    ['mid', 'imbalance', 'imbalance_levels_1']
    """
    given = [_given(measure) for measure in _listed(measures)]
    all_levels = any(name in OF_LEVELS for name, _ in given)
    return of_books(frame, partial(_features, given=given), all_levels=all_levels)


def _features(books: Books, given: list[tuple[str, dict[str, Any]]]) -> Values:
    often = Counter(name for name, _ in given)
    out: dict[str, Any] = {}
    for name, arguments in given:
        suffix = "".join(f"_{k}_{v}" for k, v in arguments.items()) if often[name] > 1 else ""
        columns = {f"{c}{suffix}": values for c, values in MEASURES[name](books, **arguments).items()}
        doubled = sorted(columns.keys() & out.keys())
        if doubled:
            raise ConfigError(f"measures gives {', '.join(map(repr, doubled))} twice; give each measure once.")
        out |= columns
    return out


def _listed(measures: object) -> list[object]:
    if isinstance(measures, str) or not isinstance(measures, Iterable):
        raise ConfigError(f"measures={measures!r} is refused; allowed is a list of names, or pairs of name and dict.")
    listed = list(measures)
    if not listed:
        raise ConfigError(f"measures is empty; allowed are {', '.join(map(repr, MEASURES))}.")
    return listed


def _given(measure: object) -> tuple[str, dict[str, Any]]:
    match measure:
        case str() as name:
            arguments: Mapping[str, Any] = {}
        case (str() as name, Mapping() as arguments):
            pass
        case _:
            pair = '("depth", {"levels": 5})'
            raise ConfigError(f"{measure!r} is not a measure; allowed are a name, or a pair such as {pair}.")
    if name not in MEASURES:
        raise ConfigError(f"The measure {name!r} does not exist; allowed are {', '.join(map(repr, MEASURES))}.")
    try:
        signature(MEASURES[name]).bind(None, **arguments)
    except TypeError as wrong:
        allowed = ", ".join([*signature(MEASURES[name]).parameters][1:]) or "none"
        raise ConfigError(f"{name} with {arguments!r}: {wrong}; its arguments are: {allowed}.") from None
    return name, dict(arguments)
