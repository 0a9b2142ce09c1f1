"""What a trade at each snapshot earns until a later one: entry, exit, costs, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    """What each snapshot offers for a trade: the price per share, the fee, and both if missing shares cost most."""

    price: Floats
    fee: Floats
    worst_price: Floats
    worst_fee: Floats


def forward(books: Books, horizon: int, trade: Trade, settlement: Settlement | None) -> Forward:
    """The result of a trade at each snapshot, held for a horizon [microseconds]."""
    entry_side, exit_side = (books.asks, books.bids) if trade.buys else (books.bids, books.asks)
    opening = _quotes(entry_side, trade, worst=np.nan)
    closing = _quotes(exit_side, trade, worst=0.0 if trade.buys else 1.0)
    due = books.ts + trade.latency + horizon
    enters = first_from(books, books.ts + trade.latency, 0)
    leaves = first_from(books, due, trade.tolerance)
    over = np.full(len(books), np.inf)
    payoff = np.full(len(books), np.nan)
    if settlement is not None:
        payoff = settlement.payoff[books.token]
        over = np.where(np.isnan(payoff), np.inf, settlement.at[books.token])
    enters = np.where(books.ts + trade.latency < over, enters, -1)
    last_look = np.where(leaves >= 0, np.append(books.ts, 0)[leaves], due + trade.tolerance)
    settled = over <= last_look

    def at(values: Floats, rows: Ints) -> Floats:
        return np.append(values, np.nan)[rows]

    entry = at(opening.price, enters)
    has_entry = ~np.isnan(entry)
    exits = np.where(settled, payoff, at(closing.price, leaves))
    status = np.select(
        [~has_entry, settled, leaves < 0, np.isnan(exits)], [NO_ENTRY, SETTLED, NO_EXIT_BOOK, NO_EXIT_PRICE], EXIT
    )
    sign = 1.0 if trade.buys else -1.0
    fee_in = at(opening.fee, enters)
    fee_out = np.where(settled, 0.0, at(closing.fee, leaves))
    net = sign * (exits - entry) - fee_in - fee_out
    nothing = 0.0 if trade.buys else 1.0
    worst_exit = np.where(leaves >= 0, at(closing.worst_price, leaves), nothing)
    worst_fee = np.where(leaves >= 0, at(closing.worst_fee, leaves), _fee_of_rest(books, trade, nothing))
    net_low = np.where(np.isnan(net), sign * (worst_exit - entry) - fee_in - worst_fee, net)
    mid_out = np.where(settled, payoff, at(books.mid, leaves))
    move = np.where(has_entry, mid_out - at(books.mid, enters), np.nan)
    exits = np.where(has_entry, exits, np.nan)
    return Forward(entry, exits, move, net, net_low, status)


def first_from(books: Books, times: Ints, tolerance: int) -> Ints:
    """The first snapshot of the same token from each time until ``tolerance`` later, -1 for none.

    ``times`` has one entry per snapshot, and rises within each token.
    """
    out = np.full(len(times), -1)
    for start, end in pairwise(books.bounds.tolist()):
        ts = books.ts[start:end]
        place = np.searchsorted(ts, times[start:end])
        there = place < len(ts)
        entries = start + place[there]
        out[start:end][there] = np.where(books.ts[entries] - times[start:end][there] <= tolerance, entries, -1)
    return out


def _quotes(side: Side, trade: Trade, *, worst: float) -> _Quotes:
    """Prices and fees per share of a trade with one side; missing shares have the ``worst`` price."""
    if trade.size is None:
        price = side.best
        fee = np.zeros(len(side))
        there = np.flatnonzero(~np.isnan(price))
        if trade.charge is not None:
            fee[there] = trade.charge(price[there], np.ones(len(there)), there)
        is_short = np.isnan(price)
        rest = _fee_of(side, trade, worst, 1.0)
        return _Quotes(
            price, np.where(is_short, np.nan, fee), np.where(is_short, worst, price), np.where(is_short, rest, fee)
        )
    size = trade.size
    shares, paid, available, fee = fill_orders(side, size, charge=trade.charge)
    is_short = available < size * (1 - TOLERANCE)
    missing = np.where(is_short, size - shares, 0.0)
    rest = _fee_of(side, trade, worst, missing)
    return _Quotes(
        np.where(is_short, np.nan, paid / size),
        np.where(is_short, np.nan, fee / size),
        (paid + missing * worst) / size if not np.isnan(worst) else np.full(len(side), np.nan),
        (fee + rest) / size,
    )


def _fee_of_rest(books: Books, trade: Trade, price: float) -> Floats:
    """The fee per share of trading all shares of each snapshot at one price."""
    size = 1.0 if trade.size is None else trade.size
    return _fee_of(books.bids, trade, price, size) / size


def _fee_of(side: Side, trade: Trade, price: float, shares: Floats | float) -> Floats:
    """The fee of so many shares at one price, one of each snapshot; nobody pays for shares that are given away."""
    count = len(side)
    if trade.charge is None or np.isnan(price) or price == 0:
        return np.zeros(count)
    amounts = np.broadcast_to(np.asarray(shares, float), count)
    rows = np.flatnonzero(amounts > 0)
    out = np.zeros(count)
    out[rows] = trade.charge(np.full(len(rows), price), amounts[rows], rows)
    return out


def quantile_of(values: Floats, quantiles: int) -> NDArray[np.int64]:
    """The quantile of each value, from 0, by the share of values below it and half of those equal to it."""
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
