"""Books that are recorded as time goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from soak.recorders import run_recorder


@pytest.mark.parametrize(("tokens", "minutes"), [(6, 60), pytest.param(200, 1440, marks=pytest.mark.soak)])
def test_a_recorder_stores_what_the_venue_gave_and_nothing_else(tmp_path: Path, tokens: int, minutes: int) -> None:
    """Through restarts, an outage and markets that close, gaps are where it did not run."""
    tally = run_recorder(tmp_path, tokens, minutes, seed=1)
    print(dict(tally))
    assert {name: tally[name] for name in ("lost", "invented", "changed", "wrong coverage")} == {
        "lost": 0, "invented": 0, "changed": 0, "wrong coverage": 0,
    }  # fmt: skip
    assert tally["starts"] > 1
    assert tally["failed rounds"] > 0
    assert tally["books"] > tokens * minutes / 6
