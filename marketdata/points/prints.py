"""Which prints are the same: the rule by which a print that is given twice is stored once.

Two prints of a market are one if they agree in the first of these that both have:

- the venue's id, ``trade_id``
- ``transaction_hash`` and ``log_index``
- ``transaction_hash``, token, side, price and size, and where both have them the accounts
- time, token, side, price and size, and where both have them the accounts

The last two do not tell equal prints apart. So the first of them is the first of the other source, the second the
second, and so on: of prints that came three times here and twice there, three are stored. Prices and sizes are equal
to a millionth, as some sources round them. Times of one transaction may differ, as venues and chains have clocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import NotTidyError
from marketdata.points.columns import Ints, Token, Trades, joined, missing, values_of
from marketdata.times import MINUTE

# Times of one print in two sources differ by less than this [microseconds].
CLOCKS = 5 * MINUTE
_TEXTS = ("trade_id", "transaction_hash", "maker", "taker")
_ID, _HASH, _LOG, _MAKER, _TAKER = (1 << place for place in range(5))
_MILLIONTHS = 1e6
Keys = NDArray[np.uint64]


class Union(NamedTuple):
    """The effect of new prints on stored ones.

    - ``written``: prints to write: new ones, and those that tell more of a stored one
    - ``same``: positions of the stored prints that are among the new ones, and stay as they are
    - ``gone``: positions of the stored prints that written ones replace
    """

    written: Trades
    same: Ints
    gone: Ints


def distinct(trades: Trades) -> Trades:
    """The prints, each id of a venue once; NotTidyError if two prints of one id differ.

    Equal prints without an id are several prints.
    """
    keys = _Rows(trades)
    kept = np.ones(len(trades), bool)
    for mask, what in ((_ID, ("trade_id",)), (_HASH | _LOG, ("transaction_hash", "log_index"))):
        rows = np.flatnonzero((keys.known & mask == mask) & ((mask == _ID) | (keys.known & _ID == 0)))
        by_id = keys.of(mask, rows)
        order = np.argsort(by_id, kind="stable")
        again = np.flatnonzero(by_id[order][1:] == by_id[order][:-1]) + 1
        one, other = rows[order][again - 1], rows[order][again]
        differ = ~(keys.values[one] == keys.values[other])
        if differ.any():
            at = int(other[differ][0])
            shown = " ".join(f"{name} {trades.values[name][at]}" for name in what)
            raise NotTidyError(
                f"Two prints have the {shown[:160]} and different tokens, sides, prices or sizes ({trades.shown(at)}). "
                f"If they are legs of one trade, drop {what[-1]} or give each its own; if one is wrong, leave it out."
            )
        kept[other] = False
    return trades if kept.all() else trades.take(np.flatnonzero(kept))


def union(new: Trades, stored: Trades) -> Union:
    """What to write so that each of the stored and of the new prints, which are `distinct`, is there once."""
    ours, theirs = _Rows(new), _Rows(stored)
    mine, other = _matched(ours, theirs)
    told, changes = _told(ours, theirs, mine, other)
    fresh = np.ones(len(new), bool)
    fresh[mine] = False
    parts = [part for part in (new.take(np.flatnonzero(fresh)), told) if len(part)]
    written = joined(parts).sort() if parts else told
    return Union(written, np.sort(other[~changes]), np.sort(other[changes]))


class _Rows:
    """Prints as numbers that are equal for equal ids and values; ``known`` are the ids and accounts of each."""

    def __init__(self, trades: Trades) -> None:
        self.trades = trades
        none = np.full(len(trades), None, object)
        self._texts = {name: trades.values.get(name, none) for name in _TEXTS}
        log = trades.values.get("log_index", np.full(len(trades), np.nan))
        self._log = np.nan_to_num(log, nan=-1).astype(np.int64).view(np.uint64)
        self.known = np.zeros(len(trades), np.int64)
        has = [np.array([text is not None for text in self._texts[name]], bool) for name in _TEXTS]
        for bit, one in zip((_ID, _HASH, _LOG, _MAKER, _TAKER), (*has[:2], ~np.isnan(log), *has[2:]), strict=True):
            self.known |= np.where(one, bit, 0)
        tokens = [hash((token.market_id, token.token_id, None if token.token_id else token.token_label)) for token
                  in trades.tokens]  # fmt: skip
        markets = [hash(token.market_id) for token in trades.tokens]
        self._market, token = (
            np.array(one or [0], np.int64).view(np.uint64)[trades.token] for one in (markets, tokens)
        )
        numbers = [_millionths(trades.values[name]) for name in ("price", "size")]
        self.values = _mixed(token, _hashed(trades.values["side"]), *numbers)

    def of(self, common: int, rows: Ints) -> Keys:
        """The keys of rows by what two sources have in common."""
        market, text = self._market[rows], self._hashed_text
        if common & _ID:
            return _mixed(market, text("trade_id", rows))
        if common & _HASH and common & _LOG:
            return _mixed(market, text("transaction_hash", rows), self._log[rows])
        first = text("transaction_hash", rows) if common & _HASH else self.trades.ts[rows].view(np.uint64)
        accounts = [text(name, rows) for bit, name in ((_MAKER, "maker"), (_TAKER, "taker")) if common & bit]
        return _numbered(_mixed(first, self.values[rows], *accounts))

    def _hashed_text(self, name: str, rows: Ints) -> Keys:
        return _hashed(self._texts[name][rows])


def _matched(ours: _Rows, theirs: _Rows) -> tuple[Ints, Ints]:
    """Positions of new prints, and of the stored prints that these are."""
    mine, other = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    free_ours, free_theirs = np.ones(len(ours.known), bool), np.ones(len(theirs.known), bool)
    for known, known_there in _in_order(ours.known, theirs.known):
        a = np.flatnonzero((ours.known == known) & free_ours)
        b = np.flatnonzero((theirs.known == known_there) & free_theirs)
        if len(a) and len(b):
            keys_a, keys_b = ours.of(known & known_there, a), theirs.of(known & known_there, b)
            order = np.argsort(keys_b, kind="stable")
            place = np.minimum(np.searchsorted(keys_b[order], keys_a), len(b) - 1)
            is_same = keys_b[order][place] == keys_a
            a, b = a[is_same], b[order][place[is_same]]
            free_ours[a], free_theirs[b] = False, False
            mine.append(a)
            other.append(b)
    return np.concatenate(mine), np.concatenate(other)


def _in_order(ours: Ints, theirs: Ints) -> Iterator[tuple[int, int]]:
    """Pairs of what is known of prints, those that have the most telling things in common first."""

    def strength(pair: tuple[int, int]) -> tuple[bool, bool, bool, int]:
        common = pair[0] & pair[1]
        has_log = bool(common & _HASH and common & _LOG)
        return not common & _ID, not has_log, not common & _HASH, -common.bit_count()

    every = [(a, b) for a in np.unique(ours).tolist() for b in np.unique(theirs).tolist()]
    yield from sorted(every, key=strength)


def _told(ours: _Rows, theirs: _Rows, mine: Ints, other: Ints) -> tuple[Trades, NDArray[np.bool_]]:
    """Stored prints with what new ones tell beyond them, or otherwise; and which of the pairs these are."""
    new, stored = ours.trades, theirs.trades
    is_other = ours.values[mine] != theirs.values[other]
    changes, values = is_other.copy(), dict[str, NDArray[Any]]()
    for name in dict.fromkeys((*stored.values, *new.values)):
        dtype = (stored.values if name in stored.values else new.values)[name].dtype
        told, known = values_of(new, name, dtype)[mine], values_of(stored, name, dtype)[other]
        lacks = missing(known) & ~missing(told)
        changes |= lacks
        is_told = (is_other & ~missing(told)) if name in ("side", "price", "size") else lacks
        values[name] = np.where(is_told, told, known)
    tokens: list[Token] = [*stored.tokens, *new.tokens]
    codes = np.where(is_other, new.token[mine] + len(stored.tokens), stored.token[other])[changes]
    ts = np.where(is_other, new.ts[mine], stored.ts[other])[changes]
    return Trades.of(tokens, codes, ts, {name: v[changes] for name, v in values.items()}), changes


def _hashed(texts: NDArray[Any]) -> Keys:
    return np.fromiter(map(hash, texts), np.int64, len(texts)).view(np.uint64)


def _millionths(numbers: NDArray[np.float64]) -> Keys:
    # -0.0 and 0.0 become one number, and so do all kinds of NaN.
    return np.nan_to_num(np.rint(numbers * _MILLIONTHS), nan=-1.0).astype(np.int64).view(np.uint64)


def _mixed(*parts: Keys) -> Keys:
    """One number of several, as splitmix64 makes it."""
    out = np.zeros(len(parts[0]), np.uint64)
    for part in parts:
        out = (out ^ part) + np.uint64(0x9E3779B97F4A7C15)
        out = (out ^ (out >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        out = (out ^ (out >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        out ^= out >> np.uint64(31)
    return out


def _numbered(keys: Keys) -> Keys:
    """Keys that also tell which of several equal ones each is: the first, the second, and so on."""
    order = np.argsort(keys, kind="stable")
    starts = np.flatnonzero(np.append(np.ones(min(len(keys), 1), bool), keys[order][1:] != keys[order][:-1]))
    number = np.empty(len(keys), np.int64)
    number[order] = np.arange(len(keys)) - np.repeat(starts, np.diff(np.append(starts, len(keys))))
    return _mixed(keys, number.view(np.uint64))
