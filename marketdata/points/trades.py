"""Rules on trades: prints without their repeated legs, and what a trade cost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Columns, Floats, Ints, Series
from marketdata.points.resample import buckets, in_buckets
from marketdata.resolution import BucketWidth

Bools = NDArray[np.bool_]
Codes = NDArray[np.integer]


def repeated_legs(transaction: Codes, maker: Codes, taker: Codes, role: Codes) -> Bools:
    """Legs of takers that repeat the sum of the makers' legs of their transaction.

    Accounts and transactions are codes, -1 where one is not known; a role is 0 for a maker, 1 for a taker. A leg
    repeats others if its maker is the taker of another leg. So does the leg of a taker beside the leg of a maker.
    """
    span = int(max(maker.max(initial=0), taker.max(initial=0))) + 1
    is_known = (transaction >= 0) & (maker >= 0) & (taker >= 0)
    takers = (transaction * span + taker)[is_known & (maker != taker)]
    is_taker_of_another = is_known & np.isin(transaction * span + maker, takers)
    with_maker = np.unique(transaction[(transaction >= 0) & (role == 0)])
    repeated: Bools = is_taker_of_another | ((role == 1) & np.isin(transaction, with_maker))
    return repeated


def effective_spread(price: Floats, is_buy: Bools, mid: Floats) -> Floats:
    """Twice the distance of a price from the mid, positive where the taker paid for it."""
    spread: Floats = 2 * np.where(is_buy, 1.0, -1.0) * (price - mid)
    return spread


def vwap(rows: Columns, price: Floats, size: Floats, width: BucketWidth) -> Series:
    """Average price weighted with sizes, shares and number of the trades of each token and bucket."""
    edges = buckets(rows, width)
    starts = edges[:-1]
    shares, notional = (np.add.reduceat(v, starts) if len(starts) else v for v in (size, size * price))
    counts: Ints = np.diff(edges)
    return in_buckets(rows, edges, width, {"vwap": notional / shares, "size": shares, "trades": counts})  # type: ignore[dict-item]
