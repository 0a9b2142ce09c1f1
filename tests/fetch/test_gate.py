"""The gate behind every source: answers are about the times, the market and the tokens that were asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.errors import ContractError
from marketdata.fetch import gate
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.pages import fetch
from marketdata.fetch.windows import Window
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, MINUTE, Range, parse_iso, to_text
from marketdata.wire.decode import decode_page

START = parse_iso("2026-01-05T00:00:00Z")
WINDOW = Window("prices", "market", "m", Range(START, START + 10 * MINUTE), BucketWidth.of("1m"))


def page(times: list[int]) -> bytes:
    """A page of the interface with a price at each time."""
    points = [{"t": to_text(at), "p": 0.5} for at in times]
    head = {"market_id": "m", "resolution": "1m", "metadata": {"count": len(points), "limit": 200}}
    return json.dumps({**head, "tokens": {"Yes": "1"}, "data": {"Yes": points}}).encode()


@given(st.lists(st.integers(-20, 29), min_size=1, max_size=12, unique=True))
def test_points_outside_are_counted_and_an_answer_of_other_times_is_an_error(minutes: list[int]) -> None:
    """Points of the range are kept; without one, times of more than a bucket beside it are no empty range."""
    times = [START + k * MINUTE for k in sorted(minutes)]
    inside = [k for k in minutes if 0 <= k < 10]
    far = [k for k in minutes if k < -1 or k >= 11]
    report = Report()
    pages = lambda _: [decode_page("prices", page(times))]  # noqa: E731
    if not inside and len(far) == len(minutes):
        with pytest.raises(ContractError, match="alone, and was asked for"):
            [*fetch(pages, WINDOW, report)]
        return
    (got,) = fetch(pages, WINDOW, report)
    assert len(got.columns) == len(inside)
    assert got.notes["outside_range"] == len(minutes) - len(inside)


def test_an_answer_about_others_is_an_error() -> None:
    """Names are compared without case; what an answer does not say is no other name."""
    gate.refuse_others(["M", None], ["m"], "the market")
    with pytest.raises(ContractError, match="about the market 'other', and was asked for 'm'"):
        gate.refuse_others(["m", "other"], ["m"], "the market")
    gate.refuse_shared_tokens(["1", "2", None, None], "m")
    with pytest.raises(ContractError, match="one token, '1'"):
        gate.refuse_shared_tokens(["1", "1"], "m")
    gate.refuse_jumps([5, 4, 3], 10, "the trades")
    with pytest.raises(ContractError, match=r"is 100, on a page from 3 to 5"):
        gate.refuse_jumps([5, 100, 3], 10, "the trades")


def test_the_last_price_of_a_live_market_is_of_no_other_time() -> None:
    """A venue adds it at the present, whatever range was asked for."""
    now = START + 400 * DAY
    assert gate.outside(np.array([now]), WINDOW.rng, MINUTE, "prices", now) == 0
    with pytest.raises(ContractError, match="alone"):
        gate.outside(np.array([now + DAY]), WINDOW.rng, MINUTE, "prices", now)
