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


class Runs(NamedTuple):
    """Forecasts from ``starts[i]`` to the next start are of one token, market and group (numbers), and one payoff."""

    starts: Ints
    token: Ints
    market: Ints
    group: Ints
    paid: Floats
    p: Floats

    @property
    def lengths(self) -> Ints:
        """The number of forecasts of each run."""
        return run_ends(self.starts, len(self.p)) - self.starts

    def means(self, loss: Loss, owner: Ints) -> tuple[Ints, Ints, Floats, Floats]:
        """For each owner and group a run, the number of its forecasts, and their mean payoff and loss."""
        first, which = self._groups(owner)
        lost = loss(self.p, np.repeat(self.paid, self.lengths))
        lost = np.add.reduceat(lost, self.starts) if len(self.starts) else lost
        points, paid, lost = (sums(which, v, len(first)) for v in (self.lengths, self.paid * self.lengths, lost))
        return first, points.astype(np.int64), paid / points, lost / points

    def by_price(self) -> Forecasts:
        """The forecasts of a run at one price as one."""
        prices = np.unique(self.p)
        run_of_row = np.repeat(np.arange(len(self.starts)), self.lengths)
        first, which = distinct(run_of_row * len(prices) + np.searchsorted(prices, self.p))
        run = run_of_row[first]
        return Forecasts(
            self.market[run], self.group[run], self.p[first], self.paid[run], sums(which, None, len(first))
        )

    def binned(self, bins: int) -> Forecasts:
        """Sums of the forecasts of a market and group in each of so many equal bins from 0 to 1."""
        bin_of_row = np.clip(np.floor(self.p * bins + TOLERANCE), 0, bins - 1).astype(np.int64)
        runs, which_run = self._groups(self.market)
        owner, paid = np.repeat(which_run, self.lengths), np.repeat(self.paid, self.lengths)
        first, which = distinct(owner * bins + bin_of_row)
        run = runs[owner[first]]
        p, payoffs, points = (sums(which, values, len(first)) for values in (self.p, paid, None))
        return Forecasts(self.market[run], self.group[run] * bins + bin_of_row[first], p, payoffs, points)

    def _groups(self, owner: Ints) -> tuple[Ints, Ints]:
        """A run of each owner and group, in their order, and which of them each run is of."""
        return distinct(owner * (int(self.group.max(initial=0)) + 1) + self.group)


class Forecasts(NamedTuple):
    """Forecasts by the numbers of their market and group: ``points`` of them have this price and payoff [0 to 1].

    Of forecasts in bins a group is also of a bin, and ``p`` and ``paid`` are sums.
    """

    market: Ints
    group: Ints
    p: Floats
    paid: Floats
    points: Floats

    def by_group(self) -> dict[int, Forecasts]:
        """Each group, in order, by market, price and payoff."""
        ordered = self.take(np.lexsort((self.paid, self.p, self.market, self.group)))
        starts = group_starts(ordered.group)
        runs = zip(starts.tolist(), run_ends(starts, len(self.p)).tolist(), strict=True)
        return {int(ordered.group[a]): ordered.take(slice(a, b)) for a, b in runs}

    def take(self, rows: Ints | slice) -> Forecasts:
        """The forecasts at these positions."""
        return Forecasts(self.market[rows], self.group[rows], self.p[rows], self.paid[rows], self.points[rows])

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
    _, _, p, paid, points = forecasts
    out = [points.sum(), p.sum() / points.sum(), paid.sum() / points.sum()]
    if sampling is None:
        return out
    payoffs, weights = forecasts.clustered(sampling.cluster, paid, points)
    return [*out, len(p), *intervals.share_interval(payoffs, weights, sampling.share)]


def squared_error(p: Floats, y: Floats) -> Floats:
    """(p - y)^2, the loss of the Brier score."""
    return np.asarray((p - y) ** 2)


def log_loss(p: Floats, y: Floats) -> Floats:
    """-y ln p - (1 - y) ln(1 - p), in which 0 ln 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        lost = [np.where(share > 0, share * np.log(chance), 0.0) for share, chance in ((y, p), (1 - y, 1 - p))]
    return np.asarray(-lost[0] - lost[1])


def sums(of: Ints, values: Floats | Ints | None, count: int) -> Floats:
    """Sums of values by the number of what they are of; without values how many there are."""
    return np.asarray(np.bincount(of, values, count), float)


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
