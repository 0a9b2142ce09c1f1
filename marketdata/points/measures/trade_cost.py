"""Measures of the cost of trading with a book. Shares that are not there have no price."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marketdata.errors import ConfigError
from marketdata.points.arguments import choice, number
from marketdata.points.columns import Books, Floats, Side, ratio
from marketdata.points.fees import Charge, schedule
from marketdata.points.measures.registry import Values, measure
from marketdata.points.schema import TOLERANCE


class Filled(NamedTuple):
    """The result of one order on one side of each book."""

    shares: Floats
    paid: Floats
    available: Floats
    """What the levels hold, in the unit of the order; it counts a level whole of which only a part was filled."""
    fees: Floats


@measure(
    needs="levels",
    units=dict.fromkeys(("bid_fill_price", "ask_fill_price"), "probability, mean over the shares"),
    null="the side is missing, or lacks more than 1e-9 of `size`",
)
def fill_price(books: Books, size: float | None = None, *, fees: object = None) -> Values:
    """Average price of taking shares from each side of every book, best levels first, the last one in part.

    ``bid_fill_price`` is what shares sold into the bids bring, ``ask_fill_price`` what shares bought from the asks
    cost: sum(price * filled) / sum(filled).

    Parameters
    ----------
    size : float, optional
        Shares to trade; by default all that rest there.
    fees : Fees, 0 or function, optional
        What a taker pays (see `Fees`). They lower what the bids bring and raise what the asks cost; without, prices
        are before fees.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> cost = md.fill_price(books, 200)
    >>> cost.select("bid_fill_price", "ask_fill_price").row(0)
    (0.385, 0.41)
    """
    charge = None if fees is None else schedule(fees).charge_for(books)
    return {
        "bid_fill_price": _average(books.bids, size, -1, charge),
        "ask_fill_price": _average(books.asks, size, 1, charge),
    }


@measure(
    needs="levels",
    units={
        "filled": "shares or USD, as requested",
        "shortfall": "shares or USD: requested - filled",
        "average_price": "probability: notional / shares",
        "slippage": "probability: distance of average_price from the best price",
        "shares": "shares exchanged",
        "notional": "USD exchanged",
        "fee": "USD, only with `fees`",
    },
    null="the side is missing: prices are null and `filled` is 0",
)
def sweep(
    books: Books, side: str, *, size: float | None = None, notional: float | None = None, fees: object = None
) -> Values:
    """Take one side of every book, best level first, until ``size`` or ``notional`` is reached or nothing is left.

    Check that ``shortfall`` is 0 before using a price; less than 1e-9 of the request is none.

    Parameters
    ----------
    side : {"buy", "ask", "sell", "bid"}
        "buy" and "ask" take the asks, "sell" and "bid" the bids.
    size, notional : float
        Shares to trade, or USD to spend or to receive; exactly one of them.
    fees : Fees, 0 or function, optional
        What a taker pays (see `Fees`), in a column ``fee``. It comes on top of the notional of a purchase and off that
        of a sale; other columns do not count it.

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
    if (size is None) == (notional is None):
        raise ConfigError(f"size={size!r} and notional={notional!r}: give exactly one of them.")
    wanted = number("size", size) if notional is None else number("notional", notional)
    sides = {"ask": books.asks, "buy": books.asks, "bid": books.bids, "sell": books.bids}
    levels = sides[choice("side", side, sides)]
    charge = None if fees is None else schedule(fees).charge_for(books)
    shares, paid, available, fee = fill_orders(levels, wanted, money=size is None, charge=charge)
    filled, short = np.full(len(books), wanted), available < wanted * (1 - TOLERANCE)
    if short.any():  # the same sum as that of `depth`, to the last bit
        filled[short] = (levels.depth if notional is None else levels.total(levels.price * levels.size))[short]
    average = ratio(paid, shares)
    columns = {
        "filled": filled,
        "shortfall": wanted - filled,
        "average_price": average,
        "slippage": np.abs(average - levels.best),
        "shares": shares,
        "notional": paid,
    }
    return columns if charge is None else {**columns, "fee": fee}


def fill_orders(side: Side, wanted: float | Floats, *, money: bool = False, charge: Charge | None = None) -> Filled:
    """Fill one order with each book, best levels first.

    ``wanted`` is a number of shares, or USD with ``money``; one for all books, or one per book. Fees come on top; they
    are 0 without a charge.
    """
    shares, paid, available, fees = np.zeros((4, len(side)))
    amounts = np.broadcast_to(np.asarray(wanted, float), len(side))
    level, books = 0, np.flatnonzero(side.counts)
    while len(books):
        rows = side.begins[books] + level
        price, size = side.price[rows], side.size[rows]
        amount = price * size if money else size
        remaining = amounts[books] - available[books]
        part = np.minimum(remaining, size)
        if money:
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.where(remaining < amount, remaining / price, size)
        shares[books] += part
        paid[books] += part * price
        available[books] += amount
        if charge is not None:
            fees[books] += charge(price, part, books)
        level += 1
        books = books[(available[books] < amounts[books]) & (side.counts[books] > level)]
    if charge is not None:
        fees = charge.orders(fees, np.arange(len(side)))
    return Filled(shares, paid, available, fees)


def _average(side: Side, size: float | None, sign: int, charge: Charge | None) -> Floats:
    if size is None:
        paid = side.total(side.price * side.size)
        if charge is not None:
            rows, book = side.levels, np.repeat(np.arange(len(side)), side.counts)
            fee = charge(side.price[rows], side.size[rows], book)
            paid = paid + sign * np.bincount(book, fee, minlength=len(side))
        return ratio(paid, side.depth)
    wanted = number("size", size)
    shares, paid, available, fee = fill_orders(side, wanted, charge=charge)
    return ratio(np.where(available < wanted * (1 - TOLERANCE), np.nan, paid + sign * fee), shares)
