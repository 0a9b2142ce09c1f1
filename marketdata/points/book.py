"""The measures of a book: each a function from `Books` to columns of numbers, in which a missing value is NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.points.arguments import choice, number, whole
from marketdata.points.columns import Books, Floats, Side
from marketdata.points.fees import Charge, schedule
from marketdata.points.schema import TOLERANCE

# One entry per book: float64 with NaN for null, or bool.
Values = Mapping[str, NDArray[np.float64] | NDArray[np.bool_]]
Measure = Callable[[Books], Values]


# The columns of bbo, each a measure by itself.
TOP = ("best_bid", "best_bid_size", "best_ask", "best_ask_size", "mid", "spread")


def bbo(books: Books) -> dict[str, Floats]:
    """Best bid and offer."""
    (bid, bid_size), (ask, ask_size) = books.bids.top, books.asks.top
    return dict(zip(TOP, (bid, bid_size, ask, ask_size, (bid + ask) / 2, ask - bid), strict=True))


def microprice(books: Books) -> Values:
    """The mid, weighted towards the side where less rests."""
    bids, asks = books.bids, books.asks
    shares = bids.best_size + asks.best_size
    return {"microprice": _ratio(bids.best * asks.best_size + asks.best * bids.best_size, shares)}


def spread_bps(books: Books) -> Values:
    """The spread in 1/10000 of the mid."""
    return {"spread_bps": _ratio(10_000 * books.spread, books.mid)}


def locked(books: Books) -> Values:
    """Whether best bid and ask are equal."""
    return {"locked": books.bids.best == books.asks.best}


def crossed(books: Books) -> Values:
    """Whether the best bid is above the best ask."""
    return {"crossed": books.bids.best > books.asks.best}


def depth(books: Books, *, levels: int | None = None, within: float | None = None) -> dict[str, Floats]:
    """Shares that rest on each side: all, those of the best levels, or those near the mid."""
    if levels is not None and within is not None:
        raise ConfigError(f"levels={levels!r} and within={within!r} exclude each other; give one of them.")
    sides = {"bid_depth": books.bids, "ask_depth": books.asks}
    if within is not None:
        within = number("within", within, least=0.0)
        missing = np.isnan(books.mid)
        return {name: np.where(missing, np.nan, _near(side, books.mid, within)) for name, side in sides.items()}
    if levels is not None:
        most = whole("levels", levels)
        sides = {name: side.head(most) for name, side in sides.items()}
    return {name: np.where(side.counts > 0, side.depth, np.nan) for name, side in sides.items()}


def imbalance(books: Books, *, levels: int | None = None, within: float | None = None) -> Values:
    """The difference of the depths of both sides over their sum."""
    bid, ask = depth(books, levels=levels, within=within).values()
    return {"imbalance": _ratio(bid - ask, bid + ask)}


def fill_price(books: Books, size: float | None = None, *, fees: object = None) -> Values:
    """Average price of taking shares from each side, with the fees if any are given."""
    charge = None if fees is None else schedule(fees).of_books(books)
    return {
        "bid_fill_price": _average(books.bids, size, -1, charge),
        "ask_fill_price": _average(books.asks, size, 1, charge),
    }


def _average(side: Side, size: float | None, sign: int, charge: Charge | None) -> Floats:
    if size is None:
        paid = side.total(side.price * side.size)
        if charge is not None:
            rows, book = side.levels, np.repeat(np.arange(len(side)), side.counts)
            fee = charge(side.price[rows], side.size[rows], book)
            paid = paid + sign * np.bincount(book, fee, minlength=len(side))
        return _ratio(paid, side.depth)
    wanted = number("size", size)
    shares, paid, there, fee = take(side, wanted, charge=charge)
    return _ratio(np.where(there < wanted * (1 - TOLERANCE), np.nan, paid + sign * fee), shares)


def sweep(
    books: Books, side: str, *, size: float | None = None, notional: float | None = None, fees: object = None
) -> Values:
    """Take shares, or shares for an amount of money, from one side."""
    if (size is None) == (notional is None):
        raise ConfigError(f"size={size!r} and notional={notional!r}: give exactly one of them.")
    wanted = number("size", size) if notional is None else number("notional", notional)
    levels: Side = getattr(books, SIDES[choice("side", side, SIDES)])
    charge = None if fees is None else schedule(fees).of_books(books)
    shares, paid, there, fee = take(levels, wanted, money=size is None, charge=charge)
    filled, short = np.full(len(books), wanted), there < wanted * (1 - TOLERANCE)
    if short.any():  # the same sum as that of `depth`, to the last bit
        filled[short] = (levels.depth if notional is None else levels.total(levels.price * levels.size))[short]
    average = _ratio(paid, shares)
    return {
        "filled": filled,
        "shortfall": wanted - filled,
        "average_price": average,
        "slippage": np.abs(average - levels.best),
        "shares": shares,
        "notional": paid,
        **({} if charge is None else {"fee": fee}),
    }


# The side of the book that an argument ``side`` takes from.
SIDES: dict[str, Literal["asks", "bids"]] = {"ask": "asks", "buy": "asks", "bid": "bids", "sell": "bids"}


def _near(side: Side, price: Floats, within: float) -> Floats:
    """Shares of the levels whose price differs from one per book by no more than this."""
    rows = side.levels
    distance = np.abs(side.price[rows] - np.repeat(price, side.counts))
    size = np.where(distance <= within + TOLERANCE, side.size[rows], 0.0)
    return replace(side, begins=np.cumsum(side.counts) - side.counts, price=size, size=size).depth


def take(
    side: Side, wanted: float | Floats, *, money: bool = False, charge: Charge | None = None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Take shares, or shares for money, best levels first: shares, their cost, what was there, and the fees.

    What is wanted is one number, or one of each book. What was there, in its unit, counts the last level whole, of
    which only a part may be filled. Fees come on top; they are 0 without a charge.
    """
    shares, paid, there, fees = np.zeros((4, len(side)))
    amounts = np.broadcast_to(np.asarray(wanted, float), len(side))
    level, books = 0, np.flatnonzero(side.counts)
    while len(books):
        rows = side.begins[books] + level
        price, size = side.price[rows], side.size[rows]
        amount = price * size if money else size
        left = amounts[books] - there[books]
        part = np.minimum(left, size)
        if money:
            with np.errstate(divide="ignore", invalid="ignore"):
                part = np.where(left < amount, left / price, size)
        shares[books] += part
        paid[books] += part * price
        there[books] += amount
        if charge is not None:
            fees[books] += charge(price, part, books)
        level += 1
        books = books[(there[books] < amounts[books]) & (side.counts[books] > level)]
    return shares, paid, there, fees


def _ratio(a: Floats, b: Floats) -> Floats:
    """Quotient, NaN where the divisor is not above 0."""
    out = np.full(len(b), np.nan)
    np.divide(a, b, out=out, where=b > 0)
    return out


# The measures by the names of the functions for frames: those of best prices and sizes, and those of all levels.
OF_TOP: dict[str, Callable[..., Values]] = {
    "bbo": bbo,
    "best_bid": lambda books: {"best_bid": books.bids.best},
    "best_bid_size": lambda books: {"best_bid_size": books.bids.best_size},
    "best_ask": lambda books: {"best_ask": books.asks.best},
    "best_ask_size": lambda books: {"best_ask_size": books.asks.best_size},
    "mid": lambda books: {"mid": books.mid},
    "spread": lambda books: {"spread": books.spread},
    "microprice": microprice,
    "spread_bps": spread_bps,
    "locked": locked,
    "crossed": crossed,
}
# Measures that look at every level.
OF_LEVELS: dict[str, Callable[..., Values]] = {
    "depth": depth,
    "imbalance": imbalance,
    "fill_price": fill_price,
    "sweep": sweep,
}
