"""Intervals over clusters: rows of one market, or one event, are no independent draws."""

from __future__ import annotations

from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from marketdata.errors import ConfigError
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Floats, Ints

ENOUGH = 10
"""Effective clusters from which on 95 percent intervals of a mean covered 93 percent and more in simulations."""
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


def means(
    values: Floats, group: Ints, count: int, cluster: Ints, sampling: Sampling | None
) -> dict[str, Floats | Ints]:
    """The mean of each of ``count`` groups over its values that are no NaN, and with a sampling its interval."""
    rows = []
    for number_of_group in range(count):
        inside = (group == number_of_group) & ~np.isnan(values)
        _, which = np.unique(cluster[inside], return_inverse=True)
        weight, total = np.bincount(which).astype(float), np.bincount(which, values[inside])
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
