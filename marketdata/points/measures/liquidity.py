"""Measures of the shares that rest in a book."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from marketdata.errors import ConfigError
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Books, Floats, Side, ratio
from marketdata.points.measures.registry import Values, measure
from marketdata.points.schema import TOLERANCE


@measure(
    needs="levels",
    units={"bid_depth": "shares", "ask_depth": "shares"},
    null="the side is missing, and with `within` also where the other side is, as there is no mid",
)
def depth(books: Books, *, levels: int | None = None, within: float | None = None) -> dict[str, Floats]:
    """Shares that rest on each side of every book.

    Parameters
    ----------
    levels : int, optional
        Number of best levels of each side to count. ConfigError together with ``within``.
    within : float, optional
        Greatest distance from the mid of levels to count [probability], up to 1e-9, so that 0.48 is within 0.02 of
        0.5. In a crossed book it also counts levels beyond the mid that are no farther away.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.depth(books, levels=1).select("bid_depth", "ask_depth").rows()
    [(100.0, 300.0), (300.0, 100.0)]
    """
    if levels is not None and within is not None:
        raise ConfigError(f"levels={levels!r} and within={within!r} exclude each other; give one of them.")
    sides = {"bid_depth": books.bids, "ask_depth": books.asks}
    if within is not None:
        distance = number("within", within, least=0.0)
        no_mid = np.isnan(books.mid)
        return {name: np.where(no_mid, np.nan, _near(side, books.mid, distance)) for name, side in sides.items()}
    if levels is not None:
        count = whole("levels", levels)
        sides = {name: side.head(count) for name, side in sides.items()}
    return {name: np.where(side.counts > 0, side.depth, np.nan) for name, side in sides.items()}


@measure(
    needs="levels",
    units={"imbalance": "-1 to 1; 1: bids only"},
    null="a side is missing or nothing counts",
    source='Cont, Kukanov and Stoikov (2014), "The price impact of order book events"',
)
def imbalance(books: Books, *, levels: int | None = None, within: float | None = None) -> Values:
    """How many more shares rest on the bid side: (bid_depth - ask_depth) / (bid_depth + ask_depth).

    Parameters
    ----------
    levels, within : optional
        Which levels count; see `depth`.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.imbalance(books, levels=1)["imbalance"].to_list()
    [-0.5, 0.5]
    """
    bid, ask = depth(books, levels=levels, within=within).values()
    return ratio(bid - ask, bid + ask)


def _near(side: Side, price: Floats, within: float) -> Floats:
    """Shares of the levels of each book that are no farther from a price."""
    rows = side.levels
    distance = np.abs(side.price[rows] - np.repeat(price, side.counts))
    size = np.where(distance <= within + TOLERANCE, side.size[rows], 0.0)
    return replace(side, begins=np.cumsum(side.counts) - side.counts, price=size, size=size).depth
