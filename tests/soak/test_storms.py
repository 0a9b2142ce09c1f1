"""Storms of kills over pulls of prints and over recorders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from soak.storms import run_pulls, run_recorders

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks"),
]


@pytest.mark.parametrize("venue", ["polymarket", "kalshi"])
def test_killed_pulls_of_prints_end_as_the_venue_has_them(tmp_path: Path, venue: str) -> None:
    """After each of 100 kills no print is wrong or twice, and final ranges lack none; the last pull has all."""
    tally = run_pulls(tmp_path, venue, 100, seed=1)
    print(dict(tally))
    assert tally["killed"] >= 100
    assert tally["compared"]
    assert (tally["wrong"], tally["lacking"], tally["damaged"]) == (0, 0, 0)


def test_killed_recorders_store_what_was_played(tmp_path: Path) -> None:
    """After each of 100 kills all books and prints are those that the mirror played, each once."""
    tally = run_recorders(tmp_path, 100, seed=1)
    print(dict(tally))
    assert tally["killed"] >= 100
    assert tally["books compared"]
    assert tally["trades compared"]
    assert (tally["wrong"], tally["damaged"]) == (0, 0)
