"""Fetches from a server that fails at random equal the data that it has."""

from __future__ import annotations

import pytest
from soak.fetches import run_adversaries, run_fetches


@pytest.mark.parametrize("count", [6, pytest.param(2_500, marks=pytest.mark.soak)])
def test_fetches_with_faults_equal_their_source(count: int) -> None:
    """With a fault in one of five requests no row is lost, doubled, invented or changed, and faults cost little."""
    tally = run_fetches(count, 0.2, seed=1)
    assert (tally.lost, tally.doubled, tally.invented, tally.typed) == (0, 0, 0, 0)
    assert sum(n for resumes, n in tally.resumes.items() if resumes <= 3) >= 0.999 * tally.fetches
    if count > 1000:
        assert tally.requests <= 1.35 * tally.pages


@pytest.mark.parametrize("count", [8, pytest.param(2_000, marks=pytest.mark.soak)])
def test_fetches_from_a_lying_service_end(count: int) -> None:
    """A fetch ends when a service answers at random."""
    _, ended, most = run_adversaries(count, seed=1)
    assert ended == count
    assert most < 5
