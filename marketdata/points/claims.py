"""What the markets of an event claim of one number, or of one time, and what follows from that.

A claim is that a quantity is between two borders, such as above 100, or that something happens by a day.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Columns, Floats, Ints
from marketdata.points.fees import Charge
from marketdata.points.measures.trade_cost import fill_orders
from marketdata.points.schema import TOLERANCE

# A value, and 1 if the border is just above it: what is above 5 begins at (5, 1), and at or above 5 at (5, 0).
Border = tuple[float, int]
FIRST: Border = (-np.inf, 0)
LAST: Border = (np.inf, 0)
YES, NO = 0, 1
# A number of the question, or the time by which it must happen [microseconds].
Of = Literal["strike", "deadline"]
COMPARISONS: Mapping[str, tuple[Literal["low", "high"], int]] = {
    ">": ("low", 1), ">=": ("low", 0), "<": ("high", 0), "<=": ("high", 1),
}  # fmt: skip


class Claim(NamedTuple):
    """What the first token of a market pays for: that the quantity is between two borders."""

    market: str
    tokens: tuple[str, ...]
    low: Border
    high: Border

    def is_within(self, other: Claim) -> bool:
        """Whether the other claim is true wherever this one is."""
        return other.low <= self.low and self.high <= other.high

    def excludes(self, other: Claim) -> bool:
        """Whether both cannot be true."""
        return self.high <= other.low or other.high <= self.low

    def completes(self, other: Claim) -> bool:
        """Whether one of both is always true."""
        return any(a.low == FIRST and b.high == LAST and b.low <= a.high for a, b in ((self, other), (other, self)))

    @property
    def border(self) -> Border | None:
        """The one border of a claim that is open to the other side; None if it has two."""
        return self.low if self.high == LAST else self.high if self.low == FIRST else None


class Event(NamedTuple):
    """The claims of an event in their order; ``is_whole`` if exactly one of them comes true."""

    event_id: str
    of: Of
    claims: tuple[Claim, ...]
    is_nested: bool
    is_whole: bool

    @property
    def borders(self) -> list[tuple[Border, Border]]:
        """The intervals of the distribution: between the borders of nested claims, else the claims themselves."""
        if not self.is_nested:
            return [(claim.low, claim.high) for claim in self.claims]
        inner = [claim.border or FIRST for claim in self.claims]
        return [*zip([FIRST, *inner], [*inner, LAST], strict=True)]

    @property
    def sure(self) -> list[tuple[int, int, int, int]]:
        """Pairs of tokens of which at least one pays: the number of a claim and of its token, and of another claim."""
        out = []
        for (i, one), (j, other) in combinations(enumerate(self.claims), 2):
            tokens = (
                (YES, YES, one.completes(other)), (YES, NO, other.is_within(one)), (NO, YES, one.is_within(other)),
                (NO, NO, one.excludes(other)),
            )  # fmt: skip
            out += [(i, token, j, of_other) for token, of_other, is_sure in tokens if is_sure]
        return out


class Grid(NamedTuple):
    """The times of some tokens, and the entry of each at each time (rows), -1 where it has none."""

    ts: Ints
    entry: Ints


def grid(columns: Columns, tokens: Sequence[tuple[str, str]]) -> Grid:
    """The entries of these tokens at each time of one of them."""
    place = {token[:2]: number for number, token in enumerate(columns.tokens)}
    ranges = [slice(*columns.bounds[place[one] : place[one] + 2]) if one in place else slice(0, 0) for one in tokens]
    ts = np.unique(np.concatenate([np.zeros(0, np.int64), *(columns.ts[one] for one in ranges)]))
    entry = np.full((len(ts), len(tokens)), -1)
    for i, one in enumerate(ranges):
        entry[np.searchsorted(ts, columns.ts[one]), i] = np.arange(len(columns))[one]
    return Grid(ts, entry)


class Distribution(NamedTuple):
    """Times, and the probability and the hazard of each interval of `Event.borders` (columns) at each of them."""

    ts: Ints
    probability: Floats
    hazard: Floats


def distribution(event: Event, columns: Columns, price: Floats) -> Distribution:
    """The distribution that prices of the first tokens imply.

    The hazard is the probability of a time among those that are not before it; it is of deadlines only.
    """
    at = grid(columns, [(claim.market, claim.tokens[YES]) for claim in event.claims])
    prices = np.append(price, np.nan)[at.entry]
    if not event.is_nested:
        total = prices.sum(axis=1, keepdims=True) if event.is_whole else np.zeros((len(prices), 1))
        known = np.broadcast_to(total > 0, prices.shape)
        return Distribution(
            at.ts,
            np.divide(prices, total, out=np.full(prices.shape, np.nan), where=known),
            np.full(prices.shape, np.nan),
        )
    is_below = np.array([claim.low == FIRST for claim in event.claims])
    none, every = (np.full((len(prices), 1), end) for end in (0.0, 1.0))
    below = np.concatenate((none, np.where(is_below, prices, 1 - prices), every), axis=1)
    mass, left = np.diff(below, axis=1), 1 - below[:, :-1]
    hazard = np.full(mass.shape, np.nan)
    if event.of == "deadline":  # the last interval has no end
        np.divide(mass[:, :-1], left[:, :-1], out=hazard[:, :-1], where=left[:, :-1] > TOLERANCE)
    return Distribution(at.ts, mass, hazard)


class Traded(NamedTuple):
    """Books, which of them orders reach, what a taker pays, and the shares of an order; None: those at the best."""

    books: Books
    is_open: NDArray[np.bool_]
    charge: Charge
    size: float | None

    def cost(self, legs: Ints) -> tuple[Floats, Floats]:
        """The shares of orders for two tokens, whose books are ``legs``, -1 for none, and what both cost with fees.

        NaN where a book is missing or has too few shares.
        """
        asks = self.books.asks
        size, cost = np.full((2, legs.shape[1]), np.nan)
        known = np.flatnonzero(legs.min(axis=0, initial=0) >= 0)
        rows = legs[:, known]
        wanted = asks.best_size[rows].min(axis=0) if self.size is None else np.full(len(known), self.size)
        total, is_short = np.zeros(len(known)), np.isnan(asks.best[rows]).any(axis=0)
        for leg in rows:
            taken = fill_orders(asks.take(leg), np.nan_to_num(wanted), charge=_of_books(self.charge, leg))
            total += taken.paid + taken.fees
            is_short |= taken.available < wanted * (1 - TOLERANCE)
        size[known], cost[known] = (np.where(is_short, np.nan, one) for one in (wanted, total))
        return size, cost


def _of_books(charge: Charge, books: Ints) -> Charge:
    """The charge of orders that each meet one of these books."""
    return Charge(
        lambda price, shares, at: charge.levels(price, shares, books[at]),
        lambda fees, at: charge.orders(fees, books[at]),
    )


class Contradictions(NamedTuple):
    """Times at which both tokens of a pair of `Event.sure` cost less than the 1 that one of them pays."""

    ts: Ints
    pair: Ints
    amount: Floats
    size: Floats
    cost: Floats


def contradictions(event: Event, columns: Columns, price: Floats, traded: Traded | None) -> Contradictions:
    """Where prices of the first tokens, or with ``traded`` the asks of both, contradict what the claims imply."""
    i, token, j, of_other = np.array(event.sure, np.int64).reshape(-1, 4).T
    at = grid(columns, [(claim.market, claim.tokens[side]) for side in (YES, NO) for claim in event.claims])
    entry = np.stack(np.split(at.entry, 2, axis=1))
    yes = np.append(price, np.nan)[entry[YES]]
    both = np.stack((yes, 1 - yes))
    amount = 1 - both[token, :, i].T - both[of_other, :, j].T
    broken = np.nan_to_num(amount) > TOLERANCE
    if traded is not None:
        entry = np.append(np.where(traded.is_open, np.arange(len(columns)), -1), -1)[entry]
        best = np.append(traded.books.asks.best, np.nan)[entry]
        broken |= best[token, :, i].T + best[of_other, :, j].T < 1 - TOLERANCE
    time, pair = np.nonzero(broken)
    legs = np.stack((entry[token[pair], time, i[pair]], entry[of_other[pair], time, j[pair]]))
    size, cost = np.full((2, len(time)), np.nan) if traded is None else traded.cost(legs)
    return Contradictions(at.ts[time], pair, amount[time, pair], size, cost)
