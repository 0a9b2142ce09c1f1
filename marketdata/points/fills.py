"""Fills of market orders from the books of one token after the other, and what they come to."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from marketdata.points.columns import Books, Floats, Ints
from marketdata.points.fees import Schedule
from marketdata.points.schema import TOLERANCE

Token = tuple[str, str]
RESULT = ("bought", "sold", "position", "paid", "received", "fees", "payoff", "settled", "profit", "open_at_last_bid")


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


class Order(NamedTuple):
    """An order, sorted by the time of the book that it meets."""

    at: int
    place: int
    signal_ts: int
    token: Token
    buys: bool
    size: float
    limit: float


class Snapshot:
    """The levels of one book, less the shares that earlier orders took."""

    def __init__(self, bids: tuple[Floats, Floats], asks: tuple[Floats, Floats]) -> None:
        self._levels = {buys: (price, size, size.copy()) for buys, (price, size) in ((False, bids), (True, asks))}

    def fill(self, order: Order, wanted: float) -> tuple[Floats, Floats]:
        """Take shares for an order, best level first, within its limit: prices and shares, one of each level."""
        price, size, remaining = self._levels[order.buys]
        good = price <= order.limit + TOLERANCE if order.buys else price >= order.limit - TOLERANCE
        offered = np.where(good, remaining, 0.0)
        filled = np.clip(wanted - (np.cumsum(offered) - offered), 0.0, offered)
        filled[filled <= TOLERANCE * wanted] = 0.0
        remaining -= filled
        remaining[remaining <= TOLERANCE * size] = 0.0
        return price[filled > 0], filled[filled > 0]


class Ladders:
    """The snapshots of each token by time."""

    def __init__(self, books: Books) -> None:
        self._books, self.ts = books, books.ts
        tokens = [(t.market_id, str(t.token_id)) for t in books.tokens]
        self._ranges: dict[Token, tuple[int, int]] = dict(zip(tokens, pairwise(books.bounds.tolist()), strict=True))
        self.labels = dict(zip(tokens, (t.token_label for t in books.tokens), strict=True))

    def times(self, token: Token) -> Ints:
        """When the buckets of a token that have a book begin."""
        return self.ts[slice(*self._ranges.get(token, (0, 0)))]

    def find(self, token: Token, moment: int, tolerance: int = 0) -> int:
        """The number of the first book of a token from a moment until ``tolerance`` later; -1 if there is none."""
        first, last = self._ranges.get(token, (0, 0))
        book = first + int(np.searchsorted(self.ts[first:last], moment))
        return book if book < last and self.ts[book] <= moment + tolerance else -1

    def last_bid(self, token: Token) -> float:
        """The best bid of the last book of a token [probability]; 0 where it has none."""
        first, last = self._ranges.get(token, (0, 0))
        bid = self._books.bids.best[last - 1] if last > first else np.nan
        return 0.0 if np.isnan(bid) else float(bid)

    def snapshot(self, book: int) -> Snapshot:
        """The levels of a book by its number."""
        sides = []
        for side in (self._books.bids, self._books.asks):
            rows = slice(int(side.begins[book]), int(side.begins[book] + side.counts[book]))
            sides.append((side.price[rows], side.size[rows]))
        return Snapshot(*sides)


@dataclass
class Ledger:
    """One token: its orders in time order, and their fills."""

    token: Token
    ladders: Ladders
    fees_of: Schedule
    hold: int | None
    tolerance: int
    resolved_at: int | None
    fills: list[Fill] = field(default_factory=list)
    bought: float = 0.0
    sold: float = 0.0
    paid: float = 0.0
    received: float = 0.0
    fees: float = 0.0

    @property
    def position(self) -> float:
        """Shares bought and not yet sold."""
        position = self.bought - self.sold
        # A remainder in the last bits of a sum is no position: it would need a payoff.
        return position if position > TOLERANCE * self.bought else 0.0

    def result(self, payoff: float) -> tuple[float, ...]:
        """The columns of `RESULT`; NaN where the payoff [USD per share] of an open position is."""
        settled = self.position * payoff if self.position else 0.0
        profit = self.received - self.paid - self.fees + settled
        is_open = bool(self.position) and np.isnan(payoff)
        at_last_bid = self.position * self.ladders.last_bid(self.token) if is_open else 0.0
        money = (self.paid, self.received, self.fees)
        return (self.bought, self.sold, self.position, *money, payoff, settled, profit, at_last_bid)

    def trade(self, orders: Iterable[Order]) -> None:
        """Fill the orders, and those that they make for later."""
        queue, at, snapshot = list(orders), None, None
        heapq.heapify(queue)
        while queue:
            order = heapq.heappop(queue)
            if order.at != at:
                at, book = order.at, self.ladders.find(self.token, order.at)
                snapshot = self.ladders.snapshot(book) if book >= 0 else None
            shares = self._fill(order, snapshot)
            if order.buys and shares > 0 and self.hold is not None:
                due = order.at + self.hold
                book = self.ladders.find(self.token, due, self.tolerance)
                due = int(self.ladders.ts[book]) if book >= 0 else due
                heapq.heappush(queue, Order(due, order.place, order.at, self.token, buys=False, size=shares, limit=0.0))

    def _fill(self, order: Order, snapshot: Snapshot | None) -> float:
        wanted = order.size if order.buys else min(order.size, self.position)
        price = filled = np.empty(0)
        status = ""
        if self.resolved_at is not None and order.at >= self.resolved_at:
            status = "resolved"
        elif snapshot is None:
            status = "no book"
        elif wanted <= 0:
            status = "no position"
        else:
            price, filled = snapshot.fill(order, wanted)
            status = "" if len(filled) else "no liquidity"
        shares, notional = float(filled.sum()), float((price * filled).sum())
        fee = float(np.sum(self.fees_of(price, filled))) if shares else 0.0
        if not status:
            # The last bits of a sum decide nothing.
            shares = wanted if abs(shares - wanted) <= TOLERANCE * wanted else shares
            status = "filled" if shares >= order.size * (1 - TOLERANCE) else "partial"
        if order.buys:
            self.bought, self.paid = self.bought + shares, self.paid + notional
        else:
            self.sold, self.received = self.sold + shares, self.received + notional
        self.fees += fee
        side, average = "buy" if order.buys else "sell", notional / shares if shares else np.nan
        self.fills.append(Fill(order.at, order.signal_ts, side, order.size, shares, average, notional, fee, status))
        return shares
