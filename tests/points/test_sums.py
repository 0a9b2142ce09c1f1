"""Sums of many values."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import marketdata as md
from marketdata.points.columns import group_sums


@given(arrays.arrays(float, st.integers(0, 50), elements=st.floats(-1, 1)), st.integers(1, 4), st.data())
def test_sums_of_groups_are_those_of_a_loop(values, count, data) -> None:
    """In any order of groups; a group without values sums to 0."""
    group = data.draw(arrays.arrays(np.int64, len(values), elements=st.integers(0, count - 1)))
    want = [math.fsum(values[group == number]) for number in range(count)]
    np.testing.assert_allclose(group_sums(group, values, count), want, rtol=0, atol=1e-14)


@pytest.mark.filterwarnings("ignore::marketdata.errors.FewMarketsWarning")  # the values of a group are all alike
def test_the_mean_of_200_000_equal_values_is_that_value() -> None:
    """To 1e-15, with values of another group between them."""
    rows = pl.DataFrame({
        "market_id": [f"m{n % 20}" for n in range(400_000)], "of": ["even", "odd"] * 200_000,
        "value": [0.3, 0.7] * 200_000,
    })  # fmt: skip
    means = md.cluster_mean(rows, "value", by="of")["mean"]
    assert means.to_list() == pytest.approx([0.3, 0.7], rel=1e-15)
