"""Scores of forecasts: losses, their decomposition, and intervals over clusters of markets."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from marketdata.points import intervals
from marketdata.points.columns import Floats, Ints
from marketdata.points.order import distinct
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import TOLERANCE

Loss = Callable[[Floats, Floats], Floats]


class Forecasts(NamedTuple):
    """Forecasts by the numbers of their market and group: ``points`` of them have this price and payoff [0 to 1]."""

    market: Ints
    group: Ints
    p: Floats
    paid: Floats
    points: Floats

    def take(self, rows: Ints | slice) -> Forecasts:
        """The forecasts at these positions."""
        return Forecasts(self.market[rows], self.group[rows], self.p[rows], self.paid[rows], self.points[rows])

    def by_price(self, token: Ints) -> Forecasts:
        """The forecasts of a token at one price as one entry."""
        prices, price = np.unique(self.p, return_inverse=True)
        first, which = distinct(token * len(prices) + price)
        return self.take(first)._replace(points=sums(which, self.points, len(first)))

    def by_group(self) -> dict[int, Forecasts]:
        """Each group, in order, by market, price and payoff."""
        ordered = self.take(np.lexsort((self.paid, self.p, self.market, self.group)))
        starts = group_starts(ordered.group)
        runs = zip(starts.tolist(), run_ends(starts, len(self.p)).tolist(), strict=True)
        return {int(ordered.group[a]): ordered.take(slice(a, b)) for a, b in runs}

    def in_bins(self, bins: int) -> Forecasts:
        """The forecasts in finer groups: each group is cut into equal bins of the price from 0 to 1."""
        bin_of_price = np.clip(np.floor(self.p * bins + TOLERANCE), 0, bins - 1).astype(np.int64)
        return self._replace(group=self.group * bins + bin_of_price)

    def means(self, loss: Loss, owner: Ints) -> tuple[Ints, Floats, Floats, Floats]:
        """A position of each owner and group, and the number, mean payoff and mean loss of its forecasts."""
        first, which = distinct(owner * (int(self.group.max(initial=0)) + 1) + self.group)
        points, paid, lost = (
            sums(which, self.points * values, len(first)) for values in (1.0, self.paid, loss(self.p, self.paid))
        )
        return first, points, paid / points, lost / points

    def clustered(self, cluster: Ints, *values: Floats) -> list[Floats]:
        """Sums of values over the rows of each cluster, given the cluster of each market."""
        clusters, which = np.unique(cluster[self.market], return_inverse=True)
        return [sums(which, one, len(clusters)) for one in values]


class Sampling(NamedTuple):
    """How an interval is made: what it covers, the cluster of each market, samples and their seed."""

    share: float
    cluster: Ints
    resamples: int = 1
    seed: int = 0


class Overall(NamedTuple):
    """The score of all forecasts of a group, its interval, and its parts; NaN where it has none."""

    markets: int
    points: float
    score: float
    low: float
    high: float
    miscalibration: float
    discrimination: float
    uncertainty: float
    effective: float
    """How many equal clusters the interval rests on; 0 where all payoffs are alike."""


def overall(forecasts: Forecasts, loss: Loss, sampling: Sampling | None, bounds: tuple[float, float]) -> Overall:
    """The score of a group; without a ``sampling`` it has no interval."""
    _, _, p, paid, points = forecasts
    lost = loss(p, paid)
    score = np.average(lost, weights=points) if len(p) else np.nan
    parts = decomposed(p, paid, points, loss) if len(p) else (np.nan,) * 3
    ends, clusters = (np.nan, np.nan), 0.0
    # If all markets paid alike, the sample says nothing of what the score is where they pay otherwise.
    if sampling is not None and len(np.unique(paid)) > 1:
        totals, weights = forecasts.clustered(sampling.cluster, points * lost, points)
        _, _, draws, seed = sampling
        ends = intervals.mean_interval(totals, weights, sampling.share, resamples=draws, seed=seed, bounds=bounds)
        clusters = intervals.effective(weights)
    return Overall(len(np.unique(forecasts.market)), points.sum(), score, *ends, *parts, clusters)


def bin_summary(forecasts: Forecasts, sampling: Sampling | None) -> list[float]:
    """Points of a bin, their mean price and payoff, with a ``sampling`` the markets and the interval of the payoff."""
    points, paid = forecasts.points, forecasts.points * forecasts.paid
    means = [points.sum(), (points * forecasts.p).sum() / points.sum(), paid.sum() / points.sum()]
    if sampling is None:
        return means
    payoffs, weights = forecasts.clustered(sampling.cluster, paid, points)
    markets = len(np.unique(forecasts.market))
    return [*means, markets, *intervals.share_interval(payoffs, weights, sampling.share)]


def squared_error(p: Floats, y: Floats) -> Floats:
    """(p - y)^2, the loss of the Brier score."""
    return np.asarray((p - y) ** 2)


def log_loss(p: Floats, y: Floats) -> Floats:
    """-y ln p - (1 - y) ln(1 - p), in which 0 ln 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = [np.where(share > 0, share * np.log(chance), 0.0) for share, chance in ((y, p), (1 - y, 1 - p))]
    return np.asarray(-lost[0] - lost[1])


def sums(owner: Ints, values: Floats, count: int) -> Floats:
    """Sums of values by the number of their owner."""
    return np.asarray(np.bincount(owner, values, count), float)


def recalibrated(p: Floats, y: Floats, weight: Floats) -> Floats:
    """The best rising function of p, of each forecast: means of y over pools of adjacent p (isotonic regression)."""
    levels, at = np.unique(p, return_inverse=True)
    paid, points = np.bincount(at, weight * y, len(levels)), np.bincount(at, weight, len(levels))
    pools: list[tuple[float, float, int]] = []
    for total, count in zip(paid.tolist(), points.tolist(), strict=True):
        pool = (total, count, 1)
        while pools and pools[-1][0] * pool[1] >= pool[0] * pools[-1][1]:
            last = pools.pop()
            pool = (last[0] + pool[0], last[1] + pool[1], last[2] + pool[2])
        pools.append(pool)
    means = np.repeat([total / count for total, count, _ in pools], [width for *_, width in pools])
    return np.asarray(means[at], float)


def decomposed(p: Floats, y: Floats, weight: Floats, loss: Loss) -> tuple[float, float, float]:
    """Miscalibration, discrimination and uncertainty; the mean loss is the first less the second plus the third."""
    loss_of_prices, loss_of_best, loss_of_base_rate = (
        float(np.average(loss(forecast, y), weights=weight))
        for forecast in (p, recalibrated(p, y, weight), np.full(len(p), np.average(y, weights=weight)))
    )
    return loss_of_prices - loss_of_best, loss_of_base_rate - loss_of_best, loss_of_base_rate
