"""Forward returns: entry, exit and costs of a trade at each snapshot, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
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

    The exit is the first snapshot from the horizon until ``tolerance`` later.
    """

    buys: bool
    size: float | None
    latency: int
    tolerance: int
    charge: Charge | None


class Settlement(NamedTuple):
    """When each token resolves [microseconds], and what it pays; NaN where the payoff or its time is not known."""

    at: Floats
    payoff: Floats


class Forward(NamedTuple):
    """The results of trades at every snapshot [probability per share]; NaN where there is none."""

    entry: Floats
    exit: Floats
    move: Floats
    net: Floats
    net_low: Floats
    status: Ints


class _Quotes(NamedTuple):
    """Price and fee per share that each snapshot offers for a trade, and both if missing shares cost most."""

    price: Floats
    fee: Floats
    worst_price: Floats
    worst_fee: Floats

    def at(self, rows: Ints) -> _Quotes:
        """The quotes of these snapshots, NaN where a row is -1."""
        return _Quotes(*(_at(values, rows) for values in self))


def forward(books: Books, horizons: Sequence[int], trade: Trade, settlement: Settlement | None) -> list[Forward]:
    """The results of a trade at each snapshot, held for each of the horizons [microseconds]."""
    start = books.ts + trade.latency
    over, payoff = np.full(len(books), np.inf), np.full(len(books), np.nan)
    if settlement is not None:
        payoff = settlement.payoff[books.token]
        over = np.where(np.isnan(payoff), np.inf, settlement.at[books.token])
    enters = np.where(start < over, first_from(books.token, start, books.token, books.ts), -1)
    entry_side, exit_side = (books.asks, books.bids) if trade.buys else (books.bids, books.asks)
    sign, worst = (1.0, 0.0) if trade.buys else (-1.0, 1.0)
    opening = _quotes(entry_side, trade, worst).at(enters)
    closing = _quotes(exit_side, trade, worst)
    mid_in, no_entry = _at(books.mid, enters), np.isnan(opening.price)
    size = 1.0 if trade.size is None else trade.size
    fee_without_book = _fees(trade, worst, np.full(len(books), size)) / size
    results = []
    for horizon in horizons:
        due = start + horizon
        leaves = first_from(books.token, due, books.token, books.ts, trade.tolerance)
        no_book = leaves < 0
        settled = over <= np.where(no_book, due + trade.tolerance, np.append(books.ts, 0)[leaves])
        quotes = closing.at(leaves)
        exits = np.where(settled, payoff, quotes.price)
        no_exit = np.isnan(exits)
        net = sign * (exits - opening.price) - opening.fee - np.where(settled, 0.0, quotes.fee)
        worst_exit = np.where(no_book, worst, quotes.worst_price)
        worst_fee = np.where(no_book, fee_without_book, quotes.worst_fee)
        net_low = np.where(no_exit, sign * (worst_exit - opening.price) - opening.fee - worst_fee, net)
        move = np.where(settled, payoff, _at(books.mid, leaves)) - mid_in
        status = np.select(
            [no_entry, settled, no_book, no_exit], [NO_ENTRY, SETTLED, NO_EXIT_BOOK, NO_EXIT_PRICE], EXIT
        )
        exits, move = (np.where(no_entry, np.nan, values) for values in (exits, move))
        results.append(Forward(opening.price, exits, move, net, net_low, status))
    return results


def _at(values: Floats, rows: Ints) -> Floats:
    return np.append(values, np.nan)[rows]


def _quotes(side: Side, trade: Trade, worst: float) -> _Quotes:
    """Prices and fees per share of a trade with one side; missing shares have the ``worst`` price."""
    if trade.size is None:
        size, paid = 1.0, side.best
        is_short = np.isnan(paid)
        missing = np.where(is_short, 1.0, 0.0)
        paid = np.where(is_short, 0.0, paid)
        fee = _fees(trade, paid, 1.0 - missing)
    else:
        size = trade.size
        shares, paid, available, fee = fill_orders(side, size, charge=trade.charge)
        is_short = available < size * (1 - TOLERANCE)
        missing = np.where(is_short, size - shares, 0.0)
    price, fee = paid / size, fee / size
    return _Quotes(
        np.where(is_short, np.nan, price),
        np.where(is_short, np.nan, fee),
        price + missing * worst / size,
        fee + _fees(trade, worst, missing) / size,
    )


def _fees(trade: Trade, price: Floats | float, shares: Floats) -> Floats:
    """The fees of trades with the snapshots; nobody pays for shares that are given away."""
    fees = np.zeros(len(shares))
    if trade.charge is not None:
        prices = np.broadcast_to(price, len(shares))
        rows = np.flatnonzero((shares > 0) & (prices > 0))
        fees[rows] = trade.charge(prices[rows], shares[rows], rows)
    return fees


def quantile_of(values: Floats, quantiles: int) -> NDArray[np.int64]:
    """The quantile of each value, from 0, by the share of values below it and half of the equal ones."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    share = (np.cumsum(counts) - counts / 2) / max(len(values), 1)
    return np.floor(share * quantiles).astype(np.int64)[which]


def one_token_per_market(tokens: Sequence[tuple[str | None, ...]]) -> NDArray[np.bool_]:
    """Whether a token, (market, id, label), stands for its market: the one labelled Yes, else the smallest id."""
    chosen: dict[str | None, tuple[bool, str | None]] = {}
    for market, token, label in tokens:
        rank = (str(label).casefold() != "yes", token)
        chosen[market] = min(chosen.get(market, rank), rank, key=lambda one: (one[0], one[1] or ""))
    return np.array([chosen[market][1] == token for market, token, _ in tokens], bool)
