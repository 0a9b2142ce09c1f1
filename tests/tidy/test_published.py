"""What people publish of forecasts: results of venues, prices before the end, skill, bins, and clusters of a day."""

from __future__ import annotations

import datetime as dt
import math
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest
from reference.markets import books_of

import marketdata as md

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::marketdata.errors.{name}")
    for name in ("FewMarketsWarning", "MissingValuesWarning", "CoarseGridWarning", "OpenMarketsWarning")
]
START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
GAMMA = {
    "conditionId": "0xab", "clobTokenIds": '["7", "8"]', "outcomes": '["Yes", "No"]', "endDate": "2026-01-02T00:00:00Z",
}  # fmt: skip
TIDY = {"market_id": ["m"], "token_ids": [["7", "8"]], "token_labels": [["Yes", "No"]]}
KALSHI = {"ticker": "KXA", "status": "finalized", "close_time": "2026-01-02T00:00:00Z"}


@pytest.mark.parametrize(
    ("record", "want"),
    [
        ({**GAMMA, "outcomePrices": '["0", "1"]', "closed": True, "umaResolutionStatus": "resolved"}, [0, 1]),
        ({**GAMMA, "outcomePrices": '["0.5", "0.5"]', "closed": True, "umaResolutionStatus": "resolved"}, [0.5, 0.5]),
        ({**GAMMA, "outcomePrices": '["0.5", "0.5"]', "closed": False, "umaResolutionStatus": "proposed"}, [None] * 2),
        ({**GAMMA, "outcomePrices": '["0", "0"]', "closed": True, "umaResolutionStatus": "resolved"}, [None] * 2),
        ({**GAMMA, "outcomePrices": '["0", "1"]', "closed": False}, [None] * 2),
        ({"condition_id": "0xab", "closed": True, "tokens": [
            {"token_id": "7", "outcome": "Yes", "winner": True}, {"token_id": "8", "outcome": "No", "winner": False}]},
         [1, 0]),
        ({**KALSHI, "result": "no", "settlement_value_dollars": "0.0000"}, [0, 1]),
        ({**KALSHI, "result": "scalar", "settlement_value_dollars": "0.3000"}, [0.3, 0.7]),
        ({**KALSHI, "status": "determined", "result": "yes"}, [None] * 2),
    ],
)  # fmt: skip
def test_outcomes_read_the_records_of_venues(record: dict[str, Any], want: list[float | None]) -> None:
    """A market has resolved only where the venue says so; the same for polars and pandas."""
    for frame in (pl.DataFrame([record]), pl.DataFrame([record]).to_pandas()):
        got = [None if p is None or math.isnan(p) else p for p in md.outcomes(frame)["payoff"].to_list()]
        assert got == pytest.approx(want) if None not in want else got == want


def test_outcomes_read_winners_and_payouts_of_tidy_records() -> None:
    """A winner by label or id, payouts in millionths, and a result of the record itself, which comes first."""
    for more, want in (
        ({"winner": ["No"], "resolved_token_id": [None]}, [0, 1]),
        ({"winner": ["7"]}, [1, 0]),
        ({"payouts": [[1_000_000, 0]], "status": ["resolved"]}, [1, 0]),
        ({"payouts": [[500_000, 500_000]], "status": ["resolved"]}, [0.5, 0.5]),
        ({"winner": ["No"], "resolved_token_id": ["7"]}, [1, 0]),
    ):
        assert md.outcomes(pl.DataFrame({**TIDY, **more}))["payoff"].to_list() == want


@pytest.mark.parametrize("payoffs", [(0.0, 0.0), (1.0, 1.0)])
def test_payoffs_that_do_not_sum_to_one_are_refused(payoffs: tuple[float, float]) -> None:
    """In records, frames of outcomes and mappings, by outcomes, scores and execute."""
    prices, books = md.testing.prices("polars"), md.testing.books("polars")
    records = md.testing.markets("polars").with_columns(
        resolved_token_id=None, resolved_token_label=None, payoffs=[*payoffs]
    )
    rows = prices.select("market_id", "token_id").unique().with_columns(payoff=pl.lit(payoffs[0]))
    for given in (records, rows, {"rain": {"Yes": payoffs[0], "No": payoffs[1]}}):
        with pytest.raises(md.errors.NotTidyError, match="sum to"):
            md.brier(prices, given)
        orders = prices.head(1).select("ts", "market_id", "token_id", side=pl.lit("buy"), size=1.0)
        with pytest.raises(md.errors.NotTidyError, match="sum to"):
            md.execute(orders, books, width="1m", fees=0, outcomes=given)
    with pytest.raises(md.errors.NotTidyError, match="sum to"):
        md.outcomes(records)


