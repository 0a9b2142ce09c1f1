"""Columns of entries in any order, each with the number of its token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


def ladders(books: Books) -> dict[tuple[Token, int], tuple[list[list[Fraction]], list[list[Fraction]]]]:
    """Bids and asks of each token and time, as [price, size] in fractions."""
    out, at = {}, 0
    for i, ts in enumerate(books.ts.tolist()):
        bids, asks = books.counts[2 * i : 2 * i + 2].tolist()
        levels = [[*map(Fraction, level)] for level in levels_of(books)[at : at + bids + asks].tolist()]
        at += bids + asks
        out[books.tokens[books.token[i]], ts] = levels[:bids], levels[bids:]
    return out
