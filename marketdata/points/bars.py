"""Bars of prints: prices, volume and counts of the trades of each token and bucket."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Floats, Ints, Series, Trades, ratio
from marketdata.points.resample import buckets, in_buckets
from marketdata.resolution import BucketWidth

BARS = ("open", "high", "low", "close", "vwap", "volume", "signed_volume", "count")
"""The columns of bars after the ids; see `bars`."""
PRICES = BARS[:5]


def bars(trades: Trades, width: BucketWidth) -> Series:
    """The bar of each token and bucket that has a print.

    - ``open high low close``: the first, greatest, least and last price [probability]; prints of one time are in the
      order of ``log_index`` where it is known, else as they are
    - ``vwap``: the mean price, weighted with sizes; null if all sizes are 0
    - ``volume``: the sum of the sizes [shares]; ``signed_volume``: that of buys less that of sells, null if the side
      of a print is not known
    - ``count``: the number of prints
    """
    trades = ordered(trades)
    price, size = trades.values["price"], trades.values["size"]
    # A print without a price or a size counts in no bar.
    has_both = ~(np.isnan(price) | np.isnan(size))
    if not has_both.all():
        return bars(trades.take(np.flatnonzero(has_both)), width)
    edges = buckets(trades, width)
    begins, sides = edges[:-1], trades.values["side"]
    volume = _sums(size, begins)
    values: dict[str, NDArray[np.float64]] = {
        "open": price[begins],
        "high": np.maximum.reduceat(price, begins) if len(begins) else price,
        "low": np.minimum.reduceat(price, begins) if len(begins) else price,
        "close": price[edges[1:] - 1],
        "vwap": ratio(_sums(size * price, begins), volume),
        "volume": volume,
        "signed_volume": _sums(size * signs(taker_sides(sides, trades.values.get("role"))), begins),
        "count": np.diff(edges),
    }
    return in_buckets(trades, edges, width, values)


def filled_bars(made: Series, width: BucketWidth, *, forward: bool) -> Series:
    """Bars with one for each bucket between the first and the last of all: those without a print have no volume.

    Their prices are missing, or with ``forward`` the close before, from which ``vwap`` stays out. ``observed`` is 0.
    """
    ts = made.ts
    grid = np.arange(ts.min(), ts.max() + 1, width.micros) if len(ts) else ts
    count = len(made.tokens)
    place = made.token * len(grid) + np.searchsorted(grid, ts)
    observed = np.zeros(count * len(grid), bool)
    observed[place] = True
    last = np.maximum.accumulate(np.where(observed, np.arange(len(observed)), -1))
    values = {}
    for name, column in made.values.items():
        whole = np.full(len(observed), np.nan if name in PRICES else 0, column.dtype)
        whole[place] = column
        values[name] = whole
    if forward:
        is_before = (last >= 0) & (last // max(len(grid), 1) == np.arange(len(observed)) // max(len(grid), 1))
        shown = np.flatnonzero(~observed & is_before)
        for name in PRICES[:4]:
            values[name][shown] = values["close"][last[shown]]
    values["observed"] = observed
    return Series(made.tokens, np.arange(count + 1) * len(grid), np.tile(grid, count), values)


def ordered(trades: Trades) -> Trades:
    """Prints in tidy order, those of one time by ``log_index`` where it is known."""
    trades = trades.sort()
    log = trades.values.get("log_index")
    if log is None:
        return trades
    order = np.lexsort((log, trades.ts, trades.token))
    return replace(trades, values={name: values[order] for name, values in trades.values.items()})


def taker_sides(sides: NDArray[np.object_], roles: NDArray[np.object_] | None) -> NDArray[np.object_]:
    """What takers did: in a fill of an account that was the maker, ``side`` is what the maker did."""
    if roles is None:
        return sides
    other = {"buy": "sell", "sell": "buy"}
    out = sides.copy()
    made = np.flatnonzero(roles == "maker")
    out[made] = [other.get(side, side) for side in sides[made].tolist()]
    return out


def signs(sides: NDArray[np.object_]) -> Floats:
    """1 for a buy, -1 for a sale, NaN for an unknown side."""
    return np.where(sides == "buy", 1.0, np.where(sides == "sell", -1.0, np.nan))


def _sums(values: Floats, begins: Ints) -> Floats:
    return np.add.reduceat(values, begins) if len(begins) else np.empty(0)
