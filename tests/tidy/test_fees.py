"""Fees by plain arithmetic in exact fractions, over generated books and every kind of frame."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reference.kinds import FRAME_KINDS, close, of_kind, rows
from reference.measures import SLACK, amounts, exact, legs, looped

import marketdata as md
from marketdata.testing.strategies import book_columns

rates = st.sampled_from([0.0, 0.02, 0.05, 0.072])


@given(
    formula=st.sampled_from(["flat", "quadratic"]), kind=st.sampled_from(FRAME_KINDS), books=book_columns(),
    size=st.none() | amounts, rate=rates,
)  # fmt: skip
def test_fees_equal_a_plain_sum(formula: str, kind: str, books: Any, size: float | None, rate: float) -> None:
    """The fee is the sum over the levels taken; a fill price is net of it, null where the size is not there."""
    fees = md.Fees.flat(rate) if formula == "flat" else md.Fees.quadratic(rate, decimals=None)

    def price(side: list[Any], sign: int) -> float | None:
        there = sum(s for _, s in side)
        wanted = there if size is None else Fraction(size)
        if not side or there < wanted * (1 - SLACK):
            return None
        taken = legs(side, wanted)
        shares = sum(s for _, s in taken)
        return float((sum(p * s for p, s in taken) + sign * sum(exact(formula, rate, *t) for t in taken)) / shares)

    frame = of_kind(books, kind)
    want = looped(books, lambda bids, asks: (price(bids, -1), price(asks, 1)))
    assert close(rows(md.fill_price(frame, size, fees=fees)), want, digits=1e-9, least=1e-12)
    if size is not None:
        want = looped(
            books, lambda bids, asks: (float(sum(exact(formula, rate, *t) for t in legs(asks, Fraction(size)))),)
        )
        swept = [(*row[:4], row[-1]) for row in rows(md.sweep(frame, "buy", size=size, fees=fees))]
        assert close(swept, want, digits=1e-9)


@given(price=st.floats(0, 1), shares=st.floats(0, 1e6), rate=rates, decimals=st.integers(0, 6), up=st.booleans())
def test_a_fee_is_rounded_as_it_says(price: float, shares: float, rate: float, decimals: int, up: bool) -> None:
    """Fees are rounded to the nearest or up at the decimals; the last bits are not rounded up."""
    true = exact("quadratic", rate, Fraction(price), Fraction(shares))
    unit = Fraction(1, 10**decimals)
    got = md.Fees.quadratic(rate, decimals=decimals, up=up)(price, shares)
    least, most = (true - unit * Fraction(1, 10**6), true + unit) if up else (true - unit / 2, true + unit / 2)
    assert float(least) - 1e-9 <= got <= float(most) + 1e-9
    assert math.isclose(got, round(got, decimals), abs_tol=1e-9)


@given(
    price=st.decimals("0.001", "0.999", places=3), shares=st.decimals(0, 10_000, places=2),
    rate=st.sampled_from(["0.03", "0.04", "0.05", "0.07", "0.072"]),
)  # fmt: skip
@example(price=Decimal("0.010"), shares=Decimal(5), rate="0.03")
@example(price=Decimal("0.935"), shares=Decimal(100), rate="0.07")
def test_a_fee_at_a_half_is_rounded_up(price: Decimal, shares: Decimal, rate: str) -> None:
    """The fee equals exact decimals; the last bits of a product of floats do not decide."""
    want = (shares * Decimal(rate) * price * (1 - price)).quantize(Decimal("0.00001"), ROUND_HALF_UP)
    assert md.Fees.quadratic(float(rate))(float(price), float(shares)) == pytest.approx(float(want), abs=1e-9)


def of_may(frame: pl.DataFrame) -> pl.DataFrame:
    """The same rows four months later, when the rates of records hold."""
    return frame.with_columns(pl.col("ts").dt.offset_by("4mo"))


def test_a_market_pays_its_own_fee() -> None:
    """Rates of records count for the books of their market alone."""
    books = of_may(md.testing.books("polars", markets=3, buckets=1))
    records = md.testing.markets("polars", markets=3)
    fees = md.Fees.of(records.with_columns(
        feesEnabled=pl.Series([True, False, True]),
        feeSchedule=pl.Series(['{"rate": 0.05, "exponent": 1}', '{"rate": 0.05}', '{"r": 0.02, "e": 1, "to": true}']),
    ))  # fmt: skip
    charged = {(row[1], row[3]): row[-1] for row in rows(md.sweep(books, "buy", size=100, fees=fees))}
    for market, ask, rate in (("rain", 0.41, 0.05), ("snow", 0.51, 0.0), ("wind", 0.61, 0.02)):
        assert charged[market, "Yes"] == pytest.approx(round(100 * rate * ask * (1 - ask), 5), abs=1e-12)
    with pytest.raises(md.errors.ConfigError, match="differ by market"):
        fees(0.5, 1)
    with pytest.raises(md.errors.ConfigError, match=r"fee of market 'wind' is not known.*md\.Fees\.flat"):
        md.sweep(books, "buy", size=100, fees=md.Fees.of(records.head(2).with_columns(feesEnabled=False)))


def test_fields_of_the_venue_come_through_archive_and_service(tmp_path: Path) -> None:
    """Fees and baskets need no other records than those that an archive keeps and a service serves."""
    archive = md.Archive(tmp_path, frame="polars")
    facts = {"negRisk": True, "negRiskAugmented": False, "event_id": "9", "event_slug": "e", "question": "q"}
    fees_of = {
        "rain": {"feeSchedule": {"exponent": 1, "rate": 0.05}, "feesEnabled": True},
        "snow": {"feesEnabled": False},
    }
    archive.add(markets=[
        {"id": market, "slug": market, "tokens": [{"id": yes}, {"id": no}], **fees_of[market], **facts}
        for market, yes, no in (("rain", "12", "11"), ("snow", "21", "22"))
    ])  # fmt: skip
    with md.serve(archive) as service, md.Client(service.base_url, service.api_key, frame="polars") as client:
        served = client.markets()
    books = of_may(md.testing.books("polars", markets=2, buckets=1))
    for markets in (archive.markets(), served):
        fees = md.Fees.of(markets)
        assert [fees.of_market(market).rate for market in ("rain", "snow")] == [0.05, 0.0]
        cost = md.arbitrage(books, markets, fees=fees, size=10)["yes_cost"].to_list()
        assert cost == [pytest.approx(10 * (0.61 + 0.51 + 0.05 * 0.61 * 0.39))]


def test_a_switch_that_is_off_leaves_no_fee() -> None:
    """However a record writes false, its market has no fee; on and null leave the fee of the schedule."""
    for switch in (False, 0, 0.0, "false", "False", "0", True, 1, "true", None):
        is_off = str(switch).lower() in ("false", "0", "0.0")
        for name in ("feesEnabled", "fees_enabled"):
            records = pl.DataFrame({"market_id": ["rain"], "fd": ['{"r": 0.05}'], name: [switch]})
            for frame in (records, records.to_pandas()):
                assert md.Fees.of(frame).of_market("rain").rate == (0.0 if is_off else 0.05)


def test_a_schedule_that_is_not_understood_is_refused() -> None:
    """Another formula, a negative rate and a list are errors that name the market."""
    for column, value, told in (
        ("feeSchedule", '{"rate": 0.25, "exponent": -1}', "above 0"),
        ("fee_type", "flat", "known are quadratic"),
        ("fd", '{"r": -0.1}', "from 0"),
        ("fee_schedule", "[0.1]", "dict or its JSON"),
        ("fd", "5 %", "dict or its JSON"),
        ("feesEnabled", "maybe", "allowed are true and false"),
    ):
        with pytest.raises((md.errors.NotTidyError, md.errors.ConfigError), match=f"(?s)'rain'.*{told}"):
            md.Fees.of(md.testing.markets("polars").with_columns(pl.lit(value).alias(column)))


def test_what_names_no_fee_is_refused() -> None:
    """The error says how to name one; nothing is not zero."""
    books = md.testing.books("polars", buckets=1)
    fees: Any
    for fees in (-0.1, float("nan"), "2%", True, [0.1]):
        with pytest.raises(md.errors.ConfigError, match="allowed are"):
            md.sweep(books, "buy", size=1, fees=fees)
    with pytest.raises(md.errors.ConfigError, match="allowed are"):
        md.execute(books, books, "1m", fees=None)
    with pytest.raises(md.errors.ConfigError, match="fees=None is refused"):
        md.forward_returns(books, "1m", width="1m", fees=None)


def test_a_function_gives_one_fee_of_each_trade() -> None:
    """A function that adds up, or gives what is no number, is refused where it is called."""
    books = md.testing.books("polars", buckets=1)
    got = md.sweep(books, "buy", size=150, fees=lambda price, shares: np.full(len(price), 0.25))
    assert got["fee"].to_list() == [0.25, 0.5]
    wrongs: list[Any] = [lambda price, shares: float((price * shares).sum()), lambda price, shares: price / 0]
    for wrong in (*wrongs, lambda price, shares: "free"):
        with np.errstate(divide="ignore"), pytest.raises(md.errors.ConfigError, match="one of each trade"):
            md.sweep(books, "buy", size=150, fees=wrong)


def test_a_fee_is_of_a_probability() -> None:
    """Prices in cents would have a fee below 0, or one a hundred times too large."""
    books = md.testing.books("polars", buckets=1).with_columns(pl.col("price") * 100)
    for fees in (md.Fees.flat(0.05), md.Fees.quadratic(0.05)):
        for price in (55, np.array([0.5, 55])):
            with pytest.raises(md.errors.ConfigError, match="divide cents by 100"):
                fees(price, 10)
        with pytest.raises(md.MarketDataError, match="divide cents by 100"):
            md.fill_price(books, 10, fees=fees)
        with pytest.raises(md.errors.ConfigError, match="shares is -10, below 0"):
            fees(0.5, -10)


def test_a_bare_number_is_refused_with_its_two_meanings() -> None:
    """0.07 was 7 % of the notional where Kalshi's formula was meant."""
    books = md.testing.books("polars")
    for call in (
        lambda: md.sweep(books, "buy", size=1, fees=0.07),
        lambda: md.forward_returns(books, "1m", fees=0.07),
        lambda: md.execute(books, books, "1m", fees=0.07),
    ):
        with pytest.raises(md.errors.ConfigError, match=r"Fees\.flat\(0\.07\).*Fees\.quadratic\(0\.07\)"):
            call()


