"""Columns of entries in any order, each with the number of its token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from marketdata.points.columns import Books, Floats, Ints, Series, Token


def coded_books(tokens: Sequence[Token], token: Any, ts: Ints, counts: Ints, levels: Floats) -> Books:
    """Books, entry i of ``tokens[token[i]]``; levels are (price, size) pairs, bids and asks of an entry in turns."""
    return Books.of_levels((), np.zeros(1, np.int64), ts, counts, *levels.T).grouped(tokens, token)


def coded_series(tokens: Sequence[Token], token: Any, ts: Ints, values: Mapping[str, Floats]) -> Series:
    """Numbers, entry i of ``tokens[token[i]]``."""
    return Series((), np.zeros(1, np.int64), ts, values).grouped(tokens, token)


@lru_cache(maxsize=8)
def levels_of(books: Books) -> Floats:
    """The levels of books as (price, size) pairs, as `coded_books` takes them."""
    return np.stack(books.levels(), axis=1)


def each_book(books: Any) -> Iterator[tuple[Token, int, list[list[float]], list[list[float]]]]:
    """The token, time, bids and asks of each book, levels as [price, size]."""
    edges = np.cumsum(books.counts)[:-1]
    sides = [side.tolist() for side in np.split(levels_of(books), edges)] if len(books) else []
    tokens = [books.tokens[code] for code in books.token.tolist()]
    yield from zip(tokens, books.ts.tolist(), sides[::2], sides[1::2], strict=True)


def ladders(books: Books) -> dict[tuple[Token, int], tuple[list[list[Fraction]], list[list[Fraction]]]]:
    """Bids and asks of each token and time, as [price, size] in fractions."""
    return {
        (token, ts): ([[*map(Fraction, level)] for level in bids], [[*map(Fraction, level)] for level in asks])
        for token, ts, bids, asks in each_book(books)
    }
