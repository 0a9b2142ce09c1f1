"""Scores of forecasts: losses, their decomposition, and intervals over clusters of markets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Floats, Ints
from marketdata.points.intervals import Sampling, effective, mean_interval, share_interval

Loss = Callable[[Floats, Floats], Floats]


class Forecasts(NamedTuple):
    """Forecasts by the number of their market: ``points`` of them have this price and payoff [0 to 1]."""

    market: Ints
    p: Floats
    paid: Floats
    points: Floats

    def take(self, rows: Ints | NDArray[np.bool_]) -> Forecasts:
        """The forecasts at these positions."""
        return Forecasts(*(values[rows] for values in self))

    def clustered(self, cluster: Ints, values: Floats) -> tuple[Floats, Floats]:
        """Sums of values, and numbers of forecasts, of each cluster, given the cluster of each market."""
        _, which = np.unique(cluster[self.market], return_inverse=True)
        return np.bincount(which, values), np.bincount(which, self.points)


def overall(forecasts: Forecasts, loss: Loss, cluster: Ints, sampling: Sampling | None, worst: float) -> list[float]:
    """Markets, forecasts, score, ends of its interval, its three parts, and how many clusters the interval rests on.

    ``worst`` is the greatest score there is. The last number is 0 where there is no interval.
    """
    market, p, paid, points = forecasts
    if not len(p):
        return [0, 0, *[np.nan] * 6, 0]
    lost = loss(p, paid)
    base_rate = np.full(len(p), np.average(paid, weights=points))
    score, best, base = (
        np.average(losses, weights=points)
        for losses in (lost, loss(recalibrated(p, paid, points), paid), loss(base_rate, paid))
    )
    ends, clusters = (np.nan, np.nan), 0.0
    # If all markets paid alike, the sample says nothing of what the score is where they pay otherwise.
    if sampling is not None and len(np.unique(paid)) > 1:
        totals, weights = forecasts.clustered(cluster, points * lost)
        ends, clusters = mean_interval(totals, weights, sampling, (0.0, worst)), effective(weights)
    return [len(np.unique(market)), points.sum(), score, *ends, score - best, base - best, base, clusters]


def bin_summary(forecasts: Forecasts, cluster: Ints, sampling: Sampling | None) -> list[float]:
    """Points of a bin, their mean price and payoff, with a ``sampling`` the markets and the interval of the payoff."""
    market, p, paid, points = forecasts
    means = [points.sum(), np.average(p, weights=points), np.average(paid, weights=points)]
    if sampling is None:
        return means
    ends = share_interval(*forecasts.clustered(cluster, points * paid), sampling.share)
    return [*means, len(np.unique(market)), *ends]


def squared_error(p: Floats, y: Floats) -> Floats:
    """(p - y)^2, the loss of the Brier score."""
    return np.asarray((p - y) ** 2)


def log_loss(p: Floats, y: Floats) -> Floats:
    """-y ln p - (1 - y) ln(1 - p), in which 0 ln 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = [np.where(share > 0, share * np.log(chance), 0.0) for share, chance in ((y, p), (1 - y, 1 - p))]
    return np.asarray(-lost[0] - lost[1])


def recalibrated(p: Floats, y: Floats, weight: Floats) -> Floats:
    """The best rising function of p, of each forecast: means of y over pools of adjacent p (isotonic regression)."""
    _, level = np.unique(p, return_inverse=True)
    pools: list[tuple[float, float, int]] = []
    for pool in zip(np.bincount(level, weight * y).tolist(), np.bincount(level, weight).tolist(), strict=True):
        total, count, width = *pool, 1
        while pools and pools[-1][0] * count >= total * pools[-1][1]:
            last = pools.pop()
            total, count, width = last[0] + total, last[1] + count, last[2] + width
        pools.append((total, count, width))
    means = np.repeat([total / count for total, count, _ in pools], [width for *_, width in pools])
    return np.asarray(means[level], float)
