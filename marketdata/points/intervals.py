"""Intervals over clusters: rows of one market, or one event, are no independent draws."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from marketdata.points.columns import Floats, Ints

ENOUGH = 10
"""Effective clusters from which on 95 percent intervals of a mean covered 93 percent and more in simulations."""


def effective(weight: Floats) -> float:
    """The number of equal clusters that say as much as clusters of these weights: (sum w)^2 / sum w^2."""
    return float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else 0.0


def mean_interval(
    total: Floats,
    weight: Floats,
    share: float,
    *,
    resamples: int = 1000,
    seed: int = 0,
    bounds: tuple[float, float] = (-np.inf, np.inf),
) -> tuple[float, float]:
    """Studentized bootstrap interval of sum(total) / sum(weight) over clusters, within bounds; NaN below two."""
    clusters = len(total)
    if clusters < 2:
        return np.nan, np.nan
    mean, error = _jackknife(total, weight)
    step = max(1, 200_000 // clusters)  # samples at a time, so that memory stays small
    rng, pivots = np.random.default_rng(seed), []
    for first in range(0, resamples, step):
        drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=min(step, resamples - first))
        points = drawn @ weight
        off = drawn @ total / points - mean
        # Residuals are about the mean of the sample: their sum of squares then keeps its digits.
        residual = total - mean * weight
        squares = drawn @ residual**2 - 2 * off * (drawn @ (residual * weight)) + off**2 * (drawn @ weight**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            pivot = off / (np.sqrt(np.maximum(squares, 0)) / points)
        pivots.append(np.where(np.abs(off) > 1e-12 * np.abs(total).sum() / weight.sum(), pivot, 0.0))
    tail = (1 - share) / 2
    # An order statistic: a sample of one cluster only has an infinite pivot, between which and another is no mean.
    low, high = np.quantile(np.concatenate(pivots), [tail, 1 - tail], method="inverted_cdf")
    ends = [mean - pivot * error if error > 0 else mean for pivot in (high, low)]
    return tuple(float(np.clip(end, *bounds)) for end in ends)  # type: ignore[return-value]


class Mean(NamedTuple):
    """A mean over rows, its interval over clusters, and what it rests on; NaN where there is none."""

    points: int
    effective: float
    mean: float
    low: float
    high: float


def mean_over(values: Floats, cluster: Ints, share: float | None, *, resamples: int = 1000, seed: int = 0) -> Mean:
    """The mean of values that are no NaN, and with a ``share`` its interval over their clusters."""
    counts = ~np.isnan(values)
    values = values[counts]
    _, which = np.unique(cluster[counts], return_inverse=True)
    weight = np.bincount(which).astype(float)
    mean = float(values.mean()) if len(values) else np.nan
    low, high = np.nan, np.nan
    if share is not None:
        total = np.bincount(which, values).astype(float)
        low, high = mean_interval(total, weight, share, resamples=resamples, seed=seed)
    return Mean(len(values), effective(weight), mean, low, high)


def _jackknife(total: Floats, weight: Floats) -> tuple[float, float]:
    """The ratio of sums, and its standard error from leaving out one cluster at a time."""
    without = (total.sum() - total) / (weight.sum() - weight)
    squares = ((without - without.mean()) ** 2).sum()
    return float(total.sum() / weight.sum()), float(np.sqrt((1 - 1 / len(total)) * squares))


def share_interval(paid: Floats, weight: Floats, share: float) -> tuple[float, float]:
    """Wilson interval of sum(paid) / sum(weight) over as many clusters as are `effective`; NaN below two."""
    if len(weight) < 2:
        return np.nan, np.nan
    count, mean = effective(weight), paid.sum() / weight.sum()
    z = NormalDist().inv_cdf((1 + share) / 2)
    middle = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(mean * (1 - mean) / count + z * z / (4 * count**2))
    # If all or none came true the end of the interval is 1 or 0, which rounding would miss.
    return (0.0 if mean <= 0 else float(middle - half)), (1.0 if mean >= 1 else float(middle + half))
