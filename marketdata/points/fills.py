"""Fills of market orders from the books of a token, what they come to, and an account of them through time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Floats, Ints, Side, Token
from marketdata.points.fees import Charge, Schedule
from marketdata.points.measures.trade_cost import fill_orders
from marketdata.points.schema import TOLERANCE

# The price and size of each level of one side, and the shares that earlier orders left.
Levels = tuple[Floats, Floats, Floats]
RESULT = (
    "bought", "sold", "position", "paid", "received", "fees", "payoff", "settled", "profit", "profit_sold",
    "profit_held", "open_at_last_bid",
)  # fmt: skip
# At one price of a side: the shares that rested when an order last took some, what one's own orders had taken at
# earlier books and at the last one, and the time of that.
Taken = dict[float, tuple[float, float, float, int]]


class Fill(NamedTuple):
    """The result of an order: buckets of its book and its signal, shares wanted and filled, and the price."""

    ts: int
    signal_ts: int
    side: str
    requested: float
    shares: float
    average_price: float
    notional: float
    fee: float
    status: str
    taken_before: float


class Order(NamedTuple):
    """An order, sorted by the time of the book that it meets."""

    at: int
    place: int
    signal_ts: int
    buys: bool
    size: float
    limit: float
    is_exit: bool = False


@dataclass
class Ledger:
    """One token: its books, its orders in time order, and their fills."""

    token: Token
    books: Books
    fees_of: Schedule
    hold: int | None
    tolerance: int
    over: float
    is_book: NDArray[np.bool_]
    fills: list[Fill] = field(default_factory=list)
    bought: float = 0.0
    sold: float = 0.0
    exits: int = 0
    unsold: int = 0
    reused: float = 0.0
    taken: tuple[Taken, Taken] = field(default_factory=lambda: ({}, {}))

    @property
    def position(self) -> float:
        """Shares bought and not yet sold."""
        position = self.bought - self.sold
        # A remainder in the last bits of a sum is no position: it would need a payoff.
        return position if position > TOLERANCE * self.bought else 0.0

    def result(self, payoff: float) -> tuple[float, ...]:
        """The columns of `RESULT`; NaN where the payoff [USD per share] of an open position is."""
        paid, received = (sum(fill.notional for fill in self.fills if fill.side == side) for side in ("buy", "sell"))
        fees, settled = sum(fill.fee for fill in self.fills), self.position * payoff if self.position else 0.0
        at_last_bid = 0.0
        if self.position and np.isnan(payoff) and len(self.books):
            at_last_bid = self.position * float(np.nan_to_num(self.books.bids.best[-1]))
        profit, money = received - paid - fees + settled, (paid, received, fees)
        # Shares that are not in the position were sold. All shares of a token count at their average cost.
        cost = paid + sum(fill.fee for fill in self.fills if fill.side == "buy")
        held = settled - cost * self.position / self.bought if self.position else 0.0
        sold = received - paid - fees + (cost * self.position / self.bought if self.position else 0.0)
        return (self.bought, self.sold, self.position, *money, payoff, settled, profit, sold, held, at_last_bid)

    def trade(self, orders: Iterable[Order]) -> None:
        """Fill the orders, and those that they make for later."""
        queue, at, levels, is_filled_in = list(orders), None, None, False
        heapq.heapify(queue)
        while queue:
            order = heapq.heappop(queue)
            if order.at != at:
                at, book = order.at, self._find(order.at)
                levels = self._levels(book) if book >= 0 else None
                is_filled_in = book >= 0 and not self.is_book[book]
            shares = self._fill(order, None if levels is None else levels[order.buys], is_filled_in=is_filled_in)
            if order.is_exit:
                self.exits, self.unsold = self.exits + 1, self.unsold + (shares < order.size * (1 - TOLERANCE))
            if order.buys and shares > 0 and self.hold is not None:
                due = order.at + self.hold
                book = self._find(due, self.tolerance)
                due = int(self.books.ts[book]) if book >= 0 else due
                exit_order = Order(due, order.place, order.at, buys=False, size=shares, limit=0.0, is_exit=True)
                heapq.heappush(queue, exit_order)

    def _find(self, moment: int, tolerance: int = 0) -> int:
        """The number of the first book from a moment until ``tolerance`` later; -1 if there is none.

        Books that were filled in are passed over, unless the order is for their very moment.
        """
        book = int(np.searchsorted(self.books.ts, moment))
        while tolerance and book < len(self.books) and not self.is_book[book]:
            book += 1
        return book if book < len(self.books) and self.books.ts[book] <= moment + tolerance else -1

    def _levels(self, book: int) -> list[Levels]:
        """The bids and the asks of a book."""
        levels = []
        for side in (self.books.bids, self.books.asks):
            rows = slice(side.begins[book], side.begins[book] + side.counts[book])
            levels.append((side.price[rows], side.size[rows], side.size[rows].copy()))
        return levels

    def _taken(self, order: Order, price: Floats, size: Floats, filled: Floats) -> float:
        """What orders at earlier books took of the levels that this one takes from, of the same size since.

        Books know nothing of one's own orders: the shares that they took still rest in later ones.
        """
        of_side, before = self.taken[order.buys], 0.0
        for p, resting, shares in zip(price.tolist(), size.tolist(), filled.tolist(), strict=True):
            was, taken, now, at = of_side.get(p, (resting, 0.0, 0.0, order.at))
            if was != resting:
                taken, now = 0.0, 0.0
            elif at != order.at:
                taken, now = taken + now, 0.0
            before += taken
            self.reused += min(max(taken + now + shares - resting, 0.0), shares)
            of_side[p] = resting, taken, now + shares, order.at
        return before

    def _fill(self, order: Order, levels: Levels | None, *, is_filled_in: bool = False) -> float:
        """Take shares, best level first, within the limit; returns how many."""
        wanted = order.size if order.buys else min(order.size, self.position)
        price = filled = np.empty(0)
        taken_before = 0.0
        if order.at >= self.over:
            status = "resolved"
        elif levels is None:
            status = "no book"
        elif is_filled_in:
            status = "not observed"
        elif wanted <= 0:
            status = "no position"
        else:
            price, size, remaining = levels
            good = price <= order.limit + TOLERANCE if order.buys else price >= order.limit - TOLERANCE
            offered = np.where(good, remaining, 0.0)
            filled = np.clip(wanted - (np.cumsum(offered) - offered), 0.0, offered)
            # The last bits of a sum decide nothing.
            filled[filled <= TOLERANCE * wanted] = 0.0
            remaining -= filled
            remaining[remaining <= TOLERANCE * size] = 0.0
            taken_before = self._taken(order, price[filled > 0], size[filled > 0], filled[filled > 0])
            price, filled = price[filled > 0], filled[filled > 0]
            status = "partial" if len(filled) else "no liquidity"
        shares, notional = float(filled.sum()), float((price * filled).sum())
        fee = float(self.fees_of.of_orders(np.sum(self.fees_of.of_levels(price, filled)))) if shares else 0.0
        if shares and abs(shares - wanted) <= TOLERANCE * wanted:
            shares = wanted
            status = "filled" if shares >= order.size * (1 - TOLERANCE) else "partial"
        if order.buys:
            self.bought += shares
        else:
            self.sold += shares
        side, average = "buy" if order.buys else "sell", notional / shares if shares else np.nan
        numbers = (order.size, shares, average, notional, fee)
        self.fills.append(Fill(order.at, order.signal_ts, side, *numbers, status, taken_before))
        return shares


class Quotes(NamedTuple):
    """The quotes of a token: its mid (or price) at rising times, and the bids that it could be sold into."""

    ts: Ints
    mid: Floats
    bids: Side | None = None
    charge: Charge | None = None


class Holding(NamedTuple):
    """One token of an account: its fills (times that rise, shares bought or -sold, money received or -paid)."""

    ts: Ints
    shares: Floats
    money: Floats
    quotes: Quotes
    settled_at: int | None
    payoff: float


def amounts(holding: Holding, times: Ints) -> Floats:
    """Money that moved until each time, the position at the mid, and what selling it would bring [USD].

    A position is valued by the latest quote at or before the time, best bids first. It is NaN where there is no quote,
    the quote has no mid, or its bids are for fewer shares.
    """
    done = np.searchsorted(holding.ts, times, side="right")
    position = np.append(0.0, np.cumsum(holding.shares))
    # A remainder in the last bits of a sum is no position.
    position[position <= TOLERANCE * np.append(0.0, np.cumsum(np.abs(holding.shares)))] = 0.0
    position, money = position[done], np.append(0.0, np.cumsum(holding.money))[done]
    if holding.settled_at is not None:
        over = times >= holding.settled_at
        money, position = np.where(over, money + position * holding.payoff, money), np.where(over, 0.0, position)
    ts, mid, bids, charge = holding.quotes
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
