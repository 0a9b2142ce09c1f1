"""Rows that are no forecasts, what belongs together, and what an interval cannot say: each is counted, or refused."""

from __future__ import annotations

import datetime as dt
import warnings
from typing import Any

import numpy as np
import polars as pl
import pytest

import marketdata as md
from marketdata.errors import FewMarketsWarning, MissingValuesWarning

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def markets(count: int, *, closes: int = 20, per_event: int = 1, pays: Any = None) -> pl.DataFrame:
    """Records of markets that close after so many days, and resolve ten days later."""
    won = [i % 2 == 0 for i in range(count)] if pays is None else [pays] * count
    return pl.DataFrame({
        "market_id": [f"m{i}" for i in range(count)], "token_ids": [[f"{i}y", f"{i}n"] for i in range(count)],
        "token_labels": [["Yes", "No"]] * count, "payoffs": [[float(w), 1.0 - w] for w in won],
        "closed_at": [START + closes * DAY] * count, "resolved_at": [START + (closes + 10) * DAY] * count,
        "event_slug": [f"e{i // per_event}" for i in range(count)],
    })  # fmt: skip


def prices(count: int, days: int, price: Any) -> pl.DataFrame:
    """Yes of each market every day; ``price`` takes the market and the day."""
    rows = [(START + d * DAY, f"m{i}", f"{i}y", "Yes", price(i, d)) for i in range(count) for d in range(days)]
    names = {"ts": pl.Datetime("us", "UTC"), "market_id": pl.String, "token_id": pl.String, "token_label": pl.String}
    return pl.DataFrame(rows, {**names, "price": pl.Float64}, orient="row")


def test_a_row_after_the_close_is_no_forecast() -> None:
    """Whatever prices do after the close, and before the resolution, no score and no skill changes."""
    records = markets(40)
    before = prices(40, 20, lambda i, d: 0.3 + 0.4 * ((i * 7 + d) % 10) / 10)
    after = prices(40, 80, lambda i, d: float(i % 2 == 0) * 0.998 + 0.001).filter(pl.col("ts") >= START + 20 * DAY)
    whole = pl.concat([before, after])
    for paid in (records, md.outcomes(records), records.drop("resolved_at")):
        for score in (md.brier, md.log_score):
            want, got = (score(frame, paid, of="all", resamples=50) for frame in (before, whole))
            assert got.drop("after_close").equals(want.drop("after_close"))
            assert (want["after_close"].to_list(), got["after_close"].to_list()) == ([0], [40 * 60])
        want, got = (md.skill(frame, paid, reference=0.5, resamples=50) for frame in (before, whole))
        assert got.drop("after_close").equals(want.drop("after_close"))
        assert md.calibration(whole, paid).equals(md.calibration(before, paid))
    won = dict(zip(records["market_id"], ["Yes", "No"] * 20, strict=True))
    assert md.brier(whole, won)["points"].to_list() == [80] * 40


def test_nulls_are_counted_and_many_of_them_ring() -> None:
    """A price that is missing for both tokens is one forecast less; a twentieth of the rows is let pass."""
    records, filled = markets(10), prices(10, 20, lambda i, d: 0.5)
    one = filled.with_columns(price=pl.when(pl.int_range(pl.len()) == 3).then(None).otherwise("price"))
    assert md.brier(one, records, of="all", interval=None)["nulls"].to_list() == [1]
    many = filled.with_columns(price=pl.when(pl.int_range(pl.len()) % 4 == 0).then(None).otherwise("price"))
    of_no = many.with_columns(token_id=pl.col("token_id").str.replace("y", "n"), token_label=pl.lit("No"))
    for frame, nulls in ((many, 50), (pl.concat([many, of_no]), 50), (pl.concat([many, of_no.fill_null(0.5)]), 0)):
        calls = (
            lambda frame: md.brier(frame, records, of="all", interval=None),
            lambda frame: md.skill(frame, records, reference=0.4, interval=None),
        )
        for call in calls:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                got = call(frame)
            assert {*got["nulls"].to_list()} == {nulls}
            rings = [str(one.message) for one in said if issubclass(one.category, MissingValuesWarning)]
            assert [text[:35] for text in rings] == (["Up to 25% of the rows have no price"] if nulls else [])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore" if nulls else "error")
            md.calibration(frame, records)
    with pytest.warns(MissingValuesWarning, match="25%"):
        md.calibration(many, records)


