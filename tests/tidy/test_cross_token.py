"""Tokens of one market seen together."""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.kinds import FRAME_KINDS, close, fewest, of_kind, rows
from reference.markets import forecasts, in_kind, pairs, tops

import marketdata as md
from marketdata.points.columns import Token
from marketdata.tidy.frames import to_frame


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), books=pairs())
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


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), books=pairs(tokens=3))
def test_sums_over_a_market_equal_a_plain_walk(kind: str, books: Any) -> None:
    """Each sum is exact over all tokens of the market, and null where one of them lacks the value or the book."""
    seen = tops(books)
    tokens = {token.market_id: {t for t, _ in seen if t.market_id == token.market_id} for token, _ in seen}
    sums, flags = [], []
    for market, ts in sorted({(t.market_id, ts) for t, ts in seen}):
        there = [seen[t, ts] for t in sorted(tokens[market]) if (t, ts) in seen]
        whole = len(there) == len(tokens[market]) > 1
        found: list[Any] = []
        for column in (0, 4, 2):
            values = [v[column] for v in there]
            found.append(float(sum(map(Fraction, values))) if whole and None not in values else None)
        bid, _, ask = found
        sums.append((ts, market, len(there), *found, None if ask is None else ask - 1))
        buy, sell = ask is not None and ask < 1 - 1e-9, bid is not None and bid > 1 + 1e-9
        size = min(v[3] for v in there) if buy else min(v[1] for v in there) if sell else None
        gain = 1 - ask if buy else bid - 1 if sell else None
        flags.append((ts, market, *((buy, sell) if whole else (None, None)), size, gain))
    frame = of_kind(books, kind)
    assert close(rows(md.overround(frame)), sums, least=1e-14)
    assert close(rows(md.arbitrage(frame)), flags, least=1e-14)
    after = rows(md.arbitrage(frame, fees=md.Fees.flat(0.1)))
    for row, (*_, ask, _), (*_, size, _) in zip(after, sums, flags, strict=True):
        if ask is not None and ask < 0.9:
            assert row[2]
            assert (row[4], row[5]) == (size, pytest.approx(1 - 1.1 * ask))
        else:
            assert not row[2] or (ask is not None and 1.1 * ask < 1)


@fewest
@given(kind=st.sampled_from(FRAME_KINDS), columns=forecasts())
def test_probabilities_sum_to_one_or_are_null(kind: str, columns: Any) -> None:
    """Each price over the sum of its market at that time; null unless every token has its price."""
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
        if len(all_) < len(tokens[market]) or len(tokens[market]) < 2 or math.isnan(total) or total == 0:
            assert got is None
        else:
            assert math.isclose(got, all_[token] / total, rel_tol=1e-12)


@pytest.mark.fault("FR4")
def test_a_missing_token_is_seen() -> None:
    """A frame that holds one token of two gives null, never a probability of 1 and never free money."""
    books, prices = (
        frame.filter(token_label="Yes") for frame in (md.testing.books("polars"), md.testing.prices("polars"))
    )
    markets = md.testing.markets("pandas")
    winners = md.outcomes(markets).query("payoff == 1")  # as a filter leaves it: one token of each market
    for tokens in (None, 2, markets, md.outcomes(markets), winners):
        for kind in ("polars", "lazy"):
            assert {row[-1] for row in rows(md.probabilities(in_kind(prices, kind), tokens=tokens))} == {None}
            assert {row[3:] for row in rows(md.overround(in_kind(books, kind), tokens=tokens))} == {(None,) * 4}
            arbitrage = rows(md.arbitrage(in_kind(books, kind), tokens=tokens))
            assert {row[2:] for row in arbitrage} == {(None,) * 4}


@pytest.mark.fault("FR4")
def test_a_token_without_a_book_at_a_time_is_no_free_money() -> None:
    """Where the book of one token of two is missing, flags and gain are null, and those of other times stay."""
    books = md.testing.books("polars", buckets=3).with_columns(price=pl.col("price") - 0.05)
    gap = (pl.col("token_label") == "No") & (pl.col("ts") == books["ts"].unique().sort()[1])
    for frame in (books.filter(~gap), books.filter(~gap).to_pandas(), books.filter(~gap).to_arrow()):
        assert [row[2:4] for row in rows(md.arbitrage(frame))] == [(True, False), (None, None), (True, False)]
    one_sided = books.filter((pl.col("token_label") == "Yes") | (pl.col("side") == "bid"))
    assert set(md.arbitrage(one_sided)["buy_all"]) == {False}


