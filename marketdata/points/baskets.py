"""Rules on baskets of all Yes, or all No, of an event whose markets exclude each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Floats, Ints, Token
from marketdata.points.fees import Schedule
from marketdata.points.measures.trade_cost import fill_orders
from marketdata.points.resample import group_starts
from marketdata.points.schema import TOLERANCE

NONE, YES, NO = -1, 0, 1


class Event(NamedTuple):
    """An event: its markets with the ids of their Yes and No, and whether exactly one of them resolves to Yes."""

    event_id: str
    markets: dict[str, tuple[str, str]]
    is_basket: bool
    """The markets exclude each other, and the list of them is closed; not known is no."""


@dataclass(frozen=True)
class Legs:
    """Rows of tokens, such as books, as legs of events: the event (-1 for none), side and time of each."""

    events: Sequence[Event]
    event: Ints
    side: Ints
    """`YES`, `NO` or `NONE`."""
    ts: Ints

    @classmethod
    def of(cls, events: Sequence[Event], tokens: Sequence[Token], token: NDArray[np.integer], ts: Ints) -> Legs:
        """Legs of rows, row i of ``tokens[token[i]]`` at ``ts[i]``; a token is its market and its id."""
        event_of = {market: number for number, event in enumerate(events) for market in event.markets}
        side_of = {(m, one): side for e in events for m, pair in e.markets.items() for side, one in enumerate(pair)}
        event = np.array([event_of.get(t.market_id, NONE) for t in tokens], np.int64)
        side = np.array([side_of.get((t.market_id, str(t.token_id)), NONE) for t in tokens], np.int64)
        return cls(events, event[token], side[token], ts)

    def groups(self) -> tuple[Ints, Ints, Ints]:
        """Events and times at which any of their tokens has a row, by event and time, and the place of each row."""
        rows = np.flatnonzero(self.event >= 0)
        rows = rows[np.lexsort((self.ts[rows], self.event[rows]))]
        starts = group_starts(self.event[rows], self.ts[rows])
        place = np.full(len(self.event), NONE)
        place[rows] = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(rows))))
        return self.event[rows[starts]], self.ts[rows[starts]], place

    def counts(self) -> Ints:
        """The number of markets of each event."""
        return np.array([len(event.markets) for event in self.events], np.int64)

    def sums(self, values: Floats, side: int) -> Floats:
        """Sums over one side of all markets for each of `groups`; NaN where one lacks it, or the event is no basket."""
        event, _, place = self.groups()
        rows = np.flatnonzero((self.side == side) & ~np.isnan(values))
        there = np.bincount(place[rows], minlength=len(event))
        sums = np.bincount(place[rows], values[rows], minlength=len(event))
        good = np.array([one.is_basket for one in self.events], bool)
        return np.where((there == self.counts()[event]) & good[event], sums, np.nan)


def prices(legs: Legs, books: Books) -> dict[str, Floats | Ints]:
    """Cost and proceeds of all Yes tokens of an event, relative to the 1 that one of them pays."""
    event, _, place = legs.groups()
    yes = place[legs.side == YES]
    sums = {
        "bid_sum": legs.sums(books.bids.best, YES),
        "mid_sum": legs.sums(books.mid, YES),
        "ask_sum": legs.sums(books.asks.best, YES),
    }
    return {"markets": np.bincount(yes, minlength=len(event)), **sums, "overround": sums["ask_sum"] - 1}


def costs(legs: Legs, books: Books, fees: Schedule, size: float | None = None) -> dict[str, Floats | Ints]:
    """Cost with fees of all Yes, and of all No, of an event, and their certain payoffs: 1, and n - 1."""
    event, _, place = legs.groups()
    charge = fees.charge_for(books)
    count = legs.counts()[event]
    out: dict[str, Floats | Ints] = {"legs": count}
    for name, side, pays in (("yes", YES, np.ones(len(event))), ("no", NO, count - 1.0)):
        rows = np.flatnonzero(legs.side == side)
        sets = np.full(len(event), np.inf if size is None else size)
        if size is None:
            np.fmin.at(sets, place[rows], books.asks.best_size[rows])
            sets[np.isinf(sets)] = np.nan
        wanted = np.zeros(len(books))
        wanted[rows] = np.nan_to_num(sets[place[rows]])
        shares, paid, available, fee = fill_orders(books.asks, wanted, charge=charge)
        lacks = (available < wanted * (1 - TOLERANCE)) | (shares == 0)
        cost = legs.sums(np.where(lacks, np.nan, paid + fee), side)
        payoff = np.where(np.isnan(cost), np.nan, sets * pays)
        sets = np.where(np.isnan(cost), np.nan, sets)
        out |= {f"{name}_size": sets, f"{name}_cost": cost, f"{name}_payoff": payoff, f"{name}_edge": payoff - cost}
    return out


def probabilities(legs: Legs, values: Floats) -> Floats:
    """The price of each Yes over the sum of its event at that time; NaN where the sum is null or 0."""
    _, _, place = legs.groups()
    total = legs.sums(values, YES)
    scale = np.where(legs.side == YES, np.append(total, np.nan)[place], np.nan)
    out = np.full(len(values), np.nan)
    np.divide(values, scale, out=out, where=scale > 0)
    return out
