"""Tokens of one market seen together."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, close, few, of_kind, rows

import marketdata as md
from marketdata.testing.strategies import START, book_columns, nullable, prices, sides, times
from marketdata.tidy.frames import to_frame
from marketdata.wire.columns import BookColumns, PriceColumns, Token


@st.composite
def pairs(draw: st.DrawFn, tokens: int = 2, *, most: int = 5) -> BookColumns:
    """Books of two markets with so many tokens each, at partly common times."""
    who = [Token(f"m{m}", f"{m}{t}", f"label {t}") for m in range(2) for t in range(tokens)]
    code, ts, counts, levels = [], [], [], []
    for i in range(len(who)):
        for moment in draw(times(most=most)) or [START]:
            bids, asks = draw(sides("bid", 3)), draw(sides("ask", 3))
            code.append(i)
            ts.append(START + (moment - START) % 240_000_000)
            counts += [len(bids), len(asks)]
            levels += [*bids, *asks]
    books = BookColumns(
        tuple(who), np.array(code, np.int32), np.array(ts), np.array(counts), np.array(levels, float).reshape(-1, 2)
    )
    keep = {(c, t): i for i, (c, t) in enumerate(zip(code, ts, strict=True))}
    return books.sort() if len(keep) == len(ts) else books.take(np.array(sorted(keep.values()))).sort()


def tops(books: BookColumns) -> dict[tuple[Any, int], tuple[Any, ...]]:
    got = rows(md.bbo(to_frame(books, "polars")))
    return {(Token(*row[1:4]), row[0]): row[4:] for row in got}


@pytest.mark.parametrize("kind", KINDS)
@few
@given(books=pairs())
def test_a_complement_mirrors_the_other_book(kind: str, books: Any) -> None:
    """Bids of one token are asks of the other at 1 - p, level by level, with their sizes."""
    other = {
        Token(f"m{m}", f"{m}{t}", f"label {t}"): Token(f"m{m}", f"{m}{1 - t}", f"label {1 - t}")
        for m in (0, 1)
        for t in (0, 1)
    }
    want = []
    for ts, *who, side, level, price, size in rows(to_frame(books, "polars")):
        mirrored = None if price is None else 1.0 - price
        want.append((ts, *other[Token(*who)], "ask" if side == "bid" else "bid", level, mirrored, size))
    want.sort(key=lambda r: (r[1:4], r[0], r[4] == "ask", r[5] or 0))
    frame = of_kind(books, kind)
    out = md.complement(frame)
    assert rows(out) == want
    assert close(rows(md.complement(out)), rows(to_frame(books, "polars")))


@few
@given(books=pairs())
def test_measures_of_a_complement_are_the_mirror(books: Any) -> None:
    """Seen through the other token the mid is 1 - mid, the spread is the same, the imbalance has the other sign."""
    frame = to_frame(books, "polars")
    swap = {"label 0": "label 1", "label 1": "label 0"}
    seen = md.complement(frame)

    def by_token(out: Any, flip: bool) -> dict[Any, Any]:
        return {(r[0], r[1], swap[r[3]] if flip else r[3]): r[4] for r in rows(out)}

    for verb, mirror in (
        (md.mid, lambda v: 1 - v),
        (md.microprice, lambda v: 1 - v),
        (md.spread, lambda v: v),
        (md.imbalance, lambda v: -v),
        (md.crossed, lambda v: v),
    ):
        a, b = by_token(verb(frame), flip=False), by_token(verb(seen), flip=True)
        assert a.keys() == b.keys()
        for key, v in a.items():
            assert (v is None) == (b[key] is None)
            assert v is None or math.isclose(mirror(v), b[key], abs_tol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@few
@given(books=pairs(tokens=3))
def test_sums_over_a_market_equal_a_plain_walk(kind: str, books: Any) -> None:
    """Each sum is exact over all tokens of the market, and null where one of them lacks the value or the book."""
    seen = tops(books)
    tokens = {token.market_id: {t for t, _ in seen if t.market_id == token.market_id} for token, _ in seen}
    sums, flags = [], []
    for market, ts in sorted({(t.market_id, ts) for t, ts in seen}):
        there = [seen[t, ts] for t in sorted(tokens[market]) if (t, ts) in seen]
        whole = len(there) == len(tokens[market])
        found: list[Any] = []
        for column in (0, 4, 2):
            values = [v[column] for v in there]
            found.append(float(sum(map(Fraction, values))) if whole and None not in values else None)
        bid, _, ask = found
        sums.append((ts, market, len(there), *found, None if ask is None else ask - 1))
        buy, sell = ask is not None and ask < 1 - 1e-9, bid is not None and bid > 1 + 1e-9
        size = min(v[3] for v in there) if buy else min(v[1] for v in there) if sell else None
        flags.append((ts, market, buy, sell, size, 1 - ask if buy else bid - 1 if sell else None))
    frame = of_kind(books, kind)
    assert close(rows(md.overround(frame)), sums, least=1e-14)
    assert close(rows(md.arbitrage(frame)), flags, least=1e-14)


@st.composite
def forecasts(draw: st.DrawFn) -> PriceColumns:
    """Prices of two tokens of each of three markets."""
    who = [Token(f"m{m}", f"{m}{t}", "YN"[t]) for m in range(3) for t in range(2)]
    picks = [(i, k) for i in range(6) for k in range(4) if draw(st.booleans())]
    return PriceColumns(
        tuple(who),
        np.array([i for i, _ in picks], np.int32),
        np.array([START + k * 60_000_000 for _, k in picks], np.int64),
        np.array([draw(nullable) for _ in picks], float),
    )


@pytest.mark.parametrize("kind", KINDS)
@few
@given(columns=forecasts())
def test_probabilities_sum_to_one_or_are_null(kind: str, columns: Any) -> None:
    """Each price over the sum of its market at that time; null unless every token, and more than one, has its price."""
    values: dict[Any, dict[str, float]] = defaultdict(dict)
    for i, ts in enumerate(columns.ts):
        token = columns.tokens[columns.token[i]]
        values[token.market_id, int(ts)][token.token_id] = columns.price[i]
    tokens = defaultdict(set)
    for i in columns.token:
        tokens[columns.tokens[i].market_id].add(columns.tokens[i].token_id)
    for ts, market, token, _, got in rows(md.probabilities(of_kind(columns, kind))):
        all_ = values[market, ts]
        total = sum(all_.values())
        if len(all_) < max(2, len(tokens[market])) or math.isnan(total) or total == 0:
            assert got is None
        else:
            assert math.isclose(got, all_[token] / total, rel_tol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
@few
@given(columns=forecasts(), bins=st.sampled_from([1, 3, 10]))
def test_scores_equal_a_plain_walk(kind: str, columns: Any, bins: int) -> None:
    """Brier and calibration are exact over the forecasts of resolved markets; others are left out."""
    won = {"m0": "00", "m1": "11", "m2": None}
    errors: dict[Any, list[Fraction]] = defaultdict(list)
    table: dict[int, list[tuple[Fraction, int]]] = defaultdict(list)
    for i, p in enumerate(columns.price):
        token = columns.tokens[columns.token[i]]
        if math.isnan(p) or won[token.market_id] is None:
            continue
        outcome = int(won[token.market_id] == token.token_id)
        errors[token].append((Fraction(p) - outcome) ** 2)
        at = min(math.floor(Fraction(str(float(p))) * bins + Fraction(1, 10**9)), bins - 1)
        table[at].append((Fraction(p), outcome))
    frame = of_kind(columns, kind)
    want = [
        (*t, float(won[t.market_id] == t.token_id), len(e), float(sum(e) / len(e))) for t, e in sorted(errors.items())
    ]
    assert close(plain(md.brier(frame, won)), want)
    bars = [
        (k / bins, (k + 1) / bins, len(v), float(sum(p for p, _ in v) / len(v)), sum(o for _, o in v) / len(v))
        for k, v in sorted(table.items())
    ]
    assert close(plain(md.calibration(frame, won, bins)), bars)


def plain(frame: Any) -> list[tuple[Any, ...]]:
    """Rows of a frame without times."""
    data = nw.from_native(frame)
    data = data.collect() if isinstance(data, nw.LazyFrame) else data
    names = [c for c in ("market_id", "token_id", "token_label") if c in data.columns]
    return data.with_columns(nw.col(c).cast(nw.String) for c in names).rows()  # type: ignore[no-any-return]


def test_outcomes_come_from_market_records_too() -> None:
    """A frame of market records gives the scores that the mapping in it gives."""
    archive = md.simulate(events=2, days=1)
    records = [m for m in archive.records("markets") if m["resolved_token_id"]]
    frame = archive.prices([m["id"] for m in records], resolution="1h", on_missing="partial", frame="polars")

    markets = pl.DataFrame(
        {"market_id": [m["id"] for m in records], "resolved_token_id": [m["resolved_token_id"] for m in records]}
    )
    won = {m["id"]: m["resolved_token_id"] for m in records}
    assert len(frame)
    assert plain(md.brier(frame, markets)) == plain(md.brier(frame, won))


@given(books=book_columns(), p=prices)
def test_markets_without_two_tokens_have_no_complement(books: Any, p: float) -> None:
    """The error counts them and names one."""
    tokens = {books.tokens[i] for i in books.token}
    frame = to_frame(books, "polars")
    if len(tokens) in (0, 2):
        assert len(md.complement(frame)) == len(frame)
    else:
        with pytest.raises(md.ConfigError, match="two tokens"):
            md.complement(frame)


def test_outcomes_of_another_type_are_refused() -> None:
    """The error says what may be given."""
    archive = md.simulate(events=1, days=1)
    frame = archive.prices(archive.records("markets")[0]["id"])
    with pytest.raises(md.ConfigError, match="mapping"):
        md.brier(frame, [1, 2])
    with pytest.raises(md.ConfigError, match="bins"):
        md.calibration(frame, {}, bins=0)
    with pytest.raises(md.NotTidyError, match="resolved_token_id"):
        md.brier(frame, frame)