def test_how_many_tokens_a_market_has_can_be_said() -> None:
    """Its record, or a number, says that the frame lacks the third token of a market."""
    frame = md.testing.prices("polars", markets=2)
    assert md.probabilities(frame, tokens=2)["probability"].null_count() == 0
    assert md.probabilities(frame, tokens=3)["probability"].null_count() == len(frame)
    records = pl.DataFrame({"market_id": ["rain", "snow"], "token_ids": [["11", "12"], ["21", "22", "23"]]})
    out = md.probabilities(frame, tokens=records)
    assert set(out.filter(market_id="rain")["probability"].is_null()) == {False}
    assert set(out.filter(market_id="snow")["probability"].is_null()) == {True}
    assert md.probabilities(frame, tokens=records.head(1)).filter(market_id="snow")["probability"].null_count() == 6
    # Fewer than the frame holds: not known, rather than wrong.
    three = pl.concat([frame, frame.filter(token_id="21").with_columns(token_id=pl.lit("23").cast(pl.Categorical))])
    assert set(md.probabilities(three, tokens=2).filter(market_id="snow")["probability"].is_null()) == {True}


@pytest.mark.fault("FR4")
def test_labels_that_are_no_pair_are_not_all_tokens_of_a_market() -> None:
    """Two tokens whose labels have a third beside them are no free money, unless ``tokens=`` says that they are all."""
    books = md.testing.books("polars").with_columns(price=pl.col("price") - 0.05)
    for first, second, is_known in (
        ("Yes", "No", True), ("UP", "down", True), ("Home", "Away", True), ("Lakers", "Celtics", True),
        ("Home", "Draw", False), ("Draw", "Away", False), ("Yes", "Maybe", False), ("Up", "No", False),
    ):  # fmt: skip
        named = books.with_columns(pl.col("token_label").cast(pl.String).replace({"Yes": first, "No": second}))
        for frame in (named, named.to_pandas(), named.reverse()):
            assert {row[2] for row in rows(md.arbitrage(frame))} == {True if is_known else None}, (first, second)
            assert {row[2] for row in rows(md.arbitrage(frame, tokens=2))} == {True}
            assert {row[2] for row in rows(md.arbitrage(frame, tokens=3))} == {None}
        sums = md.overround(named)["ask_sum"]
        assert sums.is_null().all() != is_known


def test_a_number_of_tokens_that_cannot_be_is_refused() -> None:
    """A market has two tokens or more, and a complement is of two that the frame has."""
    books = md.testing.books("polars")
    tokens: Any
    for tokens in (1, 0, -2, 2.5, "2", True, [2]):
        for verb in (md.probabilities, md.overround, md.arbitrage, md.complement):
            with pytest.raises(md.errors.ConfigError, match=r"allowed|two tokens or more"):
                verb(books, tokens=tokens)
    for frame, count in ((books, 3), (books.filter(token_label="Yes"), 2)):
        with pytest.raises(md.errors.ConfigError, match="two tokens"):
            md.complement(frame, tokens=count)
    with pytest.raises(md.errors.NotTidyError, match="token_ids"):
        md.probabilities(books, tokens=pl.DataFrame({"market_id": ["rain"]}))


def test_ids_are_pairs() -> None:
    """Short token ids that repeat in other markets are other tokens."""
    frame = pl.DataFrame({
        "ts": [1, 1, 1, 1], "market_id": ["a", "a", "b", "b"], "token_id": ["1", "2"] * 2,
        "token_label": ["Yes", "No"] * 2, "price": [0.25, 0.75, 0.5, 0.5],
    }).with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))  # fmt: skip
    assert md.probabilities(frame)["probability"].to_list() == [0.25, 0.75, 0.5, 0.5]
    assert md.brier(frame, {"a": "1", "b": "2"}, of="token")["outcome"].to_list() == [1.0, 0.0, 0.0, 1.0]
    assert md.overround(frame.select("ts", "market_id", "token_id", "token_label").with_columns(
        best_bid=0.25, best_bid_size=1.0, best_ask=0.75, best_ask_size=1.0, mid=0.5, spread=0.5
    ))["ask_sum"].to_list() == [1.5, 1.5]  # fmt: skip


def test_long_tokens_of_common_times_need_no_order() -> None:
    """Rows that are in order already have the probabilities of shuffled ones, and of ones with a gap."""
    prices = md.testing.prices("polars", markets=2, buckets=150)
    for frame in (prices, prices[1:]):
        assert md.probabilities(frame.sample(fraction=1, shuffle=True, seed=1)).equals(md.probabilities(frame))