def hourly(prices: list[float], market: str = "a") -> pl.DataFrame:
    """Prices of Yes and No by hour."""
    one = pl.DataFrame({"ts": [START + dt.timedelta(hours=i) for i in range(len(prices))], "price": prices})
    one = one.with_columns(pl.col("ts").dt.cast_time_unit("us"), market_id=pl.lit(market))
    yes = one.with_columns(token_id=pl.lit(f"{market}1"), token_label=pl.lit("Yes"))
    return pl.concat(
        [
            yes,
            one.with_columns(price=1 - pl.col("price"), token_id=pl.lit(f"{market}2"), token_label=pl.lit("No")).select(
                yes.columns
            ),
        ]
    )


def test_a_price_before_the_end_was_known_then() -> None:
    """No later row changes it; after an early end there is no price before the scheduled end."""
    prices = hourly([0.1 * i for i in range(1, 9)])
    markets = pl.DataFrame({
        "market_id": ["a"], "token_ids": [["a1", "a2"]], "token_labels": [["Yes", "No"]], "resolved_token_id": ["a1"],
        "end_date": [START + dt.timedelta(hours=8)], "closed_at": [START + dt.timedelta(hours=5, minutes=30)],
    })  # fmt: skip
    scheduled = md.before_end(prices, markets, ["6h", "3h", "2h"], of="scheduled", width="1h")
    assert scheduled["before"].to_list() == ["6h", "3h", "2h"]
    assert scheduled["price"].round(9).to_list() == [0.2, 0.5, None]
    later = prices.with_columns(
        price=pl.when(pl.col("ts") >= START + dt.timedelta(hours=2)).then(0.9).otherwise("price")
    )
    assert md.before_end(later, markets, "6h", of="scheduled", width="1h")["price"].to_list() == [0.2]
    actual = md.before_end(prices.to_pandas(), markets.to_pandas(), ["1h", "1d"], of="actual", width="1h")
    assert [None if math.isnan(p) else round(p, 9) for p in actual["price"]] == [None, 0.4]
    # Without a width a row is known once the next one has begun.
    assert md.before_end(prices, markets, "3h", of="scheduled")["price"].round(9).to_list() == [0.5]
    with pytest.warns(md.errors.EmptyRangeWarning, match="1 of 1 markets of the frame have no scheduled end"):
        assert len(md.before_end(prices, markets.drop("end_date"), "1h", of="scheduled", width="1h")) == 0
    by = md.brier(md.before_end(prices, markets, ["6h", "3h"], of="scheduled", width="1h"), markets, by="before")
    got = {row["before"]: round(row["brier"], 9) for row in by.to_dicts()}
    assert got == {"3h": 0.25, "6h": 0.64}


def test_skill_is_the_paired_difference_of_scores() -> None:
    """A better forecast has a difference above 0 whose interval is above 0; the reference is a frame or a column."""
    rng = np.random.default_rng(3)
    truth = rng.uniform(0.05, 0.95, 80)
    won = (rng.random(80) < truth).astype(float)
    ids = [f"m{i:02}" for i in range(80)]
    frame = pl.DataFrame({"market_id": ids, "token_id": ids, "token_label": "Yes", "price": truth, "market": 0.5})
    frame = frame.with_columns(ts=pl.lit(START).dt.cast_time_unit("us"))
    outcomes = pl.DataFrame({"market_id": ids, "token_id": ids, "payoff": won})
    other = frame.with_columns(price=pl.lit(0.5)).drop("market")
    for reference in (0.5, "market", other):
        brier, log = md.skill(frame, outcomes, reference=reference).rows(named=True)
        assert brier["forecast"] == pytest.approx(((truth - won) ** 2).mean())
        assert brier["difference"] == pytest.approx(0.25 - brier["forecast"])
        assert brier["skill"] == pytest.approx(1 - brier["forecast"] / 0.25)
        assert log["reference"] == pytest.approx(math.log(2))
        assert 0 < brier["difference_low"] < brier["difference"] < brier["difference_high"]
    same = md.skill(frame, outcomes, reference=frame).row(0, named=True)
    assert (same["difference"], same["difference_low"]) == (0, None)
    with pytest.raises(md.errors.NotTidyError, match="no column of numbers"):
        md.skill(frame, outcomes, reference="base rate")


