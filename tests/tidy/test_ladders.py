"""Books in other shapes hold the same numbers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import columns as coded
from reference.kinds import KINDS, close, of_kind, rows

import marketdata as md
from marketdata.points.views import empty
from marketdata.testing.strategies import MINUTE, START, book_columns
from marketdata.tidy.frames import to_frame
from marketdata.tidy.shapes import ladder
from marketdata.times import to_datetime


def levels_of(books: Any) -> list[tuple[int, Any, list[Any], list[Any]]]:
    at, out = 0, []
    for i in range(len(books)):
        nb, na = books.counts[2 * i], books.counts[2 * i + 1]
        found = coded.levels_of(books)[at : at + nb + na].tolist()
        at += nb + na
        out.append((int(books.ts[i]), books.tokens[books.token[i]], found[:nb], found[nb:]))
    return out


@given(kind=st.sampled_from(KINDS), books=book_columns(), levels=st.integers(1, 4))
def test_wide_rows_equal_a_plain_walk(kind: str, books: Any, levels: int) -> None:
    """Each snapshot is one row; level k stands in the columns of k; what is not there is null."""
    want = []
    for ts, token, bids, asks in levels_of(books):
        values: list[Any] = []
        for k in range(levels):
            b, a = (side[k] if k < len(side) else (None, None) for side in (bids, asks))
            values += [b[0], a[0], b[1], a[1]]
        want.append((ts, *token, *values))
    assert rows(md.to_wide(of_kind(books, kind), levels)) == want


@given(kind=st.sampled_from(KINDS), books=book_columns(), minute=st.integers(-1, 3000))
def test_a_ladder_is_the_last_book_until_then(kind: str, books: Any, minute: int) -> None:
    """Of each token the last book that is not later is shown, with running totals; a later one is not."""
    moment = START + minute * MINUTE
    last = {token: (ts, bids, asks) for ts, token, bids, asks in levels_of(books) if ts <= moment}
    want = []
    for token, (ts, bids, asks) in last.items():
        for k in range(max(len(bids), len(asks))):
            row: list[Any] = []
            for side, order in ((bids, (2, 1, 0)), (asks, (0, 1, 2))):
                here = (*side[k], sum(s for _, s in side[: k + 1])) if k < len(side) else (None,) * 3
                row += [here[i] for i in order]
            want.append((ts, *token, k, *row))
    assert close(rows(ladder(of_kind(books, kind), to_datetime(moment))), want)


def test_a_lazy_frame_needs_the_number_of_levels() -> None:
    """Without it the columns of a lazy frame are unknown, and the error says what to give."""
    with pytest.raises(md.errors.ConfigError, match="levels=10"):
        md.to_wide(to_frame(empty("books"), "polars").lazy())
