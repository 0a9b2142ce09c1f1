"""Scores of forecasts: losses, their decomposition, and intervals over markets."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from marketdata.points.columns import Floats, Ints
from marketdata.points.order import distinct
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import TOLERANCE

Loss = Callable[[Floats, Floats], Floats]
_DRAWS = 200_000  # markets drawn at a time
ENOUGH = 10
"""Markets from which on 95 percent intervals of a mean covered 93 percent and more in simulations."""


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
        run = np.repeat(np.arange(len(self.starts)), self.lengths)
        first, which = distinct(run * len(prices) + np.searchsorted(prices, self.p))
        of = run[first]
        return Forecasts(self.market[of], self.group[of], self.p[first], self.paid[of], sums(which, None, len(first)))

    def binned(self, bins: int) -> Forecasts:
        """Sums of the forecasts of a market and group in each of so many equal bins from 0 to 1."""
        of = np.clip(np.floor(self.p * bins + TOLERANCE), 0, bins - 1).astype(np.int64)
        runs, which_run = self._groups(self.market)
        owner, paid = np.repeat(which_run, self.lengths), np.repeat(self.paid, self.lengths)
        first, which = distinct(owner * bins + of)
        run = runs[owner[first]]
        totals = (sums(which, values, len(first)) for values in (self.p, paid, None))
        return Forecasts(self.market[run], self.group[run] * bins + of[first], *totals)

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


def overall(
    forecasts: Forecasts, loss: Loss, share: float | None, resamples: int, seed: int, bounds: tuple[float, float]
) -> list[float]:
    """Markets, points, mean loss, with ``share`` its interval, and what it is made of; NaN without a forecast."""
    _, _, p, paid, points = forecasts
    found, market = np.unique(forecasts.market, return_inverse=True)
    lost = loss(p, paid)
    out = [len(found), points.sum(), np.average(lost, weights=points) if len(found) else np.nan]
    if share is not None:
        totals, weights = (sums(market, values, len(found)) for values in (points * lost, points))
        out += interval_of_mean(totals, weights, share, resamples, seed, bounds)
    return [*out, *(decomposed(p, paid, points, loss) if len(found) else [np.nan] * 3)]


def of_bin(forecasts: Forecasts, share: float | None) -> list[float]:
    """Points of a bin, their mean price and payoff, with ``share`` the markets and the interval of the payoff."""
    _, _, p, paid, points = forecasts
    out = [points.sum(), p.sum() / points.sum(), paid.sum() / points.sum()]
    return out if share is None else [*out, len(p), *interval_of_share(paid, points, share)]


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
    own, best, base = (
        float(np.average(loss(forecast, y), weights=weight))
        for forecast in (p, recalibrated(p, y, weight), np.full(len(p), np.average(y, weights=weight)))
    )
    return own - best, base - best, base


def interval_of_mean(
    total: Floats, weight: Floats, share: float, resamples: int, seed: int, bounds: tuple[float, float]
) -> tuple[float, float]:
    """Studentized bootstrap interval of sum(total) / sum(weight) over markets, within bounds; NaN below two."""
    markets = len(total)
    if markets < 2:
        return np.nan, np.nan
    mean, error = _jackknife(total, weight)
    rng, pivots, step = np.random.default_rng(seed), [], max(1, _DRAWS // markets)
    for first in range(0, resamples, step):
        drawn = rng.multinomial(markets, np.full(markets, 1 / markets), size=min(step, resamples - first))
        points = drawn @ weight
        off = drawn @ total / points - mean
        # Residuals are about the mean of the sample: their sum of squares then keeps its digits.
        residual = total - mean * weight
        squares = drawn @ residual**2 - 2 * off * (drawn @ (residual * weight)) + off**2 * (drawn @ weight**2)
        with np.errstate(divide="ignore", invalid="ignore"):
            pivot = off / (np.sqrt(np.maximum(squares, 0)) / points)
        pivots.append(np.where(np.abs(off) > 1e-12 * abs(mean), pivot, 0.0))
    tail = (1 - share) / 2
    # An order statistic: a sample of one market only has an infinite pivot, between which and another is no mean.
    low, high = np.quantile(np.concatenate(pivots), [tail, 1 - tail], method="inverted_cdf")
    ends = [mean - pivot * error if error > 0 else mean for pivot in (high, low)]
    return tuple(float(np.clip(end, *bounds)) for end in ends)  # type: ignore[return-value]


def _jackknife(total: Floats, weight: Floats) -> tuple[float, float]:
    """The ratio of sums, and its standard error from leaving out one market at a time."""
    left = (total.sum() - total) / (weight.sum() - weight)
    return float(total.sum() / weight.sum()), float(np.sqrt((1 - 1 / len(total)) * ((left - left.mean()) ** 2).sum()))


def interval_of_share(paid: Floats, weight: Floats, share: float) -> tuple[float, float]:
    """Wilson interval of sum(paid) / sum(weight) over markets, of the number that weighs as much; NaN below two.

    Equal weights count as many markets as there are, unequal ones (sum w)^2 / sum w^2.
    """
    if len(weight) < 2:
        return np.nan, np.nan
    count, mean = weight.sum() ** 2 / (weight**2).sum(), paid.sum() / weight.sum()
    z = NormalDist().inv_cdf((1 + share) / 2)
    middle = (mean + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * np.sqrt(mean * (1 - mean) / count + z * z / (4 * count**2))
    # If all or none came true the end of the interval is 1 or 0, which rounding would miss.
    return (0.0 if mean <= 0 else float(middle - half)), (1.0 if mean >= 1 else float(middle + half))
