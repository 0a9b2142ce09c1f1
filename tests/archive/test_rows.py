"""The way from columns to Parquet and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from archive.source import MARKETS, columns_of, points_of
from hypothesis import given
from hypothesis import strategies as st

from marketdata.points.views import VIEWS, View
from marketdata.wire.arrow import from_tables, to_table

numbers = st.floats(0, 1e6, width=32)
sides = st.lists(st.tuples(numbers, numbers), max_size=4)


@st.composite
def some_points(draw: st.DrawFn) -> tuple[View, dict[tuple[int, int], Any]]:
    """A view and its points by token and minute."""
    view: View = draw(st.sampled_from(list(VIEWS)))
    value = {"books": st.tuples(sides, sides), "prices": numbers, "metrics": st.tuples(numbers, numbers)}[view]
    tokens = st.just(0) if view == "metrics" else st.integers(0, 1)
    return view, draw(st.dictionaries(st.tuples(tokens, st.integers(0, 30)), value, max_size=12))


def columns(view: View, points: dict[tuple[int, int], Any]) -> Any:
    keys = sorted(points)
    return columns_of(view, MARKETS[0], keys, [points[k] for k in keys])


@given(some_points())
def test_parquet_rows_give_the_same_columns_back(drawn: tuple[View, dict[tuple[int, int], Any]]) -> None:
    """Columns become rows and columns again with the same content, empty sides included, in slices too."""
    view, points = drawn
    before = columns(view, points)
    table = to_table(before)
    parts = [table.slice(0, 3), table.slice(3)]
    for after in (from_tables(view, [table]), from_tables(view, parts)):
        assert len(after) == len(before)
        assert points_of(view, after.sort()) == points_of(view, before)
        if view == "books" and len(before):
            assert np.array_equal(after.counts, before.counts)
            assert np.array_equal(after.levels(), before.levels())
