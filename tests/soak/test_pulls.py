"""Pulls of many markets at the pace of a venue."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.pulls import run_pull


@pytest.mark.parametrize(
    ("venue", "markets", "days", "killed_at"),
    [
        ("polymarket", 30, 0.5, 2),
        ("kalshi", 6, 1.0, 2),
        pytest.param("polymarket", 300, 30.0, 20, marks=pytest.mark.soak),
        pytest.param("kalshi", 300, 30.0, 20, marks=pytest.mark.soak),
    ],
)
def test_a_killed_pull_goes_on_at_the_pace_of_the_venue(
    tmp_path: Path, venue: str, markets: int, days: float, killed_at: int
) -> None:
    """Nothing is wrong or lacking, complete is only what is, also when it was killed; the rest reaches the pace."""
    tally = run_pull(tmp_path, venue, markets, days, killed_at)
    print(dict(tally))
    assert tally["killed"] == 1
    assert (tally["wrong when killed"], tally["wrong"], tally["lacking"]) == (0, 0, 0)
    assert markets < 100 or tally["stored when killed"]
    # Of a market that is open the last minutes are asked for again.
    assert tally["records of coverage"] <= 6 * markets
    if markets > 100:  # a short pull is hardly more than its burst
        assert 95 <= tally["pace"] <= 101
