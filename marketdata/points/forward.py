"""Forward returns: entry, exit and costs of a trade at each snapshot, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.asof import first_from
from marketdata.points.columns import Books, Floats, Ints, Side
from marketdata.points.fees import Charge
from marketdata.points.measures.trade_cost import fill_orders
from marketdata.points.schema import TOLERANCE

NO_ENTRY, EXIT, SETTLED, NO_EXIT_BOOK, NO_EXIT_PRICE = range(5)


class Trade(NamedTuple):
    """A trade of ``size`` shares (None: one share at the best price), ``latency`` after each snapshot [microseconds].

    The exit is the first snapshot from the horizon until ``tolerance`` later. ``over`` says when the market of each
    token is over [microseconds], infinity if it is not known, and ``payoff`` what the token pays. ``is_book`` is False
    for snapshots that were filled in, which no trade meets. ``last`` is the time of the last book of all tokens.
    """

    buys: bool
    size: float | None
    latency: int
    tolerance: int
    charge: Charge
    over: Floats
    payoff: Floats
    is_book: NDArray[np.bool_]
    last: int


class Forward(NamedTuple):
    """The results of trades at every snapshot [probability per share]; NaN where there is none."""

    entry: Floats
    exit: Floats
    move: Floats
    net: Floats
    net_low: Floats
    status: Ints
    at_end: NDArray[np.bool_]


def forward(books: Books, horizons: Iterable[int], trade: Trade) -> Iterator[Forward]:
    """The results of a trade at each snapshot, held for each of the horizons [microseconds]."""
    start, mid = books.ts + trade.latency, np.append(books.mid, np.nan)
    over, payoff = trade.over[books.token], trade.payoff[books.token]
    seen = np.flatnonzero(trade.is_book)

    def book_from(at: Ints, tolerance: int = 0) -> Ints:
        found = first_from(books.token, at, books.token[seen], books.ts[seen], tolerance)
        return np.append(seen, -1)[found]

    enters = np.where(start < over, book_from(start), -1)
    entry_side, exit_side = (books.asks, books.bids) if trade.buys else (books.bids, books.asks)
    sign, worst = (1.0, 0.0) if trade.buys else (-1.0, 1.0)
    entry, entry_fee, *_ = _quotes(entry_side, trade, worst)[:, enters]
    closing, no_entry = _quotes(exit_side, trade, worst), np.isnan(entry)
    size = 1.0 if trade.size is None else trade.size
    fee_without_book = _fees(trade, worst, np.full(len(books), size)) / size
    for horizon in horizons:
        due = start + horizon
        leaves = book_from(due, trade.tolerance)
        at = np.where(leaves < 0, due + trade.tolerance, np.append(books.ts, 0)[leaves])
        # A market that is over trades no more: it pays, or nobody knows what.
        is_over = over <= at
        settled, leaves = is_over & ~np.isnan(payoff), np.where(is_over, -1, leaves)
        no_book = leaves < 0
        price, fee, worst_price, worst_fee = closing[:, leaves]
        exits = np.where(settled, payoff, price)
        no_exit = np.isnan(exits)
        net = sign * (exits - entry) - entry_fee - np.where(settled, 0.0, fee)
        worst_exit = np.where(no_book, worst, worst_price)
        worst_net = sign * (worst_exit - entry) - entry_fee - np.where(no_book, fee_without_book, worst_fee)
        move = np.where(settled, payoff, mid[leaves]) - mid[enters]
        status = np.select(
            [no_entry, settled, no_book, no_exit], [NO_ENTRY, SETTLED, NO_EXIT_BOOK, NO_EXIT_PRICE], EXIT
        )
        exits, move = (np.where(no_entry, np.nan, values) for values in (exits, move))
        at_end = (status == NO_EXIT_BOOK) & (due > trade.last) & ~is_over
        yield Forward(entry, exits, move, net, np.where(no_exit, worst_net, net), status, at_end)


def _quotes(side: Side, trade: Trade, worst: float) -> Floats:
    """Price and fee per share of a trade with each book, and both if missing shares have the ``worst`` price.

    The last column is NaN, for no book.
    """
    if trade.size is None:
        size, shares, paid = 1.0, (~np.isnan(side.best)).astype(float), np.nan_to_num(side.best)
        is_short, fee = shares == 0, _fees(trade, paid, shares)
    else:
        size = trade.size
        shares, paid, available, fee = fill_orders(side, size, charge=trade.charge)
        is_short = available < size * (1 - TOLERANCE)
    missing = np.where(is_short, size - shares, 0.0)
    worst_fee = fee + _fees(trade, worst, missing)
    known_price, known_fee = (np.where(is_short, np.nan, values) for values in (paid, fee))
    quotes = np.stack((known_price, known_fee, paid + missing * worst, worst_fee)) / size
    return np.append(quotes, np.full((4, 1), np.nan), axis=1)


def _fees(trade: Trade, price: Floats | float, shares: Floats) -> Floats:
    """The fees of trades with the snapshots; nobody pays for shares that are given away."""
    fees = np.zeros(len(shares))
    prices = np.broadcast_to(price, len(shares))
    rows = np.flatnonzero((shares > 0) & (prices > 0))
    fees[rows] = trade.charge(prices[rows], shares[rows], rows)
    return fees


def quantile_of(values: Floats, quantiles: int) -> NDArray[np.int64]:
    """The quantile of each value, from 0, by the share of values below it and half of the equal ones."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    share = (np.cumsum(counts) - counts / 2) / max(len(values), 1)
    return np.floor(share * quantiles).astype(np.int64)[which]
