"""Order books around a price, in whole thousandths, vectorised over snapshots."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Floats, Ints, Token

UNIT = 1000  # prices are counted in thousandths, the finest tick
COARSE, FINE = 10, 1
EDGE = 0.04  # nearer to 0 or 1 than this the tick becomes fine, and stays so


class OrderBooks(NamedTuple):
    """Books as arrays of books x 2 sides x levels: ``prices`` [thousandths], ``sizes`` [shares], best level first."""

    prices: NDArray[np.int32]
    sizes: Floats
    bids: Ints
    asks: Ints

    def mirrored(self) -> OrderBooks:
        """The other token of a pair: a bid for Yes at p is an ask for No at 1 - p, of the same size."""
        return OrderBooks(UNIT - self.prices[:, ::-1], self.sizes[:, ::-1], self.asks, self.bids)

    def select(self, rows: Ints | NDArray[np.bool_]) -> OrderBooks:
        """The books of these rows."""
        return OrderBooks(self.prices[rows], self.sizes[rows], self.bids[rows], self.asks[rows])

    def present(self) -> NDArray[np.bool_]:
        """True where a level exists, in the shape of ``prices``."""
        counts = np.stack((self.bids, self.asks), axis=1)
        return np.arange(self.prices.shape[2]) < counts[:, :, None]

    def columns(self, token: Token, ts: Ints) -> Books:
        """The books as columns, entry i at ``ts[i]``."""
        present = self.present()
        price, size = self.prices[present] / UNIT, self.sizes[present]
        return Books.of_levels((token,), np.array([0, len(ts)]), ts, present.sum(axis=2).ravel(), price, size)

    def spread(self) -> Floats:
        """Best ask less best bid [probability]; NaN where a side is empty."""
        out = (self.prices[:, 1, 0] - self.prices[:, 0, 0]) / UNIT
        return np.asarray(np.where((self.bids > 0) & (self.asks > 0), out, np.nan))

    def resting_value(self) -> Floats:
        """Value of the resting orders [USD]: bids at their price, asks at 1 - price."""
        risk = self.prices / UNIT
        risk[:, 1] = 1 - risk[:, 1]
        return np.asarray(np.round((risk * self.sizes * self.present()).sum(axis=(1, 2)), 2))


def ticks(probability: Floats) -> NDArray[np.int32]:
    """Tick of each minute of one token [thousandths]: coarse, and fine from the first touch of an edge on."""
    near = (probability < EDGE) | (probability > 1 - EDGE)
    return np.where(np.maximum.accumulate(near), FINE, COARSE).astype(np.int32)


def build(
    rng: np.random.Generator,
    probability: Floats,
    tick: NDArray[np.int32],
    remaining: Floats,
    activity: Floats,
    profile: Floats,
    levels: int,
) -> OrderBooks:
    """A book around each ``probability``, the mid before rounding to ``tick`` [thousandths].

    Books thin out as the ``remaining`` share of the information falls to 0, and are wider and thinner in minutes of
    high ``activity``; ``profile`` is the relative size at each price.
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
    prices = np.stack((best_bid[:, None] - away[:, 0], best_ask[:, None] + away[:, 1]), axis=1)

    depth = _depth(rng, remaining, levels)
    inside = (prices > 0) & (prices < UNIT)
    bids = np.minimum(inside[:, 0].sum(axis=1) * (prices[:, 0, 0] < UNIT), depth[:, 0])
    asks = np.minimum(inside[:, 1].sum(axis=1) * (prices[:, 1, 0] > 0), depth[:, 1])
    empty = rng.random(rows) < 5e-4
    bids[empty] = asks[empty] = 0
    sizes = _sizes(rng, prices, remaining, activity, profile)
    return OrderBooks(prices, sizes, bids.astype(np.int64), asks.astype(np.int64))


def _depth(rng: np.random.Generator, remaining: Floats, levels: int) -> NDArray[np.int32]:
    """Levels of each side: most early on, few at the end, none in the last minutes."""
    share = np.clip(remaining * 4, 0.0, 1.0)[:, None] * rng.uniform(0.75, 1.0, (len(remaining), 2))
    depth = np.ceil(share * levels).astype(np.int32)
    gone = rng.random((len(remaining), 2)) < 0.4 * np.clip(1 - remaining * 40, 0.0, 1.0)[:, None]
    return np.where(gone, 0, depth)


def size_profile(rng: np.random.Generator) -> Floats:
    """Relative size at each price of a market; round prices have more."""
    out = np.exp(rng.normal(0.0, 0.7, UNIT + 1))
    out[::50] *= 4.0
    out[::100] *= 2.0
    return out


def _sizes(
    rng: np.random.Generator, prices: NDArray[np.int32], remaining: Floats, activity: Floats, profile: Floats
) -> Floats:
    """Shares of each level: more behind the best price and at round prices, less in busy minutes and near the end."""
    behind = 1.0 + 0.35 * np.arange(prices.shape[2])
    calm = 180.0 * np.sqrt(0.03 + remaining) / np.sqrt(0.5 + activity)
    chance = rng.standard_exponential(prices.shape, dtype=np.float32)
    sizes = profile[np.clip(prices, 0, UNIT)] * (0.15 + chance) * behind * calm[:, None, None]
    huge = rng.random(len(remaining)) < 5e-4
    sizes[huge, :, -1] *= 400.0
    sizes *= 100.0
    return np.asarray(np.maximum(np.rint(sizes, out=sizes), 2.0) / 100.0)