def test_kalshi_rounds_an_order_up_to_the_cent() -> None:
    """Not each level, and nothing where no size is given; multipliers and other exponents are in records."""
    books = md.testing.books("polars", buckets=1).filter(token_label="Yes")
    fees = md.Fees.kalshi()
    exact_fee = 0.07 * (100 * 0.41 * 0.59 + 0.0) if books["size"][2] >= 100 else math.nan
    assert md.sweep(books, "buy", size=100, fees=fees)["fee"].item() == pytest.approx(math.ceil(exact_fee * 100) / 100)
    two = 0.07 * (300 * 0.41 * 0.59 + 50 * 0.42 * 0.58)
    assert md.sweep(books, "buy", size=350, fees=fees)["fee"].item() == pytest.approx(math.ceil(two * 100) / 100)
    order = books.head(1).select("ts", "market_id", "token_id", side=pl.lit("buy"), size=350.0)
    (fill,) = md.execute(order, books, "1m", fees=fees, latency="0s").fills.to_dicts()
    assert fill["fee"] == pytest.approx(math.ceil(two * 100) / 100)
    rows_ = md.forward_returns(md.testing.books("polars"), "1m", fees=fees, latency="0s").drop_nulls("net")
    first = rows_.row(0, named=True)
    unrounded = sum(0.07 * p * (1 - p) for p in (first["entry"], first["exit"]))
    assert first["net"] == pytest.approx(first["exit"] - first["entry"] - unrounded)
    records = md.testing.markets("polars").with_columns(fee_type=pl.lit("quadratic"), fee_multiplier=pl.lit(0.5))
    assert md.Fees.of(records).of_market("rain").rate == pytest.approx(0.035)
    former = md.testing.markets("polars").with_columns(feeSchedule=pl.lit('{"rate": 0.25, "exponent": 2}'))
    assert md.Fees.of(former).of_market("rain")(0.5, 100) == pytest.approx(100 * 0.25 * 0.25**2)
    with pytest.raises(md.errors.ConfigError, match="traded='2026-02-01' is before 2026-04-01"):
        md.Fees.of(former, traded="2026-02-01")


