"""Points with everything that is odd, for engines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from reference.columns import coded_books, coded_series

from marketdata.points.columns import Token
from marketdata.testing.strategies import MINUTE, START

TOKENS = (Token("0xm", "1" * 77, "Yes"), Token("0xm", "2" * 77, None), Token("0xn", "3" * 77, "No «é» \x00x"[:6]))


def rich(view: str, count: int = 60) -> Any:
    """Fixed columns with gaps, nulls, null labels, equal times, empty, one-sided and crossed books."""
    rng = np.random.default_rng(5)
    who = TOKENS if view != "metrics" else (Token("0xm"), Token("0xn"))
    token = np.repeat(np.arange(len(who), dtype=np.int32), count)
    ts = np.concatenate([np.sort(rng.choice(3000, count, replace=False)) for _ in who]) * MINUTE + START
    if view == "books":
        counts = rng.integers(0, 4, 2 * len(ts))
        sides = [np.sort(rng.random(n))[:: 1 if k % 2 else -1] for k, n in enumerate(counts)]
        levels = np.column_stack((np.concatenate(sides), rng.random(counts.sum()) * 1e6))
        return coded_books(who, token, ts, counts, levels)
    values = [np.where(rng.random(len(ts)) < 0.3, math.nan, rng.random(len(ts))) for _ in range(3)]
    if view == "prices":
        return coded_series(who, token, ts, {"price": values[0]})
    return coded_series(who, token, ts, dict(zip(("volume", "liquidity", "spread"), values, strict=True)))