def test_a_value_that_was_filled_in_is_no_forecast() -> None:
    """Scores, skill and means of a frame on a filled grid are those of the rows that were observed."""
    records = markets(6)
    sparse = prices(6, 20, lambda i, d: 0.2 + 0.03 * ((i + d) % 20)).filter(pl.col("ts").dt.day() % 3 != 0)
    filled = md.align(sparse, "1d", start=START, end=START + 20 * DAY, fill="forward").drop_nulls("price")
    lacking = len(filled) - len(sparse)
    assert lacking > 0
    for call in (
        lambda frame: md.brier(frame, records, of="all", interval=None),
        lambda frame: md.skill(frame, records, reference=0.5, interval=None),
        lambda frame: md.cluster_mean(frame, "price", interval=None),
    ):
        got, want = call(filled), call(sparse)
        assert {*got["not_observed"].to_list()} == {lacking}
        assert got.drop("not_observed").equals(want.drop("not_observed"))


def test_markets_of_one_event_are_one_draw() -> None:
    """By default the clusters are the events that the frame or the records know, and the result says so."""
    records = markets(40, per_event=4).with_columns(group=pl.col("event_slug"))
    frame = prices(40, 10, lambda i, d: 0.3 + 0.05 * ((i // 4 + d) % 8))
    joined = frame.join(records.select("market_id", "event_slug"), on="market_id")
    for call in (
        lambda frame, paid, **by: md.brier(frame, paid, of="all", **by),
        lambda frame, paid, **by: md.skill(frame, paid, reference=0.5, **by),
        lambda frame, paid, **by: md.calibration(frame, paid, 3, interval=0.9, **by),
        lambda frame, paid, **by: md.cluster_mean(frame, "price", markets=paid, bounds=(0, 1), **by),
    ):
        want = call(frame, records, cluster="group")
        unknown = records.drop("event_slug", "group")
        for got in (call(frame, records), call(joined, unknown)):
            assert got["cluster"].unique().to_list() == ["event_slug"]
            assert got.drop("cluster").equals(want.drop("cluster"))
        assert call(frame, unknown)["cluster"].unique().to_list() == ["market_id"]
    want = md.brier(frame, records, of="all")
    assert md.brier(frame, md.outcomes(records), of="all").equals(want)
    some = records.with_columns(event_slug=pl.when(pl.col("market_id") < "m3").then("event_slug"))
    apart = records.with_columns(group=pl.coalesce(some["event_slug"], pl.lit("of ") + pl.col("market_id")))
    assert (
        md.brier(frame, some, of="all")
        .drop("cluster")
        .equals(md.brier(frame, apart, of="all", cluster="group").drop("cluster"))
    )


def test_a_sample_of_one_outcome_has_no_interval() -> None:
    """Where all markets paid the same, neither a score nor a share says what it would be where they pay otherwise."""
    records, frame = markets(30, pays=True), prices(30, 10, lambda i, d: 0.1 + 0.02 * i)
    for call, low in (
        (lambda: md.brier(frame, records, of="all"), "brier_low"),
        (lambda: md.calibration(frame, records, interval=0.95), "outcome_low"),
    ):
        with pytest.warns(FewMarketsWarning, match="paid the same"):
            assert call()[low].is_null().all() or np.isnan(call()[low].to_numpy()).all()


def test_a_frame_of_yes_takes_the_outcome_no() -> None:
    """The label of the token that the frame lacks says that the other one paid nothing; another label is refused."""
    frame = prices(2, 1, lambda i, d: 0.25)
    for lost in ("No", "no", {"Yes": 0.0}, {"Yes": 0.0, "No": 1.0}):
        assert md.brier(frame, {"m0": lost, "m1": "Yes"})["brier"].to_list() == [0.0625, 0.5625]
    with pytest.raises(md.errors.ConfigError, match="'0y' \\(Yes\\)"):
        md.brier(frame, {"m0": "Down", "m1": "Yes"})


@pytest.mark.filterwarnings("ignore::marketdata.errors.FewMarketsWarning")
@pytest.mark.parametrize("way", ["market", "day", "both"])
def test_a_second_cluster_that_carries_nothing_takes_no_interval(way: str) -> None:
    """Where luck is by one way alone, the pair of it and any other one, of rows, of chance or of itself, is no null."""
    count, days = 24, 12
    for seed in range(4):
        rng = np.random.default_rng(seed)
        values = 0.3 * rng.standard_normal((count, days))
        values += rng.standard_normal((count, 1)) * (way != "day") + rng.standard_normal((1, days)) * (way != "market")
        frame = pl.DataFrame({
            "ts": [START + d * DAY for _ in range(count) for d in range(days)],
            "market_id": [f"m{m}" for m in range(count) for _ in range(days)], "value": values.ravel() / 100,
            "row": range(count * days), "chance": rng.integers(0, 15, count * days),
            "copy": np.repeat(range(count), days),
        }, schema_overrides={"ts": pl.Datetime("us", "UTC")})  # fmt: skip
        for cluster in ("market_id", ("market_id", "day"), *(("market_id", c) for c in ("row", "chance", "copy"))):
            got = md.cluster_mean(frame, "value", cluster=cluster, resamples=200)
            assert got["low"].null_count() == 0, (cluster, seed)
