"""An opened frame, which never changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marketdata as md
from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory

SORTS: list[Callable[..., Any]] = [
    frames.sorted_rows, frames.sorted_series, frames.sorted_books, frames.sorted_level_rows
]  # fmt: skip


@pytest.mark.parametrize("sort", SORTS)
@pytest.mark.parametrize("kind", ["pandas", "polars"])
@given(seed=st.integers(0, 1000))
def test_putting_rows_in_order_leaves_the_frame_as_it_was(sort: Any, kind: Any, seed: int) -> None:
    """A function that sorts returns another frame: the given one reads as before, and its other rows too."""
    is_of_levels = sort in (frames.sorted_books, frames.sorted_level_rows)
    rows = (md.testing.books if is_of_levels else md.testing.prices)("polars", markets=2, buckets=2)
    shuffled = rows.sample(fraction=1, shuffle=True, seed=seed)
    native = shuffled.to_pandas() if kind == "pandas" else shuffled
    frame = in_memory(native, ["books"] if is_of_levels else ["series"])
    part = frame.take(frame.times("ts").argsort()[:3])
    before = frame.times("ts").tolist(), frame.texts("token_id"), part.texts("token_id")
    in_order = sort(frame)[0]
    assert (frame.times("ts").tolist(), frame.texts("token_id"), part.texts("token_id")) == before
    assert frames.rows_to_frame(frame, None).equals(native)
    ordered = pl.DataFrame(frames.rows_to_frame(in_order, None))
    assert ordered["price"].to_list() == rows["price"].to_list()


def test_a_frame_refuses_a_change() -> None:
    """An attribute cannot be set."""
    frame = in_memory(md.testing.prices())
    with pytest.raises(AttributeError, match="rows"):
        frame.rows = None  # type: ignore[misc]
