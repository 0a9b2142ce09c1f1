"""Coefficients of a regression, with errors over clusters: rows that share their luck are one draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from marketdata.points.columns import Floats, Ints, group_sums
from marketdata.points.intervals import LEAST, Interval, effective, freedom_of, student

Link = Literal["identity", "logit"]
_STEPS = 60  # of Newton's method; it takes about eight
_CLOSE = 1e-10  # a step of this share of the standard errors changes nothing
_LARGEST = 30.0  # log-odds beyond which a probability is 0 or 1 but for rounding
_ALIKE = 1e-10  # a column of which others explain all but this share has no coefficient of its own


class Fit(NamedTuple):
    """A regression: a value of each list for each column, and the number of clusters.

    Without ``coefficients`` there is none, and ``intervals`` have the reason.
    """

    coefficients: Floats
    errors: Floats
    intervals: Sequence[Interval]
    clusters: int


class _Spread(NamedTuple):
    """What a way to cluster says of the coefficients.

    - ``sandwich``, ``jackknife``: their covariance by sums of the clusters, and by leaving each cluster out
    - ``influence``: what each cluster (rows) moves each coefficient (columns)
    """

    sandwich: Floats
    jackknife: Floats
    influence: Floats


def fit(y: Floats, x: Floats, clusters: Ints, link: Link, share: float | None) -> Fit:
    """The coefficients of the columns of ``x``, with standard errors and intervals over clusters.

    ``clusters`` has a line for each of one or two ways to cluster the rows; ``share`` is the probability that an
    interval covers. Errors are the sandwich of sums over clusters, with the usual factor for few clusters. An interval
    takes the greater one of that error and the jackknife's, which leaves each cluster out, and Student's t with as many
    degrees of freedom as clusters carry the variance.
    """
    columns = x.shape[1]
    ways = [np.unique(way, return_inverse=True)[1] for way in clusters]
    fewest = min((int(way.max(initial=-1)) + 1 for way in ways), default=0)
    if fewest < LEAST or len(y) <= columns or not _is_full(x):
        return _none(columns, "few" if fewest < LEAST else "no variation", fewest)
    scale = np.sqrt((x**2).mean(axis=0))
    found = _least_squares(y, x / scale) if link == "identity" else _most_likely(y, x / scale)
    if found is None:
        return _none(columns, "separated", fewest)
    beta, weight, residual = found
    if np.abs(residual).max() <= _ALIKE * np.abs(y).max():
        return Fit(beta / scale, np.zeros(columns), [Interval.none("alike", fewest)] * columns, fewest)
    pairs = [np.unique(np.stack(ways), axis=1, return_inverse=True)[1]] if len(ways) > 1 else []
    spreads = [_spread(x / scale, weight, residual, way) for way in (*ways, *pairs)]
    own = spreads[: len(ways)]
    sandwich, jackknife = (
        _two_way([getattr(one, name).diagonal() for one in spreads], len(ways)) for name in ("sandwich", "jackknife")
    )
    errors = np.sqrt(sandwich) / scale
    widest = np.sqrt(np.maximum(sandwich, jackknife)) / scale
    known = min(effective(np.bincount(way).astype(float)) for way in ways)
    intervals = [
        _interval(beta[k] / scale[k], widest[k], [one.influence[:, k] for one in own], share, known)
        for k in range(columns)
    ]
    return Fit(beta / scale, errors, intervals, fewest)


def _none(columns: int, reason: Literal["few", "no variation", "separated"], clusters: int) -> Fit:
    nothing = np.full(columns, np.nan)
    return Fit(nothing, nothing, [Interval.none(reason, clusters)] * columns, clusters)


def _is_full(x: Floats) -> bool:
    """Whether each column has something that the others do not explain."""
    norms = np.linalg.norm(x, axis=0)
    if not (norms > 0).all():
        return False
    return bool(np.linalg.svd(x / norms, compute_uv=False).min() > _ALIKE)


def _least_squares(y: Floats, x: Floats) -> tuple[Floats, Floats, Floats]:
    """The coefficients, and of each row its weight and its residual."""
    beta = np.asarray(np.linalg.lstsq(x, y, rcond=None)[0], float)
    return beta, np.ones(len(y)), y - x @ beta


def _most_likely(y: Floats, x: Floats) -> tuple[Floats, Floats, Floats] | None:
    """The same for log-odds that are linear, by Newton's method; None where none is most likely."""
    beta = np.zeros(x.shape[1])
    for _ in range(_STEPS):
        odds = x @ beta
        if np.abs(odds).max() > _LARGEST:
            return None  # a line separates the outcomes, so the likelihood grows for ever
        mean = 1 / (1 + np.exp(-odds))
        weight, residual = mean * (1 - mean), y - mean
        hessian = x.T @ (weight[:, None] * x)
        try:
            step = np.linalg.solve(hessian, x.T @ residual)
        except np.linalg.LinAlgError:
            return None
        if (np.abs(step) <= _CLOSE * np.maximum(np.abs(beta), 1)).all():
            return np.asarray(beta, float), weight, residual
        # A whole step may go too far where probabilities are near 0 or 1.
        beta = beta + step * min(1.0, 5 / np.abs(x @ step).max(initial=1e-300))
    return None


def _spread(x: Floats, weight: Floats, residual: Floats, way: Ints) -> _Spread:
    rows, columns = x.shape
    count = int(way.max()) + 1
    hessian = x.T @ (weight[:, None] * x)
    inverse = np.linalg.inv(hessian)
    scores = np.stack([group_sums(way, x[:, k] * residual, count) for k in range(columns)], axis=1)
    influence = scores @ inverse
    factor = count / (count - 1) * (rows - 1) / (rows - columns)
    products = weight[:, None, None] * x[:, :, None] * x[:, None]
    own = np.stack([group_sums(way, one, count) for one in products.reshape(rows, -1).T], axis=1)
    without = hessian - own.reshape(count, columns, columns)
    moved = np.full((count, columns), np.inf)
    # A cluster that alone has what a coefficient rests on cannot be left out.
    can_go = np.linalg.cond(without) < 1 / _ALIKE
    moved[can_go] = np.linalg.solve(without[can_go], scores[can_go][:, :, None])[:, :, 0]
    if not can_go.all():
        return _Spread(factor * influence.T @ influence, np.full((columns, columns), np.inf), influence)
    moved -= moved.mean(axis=0)
    return _Spread(factor * influence.T @ influence, (1 - 1 / count) * moved.T @ moved, influence)


def _two_way(variances: Sequence[Floats], ways: int) -> Floats:
    """The variances by one way to cluster; by two the sum less that of pairs, and never below that of one way."""
    if ways == 1:
        return np.asarray(variances[0])
    with np.errstate(invalid="ignore"):
        both = variances[0] + variances[1] - variances[2]
    return np.fmax(both, np.maximum(variances[0], variances[1]))


def _interval(value: float, error: float, influence: Sequence[Floats], share: float | None, known: float) -> Interval:
    if not np.isfinite(error):
        return Interval.none("no spread", known)
    reach, luck = student(share or 0.95, abs(value) / error, min(freedom_of(one) for one in influence))
    return Interval(value - reach * error, value + reach * error, luck, known, np.inf)
