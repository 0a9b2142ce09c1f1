"""Intervals of means over clusters: rows that share their luck are one draw.

An interval is null where no method holds: too few clusters, clusters that are all alike, or samples without a spread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple, Self

import numpy as np

from marketdata.errors import ConfigError
from marketdata.points.arguments import number, whole
from marketdata.points.columns import Floats, Ints, group_sums

# Below this number of clusters an interval of 95 percent covered less often than it says in all simulations.
LEAST = 5
# From this number on, of clusters of the rarer outcome too, it covered 93 percent and more.
ENOUGH = 10
UNBOUNDED = (-np.inf, np.inf)
# Squares that cancel to this share of their terms are 0 but for rounding.
_CANCELLED = 1e-10
# Some samples miss the clusters that decide the mean: their standard error is below this share of that of all clusters.
_LEAST_SPREAD = 0.1
# With fewer expected clusters of the rarer sign, favourites that all win look like a certain profit.
_LEAST_EXPECTED = 3
# A cluster has both signs if the lesser sum is more than this share of the greater one.
_BOTH_SIGNS = 0.02
Reason = Literal["", "few", "alike", "no spread", "same outcome", "one sign", "separated", "no variation"]


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


class Interval(NamedTuple):
    """The ends of an interval, NaN with a ``reason`` if there is none.

    ``p_value`` says how likely a mean as far from 0 is by luck. ``effective`` is the number of equal clusters with as
    much information. ``rarer`` is the number of clusters of the rarer outcome, or what has the same skewness.
    """

    low: float
    high: float
    p_value: float
    effective: float
    rarer: float
    reason: Reason = ""

    @classmethod
    def none(cls, reason: Reason, effective: float = 0.0, rarer: float = np.inf) -> Self:
        """No interval."""
        return cls(np.nan, np.nan, np.nan, effective, rarer, reason)

    def within(self, bounds: tuple[float, float]) -> Self:
        """The interval without what is outside of the bounds."""
        low, high = np.clip([self.low, self.high], *bounds).tolist()
        return self._replace(low=low, high=high)


class Sums(NamedTuple):
    """Sums of values and of weights of each cluster (columns) in each part of a sample (rows).

    The statistic is the mean of the first part, sum(total) / sum(weight), less the mean of the second one, if any.
    """

    total: Floats
    weight: Floats

    @classmethod
    def of(cls, values: Floats, weight: Floats, cluster: Ints, part: Ints | None = None) -> Sums:
        """The sums of rows, given the cluster and the part of each."""
        _, which = np.unique(cluster, return_inverse=True)
        parts = np.zeros(len(values), np.int64) if part is None else part
        shape = 1 if part is None else 2, int(which.max(initial=-1)) + 1
        cell, cells = parts * shape[1] + which, shape[0] * shape[1]
        return cls(*(group_sums(cell, w, cells).reshape(shape) for w in (values * weight, weight)))

    @property
    def clusters(self) -> int:
        """The number of clusters."""
        return int(self.total.shape[1])

    @property
    def means(self) -> Floats:
        """The mean of each part."""
        with np.errstate(invalid="ignore"):
            return np.asarray(self.total.sum(axis=1) / self.weight.sum(axis=1))

    @property
    def difference(self) -> float:
        """The mean of the first part, minus the mean of the second part if there is one."""
        return float(_difference(self.means))

    @property
    def effective(self) -> float:
        """The effective number of clusters, (sum w)^2 / sum w^2, of the part where it is least."""
        return min(effective(weight) for weight in self.weight)

    @property
    def residuals(self) -> Floats:
        """The contribution of each cluster to the statistic, beyond its share of the means."""
        sums = self.weight.sum(axis=1)
        parts = (self.total - self.means[:, None] * self.weight) / sums[:, None]
        return np.asarray(_difference(parts))


def effective(weight: Floats) -> float:
    """The effective number of clusters of these weights: (sum w)^2 / sum w^2."""
    return float(weight.sum() ** 2 / (weight**2).sum()) if weight.any() else 0.0


def interval(ways: Sequence[Sums], sampling: Sampling, common: Sums | None = None) -> Interval:
    """The studentized bootstrap interval of a mean or a difference of two means, at least as wide as Student's.

    Student's t has as many degrees of freedom as clusters that carry the variance, see `freedom_of`. Samples of a few
    clusters that jump say too little of how far the mean may be.

    ``ways`` has the sums by clusters. With two ways to cluster, ``common`` has the clusters by pairs. The error is then
    two-way (Cameron, Gelbach, Miller 2011), and the samples draw clusters of the way that has fewer.
    """
    fewest = min(ways, key=lambda sums: sums.clusters)
    known = min(sums.effective for sums in ways)
    if not known or fewest.clusters < LEAST:
        return Interval.none("few", known)
    error = _error(ways, common)
    rarer = min(_rarer(sums.residuals) for sums in ways)
    if error == 0:
        return Interval.none("alike", known, rarer)
    statistic, freedom = fewest.difference, min(freedom_of(sums.residuals) for sums in ways)
    # The samples are of one way, whose own error says how much spread they should have.
    pivots = np.concatenate([*_pivots(fewest, sampling, float(np.sqrt(_jackknife(fewest))))])
    tail = (1 - sampling.share) / 2
    # An order statistic: between an infinite pivot and another one is no mean. A sample without a pivot is NaN, last.
    least, most = (np.sort(np.where(np.isnan(pivots), end, pivots)) for end in UNBOUNDED)
    first, last = (np.quantile(p, q, method="inverted_cdf") for p, q in ((least, tail), (most, 1 - tail)))
    if not np.isfinite([first, last]).all():
        return Interval.none("no spread", known, rarer)
    reached = statistic / error
    beyond = 1 + min(int((most >= reached).sum()), int((least <= reached).sum()))
    reach, luck = student(sampling.share, abs(reached), freedom)
    p_value = min(1.0, max(2 * beyond / (len(pivots) + 1), luck))
    low, high = statistic - max(last, reach) * error, statistic - min(first, -reach) * error
    return Interval(float(low), float(high), p_value, known, rarer)


def of_rows(
    values: Floats,
    weight: Floats,
    clusters: Ints,
    sampling: Sampling,
    *,
    part: Ints | None = None,
    bounds: tuple[float, float] = UNBOUNDED,
    signs: Floats | None = None,
) -> Interval:
    """The interval of the weighted mean of rows, or with ``part`` of the mean of part 0 minus the mean of part 1.

    ``clusters`` has a line for each of one or two ways to cluster the rows; ``bounds`` are what a mean can be.
    ``signs``, where given, are numbers whose signs say how the outcomes of markets decided the rows, NaN for others:
    without enough of both signs there is no interval.
    """
    ways = [Sums.of(values, weight, way, part) for way in clusters]
    if signs is not None and len(values):
        each = [part == of_part for of_part in np.unique(part)] if part is not None else [np.full(len(values), True)]
        if min(_expected(signs[one], way[one]) for one in each for way in clusters) < _LEAST_EXPECTED - _CANCELLED:
            return Interval.none("one sign", min(sums.effective for sums in ways))
    pairs = np.unique(clusters, axis=1, return_inverse=True)[1] if len(ways) > 1 else None
    common = None if pairs is None else Sums.of(values, weight, pairs, part)
    return interval(ways, sampling, common).within(bounds)


def _difference(parts: Floats) -> Floats:
    """The first part, less the second one if there are two."""
    return np.asarray(parts[0] if len(parts) == 1 else parts[0] - parts[1])


def _error(ways: Sequence[Sums], common: Sums | None) -> float:
    """The standard error by clusters, 0 if they are all alike."""
    squares = [_jackknife(sums) for sums in ways]
    if common is None:
        return float(np.sqrt(squares[0]))
    # The two-way variance may be below the variance of one way; it is too small then.
    return float(np.sqrt(max(sum(squares) - _jackknife(common), *squares)))


def _jackknife(sums: Sums) -> float:
    """The variance of the statistic, from statistics that leave one cluster out; infinite where that leaves nothing."""
    total, weight = (one.sum(axis=1, keepdims=True) - one for one in sums)
    if (weight <= 0).any():
        return np.inf
    without = _difference(total / weight)
    spread = without - without.mean()
    is_alike = np.abs(spread).max() <= _CANCELLED * np.abs(total / weight).max()
    return 0.0 if is_alike else float((1 - 1 / sums.clusters) * (spread**2).sum())


def _pivots(sums: Sums, sampling: Sampling, error: float) -> Iterator[Floats]:
    """The statistic of each sample of clusters minus the statistic of all, in standard errors of the sample.

    It is infinite where a sample has no spread, and NaN where a part of it has no rows.
    """
    clusters, parts = sums.clusters, len(sums.total)
    signs = np.array([1.0, -1.0])[:parts]
    # Residuals are about the mean of all: sums of their squares then keep their digits.
    residual = sums.total - sums.means[:, None] * sums.weight
    terms = np.concatenate((residual, sums.weight))
    products = (terms[:, None] * terms[None]).reshape(-1, clusters).T
    step = max(1, 200_000 // clusters)  # samples at a time, so that memory stays small
    rng = np.random.default_rng(sampling.seed)
    scale = _CANCELLED * np.abs(residual).sum(axis=1) @ (1 / sums.weight.sum(axis=1))
    for first in range(0, sampling.resamples, step):
        samples = min(step, sampling.resamples - first)
        drawn = rng.multinomial(clusters, np.full(clusters, 1 / clusters), size=samples).astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = drawn @ sums.weight.T
            off = drawn @ residual.T / weight
            # Each cluster adds a sum of terms; its square needs the products of each pair of them only.
            factor = np.concatenate((signs / weight, -signs * off / weight), axis=1)
            squared = (factor[:, :, None] * factor[:, None]).reshape(samples, -1) * (drawn @ products)
            square, moved = squared.sum(axis=1), off @ signs
            square = np.where(square > (_LEAST_SPREAD * error) ** 2, square, 0.0)
            yield np.where(np.abs(moved) > scale, moved / np.sqrt(square), np.where(np.isnan(moved), np.nan, 0.0))


def _rarer(residuals: Floats) -> float:
    """The number of clusters of a rare outcome that would make a mean as skew as these residuals do: n / skewness^2."""
    cubes = (residuals**3).sum() ** 2
    return float((residuals**2).sum() ** 3 / cubes) if cubes else np.inf


def freedom_of(residuals: Floats) -> float:
    """The degrees of freedom of the error: 2 k - 1 if k equal clusters have its variance, (sum r^2)^2 / sum r^4."""
    squares = residuals**2
    return min(2 * float(squares.sum() ** 2 / (squares**2).sum()), len(residuals)) - 1


def student(share: float, reached: float, freedom: float) -> tuple[float, float]:
    """The t that is exceeded in size with probability 1 - share, and the probability that ``reached`` is."""
    # The density of atan(t / sqrt(freedom)) is a power of a cosine.
    angle = np.linspace(0.0, np.pi / 2, 4001)
    density = np.cos(angle) ** (freedom - 1)
    area = np.append(0.0, np.cumsum((density[1:] + density[:-1]) / 2))
    scale = np.sqrt(freedom)
    within = np.interp(np.arctan(reached / scale), angle, area) / area[-1]
    return float(scale * np.tan(np.interp(share * area[-1], area, angle))), float(1 - within)


def _expected(signs: Floats, cluster: Ints) -> float:
    """How many of these clusters would have the rarer sign if the mean were 0, given the sizes of gains and losses.

    Infinite where enough clusters have both signs, or rows that no outcome decided.
    """
    _, which = np.unique(cluster, return_inverse=True)
    count = int(which.max(initial=-1)) + 1
    gains, losses = (group_sums(which, np.maximum(sign * signs, 0.0), count) for sign in (1, -1))
    has_both = ~(np.minimum(gains, losses) <= _BOTH_SIGNS * np.maximum(gains, losses))  # NaN: not decided
    if has_both.sum() >= LEAST:
        return np.inf
    means = (gains - losses) / np.bincount(which, minlength=count)
    gain, loss = (float(one.mean()) if len(one) else 0.0 for one in (means[means > 0], -means[means < 0]))
    if gain == loss == 0:
        return np.inf
    return count * min(gain, loss) / (gain + loss)


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


def adjusted(p_values: Floats, method: Literal["holm", "benjamini-hochberg"]) -> Floats:
    """P-values adjusted for the number of questions; NaN stays NaN and is no question.

    Holm (1979) bounds the probability of any false find, Benjamini and Hochberg (1995) the share of false finds.
    """
    out = np.full(len(p_values), np.nan)
    asked = np.flatnonzero(~np.isnan(p_values))
    order = asked[np.argsort(p_values[asked], kind="stable")]
    count, rank = len(order), np.arange(len(order))
    if method == "holm":
        out[order] = np.maximum.accumulate(p_values[order] * (count - rank))
    else:
        out[order] = np.minimum.accumulate((p_values[order] * count / (rank + 1))[::-1])[::-1]
    return np.asarray(np.minimum(out, 1.0))
