"""Tokens of a market or an event together: sums of their prices, and the book that another token implies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ConfigError, MissingRecordsWarning, warn
from marketdata.points.columns import Books, Columns, Floats, Ints, Token, ranges, ratio
from marketdata.points.fees import Schedule
from marketdata.points.measures.trade_cost import fill_orders
from marketdata.points.mirrors import has_a_third
from marketdata.points.order import LevelRows, sorted_by
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import TOLERANCE

_ROWS_WORTH_A_LOOP = 100
NONE, YES, NO = -1, 0, 1
Counts = int | Mapping[str, int] | None
Values = dict[str, NDArray[Any]]


class Event(NamedTuple):
    """An event: its markets with the ids of their Yes and No, and whether exactly one of them resolves to Yes.

    It is a basket if the markets exclude each other and the list of them is closed; not known is no.
    """

    event_id: str
    markets: dict[str, tuple[str, ...]]
    is_basket: bool


class Sets:
    """Entries by the group of their token, a market or an event, and by time; a set has one group and one time.

    Each set has a ``group``, a ``ts``, and in ``sizes`` the number of values that complete it, 0 if none does.
    """

    def __init__(self, columns: Columns, group: Ints, sizes: Ints) -> None:
        """Take the group of each token, -1 for none, and the size of the sets of each group."""
        of_entry, order = group[columns.token], _side_by_side(columns, group)
        if order is None:
            rows = np.flatnonzero(of_entry >= 0)
            order = rows[sorted_by(of_entry[rows], columns.ts[rows])]
        self.columns, self._order = columns, order
        self._starts = group_starts(of_entry[order], columns.ts[order])
        first = order[self._starts]
        self.group, self.ts = of_entry[first], columns.ts[first]
        self.sizes = sizes[self.group]

    def count(self, mask: NDArray[np.bool_]) -> Ints:
        """The number of entries of each set that the mask has."""
        return self._reduced(np.add, mask.astype(np.int64))

    def complete(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Whether the mask has all entries of each set."""
        return np.asarray((self.count(mask) == self.sizes) & (self.sizes > 0))

    def sum(self, values: Floats) -> Floats:
        """Sums of values over each set; NaN unless it is complete."""
        missing = np.isnan(values)
        return np.where(self.complete(~missing), self._reduced(np.add, np.where(missing, 0.0, values)), np.nan)

    def least(self, values: Floats) -> Floats:
        """The least value of each set, NaN if it has none."""
        return self._reduced(np.fmin, values)

    def of_entries(self, values: Floats) -> Floats:
        """For each entry the value of its set, NaN where it is in none."""
        out = np.full(len(self.columns), np.nan)
        out[self._order] = np.repeat(values, run_ends(self._starts, len(self._order)) - self._starts)
        return out

    def _reduced(self, function: np.ufunc, values: NDArray[Any]) -> NDArray[Any]:
        return function.reduceat(values[self._order], self._starts) if len(self._starts) else values[:0]


def _side_by_side(columns: Columns, group: Ints) -> Ints | None:
    """Entries by group and time without a sort, if all tokens of a group are adjacent and have the same times."""
    if len(columns) < _ROWS_WORTH_A_LOOP * len(group) or (np.diff(group, prepend=0) < 0).any():
        return None
    out, firsts = [], np.append(group_starts(group), len(group)).tolist()
    for i, j in pairwise(firsts):
        starts, ends = columns.bounds[i:j], columns.bounds[i + 1 : j + 1]
        first = columns.ts[starts[0] : ends[0]]
        if any(not np.array_equal(first, columns.ts[a:b]) for a, b in zip(starts[1:], ends[1:], strict=True)):
            return None
        out.append((np.arange(len(first))[:, None] + starts).ravel())
    return np.concatenate(out) if out else None


def sizes_of_markets(tokens: Sequence[Token], counts: Counts) -> dict[str, int]:
    """The number of tokens of each market; 0 if it is unknown, 1, or less than the number of tokens here.

    Without counts it is the number here, unless the labels of two say that they are not all.
    """
    labels: dict[str, list[str | None]] = defaultdict(list)
    for token in tokens:
        labels[token.market_id].append(token.token_label)
    sizes = {}
    for market, here in labels.items():
        seen = 0 if len(here) == 2 and has_a_third(here) else len(here)
        size = counts.get(market, 0) if isinstance(counts, Mapping) else seen if counts is None else counts
        sizes[market] = size if size >= max(len(here), 2) else 0
    return sizes


def by_market(columns: Columns, counts: Counts) -> Sets:
    """The entries by market and time."""
    sizes = sizes_of_markets(columns.tokens, counts)
    number = {market: i for i, market in enumerate(sizes)}
    group = np.array([number[token.market_id] for token in columns.tokens], np.int64)
    return Sets(columns, group, np.array([*sizes.values()], np.int64))


def by_event(columns: Columns, events: Sequence[Event], recorded: Container[str]) -> tuple[Sets, Ints]:
    """The entries by event and time, and the outcome of each: `YES`, `NO` or `NONE`. Only a basket is complete.

    A market without a record may be one of any event, so that none is known to be complete.
    """
    number = {market: i for i, event in enumerate(events) for market in event.markets}
    has_others = has_unrecorded(columns.tokens, recorded)
    side: dict[tuple[str | None, ...], int] = {
        (m, token): i for e in events for m, pair in e.markets.items() for i, token in enumerate(pair)
    }
    group = np.array([number.get(token.market_id, NONE) for token in columns.tokens], np.int64)
    is_known = [event.is_basket and not has_others for event in events]
    sizes = np.array([len(e.markets) if known else 0 for e, known in zip(events, is_known, strict=True)], np.int64)
    sides = np.array([side.get(token[:2], NONE) for token in columns.tokens], np.int64)
    return Sets(columns, group, sizes), sides[columns.token]


