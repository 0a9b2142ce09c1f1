"""Measures of books against plain walks in exact fractions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from coded import levels_of
from hypothesis import given
from hypothesis import strategies as st
from kinds import KINDS, close, of_kind, rows

import marketdata as md
from marketdata.points.book import OF_TOP, TOP
from marketdata.points.schema import TOLERANCE
from marketdata.testing.strategies import book_columns
from marketdata.tidy.frames import to_frame
from marketdata.times import to_datetime

RECORDED = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "recorded" / "books.parquet"
Levels = list[tuple[Fraction, Fraction]]
SLACK = Fraction(1, 10**9)
EPOCH = to_datetime(0)

amounts = st.one_of(st.integers(1, 10**7), st.floats(0.01, 1e8), st.sampled_from([1e-2, 1.5e3, 12_000_000]))
cuts = st.one_of(
    st.just({}),
    st.integers(1, 4).map(lambda n: {"levels": n}),
    st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.5]).map(lambda w: {"within": w}),
)


def walk(books: Any, measure: Callable[[Levels, Levels], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """What a measure gives for each snapshot, written the slow way."""
    at, out = 0, []
    for i in range(len(books)):
        nb, na = books.counts[2 * i], books.counts[2 * i + 1]
        exact = [(Fraction(p), Fraction(s)) for p, s in levels_of(books)[at : at + nb + na].tolist()]
        at += nb + na
        values = measure(exact[:nb], exact[nb:])
        plain = (float(v) if isinstance(v, Fraction) else v for v in values)
        out.append((int(books.ts[i]), *books.tokens[books.token[i]], *plain))
    return out


def mid_of(bids: Levels, asks: Levels) -> Fraction | None:
    return (bids[0][0] + asks[0][0]) / 2 if bids and asks else None


def depths(bids: Levels, asks: Levels, levels: int | None = None, within: float | None = None) -> list[Any]:
    mid, out = mid_of(bids, asks), []
    for side in (bids, asks):
        if within is None:
            near = side if levels is None else side[:levels]
            out.append(sum(s for _, s in near) if side else None)
        else:
            near = [(p, s) for p, s in side if mid is not None and abs(p - mid) <= Fraction(within) + SLACK]
            out.append(sum((s for _, s in near), Fraction(0)) if mid is not None else None)
    return out


def taken(side: Levels, wanted: Fraction, money: bool) -> tuple[Fraction, Fraction]:
    """Shares and money that change hands, level by level."""
    shares = paid = Fraction(0)
    for price, size in side:
        left = wanted - (paid if money else shares)
        if left <= 0:
            break
        part = min(left, size) if not money else size if left >= price * size else left / price
        shares, paid = shares + part, paid + part * price
    return shares, paid


@given(kind=st.sampled_from(KINDS), books=book_columns(), cut=cuts)
def test_depth_and_imbalance_equal_a_plain_walk(kind: str, books: Any, cut: dict[str, Any]) -> None:
    """Depth is the exact sum of the levels that count, imbalance its balance; a missing side gives null."""

    def balance(bids: Levels, asks: Levels) -> tuple[Any, ...]:
        bid, ask = depths(bids, asks, **cut)
        return (None if bid is None or ask is None or bid + ask == 0 else (bid - ask) / (bid + ask),)

    frame = of_kind(books, kind)
    assert close(rows(md.depth(frame, **cut)), walk(books, lambda b, a: tuple(depths(b, a, **cut))))
    got = rows(md.imbalance(frame, **cut))
    assert close(got, walk(books, balance))
    assert all(row[-1] is None or -1 <= row[-1] <= 1 for row in got)


@given(kind=st.sampled_from(KINDS), books=book_columns())
def test_measures_of_the_top_equal_a_plain_walk(kind: str, books: Any) -> None:
    """Microprice, relative spread, locked and crossed follow from the two best levels, or are null (false)."""

    def top(bids: Levels, asks: Levels) -> tuple[Any, ...]:
        if not bids or not asks:
            return None, None, False, False
        (bid, bs), (ask, as_) = bids[0], asks[0]
        mid = (bid + ask) / 2
        bps = 10_000 * (ask - bid) / mid if mid else None
        return (bid * as_ + ask * bs) / (bs + as_), bps, bid == ask, bid > ask

    frame = of_kind(books, kind)
    verbs = (md.microprice, md.spread_bps, md.locked, md.crossed)
    for at, verb in enumerate(verbs):
        want = walk(books, lambda b, a, at=at: (top(b, a)[at],))  # type: ignore[misc]
        assert close(rows(verb(frame)), want, digits=1e-11)
        assert close(rows(verb(md.bbo(frame))), want, digits=1e-11)


@given(kind=st.sampled_from(KINDS), books=book_columns(), size=st.one_of(st.none(), amounts))
def test_fill_price_equals_a_plain_walk(kind: str, books: Any, size: float | None) -> None:
    """The average price of each side is exact, and null where the side holds less than the size."""

    def average(side: Levels) -> Fraction | None:
        total = sum(s for _, s in side)
        wanted = total if size is None else Fraction(size)
        if not side or total < wanted * (1 - Fraction(TOLERANCE)):
            return None
        shares, paid = taken(side, Fraction(wanted), money=False)
        return paid / shares

    want = walk(books, lambda b, a: (average(b), average(a)))
    got = rows(md.fill_price(of_kind(books, kind), size))
    assert close(got, want, digits=1e-11)


@given(
    kind=st.sampled_from(KINDS),
    books=book_columns(),
    side=st.sampled_from(["buy", "sell"]),
    money=st.booleans(),
    wanted=amounts,
)
def test_sweep_equals_a_plain_walk(kind: str, books: Any, side: str, money: bool, wanted: float) -> None:
    """What is filled, what is not, and at which price, is what a walk over the levels finds."""

    def swept(bids: Levels, asks: Levels) -> tuple[Any, ...]:
        levels = asks if side == "buy" else bids
        shares, paid = taken(levels, Fraction(wanted), money)
        filled = paid if money else shares
        if filled >= Fraction(wanted) * (1 - Fraction(TOLERANCE)):
            filled = Fraction(wanted)
        average = paid / shares if shares else None
        slip = abs(average - levels[0][0]) if average is not None else None
        return filled, Fraction(wanted) - filled, average, slip, shares, paid

    frame = of_kind(books, kind)
    got = rows(md.sweep(frame, side, **{"notional" if money else "size": wanted}))
    # A shortfall is a difference: its digits are those of what was asked for.
    assert close(got, walk(books, swept), digits=1e-11, least=max(1e-15, wanted * 1e-14))
    for row in got:
        assert row[4] + row[5] == pytest.approx(wanted, rel=1e-15)
        assert row[5] >= 0
        assert row[7] is None or row[7] >= 0


@given(kind=st.sampled_from(["pandas", "polars", "arrow"]), books=book_columns(), data=st.data())
def test_a_sweep_of_the_whole_side_fills_exactly_its_depth(kind: str, books: Any, data: st.DataObject) -> None:
    """Asked for the depth of a side, a sweep fills it; asked for more, the rest is the shortfall."""
    frame = of_kind(books, kind)
    depth = {row[:4]: row[4:] for row in rows(md.depth(frame))}
    for at, side in enumerate(("bid", "ask")):
        there = [d[at] for d in depth.values() if d[at] is not None]
        if not there:
            continue
        wanted = data.draw(st.sampled_from(there))
        for row in rows(md.sweep(frame, side, size=wanted)):
            have = depth[row[:4]][at] or 0.0
            assert row[4] == (wanted if have >= wanted * (1 - TOLERANCE) else have)
            assert row[5] == wanted - row[4]
        prices = {row[:4]: row[4 + at] for row in rows(md.fill_price(frame, wanted))}
        assert all(
            (prices[key] is None) == (d[at] is None or d[at] < wanted * (1 - TOLERANCE)) for key, d in depth.items()
        )


@pytest.mark.parametrize("order", list(itertools.permutations(range(5), 5))[::11], ids=str)
def test_a_size_that_the_levels_sum_to_is_filled_in_any_order(order: tuple[int, ...]) -> None:
    """Sums of decimals differ in their last bits with their order; the answer does not."""
    sizes = [7.83, 3.48, 7.8, 6.13, 0.93]
    rows_ = [("ask", i, 0.1 + i / 10, sizes[k]) for i, k in enumerate(order)]
    frame = pl.DataFrame(rows_, schema=["side", "level", "price", "size"], orient="row")
    frame = frame.with_columns(market_id=pl.lit("m"), token_id=pl.lit("1"), token_label=pl.lit("Yes"), ts=pl.lit(EPOCH))
    for one in (frame, frame.reverse(), frame.lazy(), frame.sample(fraction=1, shuffle=True, seed=1)):
        price = rows(md.fill_price(one, 26.17))[0][-1]
        exact = sum(Fraction(sizes[k]) * Fraction(0.1 + i / 10) for i, k in enumerate(order))
        assert price == pytest.approx(float(exact / Fraction(26.17)), rel=1e-12)
        assert rows(md.sweep(one, "buy", size=26.17))[0][4:7] == (26.17, 0.0, pytest.approx(price, rel=1e-12))
        assert rows(md.sweep(one, "buy", notional=float(exact)))[0][4:6] == (float(exact), 0.0)
        assert rows(md.fill_price(one, 26.1701))[0][-1] is None


ASKED = [
    *(name for name in OF_TOP if name not in TOP),
    "depth",
    ("depth", {"levels": 2}),
    ("imbalance", {"levels": 1}),
    ("imbalance", {"within": 0.1}),
    ("fill_price", {"size": 100}),
    ("sweep", {"side": "buy", "size": 1e5}),
    ("sweep", {"side": "sell", "notional": 100}),
]


@given(
    kind=st.sampled_from(KINDS),
    books=book_columns(),
    asked=st.lists(st.sampled_from(ASKED), min_size=1, max_size=5, unique_by=str),
)
def test_features_are_the_columns_of_the_verbs(kind: str, books: Any, asked: list[Any]) -> None:
    """One pass gives each measure as its own verb does, in the order asked for."""
    frame = of_kind(books, kind)
    calls = [(a, {}) if isinstance(a, str) else a for a in asked]
    parts = [rows(getattr(md, name)(frame, **arguments)) for name, arguments in calls]
    want = [(*part[0][:4], *itertools.chain(*(row[4:] for row in part))) for part in zip(*parts, strict=True)]
    assert rows(md.features(frame, asked)) == want


def test_features_are_named_by_the_verbs() -> None:
    """A measure that is asked for twice carries its arguments in the names of its columns."""
    frame = md.testing.books("polars")
    out = md.features(frame, ["mid", ("depth", {"levels": 1}), "imbalance", ("imbalance", {"levels": 1})])
    assert out.columns[4:] == ["mid", "bid_depth", "ask_depth", "imbalance", "imbalance_levels_1"]
    assert frame.md.features(["bbo"]).equals(md.bbo(frame))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("mid", "a list of names"),
        ([], "allowed are"),
        (["vwap"], "allowed are"),
        ([("depth", 5)], "pair such as"),
        ([("depth", {"level": 5})], "its arguments are: levels, within"),
        ([("sweep", {"size": 5})], "side"),
        (["mid", "bbo"], "twice"),
        (["mid", "mid"], "twice"),
        ([("depth", {"levels": 0})], "whole numbers from 1"),
    ],
    ids=str,
)
def test_features_that_do_not_exist_are_refused(asked: Any, said: str) -> None:
    """The error says what is allowed."""
    with pytest.raises(md.ConfigError, match=said):
        md.features(md.testing.books("polars"), asked)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_rows_in_any_order_are_the_same_book(order: tuple[int, ...]) -> None:
    """A second bid that stands behind the best ask is still a bid."""
    rows_ = [("bid", 0, 0.4, 1.0), ("bid", 1, 0.3, 2.0), ("ask", 0, 0.6, 4.0), ("ask", 1, 0.7, 8.0)]
    frame = pl.DataFrame([rows_[i] for i in order], schema=["side", "level", "price", "size"], orient="row")
    frame = frame.with_columns(market_id=pl.lit("m"), token_id=pl.lit("1"), token_label=pl.lit("Yes"), ts=pl.lit(EPOCH))
    assert md.depth(frame).row(0)[-2:] == (3.0, 12.0)
    assert md.sweep(frame, "sell", size=2).row(0)[4:7] == (2.0, 0.0, 0.35)
    assert md.to_wide(frame).row(0)[4:] == (0.4, 0.6, 1.0, 4.0, 0.3, 0.7, 2.0, 8.0)


def test_measures_of_the_recorded_books_equal_a_plain_walk() -> None:
    """The same walks over the recorded books of every fourth token, some fifty thousand levels."""
    if not RECORDED.exists():
        pytest.skip(f"the recorded data is not here: {RECORDED}")
    raw = pl.read_parquet(RECORDED)
    raw = raw.filter(pl.col("token_id").is_in(raw["token_id"].unique(maintain_order=True)[::4].implode()))
    raw = raw.with_columns(market_id=pl.lit("m"), token_label=pl.lit("?"))
    books = md.tidy.frames.to_columns("books", raw)  # type: ignore[attr-defined]
    frame = to_frame(books, "pandas")
    assert close(rows(md.depth(frame)), walk(books, lambda b, a: tuple(depths(b, a))))
    cut = {"within": 0.05}
    assert close(rows(md.depth(frame, **cut)), walk(books, lambda b, a: tuple(depths(b, a, **cut))))

    def bought(_: Levels, asks: Levels) -> tuple[Any, ...]:
        shares, paid = taken(asks, Fraction(5000), money=False)
        return shares, 5000 - shares, paid / shares if shares else None

    got = [row[:7] for row in rows(md.sweep(frame, "buy", size=5000))]
    assert close(got, walk(books, bought), least=1e-10)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "3", math.nan], ids=repr)
def test_levels_that_do_not_count_are_refused(wrong: Any) -> None:
    """A number of levels is whole and from 1; the message says so."""
    frame = to_frame(md.points.views.empty("books"), "polars")  # type: ignore[attr-defined]
    with pytest.raises(md.ConfigError, match="whole numbers from 1"):
        md.depth(frame, levels=wrong)


@pytest.mark.parametrize(
    "call",
    [
        lambda f: md.depth(f, levels=1, within=0.1),
        lambda f: md.depth(f, within=-0.1),
        lambda f: md.fill_price(f, 0),
        lambda f: md.fill_price(f, np.inf),
        lambda f: md.sweep(f, "both", size=1),
        lambda f: md.sweep(f, "buy"),
        lambda f: md.sweep(f, "buy", size=1, notional=1),
        lambda f: md.sweep(f, "buy", size=-1),
        lambda f: md.sweep(f, "buy", notional=math.nan),
    ],
    ids=["two cuts", "within below 0", "no size", "endless size", "no side", "nothing", "both", "below 0", "nan"],
)
def test_arguments_that_make_no_sense_are_refused(call: Callable[[Any], Any]) -> None:
    """Each wrong argument is a ConfigError that says what is allowed."""
    frame = to_frame(md.points.views.empty("books"), "pandas")  # type: ignore[attr-defined]
    with pytest.raises(md.ConfigError, match=r"allowed|exactly one|exclude each other"):
        call(frame)


@pytest.mark.parametrize(
    "verb", [md.depth, md.imbalance, md.microprice, md.spread_bps, md.locked, md.crossed, md.fill_price]
)
def test_a_frame_of_another_kind_is_refused(verb: Callable[[Any], Any]) -> None:
    """Metrics are no books: their spread is another number."""
    frame = to_frame(md.points.views.empty("metrics"), "pandas")  # type: ignore[attr-defined]
    with pytest.raises(md.NotTidyError, match="token_id"):
        verb(frame)
