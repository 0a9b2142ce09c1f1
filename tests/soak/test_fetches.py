"""Fetches from a server that fails at random equal the data that it has."""

from __future__ import annotations

import pytest
from soak.fetches import run_adversaries, run_fetches


@pytest.mark.parametrize("count", [6, pytest.param(2_500, marks=pytest.mark.soak)])
def test_fetches_with_faults_equal_their_source(count) -> None:
    """With a fault in one of five requests no row is lost, doubled, invented or changed, and few resumes suffice."""
    tally = run_fetches(count, 0.2, seed=1)
    assert (tally["lost"], tally["doubled"], tally["invented"]) == (0, 0, 0)
    assert sum(tally[f"{resumes} resumes"] for resumes in range(4)) >= 0.999 * count


@pytest.mark.parametrize("count", [8, pytest.param(2_000, marks=pytest.mark.soak)])
def test_fetches_from_a_lying_service_end(count) -> None:
    """A fetch ends when a service answers at random."""
    _, ended, most = run_adversaries(count, seed=1)
    assert ended == count
    assert most < 5