def has_unrecorded(tokens: Sequence[Token], recorded: Container[str]) -> bool:
    """Whether a market has no record, with a MissingRecordsWarning: it may be one of any event."""
    unrecorded = [token.market_id for token in tokens if token.market_id not in recorded]
    if unrecorded:
        warn(
            f"The frame has markets without a record, such as {unrecorded[0]!r}, which may be of an event of the "
            "records; the results of all events whose markets exclude each other are null.",
            MissingRecordsWarning,
            hint="Pass the records of all markets of the frame, or leave the rows of other markets out.",
        )
    return bool(unrecorded)


def sums(sets: Sets, books: Books, counts: NDArray[np.bool_]) -> Values:
    """Sums of bids, mids and asks of each set, over the entries that count."""
    prices = {"bid_sum": books.bids.best, "mid_sum": books.mid, "ask_sum": books.asks.best}
    out: Values = {name: sets.sum(np.where(counts, price, np.nan)) for name, price in prices.items()}
    return {**out, "overround": out["ask_sum"] - 1}


def free_money(
    sets: Sets, books: Books, fees: Schedule | None, is_open: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], Values]:
    """Which sets have an open book of each token, and where they cost less, or bring more, than the 1 that one pays."""
    prices = []
    for side, sign in ((books.bids, -1.0), (books.asks, 1.0)):
        price = np.where(is_open, side.best, np.nan)
        if fees is not None:  # an ask costs the fee of a share more, and a bid brings less
            rows = np.flatnonzero(~np.isnan(price))
            price[rows] += sign * fees.charge_for(books)(price[rows], np.ones(len(rows)), rows)
        prices.append(sets.sum(price))
    bid, ask = prices
    buy, sell = ask < 1 - TOLERANCE, bid > 1 + TOLERANCE
    bid_size, ask_size = (sets.least(side.best_size) for side in (books.bids, books.asks))
    size = np.where(buy, ask_size, np.where(sell, bid_size, np.nan))
    gain = np.where(buy, 1 - ask, np.where(sell, bid - 1, np.nan))
    return sets.complete(is_open), {"buy_all": buy, "sell_all": sell, "size": size, "gain": gain}


def shares(sets: Sets, values: Floats) -> Floats:
    """Each value over the sum of its set; NaN unless the set is complete, and its sum above 0."""
    return ratio(values, sets.of_entries(sets.sum(values)))


def costs(
    sets: Sets, books: Books, side: Ints, fees: Schedule, size: float | None, is_open: NDArray[np.bool_]
) -> Values:
    """Cost with fees of all Yes, and of all No, of an event, and their certain payoffs: 1, and n - 1.

    ``is_open``: the books that orders reach.
    """
    charge = fees.charge_for(books)
    out: Values = {}
    for name, leg, pays in (("yes", YES, 1), ("no", NO, sets.sizes - 1)):
        is_leg = side == leg
        wanted = sets.least(np.where(is_leg, books.asks.best_size, np.nan))
        wanted = wanted if size is None else np.full(len(wanted), size)
        amounts = np.where(is_leg, np.nan_to_num(sets.of_entries(wanted)), 0.0)
        taken, paid, available, fee = fill_orders(books.asks, amounts, charge=charge)
        lacks = ~is_leg | ~is_open | (available < amounts * (1 - TOLERANCE)) | (taken == 0)
        cost = sets.sum(np.where(lacks, np.nan, paid + fee))
        wanted = np.where(np.isnan(cost), np.nan, wanted)
        payoff = wanted * pays
        out |= {f"{name}_size": wanted, f"{name}_cost": cost, f"{name}_payoff": payoff, f"{name}_edge": payoff - cost}
    return out


def complement(rows: Columns, levels: LevelRows, edges: Ints, counts: Counts) -> tuple[Columns, LevelRows]:
    """The level rows of each token that the other token of its market implies.

    ``edges``: where the bids and the asks of each snapshot begin, and behind them the number of rows.
    """
    here = Counter(token.market_id for token in rows.tokens)
    wrong = sorted(m for m, size in sizes_of_markets(rows.tokens, counts).items() if size != 2 or here[m] != 2)
    if wrong:
        raise ConfigError(
            # An engine sees some markets at a time, so they are not counted.
            f"Some markets of the frame do not have two tokens, for example {wrong[0]!r}; a complement is of a market "
            "with two tokens, both of them in the frame."
        )
    # Levels of each snapshot: first its asks, which become bids, then its bids.
    begins, lengths = (pairs.reshape(-1, 2)[:, ::-1].ravel() for pairs in (edges[:-1], np.diff(edges)))
    mirrored = ranges(begins, lengths)
    other = np.arange(len(rows.tokens)) ^ 1  # tokens are by market, two of each
    lengths = np.diff(rows.bounds)[other]
    index = mirrored[ranges(rows.starts[other], lengths)]
    ts = levels.ts[index]
    out = Columns(rows.tokens, np.append(0, np.cumsum(lengths)), ts)
    return out, LevelRows(
        ts, 1 - levels.side[index], levels.level[index], 1.0 - levels.price[index], levels.size[index]
    )
