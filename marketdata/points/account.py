"""An account through time: cash, and positions at what was known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from marketdata.points.columns import Floats, Ints, Side
from marketdata.points.fees import Charge
from marketdata.points.measures.trade_cost import fill_orders
from marketdata.points.schema import TOLERANCE


@dataclass(frozen=True)
class Quotes:
    """The quotes of a token: its mid (or price) at rising times, and the bids that it could be sold into."""

    ts: Ints
    mid: Floats
    bids: Side | None = None
    charge: Charge | None = None

    def last_known(self, times: Ints) -> Ints:
        """The place of the latest row at or before each time, -1 where there is none."""
        return np.searchsorted(self.ts, times, side="right") - 1

    def mids(self, times: Ints) -> Floats:
        """The mid that was known; NaN where none was, or the latest book has none."""
        return np.append(self.mid, np.nan)[self.last_known(times)]

    def sales(self, times: Ints, shares: Floats) -> Floats:
        """Proceeds of selling the shares, best bids first; NaN where the latest bids are for fewer shares."""
        at, out = self.last_known(times), np.full(len(times), np.nan)
        rows = np.flatnonzero(at >= 0)
        if self.bids is None or not len(rows):
            return out
        _, paid, there, fee = fill_orders(self.bids.take(at[rows]), shares[rows], charge=self.charge)
        out[rows] = np.where(there < shares[rows] * (1 - TOLERANCE), np.nan, paid - fee)
        return out


class Token(NamedTuple):
    """One token of an account: its fills (times that rise, shares bought or -sold, money received or -paid)."""

    ts: Ints
    shares: Floats
    money: Floats
    quotes: Quotes
    settled_at: int | None
    payoff: float


class Path(NamedTuple):
    """Sums at each time: money that moved, and positions at the mid and at what selling them would bring [USD]."""

    money: Floats
    value: Floats
    sale: Floats
    # The place of the time of the first fill.
    first: int

    @property
    def profit(self) -> Floats:
        """The money and the positions at the mid."""
        return self.money + self.value

    def from_first_fill(self) -> Path:
        """The same without the times before."""
        return Path(self.money[self.first :], self.value[self.first :], self.sale[self.first :], 0)

    def equity(self, cash: float) -> dict[str, Floats]:
        """An account with so much cash at the beginning, and how far it is below its greatest equity before."""
        equity = cash + self.money + self.value
        greatest = np.maximum.accumulate(np.where(np.isnan(equity), -np.inf, equity))
        return {
            "cash": cash + self.money,
            "value": self.value,
            "sale": self.sale,
            "equity": equity,
            "profit": self.profit,
            "profit_sold": self.money + self.sale,
            "drawdown": greatest - equity,
        }


def path(token: Token, times: Ints) -> Path:
    """Cash, position and value of one token at each time."""
    done = np.searchsorted(token.ts, times, side="right")
    position = np.append(0.0, np.cumsum(token.shares))
    # A remainder in the last bits of a sum is no position.
    position[position <= TOLERANCE * np.append(0.0, np.cumsum(np.abs(token.shares)))] = 0.0
    position, money = position[done], np.append(0.0, np.cumsum(token.money))[done]
    if token.settled_at is not None:
        over = times >= token.settled_at
        money, position = np.where(over, money + position * token.payoff, money), np.where(over, 0.0, position)
    value, sale = np.zeros((2, len(times)))
    rows = np.flatnonzero(position)
    value[rows] = position[rows] * token.quotes.mids(times[rows])
    sale[rows] = token.quotes.sales(times[rows], position[rows])
    return Path(money, value, sale, int(np.searchsorted(times, token.ts[0])))


def total(paths: Sequence[Path], count: int) -> Path:
    """The sum of several; NaN where a part is not known."""
    none = np.zeros(count)
    money, value, sale = (np.sum([none, *(getattr(path, c) for path in paths)], axis=0) for c in Path._fields[:3])
    return Path(money, value, sale, min((path.first for path in paths), default=count))
