"""The content hash, and the way from columns to Parquet and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from archive.source import MARKETS, columns_of
from hypothesis import given
from hypothesis import strategies as st

from marketdata.archive.storage.content_hash import content_hash
from marketdata.archive.storage.schema import from_tables, to_table
from marketdata.points.columns import concat
from marketdata.points.views import VIEWS, View

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
        assert content_hash(after.sort()) == content_hash(before)
        if view == "books" and len(before):
            assert np.array_equal(after.counts, before.counts)
            assert np.array_equal(after.levels, before.levels)


@given(some_points(), st.data())
def test_hashes_of_parts_add_up(drawn: tuple[View, dict[tuple[int, int], Any]], data: st.DataObject) -> None:
    """However points are split and ordered, the hashes of the parts sum to the hash of the whole."""
    view, points = drawn
    mine = {k: v for k, v in points.items() if data.draw(st.booleans())}
    theirs = {k: v for k, v in points.items() if k not in mine}
    parts = [columns(view, theirs), columns(view, mine)]
    whole = content_hash(columns(view, points))
    assert sum(map(content_hash, parts)) % 2**64 == whole
    assert content_hash(concat([p for p in parts if len(p)])) == whole if points else whole == 0


@given(some_points(), st.data())
def test_any_change_changes_the_hash(drawn: tuple[View, dict[tuple[int, int], Any]], data: st.DataObject) -> None:
    """Another value, another time, a point less or two levels swapped give another hash."""
    view, points = drawn
    if not points:
        return
    key = data.draw(st.sampled_from(sorted(points)))
    rest = {k: v for k, v in points.items() if k != key}
    before = content_hash(columns(view, points))
    assert content_hash(columns(view, rest)) != before
    assert content_hash(columns(view, {**rest, (key[0], 99): points[key]})) != before
    value = points[key]
    if view == "books":
        bids, asks = value
        others: list[Any] = [([*bids, (1.0, 1.0)], asks), (asks, bids), (bids[::-1], asks)]
        others += [([(s, p) for p, s in bids], asks)]
    else:
        others = [value + 1.0] if view == "prices" else [(value[1], value[0]), (value[0] + 1, value[1])]
    for other in others:
        if other != value:
            assert content_hash(columns(view, {**rest, key: other})) != before
