"""Orders against books, by a plain loop in exact fractions."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import few, of_kind, rows

import marketdata as md
from marketdata.testing.strategies import START, book_columns
from marketdata.times import to_datetime

MINUTE = 60_000_000


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, list[tuple[Any, ...]], dict[str, Any]]:
    """Books of a market, orders on its tokens, and how they are filled."""
    books = draw(book_columns())
    tokens = sorted(set(books.tokens)) or [("0xm", "1", "Yes")]
    times = sorted({int(t) for t in books.ts}) or [START]
    order = st.tuples(
        st.sampled_from(times).flatmap(lambda t: st.sampled_from([t, t - MINUTE, t + MINUTE])),
        st.sampled_from(tokens),
        st.sampled_from(["buy", "buy", "sell"]),
        st.one_of(st.integers(1, 1000), st.floats(0.01, 1e7)),
        st.one_of(st.none(), st.sampled_from([0.1, 0.5, 0.9])),
    )
    options = {
        "latency": draw(st.sampled_from([0, 1, 2])),
        "exit_after": draw(st.sampled_from([None, 1, 3])),
        "fees": draw(st.sampled_from([0.0, 0.02, "odds"])),
    }
    return books, draw(st.lists(order, max_size=8)), options


def plain(books: Any, orders: list[tuple[Any, ...]], latency: int, exit_after: int | None, rate: Any) -> list[Any]:
    """Each order level by level: time of the book, signal, token, side, asked, shares, notional, fee."""
    at, levels = 0, {}
    for i in range(len(books)):
        nb, na = books.counts[2 * i], books.counts[2 * i + 1]
        exact = [[Fraction(p), Fraction(s)] for p, s in books.levels[at : at + nb + na].tolist()]
        at += nb + na
        levels[books.tokens[books.token[i]], int(books.ts[i])] = {"sell": exact[:nb], "buy": exact[nb:]}
    held: dict[Any, Fraction] = defaultdict(Fraction)
    queue = [
        (ts + latency * MINUTE, i, ts, who, side, Fraction(size), lim)
        for i, (ts, who, side, size, lim) in enumerate(orders)
    ]
    out = []
    while queue:
        queue.sort(key=lambda o: o[:3])
        when, place, ts, who, side, size, limit = queue.pop(0)
        book = levels.get((who, when))
        wanted = size if side == "buy" else min(size, held[who])
        shares = paid = fee = Fraction(0)
        for level in book[side] if book and wanted > 0 else ():
            worse = limit is not None and (level[0] > Fraction(limit) if side == "buy" else level[0] < Fraction(limit))
            part = Fraction(0) if worse else min(level[1], wanted - shares)
            level[1] -= part
            shares, paid = shares + part, paid + part * level[0]
            fee += part * level[0] * (1 - level[0]) if rate == "odds" else part * level[0] * Fraction(rate)
        held[who] += shares if side == "buy" else -shares
        out.append((when, ts, *who, side, float(size), float(shares), float(paid), float(fee)))
        if side == "buy" and shares and exit_after is not None:
            queue.append((when + exit_after * MINUTE, place, when, who, "sell", shares, None))
    return sorted(out, key=lambda o: (o[2:4], o[0]))


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "shuffled polars", "arrow"])
@few
@given(case=cases())
def test_fills_equal_a_plain_walk(kind: str, case: Any) -> None:
    """Each order gets what is left at its levels, best first, and never a share that is not there or not held."""
    books, orders, options = case
    columns = {"ts": [to_datetime(o[0]) for o in orders], "market_id": [o[1][0] for o in orders]}
    columns |= {"token_id": [o[1][1] for o in orders], "side": [o[2] for o in orders]}
    columns |= {"size": [float(o[3]) for o in orders], "limit": [o[4] for o in orders]}
    types = {"ts": pl.Datetime("us", "UTC"), **dict.fromkeys(("market_id", "token_id", "side"), pl.String)}
    signals = pl.DataFrame(columns, schema={**types, "size": pl.Float64, "limit": pl.Float64})
    rate = options["fees"]
    fees = (lambda price, shares: shares * price * (1 - price)) if rate == "odds" else rate
    out = md.trades(signals, of_kind(books, kind), "1m", **{**options, "fees": fees})
    got = sorted(rows(out.fills), key=lambda row: (row[2:4], row[0]))
    want = plain(books, [(*o[:3], float(o[3]), o[4]) for o in orders], options["latency"], options["exit_after"], rate)
    assert len(got) == len(want)
    key = lambda row: (row[2:4], row[0], row[5], row[6])  # noqa: E731
    for g, w in zip(sorted(got, key=key), sorted(want, key=key), strict=True):
        assert (g[0], g[2:4], g[5]) == (w[0], w[2:4], w[5])
        assert np.allclose([g[6], g[7], g[9], g[10]], w[6:], rtol=1e-9, atol=1e-6)
        assert (g[8] is None) == (g[7] == 0)
        assert g[7] <= g[6] * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "arrow"])
def test_an_order_for_a_token_without_books_keeps_its_ids(kind: str) -> None:
    """An order whose token no book has is listed under its ids, in every kind of frame."""
    books = md.testing.books("polars", buckets=2)
    order = books.md.mid().head(1).select("ts", side=pl.lit("buy"), size=1.0)
    order = order.with_columns(market_id=pl.lit("other"), token_id=pl.lit("99"))
    frame = {"pandas": md.testing.books("pandas", buckets=2), "lazy": books.lazy(), "arrow": books.to_arrow()}
    out = md.trades(order, frame.get(kind, books), "1m")
    ((_, _, market, token, *_, status),) = rows(out.fills)
    assert (market, token, status) == ("other", "99", "no book")
    assert len(out.positions) == len(out.markets) == 1
