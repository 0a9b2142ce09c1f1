"""The studentized bootstrap over clusters, by loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def quantile_of_t(share: float, freedom: float) -> float:
    """The quantile of Student's t, by bisection of its distribution, which Simpson's rule integrates."""
    scale = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)

    def below(t: float) -> float:
        step = t / 2000
        values = [(1 + (i * step) ** 2 / freedom) ** (-(freedom + 1) / 2) for i in range(2001)]
        return 0.5 + scale * step / 3 * (values[0] + values[-1] + 4 * sum(values[1:-1:2]) + 2 * sum(values[2:-1:2]))

    least, most = 0.0, 50.0
    for _ in range(60):
        middle = (least + most) / 2
        least, most = (middle, most) if below(middle) < share else (least, middle)
    return least


def studentized(
    sums: Sequence[tuple[float, int]],
    seed: int,
    share: float,
    draws: int,
    bounds: tuple[float, float] = (-math.inf, math.inf),
) -> tuple[float, float]:
    """Return the interval: pivots of samples of clusters, turned around the ratio by the error of the jackknife."""
    n, total, weights = len(sums), sum(t for t, _ in sums), sum(w for _, w in sums)
    ratio = total / weights
    without = [(total - t) / (weights - w) for t, w in sums]
    error = math.sqrt((n - 1) / n * sum((one - sum(without) / n) ** 2 for one in without))
    rng, pivots = np.random.default_rng(seed), []
    for _ in range(draws):
        times = rng.multinomial(n, np.full(n, 1 / n)).tolist()
        weight = sum(k * w for k, (_, w) in zip(times, sums, strict=True))
        mean = sum(k * t for k, (t, _) in zip(times, sums, strict=True)) / weight
        squares = sum(k * (t - mean * w) ** 2 for k, (t, w) in zip(times, sums, strict=True))
        off, own_error = mean - ratio, math.sqrt(squares) / weight
        is_same = abs(off) <= 1e-12 * sum(abs(t) for t, _ in sums) / weights
        pivots.append(0.0 if is_same else off / own_error if own_error > 0.1 * error else math.copysign(math.inf, off))
    pivots.sort()
    low, high = (pivots[max(math.ceil(draws * q) - 1, 0)] for q in ((1 - share) / 2, (1 + share) / 2))
    if math.isinf(low) or math.isinf(high) or error < 1e-9:
        return math.nan, math.nan
    squares = [((t - ratio * w) / weights) ** 2 for t, w in sums]
    student = quantile_of_t((1 + share) / 2, min(2 * sum(squares) ** 2 / sum(s * s for s in squares), n) - 1)
    pivots_used = (max(high, student), min(low, -student))
    first, last = (min(max(ratio - pivot * error, bounds[0]), bounds[1]) for pivot in pivots_used)
    return first, last
