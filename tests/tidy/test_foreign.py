"""Foreign frames: every function returns what a plain loop returns, or an error that says what to do."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import foreign
from reference.foreign_cases import (
    CASES,
    judged,
    strategy,
)
from reference.foreign_study_cases import STUDY_CASES

from marketdata.points import order, resample

ALL_CASES = {**CASES, **STUDY_CASES}
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.MarketDataWarning")


@pytest.mark.parametrize("name", ALL_CASES)
@pytest.mark.fault("FR2")
def test_a_foreign_frame_gives_what_a_plain_loop_gives_or_is_refused(name: str) -> None:
    """Whatever library, types, order and faults: the rows of the loop, or a NotTidyError that says what to do."""
    case = ALL_CASES[name]

    @settings(max_examples=int(os.environ.get("FOREIGN_EXAMPLES", "8")))
    @given(drawn=strategy(case.view))
    def run(drawn: foreign.Foreign) -> None:
        verdict, text = judged(name, case, drawn)
        assert verdict in ("right", "refused"), f"{name} {drawn.container} {drawn.fault} {drawn.how}: {text}"

    run()


@pytest.mark.parametrize("name", ["resample books", "bbo", "check books", "complement"])
def test_rows_that_are_compared_in_blocks_are_the_same_rows(name: str) -> None:
    """Whatever number of rows is looked at at a time, a function gives what the plain loop gives."""
    case = CASES[name]

    @settings(max_examples=int(os.environ.get("FOREIGN_EXAMPLES", "8")))
    @given(drawn=strategy(case.view), block=st.integers(1, 5))
    def run(drawn: foreign.Foreign, block: int) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(order, "BLOCK_ROWS", block)
            patch.setattr(resample, "BLOCK_ROWS", block)
            verdict, text = judged(name, case, drawn)
        assert verdict in ("right", "refused"), f"{block} {drawn.container} {drawn.fault} {drawn.how}: {text}"

    run()