@pytest.mark.parametrize("kind", ["polars", "pandas", "list", "dates"])
def test_a_rate_of_today_is_refused_for_trades_of_before(kind: str) -> None:
    """Every function that knows the times of its trades refuses a rate before it held, and takes it from then on."""
    rated = md.testing.markets("polars").with_columns(feeSchedule=pl.lit('{"rate": 0.05, "exponent": 1}'))
    fees, free = md.Fees.of(rated), md.Fees.of(rated.with_columns(feesEnabled=False))
    early = md.testing.books("polars", buckets=6)
    late = of_may(early)
    best = early.filter(pl.col("level") == 0, pl.col("side") == "bid")
    signal = best.select("ts", "market_id", "token_id", x="price")
    orders = signal.head(2).with_columns(side=pl.lit("buy"), size=pl.lit(5.0)).drop("x")
    calls = (
        lambda books, fees: md.sweep(books, "buy", size=10, fees=fees),
        lambda books, fees: md.forward_returns(books, "1m", fees=fees, width="1m"),
        lambda books, fees: md.execute(
            orders.with_columns(ts=orders["ts"] + (books["ts"][0] - early["ts"][0])), books, "1m", fees=fees
        ),
        lambda books, fees: md.study(
            books, signal.with_columns(ts=signal["ts"] + (books["ts"][0] - early["ts"][0])), "1m", quantiles=2,
            width="1m", fees=fees, interval=None,
        ),
        lambda books, fees: md.arbitrage(books, fees=fees),
    )  # fmt: skip
    for call in calls:
        call(late, fees)
        for taken in (free, md.Fees.quadratic(0.05), 0):
            call(early, taken)
        for refused in (fees, fees.of_market("rain")):
            with pytest.raises(md.errors.ConfigError, match=r"'rain' is not known for 2026-01-01.*2026-04-01"):
                call(early, refused)
    ts = early["ts"]
    times = {"polars": ts, "pandas": ts.to_pandas(), "list": ts.to_list(), "dates": ts.dt.date().to_list()}[kind]
    with pytest.raises(md.errors.ConfigError, match="traded='2026-01-01T00:00:00Z' is before 2026-04-01") as told:
        md.Fees.of(rated, traded=times)
    assert "\n" not in str(told.value)
    assert md.Fees.of(rated, traded=late["ts"]).of_market("rain").rate == 0.05
