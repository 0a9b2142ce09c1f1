"""Measures of the book beyond its top: depth, imbalance, microprice, relative spread, locked and crossed books."""

from __future__ import annotations

from functools import partial

from marketdata.adapters.dispatch import F
from marketdata.points import book
from marketdata.tidy.measures import of_books


def depth(frame: F, *, levels: int | None = None, within: float | None = None) -> F:
    """Shares that rest on each side of every book.

    One row per (token, ts): ts, ids and ``bid_depth ask_depth`` [shares]. Null where the side is missing; with
    ``within`` also where the other side is, as there is no mid.

    Parameters
    ----------
    levels : int, optional
        Number of best levels of each side to count. ConfigError together with ``within``.
    within : float, optional
        Greatest distance from the mid of levels to count [probability], up to 1e-9, so that 0.48 is within 0.02 of 0.5;
        of a crossed book also levels beyond the mid, no farther from it.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.depth(books, levels=1).select("bid_depth", "ask_depth").rows()
    [(100.0, 300.0), (300.0, 100.0)]
    """
    return of_books(frame, partial(book.depth, levels=levels, within=within))


def imbalance(frame: F, *, levels: int | None = None, within: float | None = None) -> F:
    """How much more rests on the bid than on the ask side: (bid_depth - ask_depth) / (bid_depth + ask_depth).

    One row per (token, ts): ts, ids and ``imbalance`` [-1 to 1; 1: bids only]. Null where a side is missing or nothing
    counts; parameters as for `depth`. Cont, Kukanov, Stoikov (2014), "The price impact of order book events".

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.imbalance(books, levels=1)["imbalance"].to_list()
    [-0.5, 0.5]
    """
    return of_books(frame, partial(book.imbalance, levels=levels, within=within))


def microprice(frame: F) -> F:
    """Mid of every book, weighted towards the side where less rests.

    One row per (token, ts) of books or bbo: ts, ids and ``microprice`` = (best_bid * best_ask_size + best_ask *
    best_bid_size) / (best_bid_size + best_ask_size) [probability 0 to 1], null where a side is missing. The weighted
    mid of Gatheral and Oomen (2010), "Zero-intelligence realized variance estimation".

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.microprice(books)["microprice"].round(3).to_list()
    [0.395, 0.605]
    """
    return of_books(frame, book.microprice, all_levels=False)


def spread_bps(frame: F) -> F:
    """Spread of every book relative to its mid: 10000 * (best_ask - best_bid) / mid.

    One row per (token, ts) of books or bbo: ts, ids and ``spread_bps`` [1/10000 of the mid], unbounded near a mid of 0.
    Null where a side is missing or the mid is 0, negative where the book is crossed.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.spread_bps(books)["spread_bps"].round(1).to_list()
    [500.0, 333.3]
    """
    return of_books(frame, book.spread_bps, all_levels=False)


def locked(frame: F) -> F:
    """Whether best bid and best ask of every book are equal; false where a side is missing, so that it can filter.

    One row per (token, ts) of books or bbo: ts, ids and ``locked``; see `bbo`.
    """
    return of_books(frame, book.locked, all_levels=False)


def crossed(frame: F) -> F:
    """Whether the best bid of every book is above its best ask: a column ``crossed`` in place of that; see `locked`."""
    return of_books(frame, book.crossed, all_levels=False)
