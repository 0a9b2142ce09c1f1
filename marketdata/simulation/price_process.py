"""The price process of a market: information, probabilities, volume and observed minutes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Floats, Ints

_LARGEST = 700.0  # information at the end: far past the last float between 0 and 1


class PricePath(NamedTuple):
    """Probabilities of a market: minutes x tokens, whose rows sum to 1, at ``ts`` [microseconds UTC].

    ``clock`` is the share of the information that has arrived, ``activity`` 1 on average, ``winner`` the position of
    the token that pays 1, or None.
    """

    ts: Ints
    probability: Floats
    clock: Floats
    activity: Floats
    winner: int | None

    def select(self, kept: slice | NDArray[np.bool_]) -> PricePath:
        """The path at some of its minutes."""
        return PricePath(self.ts[kept], self.probability[kept], self.clock[kept], self.activity[kept], self.winner)


def simulate_path(
    rng: np.random.Generator, ts: Ints, tokens: int, favourite: float, final_information: float
) -> PricePath:
    """Probabilities of ``tokens`` outcomes: the posterior of a hidden winner given noisy signals in bursts."""
    # A martingale, which ends at 0 or 1 where final_information is 1.
    activity = _activity(rng, len(ts))
    clock = np.cumsum(activity)
    clock *= final_information / clock[-1]
    information = np.minimum(1.2 * clock + 0.15 * clock / np.maximum(1.0 - clock, 1e-9), _LARGEST)
    prior = _prior(rng, tokens, favourite)
    winner = int(rng.choice(tokens, p=prior))
    steps = rng.standard_normal((len(ts), tokens))
    steps *= np.sqrt(np.diff(information, prepend=0.0))[:, None]
    score = np.cumsum(steps, axis=0)
    score[:, winner] += information
    score += np.log(prior)
    score -= score.max(axis=1, keepdims=True)
    probability = np.exp(score)
    probability /= probability.sum(axis=1, keepdims=True)
    resolved = final_information >= 1.0
    if resolved:
        probability[-1] = np.arange(tokens) == winner
    return PricePath(ts, probability, clock, activity, winner if resolved else None)


def observed_minutes(rng: np.random.Generator, ts: Ints, missing: float) -> NDArray[np.bool_]:
    """True for minutes that are observed: single minutes are missing, and now and then hours."""
    observed = rng.random(len(ts)) >= missing
    days = len(ts) / 1440
    for _ in range(rng.poisson(days / 5) + (days >= 1)):
        length = int(rng.uniform(1.6, min(14.4, 4 + days)) * 60)
        first = int(rng.integers(max(1, len(ts) - length)))
        observed[first : first + length] = False
    observed[0] = observed[-1] = True
    return observed


def cumulative_volume(rng: np.random.Generator, path: PricePath, scale: float) -> Floats:
    """Cumulative volume [USD]; constant in quiet minutes."""
    busy = path.activity * rng.exponential(1.0, len(path.ts))
    busy[rng.random(len(busy)) < 0.1] = 0.0
    return np.round(np.cumsum(busy) * scale + scale * 1000, 2)


def _activity(rng: np.random.Generator, minutes: int) -> Floats:
    """Relative activity: slow waves, a daily cycle, and bursts that decay within the hour."""
    slow = np.cumsum(rng.standard_normal(minutes)) * 0.02
    slow -= np.linspace(0.0, slow[-1], minutes)
    day = 0.5 * np.sin(np.arange(minutes) * (2 * np.pi / 1440) - 2.0)
    hits = (rng.random(minutes) < 1 / 700) * rng.pareto(1.5, minutes).clip(0.3, 12) * 12
    fading = np.exp(-np.arange(60) / 12.0)
    bursts = np.convolve(hits, fading)[:minutes]
    activity = np.exp(np.clip(slow, -1.5, 1.5) + day) + bursts
    return np.asarray(activity / activity.mean())


def _prior(rng: np.random.Generator, tokens: int, favourite: float) -> Floats:
    """Prior probabilities: the first token at ``favourite``, the rest in falling shares."""
    if tokens == 2:
        return np.array([favourite, 1.0 - favourite])
    weights = rng.gamma(0.6, size=tokens - 1) + 0.02
    others = np.sort(weights)[::-1] / weights.sum()
    return np.concatenate(([favourite], others * (1.0 - favourite)))