def test_bins_have_borders_or_equal_counts() -> None:
    """Borders are as given, and equal counts keep equal prices in one bin."""
    ids = [f"m{i:02}" for i in range(40)]
    prices = pl.DataFrame({"market_id": ids, "token_id": ids, "price": [0.01 * (i // 2) for i in range(40)]})
    prices = prices.with_columns(ts=pl.lit(START).dt.cast_time_unit("us"))
    outcomes = pl.DataFrame({"market_id": ids, "token_id": ids, "payoff": [float(i % 3 == 0) for i in range(40)]})
    table = md.calibration(prices, outcomes, [0, 0.02, 0.05, 1])
    assert table.select("bin_start", "bin_end", "points").rows() == [(0, 0.02, 4), (0.02, 0.05, 6), (0.05, 1, 30)]
    even = md.calibration(prices, outcomes, "equal counts")
    assert even["points"].to_list() == [4] * 10
    assert (even["bin_start"][0], even["bin_end"][-1]) == (0, 1)
    wrong: Any
    for wrong in ([0, 0.5], [0.5, 0, 1], [], "equal", [0, "a", 1]):
        with pytest.raises(md.errors.ConfigError, match="bins"):
            md.calibration(prices, outcomes, wrong)
    mids = md.mid(md.testing.books("polars"))
    assert md.brier(mids, md.testing.markets("polars"))["points"].item() == 3


def test_favourites_that_all_win_have_no_certain_profit() -> None:
    """Twenty at 0.95 that win say nothing of those that lose; nor do nineteen of twenty, but for a warning."""
    ids = [f"m{i:02}" for i in range(20)]
    for losers in (0, 1):
        earned = [0.05] * (20 - losers) + [-0.95] * losers
        with pytest.warns(md.errors.FewMarketsWarning, match="is null in 1 of 1 rows"):
            mean = md.cluster_mean(pl.DataFrame({"market_id": ids, "earned": earned}), "earned").row(0, named=True)
        assert (mean["low"], mean["high"]) == (None, None)


def favourites(markets: int, seed: int) -> tuple[Any, Any]:
    """Prices of fair favourites that fall about 0.9 to 0.98, of several hours each, and what each market pays."""
    rng = np.random.default_rng(seed)
    price = rng.uniform(0.9, 0.98, (markets, 1))
    paid = (rng.random((markets, 1)) < price).astype(float)
    return np.clip(price + 0.01 * rng.standard_normal((markets, 6)), 0.8, 0.99), paid


@pytest.mark.filterwarnings("ignore::marketdata.errors.FewMarketsWarning")
@pytest.mark.parametrize("markets", [10, 30])
def test_favourites_of_many_prices_have_no_certain_profit(markets: int) -> None:
    """Fair markets differ in what they earn also if all of them win: no interval of them is above or below 0."""
    for seed in range(40):
        price, paid = favourites(markets, seed)
        ids = np.repeat([f"m{i:03}" for i in range(markets)], 6)
        hours = pl.datetime(2026, 1, 1, time_zone="UTC") + pl.duration(hours=pl.int_range(6 * markets) % 6)
        rows = pl.DataFrame(
            {"market_id": ids, "token_id": ids, "price": price.ravel(), "earned": (paid - price).ravel()}
        )
        rows = rows.with_columns(ts=hours, token_label=pl.lit("Yes"))
        outcomes = pl.DataFrame({"market_id": ids[::6], "token_id": ids[::6], "payoff": paid.ravel()}).with_columns(
            resolved_at=pl.datetime(2026, 1, 1, 0, 6, time_zone="UTC")
        )
        ends = [md.cluster_mean(rows, "earned", resamples=200).select("low", "high").row(0)]
        ends += (
            md.skill(rows, outcomes, reference=0.85, resamples=200).select("difference_low", "difference_high").rows()
        )
        books, signal = books_of(price, price)
        study = md.study(books, signal, "1h", quantiles=2, outcomes=outcomes, fees=0, width="1m", resamples=200)
        for name in ("gross", "net"):
            ends += study.table.select(f"{name}_low", f"{name}_high").rows()
        assert [one for one in ends if one[0] is not None and not one[0] <= 0 <= one[1]] == []


def test_the_sign_of_values_that_cannot_be_negative_says_nothing() -> None:
    """With bounds that leave no room below 0 a mean of spreads has its interval."""
    spreads = pl.DataFrame(
        {"market_id": [f"m{i}" for i in range(40)], "spread": [0.01 + 0.001 * (i % 7) for i in range(40)]}
    )
    with pytest.warns(md.errors.FewMarketsWarning, match="in which too few rows of the other sign show what they cost"):
        assert md.cluster_mean(spreads, "spread")["low"].item() is None
    mean = md.cluster_mean(spreads, "spread", bounds=(0, 1)).row(0, named=True)
    assert 0.01 < mean["low"] < mean["mean"] < mean["high"] < 0.02


def test_a_few_clusters_that_jump_widen_an_interval() -> None:
    """Where one market in ten jumps, at least 90 of 100 intervals contain the mean of 0, or are null."""
    missed = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        jump = 0.3 * rng.choice([-1, 0, 1], 30, p=[0.05, 0.9, 0.05])
        rows = pl.DataFrame(
            {"market_id": [f"m{i}" for i in range(30)], "earned": 0.004 * rng.standard_normal(30) + jump}
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", md.errors.FewMarketsWarning)
            low, high = md.cluster_mean(rows, "earned", resamples=200, seed=seed).select("low", "high").row(0)
        missed += low is not None and not low <= 0 <= high
    assert missed <= 6


def test_common_shocks_of_a_day_need_clusters_of_days() -> None:
    """Intervals by market miss the truth far more often than those by day, or by both."""
    missed: dict[Any, int] = dict.fromkeys(("market_id", "day", ("market_id", "day")), 0)
    for study in range(40):
        rng = np.random.default_rng(study)
        days, markets = 12, 30
        values = rng.normal(0, 1, days)[:, None] + rng.normal(0, 1, (days, markets))
        rows = pl.DataFrame({
            "ts": np.repeat(np.arange(days), markets), "market_id": np.tile([f"m{i}" for i in range(markets)], days),
            "value": values.ravel(),
        })  # fmt: skip
        frame = rows.with_columns(
            pl.from_epoch(pl.col("ts") * 86_400).dt.cast_time_unit("us").dt.replace_time_zone("UTC")
        )
        for cluster in missed:
            mean = md.cluster_mean(frame, "value", cluster=cluster, resamples=200).row(0, named=True)
            missed[cluster] += not mean["low"] <= 0 <= mean["high"]
    assert missed["market_id"] > 15
    assert max(missed["day"], missed["market_id", "day"]) < 7


@pytest.mark.filterwarnings("ignore::marketdata.errors.LookAheadWarning")
def test_several_signals_are_one_table_with_adjusted_p_values() -> None:
    """Of noise and a planted edge only the edge is left; a list has the difference of each study."""
    rng = np.random.default_rng(0)
    planted = rng.choice([-1.0, 1.0], (30, 20))
    moves = 0.004 * rng.standard_normal(planted.shape) + 0.004 * planted
    books, edge = books_of(0.5 + np.cumsum(moves, axis=1) - moves, planted)
    signals = [edge.rename({"signal": "edge"})]
    for number in range(7):
        noise = pl.Series(rng.standard_normal(len(edge)))
        signals.append(edge.with_columns(signal=noise).rename({"signal": f"noise_{number}"}))
    options: Any = {"fees": 0, "quantiles": 2, "latency": "0s", "width": "1m", "cluster": "market_id"}
    many = md.study(books, signals, "1m", **options)
    assert many.table["signal"].to_list() == [one.signal for one in many.studies]
    assert many.table.filter(pl.col("p_adjusted") < 0.05)["signal"].to_list() == ["edge"]
    one = md.study(books, signals[0], "1m", **options).table
    names = ["gross", "gross_low", "gross_high", "rows"]
    assert many.table.select(names).row(0) == one.select(names).row(-1)
    assert (many.table["p_adjusted"] >= many.table["p_value"]).all()
    with pytest.raises(md.errors.ConfigError, match="resamples"):
        md.study(books, signals, "1m", resamples=100, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_day = md.study(books, edge, "1m", **{**options, "cluster": "day"}).table
    assert by_day["gross_low"].null_count() == len(by_day)
