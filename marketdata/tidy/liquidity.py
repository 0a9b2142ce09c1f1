"""Measures of the book beyond its top: depth, imbalance, microprice, relative spread, locked and crossed books."""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from marketdata.errors import ConfigError
from marketdata.tidy.arguments import number, whole
from marketdata.tidy.level_sums import DISTANCE, LEVELS, Measure, measured, tag
from marketdata.tidy.schema import ASK, BID, TOLERANCE

F = TypeVar("F")

_bid, _ask = pl.col("best_bid"), pl.col("best_ask")
_bid_size, _ask_size = pl.col("best_bid_size"), pl.col("best_ask_size")
_two_sided = ~_bid.is_null() & ~_ask.is_null()
_microprice = pl.when(_two_sided & (_bid_size + _ask_size > 0)).then(
    (_bid * _ask_size + _ask * _bid_size) / (_bid_size + _ask_size)
)
_spread_bps = pl.when(_two_sided & (pl.col("mid") > 0)).then(10_000 * pl.col("spread") / pl.col("mid"))


MICROPRICE = Measure({"microprice": _microprice})
SPREAD_BPS = Measure({"spread_bps": _spread_bps})
LOCKED = Measure({"locked": (_two_sided & (_bid == _ask)).fill_null(value=False)})
CROSSED = Measure({"crossed": (_two_sided & (_bid > _ask)).fill_null(value=False)})


def depth(frame: F, *, levels: int | None = None, within: float | None = None) -> F:
    """Shares that rest on each side of every book.

    One row per (token, ts): ts, ids and ``bid_depth ask_depth`` [shares]. Null where the side is missing; with
    ``within`` also where the other side is, as there is no mid.

    Parameters
    ----------
    levels : int, optional
        Number of best levels of each side to count. ConfigError together with ``within``.
    within : float, optional
        Greatest distance from the mid of levels to count [probability], up to 1e-9, so that 0.48 is within 0.02 of 0.5.

    Examples
    --------
    >>> md.depth(md.testing.books("polars", buckets=1), levels=1).select("bid_depth", "ask_depth").rows()
    [(100.0, 300.0), (300.0, 100.0)]
    """
    return measured(frame, depth_measure(levels=levels, within=within))


def depth_measure(*, levels: int | None = None, within: float | None = None) -> Measure:
    """The `Measure` of `depth`."""
    counts, needs, sides = _counted(levels, within)
    there = pl.lit(value=True) if within is None else _two_sided
    columns = {
        f"{side}_depth": pl.when((pl.col(f"{side}_{LEVELS}") > 0) & there).then(pl.col(f"{side}_{sides}"))
        for side in (BID, ASK)
    }
    return Measure(columns, {sides: counts}, needs)


def imbalance(frame: F, *, levels: int | None = None, within: float | None = None) -> F:
    """How much more rests on the bid than on the ask side: (bid_depth - ask_depth) / (bid_depth + ask_depth).

    One row per (token, ts): ts, ids and ``imbalance`` [-1 to 1; 1: bids only]. Null where a side is missing or nothing
    counts; parameters as for `depth`. Cont, Kukanov, Stoikov (2014), "The price impact of order book events".

    Examples
    --------
    >>> md.imbalance(md.testing.books("polars", buckets=1), levels=1)["imbalance"].to_list()
    [-0.5, 0.5]
    """
    return measured(frame, imbalance_measure(levels=levels, within=within))


def imbalance_measure(*, levels: int | None = None, within: float | None = None) -> Measure:
    """The `Measure` of `imbalance`."""
    depths = depth_measure(levels=levels, within=within)
    bid, ask = (depths.columns[f"{side}_depth"] for side in (BID, ASK))
    value = pl.when(bid + ask > 0).then((bid - ask) / (bid + ask))
    return Measure({"imbalance": value}, depths.sums, depths.needs)


def microprice(frame: F) -> F:
    """Mid of every book, weighted towards the side where less rests.

    One row per (token, ts) of books or bbo: ts, ids and ``microprice`` = (best_bid * best_ask_size + best_ask *
    best_bid_size) / (best_bid_size + best_ask_size) [probability 0 to 1], null where a side is missing. The weighted
    mid of Gatheral and Oomen (2010), "Zero-intelligence realized variance estimation".

    Examples
    --------
    >>> md.microprice(md.testing.books("polars", buckets=1))["microprice"].round(3).to_list()
    [0.395, 0.605]
    """
    return measured(frame, MICROPRICE)


def spread_bps(frame: F) -> F:
    """Spread of every book relative to its mid: 10000 * (best_ask - best_bid) / mid.

    One row per (token, ts) of books or bbo: ts, ids and ``spread_bps`` [1/10000 of the mid], unbounded near a mid of 0.
    Null where a side is missing or the mid is 0, negative where the book is crossed.

    Examples
    --------
    >>> md.spread_bps(md.testing.books("polars", buckets=1))["spread_bps"].round(1).to_list()
    [500.0, 333.3]
    """
    return measured(frame, SPREAD_BPS)


def locked(frame: F) -> F:
    """Whether best bid and best ask of every book are equal; false where a side is missing, so that it can filter.

    One row per (token, ts) of books or bbo: ts, ids and ``locked``; see `bbo`.
    """
    return measured(frame, LOCKED)


def crossed(frame: F) -> F:
    """Whether the best bid of every book is above its best ask: a column ``crossed`` in place of that; see `locked`."""
    return measured(frame, CROSSED)


def _counted(levels: int | None, within: float | None) -> tuple[pl.Expr, frozenset[str], str]:
    """The size of a level that counts, further columns it needs, and a name for the sum."""
    size = pl.col("size")
    if levels is not None and within is not None:
        raise ConfigError(f"levels={levels!r} and within={within!r} exclude each other; give one of them.")
    if levels is not None:
        return pl.when(pl.col("level") < whole("levels", levels)).then(size), frozenset(), f"depth_levels_{levels}"
    if within is None:
        return size, frozenset(), "depth"
    number("within", within, least=0.0)
    near = pl.when(pl.col(DISTANCE) <= within + TOLERANCE).then(size)
    return near, frozenset({DISTANCE}), f"depth_within_{tag(within)}"
