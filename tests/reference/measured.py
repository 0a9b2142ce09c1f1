"""A measure by a loop over exact levels."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from reference.columns import each_book
from reference.measures import Levels

amounts = st.one_of(st.integers(1, 10**7), st.floats(0.01, 1e8), st.sampled_from([1e-2, 1.5e3, 12_000_000]))


def looped(books: Any, measure: Callable[[Levels, Levels], Any]) -> list[tuple[Any, ...]]:
    """Rows of a measure that is a loop over the exact levels of each book."""
    out = []
    for token, ts, *sides in each_book(books):
        values = measure(*([(Fraction(p), Fraction(s)) for p, s in side] for side in sides))
        values = values.values() if isinstance(values, dict) else values
        plain = (float(v) if isinstance(v, int | Fraction) and not isinstance(v, bool) else v for v in values)
        out.append((ts, *token, *plain))
    return out
