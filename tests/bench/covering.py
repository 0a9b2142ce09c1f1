"""How often intervals over markets cover the truth, in simulated studies whose truth is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bench.measure import Table
from marketdata.points import scores
from marketdata.points.columns import Floats

_SHARE, _BINS, _STEPS, _RESAMPLES = 0.95, 10, 12, 1000
_TRUTH = 200_000  # markets that the truth is taken from
Way = Callable[[Floats, Floats, int], tuple[float, float]]


class Sums(NamedTuple):
    """Of studies x markets: sums of a loss, or in a bin of payoffs, and numbers of forecasts."""

    total: Floats
    weight: Floats

    @property
    def truth(self) -> float:
        """The ratio of all of one study."""
        return float(self.total.sum() / self.weight.sum())


def study(rng: np.random.Generator, studies: int, markets: int) -> dict[str, list[Sums]]:
    """Calibrated forecasts of markets as `marketdata.simulate` has them: the posterior of a winner given noisy signals.

    A market has 3 to 12 forecasts, rounded to cents.
    """
    shape = (studies, markets)
    prior, life = rng.uniform(0.05, 0.95, shape), rng.integers(3, _STEPS + 1, shape)
    y = (rng.random(shape) < prior).astype(float)
    step = 4.0 / life[..., None] * np.ones(_STEPS)
    known = np.cumsum(step, axis=-1) - step
    moves = rng.standard_normal((*shape, _STEPS)) * np.sqrt(step)
    noise = np.cumsum(moves, axis=-1) - moves[..., :1]  # nothing is known at first
    odds = np.log(prior / (1 - prior))[..., None] + (2 * y[..., None] - 1) * known / 2 + noise
    p = np.clip(np.round(1 / (1 + np.exp(-odds)), 2), 0.01, 0.99)
    counts = (np.arange(_STEPS) < life[..., None]).astype(float)
    outcome = np.broadcast_to(y[..., None], p.shape)
    at = np.minimum(np.floor(p * _BINS + 1e-9), _BINS - 1)
    out = {
        name: [Sums((counts * loss(p, outcome)).sum(-1), counts.sum(-1))]
        for name, loss in (("brier", scores.squared_error), ("log_score", scores.log_loss))
    }
    bins = [counts * (at == k) for k in range(_BINS)]
    out["calibration"] = [Sums((here * outcome).sum(-1), here.sum(-1)) for here in bins]
    return out


def percentile(total: Floats, weight: Floats, seed: int) -> tuple[float, float]:
    """The plain bootstrap over markets, for comparison."""
    n = len(total)
    drawn = np.random.default_rng(seed).multinomial(n, np.full(n, 1 / n), _RESAMPLES)
    low, high = np.quantile(drawn @ total / (drawn @ weight), [(1 - _SHARE) / 2, (1 + _SHARE) / 2])
    return float(low), float(high)


def ours(name: str) -> Way:
    """The interval of this library of a score, or of a share."""
    if name == "calibration":
        return lambda total, weight, _: scores.interval_of_share(total, weight, _SHARE)
    bounds = (0.0, 1.0 if name == "brier" else -float(np.log(1e-6)))
    return lambda total, weight, seed: scores.interval_of_mean(total, weight, _SHARE, _RESAMPLES, seed, bounds)


def covered(way: Way, studies: Sums, truth: float) -> list[bool]:
    """Whether each study with two markets and more covers the truth."""
    out = []
    for seed, (total, weight) in enumerate(zip(studies.total, studies.weight, strict=True)):
        here = weight > 0
        if here.sum() >= 2:
            low, high = way(total[here], weight[here], seed)
            out.append(bool(low <= truth <= high))
    return out


def run(*, quick: bool = False) -> list[Table]:
    """Share of the studies whose interval covers the truth, by the number of their markets."""
    studies, sizes = (50, (5, 10)) if quick else (800, (5, 10, 20, 50, 100))
    rng = np.random.default_rng(1)
    truth = {name: [one.truth for one in some] for name, some in study(rng, 1, _TRUTH).items()}
    names = tuple(truth)
    head = ["markets", *(f"{name} %" for name in names), *(f"plain bootstrap, {name} %" for name in names)]
    table = Table(f"How often intervals of {_SHARE:.0%} cover the truth, {studies:,} studies each", head)
    for size in sizes:
        seen = study(rng, studies, size)
        cells: list[Any] = []
        for ways in ({name: ours(name) for name in names}, dict.fromkeys(names, percentile)):
            for name, way in ways.items():
                parts = zip(seen[name], truth[name], strict=True)
                hits = [hit for one, true in parts for hit in covered(way, one, true)]
                cells.append(f"{100 * np.mean(hits):.1f}")
        table.rows.append([f"{size}", *cells])
    table.notes.append(
        "Markets have 3 to 12 calibrated forecasts each. Scores: studentized bootstrap; calibration: Wilson, over all "
        f"of {_BINS} bins with two markets and more. Two standard errors are 1.5 points, of calibration less."
    )
    return [table]
