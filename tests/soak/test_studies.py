"""A thousand studies of signals without an edge: how often the interval of the mean contains 0."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from reference.markets import books_of

import marketdata as md

pytestmark = pytest.mark.soak
STUDIES, MINUTES = 1_000, 20


def moves(process: str, markets: int, rng: np.random.Generator) -> Any:
    """Moves of the mid of each market and minute, whose mean is 0."""
    noise = 0.004 * rng.standard_normal((markets, MINUTES))
    if process == "drifts":  # rows of a market move together
        return noise + 0.002 * rng.standard_normal((markets, 1))
    if process == "events":  # five markets of an event move together
        return noise + np.repeat(0.002 * rng.standard_normal((-(-markets // 5), 1)), 5, axis=0)[:markets]
    # one market in ten jumps once, by 0.3, as where news decide it
    jumps = np.zeros((markets, MINUTES))
    jumps[np.arange(markets), rng.integers(0, MINUTES, markets)] = 0.3 * rng.choice(
        [-1, 0, 1], markets, p=[0.05, 0.9, 0.05]
    )
    return noise + jumps


def study(process: str, markets: int, seed: int, cluster: str) -> bool:
    """Whether the interval of the gross return of the upper half of a random signal contains 0."""
    rng = np.random.default_rng(seed)
    steps = moves(process, markets, rng)
    # A signal that most rows of a market share, as signals do.
    signal = rng.standard_normal((markets, 1)) + 0.5 * rng.standard_normal((markets, MINUTES))
    books, signals = books_of(0.5 + np.cumsum(steps, axis=1) - steps, signal)
    ids = [f"m{i:03}" for i in range(markets)]
    events = pl.DataFrame({"market_id": ids, "token_id": ids, "event_slug": [f"e{i // 5}" for i in range(markets)]})
    events = events.with_columns(payoff=pl.lit(None, pl.Float64))
    done = md.study(
        books, signals, "1m", quantiles=2, latency="0s", fees=0, width="1m", cluster=cluster, seed=seed,
        outcomes=events, resamples=500,
    )  # fmt: skip
    low, high = done.table.select("gross_low", "gross_high").row(-1)
    return bool(low <= 0 <= high)


@pytest.mark.parametrize(
    ("process", "cluster", "least"),
    [
        ("drifts", "market_id", {10: 0.90, 30: 0.92, 100: 0.92}),
        ("events", "event_slug", {30: 0.85, 100: 0.92}),
        ("events", "market_id", {30: 0.0, 100: 0.0}),
        ("jumps", "market_id", {10: 0.0, 30: 0.0, 100: 0.0}),
    ],
)
def test_the_interval_of_a_study_without_an_edge_contains_0(
    process: str, cluster: str, least: dict[int, float]
) -> None:
    """About 95 of 100 do where clusters are independent and many; the shares are printed for docs/guides/study.md."""
    for markets, bound in least.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", md.errors.MarketDataWarning)
            share = sum(study(process, markets, seed, cluster) for seed in range(STUDIES)) / STUDIES
        print(f"{process:8} by {cluster:11} {markets:4} markets: {share:.1%} of the intervals contain 0")
        assert share >= bound
