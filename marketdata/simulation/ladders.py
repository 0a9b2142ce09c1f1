"""Order books around a price, as whole numbers of a thousandth, without a loop over snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.wire.columns import BookColumns, Codes, Floats, Ints, Token

UNIT = 1000  # prices are counted in thousandths, the finest tick
COARSE, FINE = 10, 1
EDGE = 0.04  # nearer to 0 or 1 than this the tick becomes fine, and stays so


@dataclass(frozen=True, slots=True)
class Ladders:
    """One book per row, best level first; ``bids`` and ``asks`` say how many levels of a row are there.

    Attributes
    ----------
    prices, sizes : array, books x 2 x levels
        Bids then asks: price [thousandths], size [shares].
    bids, asks : array of int
        Levels of each side of each book.
    """

    prices: NDArray[np.int32]
    sizes: Floats
    bids: Ints
    asks: Ints

    def mirrored(self) -> Ladders:
        """The other token of a pair: a bid for Yes at p is an ask for No at 1 - p, of the same size."""
        return Ladders(UNIT - self.prices[:, ::-1], self.sizes[:, ::-1], self.asks, self.bids)

    def take(self, rows: NDArray[Any]) -> Ladders:
        """Some of the books."""
        return Ladders(self.prices[rows], self.sizes[rows], self.bids[rows], self.asks[rows])

    def columns(self, tokens: tuple[Token, ...], token: Codes, ts: Ints) -> BookColumns:
        """The books as columns, entry i about ``tokens[token[i]]`` at ``ts[i]``."""
        counts = np.stack((self.bids, self.asks), axis=1)
        there = np.arange(self.prices.shape[2]) < counts[:, :, None]
        levels = np.empty((int(counts.sum()), 2))
        levels[:, 0] = self.prices[there] / UNIT
        levels[:, 1] = self.sizes[there]
        return BookColumns(tokens, token, ts, counts.reshape(-1).astype(np.int64), levels)

    def spread(self) -> Floats:
        """Best ask less best bid [probability]; NaN where a side is empty."""
        out = (self.prices[:, 1, 0] - self.prices[:, 0, 0]) / UNIT
        return np.asarray(np.where((self.bids > 0) & (self.asks > 0), out, np.nan))

    def value(self) -> Floats:
        """Money resting in the book [USD]: bids at their price, asks at what their seller risks."""
        there = np.arange(self.prices.shape[2]) < np.stack((self.bids, self.asks), axis=1)[:, :, None]
        risk = self.prices / UNIT
        risk[:, 1] = 1 - risk[:, 1]
        return np.asarray(np.round((risk * self.sizes * there).sum(axis=(1, 2)), 2))


def ticks(probability: Floats) -> NDArray[np.int32]:
    """Tick of each minute of one token [thousandths]: coarse, and fine from the first touch of an edge on."""
    near = (probability < EDGE) | (probability > 1 - EDGE)
    return np.where(np.maximum.accumulate(near), FINE, COARSE).astype(np.int32)


def build(
    rng: np.random.Generator,
    probability: Floats,
    tick: NDArray[np.int32],
    left: Floats,
    activity: Floats,
    wall: Floats,
    levels: int,
) -> Ladders:
    """A book around each probability.

    Parameters
    ----------
    rng : numpy Generator
        Source of chance.
    probability : array of float
        Where the book stands.
    tick : array of int
        Its tick [thousandths].
    left : array of float
        Share of the information still to come [0 to 1]; books thin out towards 0.
    activity : array of float
        Busy minutes have wider and thinner books.
    wall : array of float
        How much rests at each price, from ``walls``.
    levels : int
        Most levels of a side.
    """
    rows = len(probability)
    half = rng.exponential(0.5 + 0.15 * np.minimum(activity, 8)) * tick
    middle = probability * UNIT
    best_bid = np.floor((middle - half) / tick).astype(np.int32) * tick
    best_ask = np.ceil((middle + half) / tick).astype(np.int32) * tick
    best_ask = np.where(best_ask > best_bid, best_ask, best_bid + tick)
    locked = rng.random(rows) < 2e-4
    best_ask = np.where(locked, best_bid, best_ask)

    gap = rng.integers(0, 8, (rows, 2, levels), dtype=np.uint8) // 7 + np.uint8(1)
    gap[:, :, 0] = 0
    away = np.cumsum(gap, axis=2, dtype=np.int32) * tick[:, None, None]
    prices = np.empty((rows, 2, levels), dtype=np.int32)
    np.subtract(best_bid[:, None], away[:, 0], out=prices[:, 0])
    np.add(best_ask[:, None], away[:, 1], out=prices[:, 1])

    depth = _depth(rng, left, levels)
    inside = (prices > 0) & (prices < UNIT)
    bids = np.minimum(inside[:, 0].sum(axis=1) * (prices[:, 0, 0] < UNIT), depth[:, 0])
    asks = np.minimum(inside[:, 1].sum(axis=1) * (prices[:, 1, 0] > 0), depth[:, 1])
    empty = rng.random(rows) < 5e-4
    bids[empty] = asks[empty] = 0
    return Ladders(prices, _sizes(rng, prices, left, activity, wall), bids.astype(np.int64), asks.astype(np.int64))


def _depth(rng: np.random.Generator, left: Floats, levels: int) -> NDArray[np.int32]:
    """Levels of each side: nearly all of them early on, few at the end, none in the last minutes."""
    share = np.clip(left * 4, 0.0, 1.0)[:, None] * rng.uniform(0.75, 1.0, (len(left), 2))
    depth = np.ceil(share * levels).astype(np.int32)
    gone = rng.random((len(left), 2)) < 0.4 * np.clip(1 - left * 40, 0.0, 1.0)[:, None]
    return np.where(gone, 0, depth)


def walls(rng: np.random.Generator) -> Floats:
    """How much rests at each price of a market, as factors; round prices draw more."""
    out = np.exp(rng.normal(0.0, 0.7, UNIT + 1))
    out[::50] *= 4.0
    out[::100] *= 2.0
    return out


def _sizes(rng: np.random.Generator, prices: NDArray[np.int32], left: Floats, activity: Floats, wall: Floats) -> Floats:
    """Shares on each level: more behind the touch, walls at round prices, thin when busy or near the end."""
    behind = 1.0 + 0.35 * np.arange(prices.shape[2])
    calm = 180.0 * np.sqrt(0.03 + left) / np.sqrt(0.5 + activity)
    chance = rng.standard_exponential(prices.shape, dtype=np.float32)
    sizes = wall[np.clip(prices, 0, UNIT)] * (0.15 + chance) * behind * calm[:, None, None]
    huge = rng.random(len(left)) < 5e-4
    sizes[huge, :, -1] *= 400.0
    sizes *= 100.0
    return np.asarray(np.maximum(np.rint(sizes, out=sizes), 2.0) / 100.0)
