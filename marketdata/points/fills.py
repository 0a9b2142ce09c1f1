"""Fills of market orders from the books of one token after the other, and what they come to."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
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


@dataclass
class Snapshot:
    """The levels of one book, and how many shares of each side earlier orders took."""

    levels: Mapping[bool, tuple[Floats, Floats]]
    used: dict[bool, float] = field(default_factory=lambda: {True: 0.0, False: 0.0})

    def fill(self, order: Order, wanted: float) -> tuple[Floats, Floats]:
        """Take shares for an order, best level first, within its limit: prices and shares, one of each level."""
        price, size = self.levels[order.buys]
        good = price <= order.limit + TOLERANCE if order.buys else price >= order.limit - TOLERANCE
        price, size = price[good], size[good]
        # Shares that earlier orders took are gone, from the best level on.
        before = np.cumsum(size) - size
        left = np.clip(size + np.minimum(before - self.used[order.buys], 0.0), 0.0, size)
        left[left <= TOLERANCE * size] = 0.0
        start = np.cumsum(left) - left
        filled = np.clip(wanted - start, 0.0, left)
        filled[filled <= TOLERANCE * wanted] = 0.0
        self.used[order.buys] += float(filled.sum())
        return price[filled > 0], filled[filled > 0]


class Ladders:
    """The snapshots of each token by time."""

    def __init__(self, books: Books) -> None:
        self._books, self._ts = books, books.ts
        tokens = [(t.market_id, str(t.token_id)) for t in books.tokens]
        self._ranges: dict[Token, tuple[int, int]] = dict(zip(tokens, pairwise(books.bounds.tolist()), strict=True))
        self.labels = dict(zip(tokens, (t.token_label for t in books.tokens), strict=True))

    def times(self, token: Token) -> Ints:
        """When the buckets of a token that have a book begin."""
        first, last = self._ranges.get(token, (0, 0))
        return self._ts[first:last]

    def next_from(self, token: Token, moment: int, tolerance: int) -> int:
        """The bucket of the first book from a moment until ``tolerance`` later; the moment itself if there is none."""
        times = self.times(token)
        i = int(np.searchsorted(times, moment))
        return int(times[i]) if i < len(times) and times[i] <= moment + tolerance else moment

    def last_bid(self, token: Token) -> float:
        """The best bid of the last book of a token [probability]; 0 where it has none."""
        first, last = self._ranges.get(token, (0, 0))
        bid = self._books.bids.best[last - 1] if last > first else np.nan
        return 0.0 if np.isnan(bid) else float(bid)

    def at(self, token: Token, moment: int) -> Snapshot | None:
        """The snapshot in the bucket of a token that begins at a moment."""
        first, last = self._ranges.get(token, (0, 0))
        i = first + int(np.searchsorted(self._ts[first:last], moment))
        if i == last or self._ts[i] != moment:
            return None
        levels = {}
        for buys, side in ((False, self._books.bids), (True, self._books.asks)):
            rows = slice(int(side.begins[i]), int(side.begins[i] + side.counts[i]))
            levels[buys] = side.price[rows], side.size[rows]
        return Snapshot(levels)


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
        queue, at, book = list(orders), None, None
        heapq.heapify(queue)
        while queue:
            order = heapq.heappop(queue)
            if order.at != at:
                at, book = order.at, self.ladders.at(self.token, order.at)
            shares = self._fill(order, book)
            if order.buys and shares > 0 and self.hold is not None:
                later = self.ladders.next_from(self.token, order.at + self.hold, self.tolerance)
                heapq.heappush(
                    queue, Order(later, order.place, order.at, self.token, buys=False, size=shares, limit=0.0)
                )

    def _fill(self, order: Order, book: Snapshot | None) -> float:
        wanted = order.size if order.buys else min(order.size, self.position)
        none = np.empty(0)
        price, filled, status = none, none, ""
        if self.resolved_at is not None and order.at >= self.resolved_at:
            status = "resolved"
        elif book is None:
            status = "no book"
        elif wanted <= 0:
            status = "no position"
        else:
            price, filled = book.fill(order, wanted)
            status = "no liquidity" if not len(filled) else ""
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
