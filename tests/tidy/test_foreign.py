"""Foreign frames: every function returns what a plain loop returns, or an error that says what to do."""

from __future__ import annotations

import pytest
from reference import foreign
from reference.foreign_cases import CASES, judged
from reference.foreign_study_cases import STUDY_CASES

ALL_CASES = {**CASES, **STUDY_CASES}
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")


@pytest.mark.parametrize("name", ALL_CASES)
@pytest.mark.fault("FR2")
def test_a_foreign_frame_gives_what_a_plain_loop_gives_or_is_refused(name: str) -> None:
    """Whatever library, types, order and faults: the rows of the loop, or a NotTidyError that says what to do."""
    case = ALL_CASES[name]
    for number in (0, 1, 3):
        view = "nested" if case.view == "books" and number % 2 else case.view
        drawn = foreign.of_seed(view, f"{name} {number}")
        verdict, text = judged(name, case, drawn)
        assert verdict in ("right", "refused"), f"{name} {number} {drawn.container} {drawn.fault} {drawn.how}: {text}"
