"""Many measures of a book in one pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from inspect import signature
from typing import Any, TypeVar

import polars as pl

from marketdata.errors import ConfigError
from marketdata.tidy import liquidity, trade_cost
from marketdata.tidy.level_sums import Measure, measured
from marketdata.tidy.schema import BBO

F = TypeVar("F")
Feature = str | tuple[str, Mapping[str, Any]]


def _of_top(*names: str) -> Callable[[], Measure]:
    return lambda: Measure({name: pl.col(name) for name in names})


MEASURES: dict[str, Callable[..., Measure]] = {
    "bbo": _of_top(*BBO[4:]),
    **{name: _of_top(name) for name in BBO[4:]},
    "microprice": lambda: liquidity.MICROPRICE,
    "spread_bps": lambda: liquidity.SPREAD_BPS,
    "locked": lambda: liquidity.LOCKED,
    "crossed": lambda: liquidity.CROSSED,
    "depth": liquidity.depth_measure,
    "imbalance": liquidity.imbalance_measure,
    "fill_price": trade_cost.fill_price_measure,
    "sweep": trade_cost.sweep_measure,
}


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
    >>> md.features(books, ["mid", "imbalance", ("imbalance", {"levels": 1})]).columns[4:]
    ['mid', 'imbalance', 'imbalance_levels_1']
    """
    given = [_given(measure) for measure in _listed(measures)]
    often = Counter(name for name, _ in given)
    named: dict[str, Measure] = {}
    out: list[Measure] = []
    for name, arguments in given:
        measure = _made(name, arguments)
        suffix = "".join(f"_{k}_{v}" for k, v in arguments.items()) if often[name] > 1 else ""
        columns = {f"{column}{suffix}": value for column, value in measure.columns.items()}
        doubled = sorted(columns.keys() & named.keys())
        if doubled:
            raise ConfigError(f"measures gives {', '.join(map(repr, doubled))} twice; give each measure once.")
        named |= dict.fromkeys(columns, measure)
        out.append(Measure(columns, measure.sums, measure.needs))
    return measured(frame, *out)


def _listed(measures: Any) -> list[Any]:
    if isinstance(measures, str) or not isinstance(measures, Iterable):
        raise ConfigError(f"measures={measures!r} is refused; allowed is a list of names, or pairs of name and dict.")
    listed = list(measures)
    if not listed:
        raise ConfigError(f"measures is empty; allowed are {', '.join(map(repr, MEASURES))}.")
    return listed


def _given(measure: Any) -> tuple[str, dict[str, Any]]:
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
    return name, dict(arguments)


def _made(name: str, arguments: dict[str, Any]) -> Measure:
    make = MEASURES[name]
    try:
        signature(make).bind(**arguments)
    except TypeError as wrong:
        allowed = ", ".join(signature(make).parameters) or "none"
        raise ConfigError(f"{name} with {arguments!r}: {wrong}; its arguments are: {allowed}.") from None
    return make(**arguments)
