"""The cost of taking shares out of a book. Shares that are not there have no price."""

from __future__ import annotations

from functools import partial
from typing import Any

from marketdata.adapters.dispatch import F
from marketdata.points import book
from marketdata.tidy.measures import of_books


def fill_price(frame: F, size: float | None = None, *, fees: Any = None) -> F:
    """Average price of taking shares from each side of every book, best levels first, the last one in part.

    One row per (token, ts): ts, ids and ``bid_fill_price ask_fill_price`` = sum(price * filled) / sum(filled)
    [probability]: what shares sold into the bids bring and shares bought from the asks cost. Null where the side is
    missing or lacks more than 1e-9 of ``size`` [shares], by default all that rest there. With ``fees`` (see `Fees`) net
    of them: they lower what the bids bring and raise what the asks cost; without, they are not counted.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> cost = md.fill_price(books, 200)
    >>> cost.select("bid_fill_price", "ask_fill_price").row(0)
    (0.385, 0.41)
    """
    return of_books(frame, partial(book.fill_price, size=size, fees=fees))


def sweep(frame: F, side: str, *, size: float | None = None, notional: float | None = None, fees: Any = None) -> F:
    """Take one side of every book, best level first, until ``size`` or ``notional`` is reached or nothing is left.

    One row per (token, ts): ts, ids, ``filled shortfall average_price slippage shares notional``. ``filled`` +
    ``shortfall`` is the amount requested [shares or USD]; ``shares`` and ``notional`` [USD] are the amounts exchanged;
    ``average_price`` = notional / shares; ``slippage`` = abs(average_price - best price of the side). Where the side is
    missing, filled is 0 and prices are null. Check that ``shortfall`` is 0 before using a price. Tolerance as for
    `fill_price`. ``side`` is "ask" or "buy" for the asks, "bid" or "sell" for the bids; give one of ``size`` [shares]
    and ``notional`` [USD], to spend or to receive. With ``fees`` (see `Fees`) a column ``fee`` [USD] is added, which
    comes on top of the notional of a purchase and off that of a sale; other columns do not count it.

    Examples
    --------
    >>> books = md.testing.books("polars")
    >>> md.sweep(books, "buy", size=1000).select("filled", "shortfall").row(0)
    (700.0, 300.0)
    >>> books = md.testing.books("polars", buckets=1)
    >>> cost = md.sweep(books, "buy", size=100, fees=md.Fees.quadratic(0.05))
    >>> cost["fee"].to_list()
    [1.2095, 1.1895]
    """
    return of_books(frame, partial(book.sweep, side=side, size=size, notional=notional, fees=fees))
