"""Numbers in texts: only finite decimal numbers are numbers, wherever a text comes from."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.decimals import parse_number, to_number
from marketdata.errors import ContractError, ServiceOddityWarning
from marketdata.recordings.roles import numbers
from marketdata.wire import kalshi, polymarket

NO_NUMBERS = ("Infinity", "-inf", "NaN", "1e400", "1" * 400, "0_1", "0x1", "1,5", "\u0661", "true", "null", "--1", "1e")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_number_is_read_as_it_is_written(number: float) -> None:
    """The text of a number is that number, to the last bit, in each of the forms that programs write."""
    for text in (repr(number), f"{number:.17g}", f"{number:.16e}", str(Decimal(number))):
        assert parse_number(text) == number == to_number(text)
    assert to_number(number) == number


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_text_that_is_no_finite_number_is_none_of_any_source(text: str) -> None:
    """The parser, files and both venues agree: neither infinity nor a number with another meaning comes out."""
    for read in (parse_number, to_number):
        with pytest.raises(ValueError, match="is no finite number"):
            read(text)
    assert math.isnan(numbers(pl.Series([text]))[0]) or text == "1,5"
    market = {"conditionId": "0x1", "clobTokenIds": ["1", "2"], "outcomes": ["Yes", "No"]}
    with pytest.warns(ServiceOddityWarning, match="which is no number; it is null"):
        record = polymarket.market({**market, "volume": text})
    assert record["volume"] is None
    trade = {"side": "BUY", "asset": "1", "conditionId": "0x1", "size": 1, "price": 0.5, "timestamp": 1_767_225_600}
    for answer in (
        lambda: polymarket.prices({"history": [{"t": 1_767_225_600, "p": text}]}, "1"),
        lambda: polymarket.trades([{**trade, "price": text}]),
        lambda: polymarket.trades([{**trade, "size": text}]),
        lambda: polymarket.books([{"market": "m", "asset_id": "1", "timestamp": 1, "bids": [[text, "1"]], "asks": []}]),
        lambda: kalshi.candles([{"end_period_ts": 1_767_225_600, "yes_bid": {"close_dollars": text}}]),
        lambda: kalshi.bids_of({"yes_dollars": [[text, "1"]]}),
        lambda: kalshi.bids_of({"yes_dollars": [["0.5", text]]}),
    ):
        with pytest.raises(ContractError):
            answer()


def test_null_and_an_empty_text_are_missing_and_a_truth_value_is_no_number() -> None:
    """Nothing is NaN; true, lists and what a float cannot hold are refused."""
    assert math.isnan(to_number(None))
    assert math.isnan(to_number(""))
    assert to_number(Decimal("0.5")) == to_number(np.float32(0.5)) == to_number(".5") == 0.5
    for wrong in (True, [], {}, math.nan, math.inf, 10**400):
        with pytest.raises(ValueError, match="is no"):
            to_number(wrong)
