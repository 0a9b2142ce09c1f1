"""Scores of forecasts, with intervals over clusters: rows of one market are no independent draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Floats, Ints, group_sums
from marketdata.points.intervals import Interval, Sampling, of_rows, share_interval

Loss = Callable[[Floats, Floats], Floats]


class Forecasts(NamedTuple):
    """Forecasts by the number of their market: ``points`` of them have this price and payoff [0 to 1].

    ``left_out`` forecasts of the other token of the market repeat them. ``clusters`` has a line for each way to
    cluster.
    """

    market: Ints
    p: Floats
    paid: Floats
    points: Floats
    left_out: Floats
    clusters: Ints

    def take(self, rows: Ints | NDArray[np.bool_]) -> Forecasts:
        """The forecasts at these positions."""
        p, paid, points, left_out = (values[rows] for values in (self.p, self.paid, self.points, self.left_out))
        return Forecasts(self.market[rows], p, paid, points, left_out, self.clusters[:, rows])

    @property
    def markets(self) -> int:
        """The number of markets."""
        return len(np.unique(self.market))

    def mean(self, values: Floats) -> float:
        """The mean of values over the forecasts, NaN without one."""
        return float(np.average(values, weights=self.points)) if len(values) else np.nan

    def interval(
        self, values: Floats, sampling: Sampling, bounds: tuple[float, float], weight: Floats | None = None
    ) -> Interval:
        """The interval of the mean of values; of their weighted mean with ``weight``."""
        # If all markets paid alike, the sample says nothing of what the score is where they pay otherwise.
        if len(self.p) and len(np.unique(self.paid)) < 2:
            return Interval.none("same outcome")
        weights = self.points if weight is None else self.points * weight
        signs = values if bounds[0] < 0 < bounds[1] else None  # a difference of scores, which outcomes decide
        got = of_rows(values, weights, self.clusters, sampling, bounds=bounds, signs=signs)
        return got._replace(rarer=self.rarer)

    @property
    def rarer(self) -> float:
        """The number of clusters with a market that paid, or with a market that did not, whichever is less."""
        return min(
            len(np.unique(way[has_outcome]))
            for way in self.clusters
            for has_outcome in (self.paid > 0.5, self.paid < 0.5)
        )


class Parts(NamedTuple):
    """A mean score as miscalibration - discrimination + uncertainty."""

    score: float
    miscalibration: float
    discrimination: float
    uncertainty: float


def parts(forecasts: Forecasts, loss: Loss) -> Parts:
    """The mean score of forecasts and its parts, by isotonic regression."""
    _, p, paid, points, *_ = forecasts
    if not len(p):
        return Parts(np.nan, np.nan, np.nan, np.nan)
    base_rate = np.full(len(p), forecasts.mean(paid))
    score, best, base = (
        forecasts.mean(losses)
        for losses in (loss(p, paid), loss(recalibrated(p, paid, points), paid), loss(base_rate, paid))
    )
    return Parts(score, score - best, base - best, base)


class Murphy(NamedTuple):
    """The parts of a mean squared error by bins: reliability - resolution + uncertainty + within_bins.

    ``within_bins`` is the variance of forecasts within their bin, less twice the covariance with the payoffs.
    """

    reliability: float
    resolution: float
    within_bins: float


def murphy(forecasts: Forecasts, bins: Ints) -> Murphy:
    """The parts of the mean squared error of forecasts, given the bin of each."""
    _, p, paid, points, *_ = forecasts
    if not len(p):
        return Murphy(np.nan, np.nan, np.nan)
    _, which = np.unique(bins, return_inverse=True)
    count = int(which.max()) + 1
    weight = group_sums(which, points, count)
    price, outcome = (group_sums(which, points * values, count) / weight for values in (p, paid))
    base_rate, apart = forecasts.mean(paid), p - price[which]
    return Murphy(
        float(np.average((price - outcome) ** 2, weights=weight)),
        float(np.average((outcome - base_rate) ** 2, weights=weight)),
        forecasts.mean(apart**2 - 2 * apart * (paid - outcome[which])),
    )


def bin_summary(forecasts: Forecasts, sampling: Sampling | None) -> list[float]:
    """Points of a bin, their mean price and payoff, with a ``sampling`` the markets and the interval of the payoff.

    The last number counts forecasts that were left out.
    """
    _, p, paid, points, left_out, clusters = forecasts
    means = [points.sum(), forecasts.mean(p), forecasts.mean(paid)]
    if sampling is None:
        return [*means, left_out.sum()]
    # With two ways to cluster, the way with fewer clusters decides.
    which = min((np.unique(way, return_inverse=True)[1] for way in clusters), key=lambda codes: codes.max(initial=0))
    count = int(which.max(initial=-1)) + 1
    won, weight = (group_sums(which, values, count) for values in (points * paid, points))
    ends = share_interval(won, weight, sampling.share)
    return [*means, forecasts.markets, *ends, left_out.sum()]


def equal_counts(p: Floats, points: Floats, bins: int) -> tuple[Floats, Ints]:
    """The borders of bins with about as many forecasts each, equal ones in one bin, and the bin of each forecast."""
    prices, which = np.unique(p, return_inverse=True)
    counts = np.bincount(which, points)
    share = (np.cumsum(counts) - counts / 2) / max(counts.sum(), 1)
    number = np.floor(share * bins).astype(np.int64)
    first = np.flatnonzero(np.diff(number, prepend=-1))
    borders = np.append(prices[first], 1.0)
    borders[:1] = 0.0
    return borders, (np.searchsorted(first, np.arange(len(prices)), side="right") - 1)[which]


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
    prices, level = np.unique(p, return_inverse=True)
    sums = (group_sums(level, values, len(prices)).tolist() for values in (weight * y, weight))
    pools: list[tuple[float, float, int]] = []
    for pool in zip(*sums, strict=True):
        total, count, width = *pool, 1
        while pools and pools[-1][0] * count >= total * pools[-1][1]:
            last = pools.pop()
            total, count, width = last[0] + total, last[1] + count, last[2] + width
        pools.append((total, count, width))
    means = np.repeat([total / count for total, count, _ in pools], [width for *_, width in pools])
    return np.asarray(means[level], float)
