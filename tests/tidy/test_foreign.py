"""Foreign frames: every function returns what it should for tidy rows, or an error that says what to do."""

from __future__ import annotations

import pytest
from reference import foreign
from reference.foreign_cases import CASES, judged

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")


@pytest.mark.parametrize("name", CASES)
@pytest.mark.fault("FR2")
def test_a_foreign_frame_gives_what_tidy_rows_give_or_is_refused(name: str) -> None:
    """Whatever library, types, order and faults: the rows of tidy data, or a NotTidyError that says what to do."""
    case = CASES[name]
    for number in (0, 1, 3):
        view = "nested" if case.view == "books" and number % 2 else case.view
        drawn = foreign.of_seed(view, f"{name} {number}")
        verdict, text = judged(name, case, drawn)
        assert verdict in ("right", "refused"), f"{name} {number} {drawn.container} {drawn.fault} {drawn.how}: {text}"
