"""The data form: entries of a token are adjacent, and levels never move."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marketdata.points.columns import Books, Series, Side, Token, joined

TOKENS = tuple(Token(market, token) for market in "ab" for token in "xy")
Row = tuple[int, int, list[list[tuple[float, float]]]]
LEVELS = st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.3]), st.sampled_from([1.0, 2.0])), max_size=3)
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.lists(LEVELS, min_size=2, max_size=2)), max_size=12)


def books(rows: list[Row]) -> Books:
    """Books of rows in any order."""
    levels = [level for _, _, sides in rows for side in sides for level in side]
    price, size = np.array(levels, float).reshape(-1, 2).T
    counts = np.array([len(side) for _, _, sides in rows for side in sides], np.int64)
    ts = np.array([ts for _, ts, _ in rows], np.int64)
    out = Books.of_levels((), np.zeros(1, np.int64), ts, counts, price, size)
    return out.grouped(TOKENS, np.array([code for code, _, _ in rows], np.int64))


def rows_of(columns: Books) -> list[Row]:
    """The rows again, by the numbers of their tokens in the list of all."""
    out = []
    for i, (code, ts) in enumerate(zip(columns.token.tolist(), columns.ts.tolist(), strict=True)):
        sides = []
        for side in (columns.bids, columns.asks):
            at = slice(int(side.begins[i]), int(side.begins[i] + side.counts[i]))
            sides.append(list(zip(side.price[at].tolist(), side.size[at].tolist(), strict=True)))
        out.append((TOKENS.index(columns.tokens[code]), ts, sides))
    return out


@given(ROWS)
def test_entries_in_any_order_are_brought_together_by_token(rows: list[Row]) -> None:
    """`grouped` keeps the order within a token, `sort` the tidy order, and every entry its levels."""
    made = books(rows)
    assert rows_of(made) == sorted(rows, key=lambda row: row[0])
    assert len(set(made.tokens)) == len(made.tokens) == len(made.bounds) - 1
    assert rows_of(made.sort()) == sorted(rows, key=lambda row: row[:2])
    assert made.sort().is_sorted


@given(ROWS, st.data())
def test_taken_entries_are_those_at_the_positions(rows: list[Row], data: st.DataObject) -> None:
    """`take` gives the entries at positions, by token; a token without one is left out."""
    made = books(rows)
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    taken = made.take(np.array(index, np.int64))
    every = rows_of(made)
    assert rows_of(taken) == sorted((every[i] for i in index), key=lambda row: row[0])
    assert (np.diff(taken.bounds) > 0).all()


@given(ROWS, ROWS)
def test_joined_parts_have_all_entries(first: list[Row], second: list[Row]) -> None:
    """`joined` is what the rows of both parts make, of books and of series."""
    assert rows_of(joined([books(first), books(second)]).sort()) == rows_of(books(first + second).sort())
    parts = [books(first), books(second)]
    series = [Series(p.tokens, p.bounds, p.ts, {"price": p.bids.best}) for p in parts]
    both = joined(series)
    assert both.values["price"].tolist() == pytest.approx(joined(parts).bids.best.tolist(), nan_ok=True)


@given(ROWS, st.data())
def test_levels_in_one_piece_are_those_of_the_sides(rows: list[Row], data: st.DataObject) -> None:
    """`of_levels` takes what `levels` returns, after any choice of entries, and each book has its own sums."""
    made = books(rows)
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)) if rows else []
    taken = made.take(np.array(index, np.int64)).cut(2)
    again = Books.of_levels(taken.tokens, taken.bounds, taken.ts, taken.counts, *taken.levels())
    assert rows_of(again) == rows_of(taken)
    apart = Books(again.tokens, again.bounds, again.ts, again.bids, Side(*map(np.copy, vars_of(again.asks))))
    assert [a.tolist() for a in apart.levels()] == [a.tolist() for a in again.levels()]
    sizes = [sum(size for _, size in sides[1]) for _, _, sides in rows_of(taken)]
    assert taken.asks.depth.tolist() == pytest.approx(sizes)


def vars_of(side: Side) -> tuple[np.ndarray, ...]:  # type: ignore[type-arg]
    return side.begins, side.counts, side.price, side.size
