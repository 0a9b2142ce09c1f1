"""Which rows of two tokens of a market count: on markets without an edge nothing is earned."""

from __future__ import annotations

import warnings

import numpy as np
import polars as pl
import pytest

import marketdata as md

pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.FewMarketsWarning")


def fair_markets(markets: int, labels: tuple[str, str] = ("Yes", "No"), hours: int = 12) -> pl.DataFrame:
    """Prices of both tokens of fair markets, with payoffs and what a share earns; ids are in no order."""
    rng = np.random.default_rng(5)
    start = rng.uniform(0.2, 0.8, (markets, 1))
    up = np.clip(start + np.cumsum(0.02 * rng.standard_normal((markets, hours)), axis=1), 0.02, 0.98)
    won = rng.random(markets) < up[:, -1]
    ids = rng.permutation(2 * markets)
    hour = np.tile(np.arange(hours), markets)
    one = pl.DataFrame({
        "ts": hour, "market_id": np.repeat(np.arange(markets).astype(str), hours),
        "price": up.ravel(), "payoff": np.repeat(won.astype(float), hours),
    }).with_columns(pl.from_epoch(pl.col("ts") * 3600).dt.cast_time_unit("us").dt.replace_time_zone("UTC"))  # fmt: skip
    sides = [
        one.with_columns(
            token_id=pl.Series(np.repeat(ids[side::2], hours).astype(str)), token_label=pl.lit(label),
            price=pl.col("price") if side == 0 else 1 - pl.col("price"),
            payoff=pl.col("payoff") if side == 0 else 1 - pl.col("payoff"),
        )
        for side, label in enumerate(labels)
    ]  # fmt: skip
    return pl.concat(sides).with_columns(earned=pl.col("payoff") - pl.col("price"))


def test_chosen_rows_of_both_tokens_all_count() -> None:
    """Rows chosen by price, Yes at one hour and No at another, are no mirror images, and earn nothing."""
    favourites = fair_markets(400).filter(pl.col("price") > 0.6)
    mean = md.cluster_mean(favourites, "earned").row(0, named=True)
    assert mean["points"] == len(favourites)
    assert mean["left_out"] == 0
    assert mean["mean"] == pytest.approx(favourites["earned"].mean())
    assert mean["low"] < 0 < mean["high"]
    outcomes = favourites.select("market_id", "token_id", "payoff").unique()
    curve = md.calibration(favourites, outcomes, 1).row(0, named=True)
    assert (curve["points"], curve["outcome"]) == (len(favourites), pytest.approx(favourites["payoff"].mean()))


@pytest.mark.parametrize("labels", [("Up", "Down"), ("Over", "Under"), ("Alpha", "Beta")])
def test_one_label_stands_for_all_markets_whatever_the_ids_are(labels: tuple[str, str]) -> None:
    """The sign of a mean does not depend on the order of ids or rows."""
    prices = fair_markets(40, labels)
    first = prices.filter(token_label=labels[0])
    for frame in (prices, prices.sort("token_id"), prices.reverse()):
        mean = md.cluster_mean(frame, "price", interval=None).row(0, named=True)
        assert mean["mean"] == pytest.approx(first["price"].mean())
        assert (mean["points"], mean["left_out"]) == (len(first), len(first))


def test_the_order_of_a_record_says_which_token_stands_for_its_market() -> None:
    """Records come before labels; rows of outcomes have no order, as the first may be the token that won."""
    prices = fair_markets(40, ("Up", "Down"))
    ids = prices.group_by("market_id", maintain_order=True).agg(pl.col("token_id").unique(maintain_order=True))
    records = ids.select("market_id", token_ids=pl.col("token_id").list.reverse())
    mean = md.cluster_mean(prices, "price", markets=records, interval=None)["mean"].item()
    assert mean == pytest.approx(prices.filter(token_label="Down")["price"].mean())
    won = prices.filter(payoff=1.0).select("market_id", "token_id", "payoff").unique()
    lost = prices.filter(payoff=0.0).select("market_id", "token_id", "payoff").unique()
    up = prices.filter(token_label="Up")["payoff"].mean()
    for outcomes in (pl.concat([won, lost]), pl.concat([lost, won])):
        assert md.calibration(prices, outcomes, 1)["outcome"].item() == pytest.approx(up)


def test_different_labels_of_chosen_tokens_are_said() -> None:
    """A mean over teams has no sign that means something; a mean over Yes has."""
    teams = pl.concat(
        [
            fair_markets(3, ("Lakers", "Celtics")),
            fair_markets(5).with_columns(pl.concat_str(pl.lit("x"), "market_id").alias("market_id")),
        ]
    )
    with pytest.warns(md.errors.MixedLabelsWarning, match="'Yes' in 5, 'Celtics' in 3 of 8 markets"):
        md.cluster_mean(teams, "price")
    outcomes = teams.select("market_id", "token_id", "payoff").unique()
    labels = teams.filter(token_label="Celtics").select("market_id", "token_id", "payoff").unique()
    with pytest.warns(md.errors.MixedLabelsWarning, match="different labels"):
        md.calibration(teams, outcomes)
    with warnings.catch_warnings():
        warnings.simplefilter("error", md.errors.MixedLabelsWarning)
        md.cluster_mean(fair_markets(5), "price")
        md.calibration(teams.filter(token_label="Celtics"), labels)


def test_without_labels_and_records_two_tokens_of_one_time_are_refused() -> None:
    """Nothing says which one counts; rows of other times, and markets of three tokens, are no such pair."""
    prices = fair_markets(6).drop("token_label")
    with pytest.raises(md.errors.NotTidyError, match="nothing says which one"):
        md.cluster_mean(prices, "price")
    even = pl.col("ts").dt.hour() % 2 == 0
    of_yes = pl.int_range(pl.len()) < pl.len() / 2
    apart = prices.filter(even == of_yes)
    assert md.cluster_mean(apart, "price", interval=None)["points"].item() == len(apart)
    three = pl.concat([prices, prices.filter(of_yes).with_columns(token_id=pl.lit("t") + pl.col("token_id"))])
    assert md.cluster_mean(three, "price", interval=None)["points"].item() == len(three)
