"""Regressions with errors over clusters, compared with statsmodels."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import marketdata as md
from marketdata.errors import ConfigError, FewMarketsWarning, MissingValuesWarning, NotTidyError

TERMS = ["intercept", "x", "z"]


def sample(seed: int, markets: int, link: str, *, each: int = 12) -> pl.DataFrame:
    """Rows of markets whose luck they share; the slope on ``x`` is 0.8."""
    rng = np.random.default_rng(seed)
    market = np.sort(rng.integers(0, markets, markets * each))
    x = rng.normal(size=len(market)) + rng.normal(size=markets)[market]
    z, luck = rng.normal(size=len(market)), rng.normal(size=markets)[market]
    odds = 0.3 + 0.8 * x
    y = odds - 0.2 * z + luck + rng.normal(size=len(market))
    if link == "logit":
        y = (rng.random(len(market)) < 1 / (1 + np.exp(-odds))).astype(float)
    names = [f"m{number}" for number in market]
    day = [f"d{number}" for number in rng.integers(0, 15, len(market))]
    return pl.DataFrame({"market_id": names, "of_day": day, "y": y, "x": x, "z": z})


def fitted(rows: pl.DataFrame, link: str, groups: Any) -> Any:
    from statsmodels import api as sm  # takes seconds to load, which a run of other tests need not wait for

    design = sm.add_constant(rows.select("x", "z").to_numpy())
    model = (sm.OLS if link == "identity" else sm.Logit)(rows["y"].to_numpy(), design)
    more = {} if link == "identity" else {"disp": 0}
    return model.fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True, **more)


@given(st.integers(0, 1000), st.integers(14, 60), st.sampled_from(["identity", "logit"]))
def test_coefficients_and_errors_are_those_of_statsmodels(seed: int, markets: int, link: str) -> None:
    """For any kind of frame; the interval is never within that of the same error and as many clusters."""
    rows = sample(seed, markets, link)
    groups = np.unique(rows["market_id"].to_numpy(), return_inverse=True)[1]
    want = fitted(rows, link, groups)
    for frame in (rows, rows.to_pandas(), rows.lazy(), rows.to_arrow(), rows.sample(fraction=1, shuffle=True, seed=1)):
        found = md.slope(frame, "y", ["x", "z"], link=link, cluster="market_id")  # type: ignore[type-var]
        found = found.collect() if isinstance(found, pl.LazyFrame) else pl.DataFrame(found)
        assert found["term"].to_list() == TERMS
        assert found["coefficient"].to_list() == pytest.approx(want.params, rel=1e-6, abs=1e-9)
        assert found["std_error"].to_list() == pytest.approx(want.bse, rel=1e-6)
        low, high = want.conf_int().T
        assert (found["low"].to_numpy() <= low + 1e-6).all()
        assert (found["high"].to_numpy() >= high - 1e-6).all()


def test_two_ways_to_cluster_have_the_two_way_error() -> None:
    """At least the error of either way, and that of statsmodels but for its factors."""
    rows = sample(3, 30, "identity")
    codes = [np.unique(rows[name].to_numpy(), return_inverse=True)[1] for name in ("market_id", "of_day")]
    want = fitted(rows, "identity", np.stack(codes, axis=1)).bse
    one_way = [
        md.slope(rows, "y", ["x", "z"], cluster=name)["std_error"].to_numpy() for name in ("market_id", "of_day")
    ]
    both = md.slope(rows, "y", ["x", "z"], cluster=("market_id", "of_day"))["std_error"].to_numpy()
    assert (both >= np.maximum(*one_way) - 1e-12).all()
    assert both == pytest.approx(np.maximum(want, np.maximum(*one_way)), rel=0.05)


@pytest.mark.filterwarnings("ignore::marketdata.errors.FewMarketsWarning")
@pytest.mark.parametrize(("link", "markets"), [("identity", 8), ("identity", 30), ("logit", 12)])
def test_an_interval_covers_what_it_says(link: str, markets: int) -> None:
    """The true slope is inside in at least 92 of 100 samples, with few markets too."""
    inside = []
    for seed in range(100):
        rows = sample(seed, markets, link, each=8)
        low, high = md.slope(rows, "y", "x", link=link).select("low", "high").row(1)  # type: ignore[arg-type]
        inside.append(low <= 0.8 <= high)
    assert sum(inside) >= 92


def test_a_recalibration_of_right_prices_has_slope_one() -> None:
    """By horizon, with events as clusters where the frame has them; both tokens count once."""
    rng = np.random.default_rng(0)
    market = np.repeat(np.arange(400), 2)
    price = np.repeat(rng.uniform(0.05, 0.95, 400), 2)
    won = np.repeat(rng.random(400) < price[::2], 2)
    is_no = np.arange(800) % 2 == 1
    price, paid = np.where(is_no, 1 - price, price), np.where(is_no, ~won, won).astype(float)
    rows = pl.DataFrame({
        "market_id": [f"m{n}" for n in market], "event_slug": [f"e{n // 4}" for n in market],
        "token_id": [f"{n}-{no}" for n, no in zip(market, is_no, strict=True)],
        "token_label": ["No" if no else "Yes" for no in is_no], "ts": [0] * 800,
        "log_odds": np.log(price / (1 - price)), "payoff": paid,
    }).with_columns(ts=pl.datetime(2026, 1, 1, time_zone="UTC"))  # fmt: skip
    found = md.slope(rows, "payoff", "log_odds", link="logit")
    assert found["clusters"].to_list() == [100, 100]
    assert found["cluster"].to_list() == ["event_slug"] * 2
    assert found["points"].to_list() == [400, 400]
    assert found["left_out"].to_list() == [400, 400]
    for low, high, want in zip(found["low"], found["high"], (0.0, 1.0), strict=True):
        assert low <= want <= high


def test_groups_are_regressions_of_their_own_and_nulls_are_counted() -> None:
    """Rows without a value are left out, with their number and a warning."""
    rows = sample(1, 20, "identity").with_columns(horizon=pl.Series(["1h", "1d"] * 120))
    rows = rows.with_columns(x=pl.when(pl.int_range(pl.len()) % 5 == 0).then(None).otherwise(pl.col("x")))
    with pytest.warns(MissingValuesWarning, match="have no y"):
        found = md.slope(rows, "y", "x", by="horizon")
    assert found.select("horizon", "term").rows() == [(h, t) for h in ("1d", "1h") for t in TERMS[:2]]
    for horizon, part in rows.group_by("horizon"):
        alone = md.slope(part.drop_nulls(), "y", "x")
        mine = found.filter(pl.col("horizon") == horizon[0])
        assert mine["coefficient"].to_list() == pytest.approx(alone["coefficient"].to_list())
        assert set(mine["nulls"]) == {part["x"].null_count()}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (pl.col("market_id").str.slice(0, 2).replace_strict("m1", "m1", default="m2"), "fewer than 5 clusters"),
        (pl.lit(3.0).alias("x"), "no variation"),
        ((pl.col("y") * 2).alias("x"), "separates the outcomes"),
    ],
)
def test_what_tells_no_slope_is_null_with_its_reason(change: pl.Expr, says: str) -> None:
    """Few clusters, a column that never changes, and outcomes that a line separates."""
    rows = sample(2, 20, "logit").with_columns(change)
    with pytest.warns(FewMarketsWarning, match=says):
        found = md.slope(rows, "y", "x", link="logit")
    assert found["coefficient"].is_nan().all() or found["coefficient"].null_count() == 2


@pytest.mark.parametrize(
    ("words", "error", "says"),
    [
        ({"y": "x", "x": "x"}, ConfigError, "other columns than y"),
        ({"y": "y", "x": ["x", "x"]}, ConfigError, "each once"),
        ({"y": "y", "x": []}, ConfigError, "x="),
        ({"y": "y", "x": "nope"}, NotTidyError, "nope"),
        ({"y": "market_id", "x": "x"}, ConfigError, "column of numbers"),
        ({"y": "x", "x": "z", "link": "logit"}, NotTidyError, "0 to 1"),
        ({"y": "y", "x": "x", "link": "probit"}, ConfigError, "identity"),
        ({"y": "y", "x": "x", "interval": 2}, ConfigError, "interval"),
    ],
)
def test_wrong_arguments_are_named(words: dict[str, Any], error: type[Exception], says: str) -> None:
    """The error says what was wrong and what is allowed."""
    with pytest.raises(error, match=says):
        md.slope(sample(0, 10, "identity"), **words)
