"""Means and scores of forecasts with intervals over clusters: rows of one market are no independent draws."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Floats, Ints

Loss = Callable[[Floats, Floats], Floats]
# Effective clusters from which on 95 percent intervals of a mean covered 93 percent and more in simulations.
ENOUGH = 10
UNBOUNDED = (-np.inf, np.inf)


class Sampling(NamedTuple):
    """How an interval is made: the probability that it covers, the number of bootstrap samples and their seed."""

    share: float
    resamples: int = 1000
    seed: int = 0

    @classmethod
    def of(cls, interval: float | None, resamples: int = 1000, seed: int = 0) -> Sampling | None:
        """The arguments of a function, checked; None where no interval is wanted."""
        draws, start = whole("resamples", resamples), whole("seed", seed, least=0)
        if interval is None:
            return None
        if number("interval", interval) >= 1:
            raise ConfigError(f"interval={interval!r} is refused; allowed are numbers above 0 and below 1.")
        return cls(float(interval), draws, start)


def effective(weight: Floats) -> float:
    """The number of equal clusters that say as much as clusters of these weights: (sum w)^2 / sum w^2."""
    return float(weight.sum() ** 2 / (weight**2).sum()) if len(weight) else 0.0


def mean_interval(
    total: Floats, weight: Floats, sampling: Sampling, bounds: tuple[float, float] = UNBOUNDED
) -> tuple[float, float]:
    """Studentized bootstrap interval of sum(total) / sum(weight) over clusters, within bounds; NaN below two."""
    clusters = len(total)
    if clusters < 2:
        return np.nan, np.nan
    mean = total.sum() / weight.sum()
    # The jackknife: means that leave one cluster out.
    without = (total.sum() - total) / (weight.sum() - weight)
    error = np.sqrt((1 - 1 / clusters) * ((without - without.mean()) ** 2).sum())
    step = max(1, 200_000 // clusters)  # samples at a time, so that memory stays small
    rng, pivots = np.random.default_rng(sampling.seed), []
    for first in range(0, sampling.resamples, step):
        samples = min(step, sampling.resamples - first)
        drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=samples)
        points = drawn @ weight
        off = drawn @ total / points - mean
        # Residuals are about the mean of the sample: their sum of squares then keeps its digits.
        residual = total - mean * weight
        squares = drawn @ residual**2 - 2 * off * (drawn @ (residual * weight)) + off**2 * (drawn @ weight**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            pivot = off / (np.sqrt(np.maximum(squares, 0)) / points)
        pivots.append(np.where(np.abs(off) > 1e-12 * np.abs(total).sum() / weight.sum(), pivot, 0.0))
    tail = (1 - sampling.share) / 2
    # An order statistic: a sample of one cluster only has an infinite pivot, between which and another is no mean.
    low, high = np.quantile(np.concatenate(pivots), [tail, 1 - tail], method="inverted_cdf")
    ends = np.clip([mean - high * error, mean - low * error] if error > 0 else [mean, mean], *bounds)
    return float(ends[0]), float(ends[1])


def means(values: Floats, group: Ints, count: int, cluster: Ints, sampling: Sampling | None) -> dict[str, Any]:
    """The mean of each of ``count`` groups over its values that are no NaN, and with a sampling its interval."""
    rows = []
    for number_of_group in range(count):
        inside = (group == number_of_group) & ~np.isnan(values)
        _, which = np.unique(cluster[inside], return_inverse=True)
        weight, total = np.bincount(which).astype(float), np.bincount(which, values[inside]).astype(float)
        mean = values[inside].mean() if inside.any() else np.nan
        ends = mean_interval(total, weight, sampling) if sampling else ()
        rows.append((inside.sum(), effective(weight), mean, *ends))
    names = ("points", "effective", "mean", *(("low", "high") if sampling else ()))
    columns = dict(zip(names, np.array(rows, float).reshape(count, len(names)).T, strict=True))
    return {**columns, "points": columns["points"].astype(np.int64)}


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


class Forecasts(NamedTuple):
    """Forecasts by the number of their market: ``points`` of them have this price and payoff [0 to 1].

    ``left_out`` forecasts of the other token of the market repeat them.
    """

    market: Ints
    p: Floats
    paid: Floats
    points: Floats
    left_out: Floats

    def take(self, rows: Ints | NDArray[np.bool_]) -> Forecasts:
        """The forecasts at these positions."""
        return Forecasts(
            self.market[rows], *(values[rows] for values in (self.p, self.paid, self.points, self.left_out))
        )

    def clustered(self, cluster: Ints, values: Floats) -> tuple[Floats, Floats]:
        """Sums of values, and numbers of forecasts, of each cluster, given the cluster of each market."""
        _, which = np.unique(cluster[self.market], return_inverse=True)
        return np.bincount(which, values).astype(float), np.bincount(which, self.points).astype(float)


def overall(forecasts: Forecasts, loss: Loss, cluster: Ints, sampling: Sampling | None, worst: float) -> list[float]:
    """Markets, forecasts, score, ends of its interval, its three parts, forecasts left out, and effective clusters.

    ``worst`` is the greatest score there is. The last number is 0 where there is no interval.
    """
    market, p, paid, points, left_out = forecasts
    if not len(p):
        return [0, 0, *[np.nan] * 6, 0, 0]
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
    parts = score - best, base - best, base
    return [len(np.unique(market)), points.sum(), score, *ends, *parts, left_out.sum(), clusters]


def bin_summary(forecasts: Forecasts, cluster: Ints, sampling: Sampling | None) -> list[float]:
    """Points of a bin, their mean price and payoff, with a ``sampling`` the markets and the interval of the payoff.

    The last number is that of forecasts left out.
    """
    market, p, paid, points, left_out = forecasts
    means = [points.sum(), np.average(p, weights=points), np.average(paid, weights=points)]
    if sampling is None:
        return [*means, left_out.sum()]
    ends = share_interval(*forecasts.clustered(cluster, points * paid), sampling.share)
    return [*means, len(np.unique(market)), *ends, left_out.sum()]


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
