"""An account through time: cash, and positions at what was known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from marketdata.points.columns import Floats, Ints, Side
from marketdata.points.fees import Charge
from marketdata.points.measures.trade_cost import fill_orders
from marketdata.points.schema import TOLERANCE


class Quotes(NamedTuple):
    """The quotes of a token: its mid (or price) at rising times, and the bids that it could be sold into."""

    ts: Ints
    mid: Floats
    bids: Side | None = None
    charge: Charge | None = None


class Token(NamedTuple):
    """One token of an account: its fills (times that rise, shares bought or -sold, money received or -paid)."""

    ts: Ints
    shares: Floats
    money: Floats
    quotes: Quotes
    settled_at: int | None
    payoff: float


def amounts(token: Token, times: Ints) -> Floats:
    """Money that moved until each time, the position at the mid, and what selling it would bring [USD].

    A position is valued by the latest quote at or before the time, best bids first. It is NaN where there is no quote,
    the quote has no mid, or its bids are for fewer shares.
    """
    done = np.searchsorted(token.ts, times, side="right")
    position = np.append(0.0, np.cumsum(token.shares))
    # A remainder in the last bits of a sum is no position.
    position[position <= TOLERANCE * np.append(0.0, np.cumsum(np.abs(token.shares)))] = 0.0
    position, money = position[done], np.append(0.0, np.cumsum(token.money))[done]
    if token.settled_at is not None:
        over = times >= token.settled_at
        money, position = np.where(over, money + position * token.payoff, money), np.where(over, 0.0, position)
    ts, mid, bids, charge = token.quotes
    value, sale = np.zeros((2, len(times)))
    rows = np.flatnonzero(position)
    known = np.searchsorted(ts, times[rows], side="right") - 1
    value[rows], sale[rows] = position[rows] * np.append(mid, np.nan)[known], np.nan
    if bids is not None:
        rows, known = rows[known >= 0], known[known >= 0]
        _, paid, available, fee = fill_orders(bids.take(known), position[rows], charge=charge)
        sale[rows] = np.where(available < position[rows] * (1 - TOLERANCE), np.nan, paid - fee)
    return np.stack((money, value, sale))


def equity(total: Floats, cash: float) -> dict[str, Floats]:
    """An account with so much cash at the beginning, and how far it is below its greatest equity before."""
    money, value, sale = total
    equity = cash + money + value
    return {
        "cash": cash + money,
        "value": value,
        "sale": sale,
        "equity": equity,
        "profit": money + value,
        "profit_sold": money + sale,
        "drawdown": np.maximum.accumulate(np.where(np.isnan(equity), -np.inf, equity)) - equity,
    }
