"""Rows around moments, and the time that is left, by plain loops."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.kinds import FRAME_KINDS, of_kind, rows
from reference.markets import in_kind

import marketdata as md
from marketdata.testing.strategies import START, book_columns, metric_columns, price_columns
from marketdata.times import to_datetime

MINUTE = 60_000_000
moments = st.lists(
    st.tuples(
        st.integers(-5, 20).map(lambda k: START + k * 30_000_000),
        st.sampled_from(["0xm", "0xn", "elsewhere"]),
        st.sampled_from(["a", "b"]),
    ),
    max_size=5,
)
spans = st.sampled_from([("0s", 0), ("90s", 90), ("10m", 600), (dt.timedelta(hours=1), 3600)])


@given(
    kind=st.sampled_from(FRAME_KINDS),
    columns=st.one_of(price_columns(), book_columns(), metric_columns()),
    told=moments,
    before=spans,
    after=spans,
    each=st.booleans(),
    clock=st.sampled_from([None, "1m", "1h"]),
)
def test_windows_equal_a_plain_loop(
    kind: str, columns: Any, told: list[Any], before: Any, after: Any, each: bool, clock: str | None
) -> None:
    """A row comes once for each moment of its market (or of any) that it is around, with its distance from it."""
    types = {"ts": pl.Int64, "market_id": pl.String, "news": pl.String}
    given_ = pl.DataFrame(told, schema=types, orient="row").with_columns(pl.col("ts").cast(pl.Datetime("us", "UTC")))
    given_ = given_ if each else given_.drop("market_id")
    micros = {None: 1, "1m": MINUTE, "1h": 60 * MINUTE}[clock]
    if clock:  # Each minute becomes a bucket of that width, so that no two rows share one.
        columns = replace(columns, ts=START + (columns.ts - START) // MINUTE * micros)
    ordered = rows(of_kind(columns, "polars"))
    want = []
    for moment, market, news in told:
        for row in ordered:
            distance = row[0] - moment
            if (not each or row[1] == market) and -before[1] * 10**6 <= distance < after[1] * 10**6:
                want.append((*row, news, to_datetime(moment), distance // micros * micros / 10**6))
    got = rows(md.around(of_kind(columns, kind), given_, before=before[0], after=after[0], width=clock))
    assert got == want


def test_windows_keep_what_the_frames_bring() -> None:
    """Further columns of both frames stay, moments of any kind are taken, and ids of tokens choose tokens."""
    prices = md.testing.prices("pandas", buckets=4).assign(venue="x")
    one = prices[["ts", "market_id", "token_id"]].iloc[[1]].assign(title="rain", weight=2.5)
    for told in (one, pl.from_pandas(one), pl.from_pandas(one).to_arrow(), pl.from_pandas(one).lazy()):
        out = md.around(prices, told, before="1m", after="2m")
        assert out.columns.tolist() == [*prices.columns, "title", "weight", "moment", "offset"]
        assert out["offset"].tolist() == [-60.0, 0.0, 60.0]
        assert set(out["token_id"]) == {"11"}
        assert set(out["venue"]) == {"x"}
        assert set(out["weight"]) == {2.5}


def test_windows_that_cannot_be_cut_are_refused() -> None:
    """The error says what is allowed, or what is missing."""
    frame = md.testing.prices("polars")
    change: dict[str, Any]
    for change, error, told in (
        ({"before": "1 hour"}, md.errors.ConfigError, "allowed are a timedelta"),
        ({"before": -1}, md.errors.ConfigError, "allowed are a timedelta"),
        ({"after": dt.timedelta(seconds=-1)}, md.errors.ConfigError, "allowed are a timedelta"),
        ({"width": "7m"}, md.errors.ConfigError, "does not exist"),
        ({"moments": pl.DataFrame({"market_id": ["rain"]})}, md.errors.NotTidyError, "ts"),
        ({"moments": frame}, md.errors.ConfigError, "'price' would be in the result twice"),
        ({"moments": [1]}, md.errors.NotTidyError, "is not a frame"),
    ):
        options = {"moments": frame.head(1).select("ts", "market_id"), "before": "1m", "after": "1m", **change}
        with pytest.raises(error, match=told):
            md.around(frame, **options)


@pytest.mark.parametrize("kind", ["polars", "pandas", "arrow", "lazy"])
def test_the_time_that_is_left_is_that_until_the_market_closed(kind: str) -> None:
    """Seconds from ts to resolved_at, negative after it, null without one; rows and order as they were."""
    frame = md.testing.prices("polars", markets=3, buckets=2).reverse()
    closed = pl.when(pl.col("market_id") == "rain").then(START + MINUTE).otherwise(START)
    markets = md.testing.markets("polars", markets=3).with_columns(
        resolved_token_id=pl.when(pl.col("market_id") != "snow").then("resolved_token_id"),
        resolved_token_label=pl.lit(None, pl.String),
        closed_at=closed.cast(pl.Datetime("us", "UTC")),
    )
    ends = {"rain": 60, "wind": 0}
    for given_ in (markets, md.outcomes(markets), md.outcomes(markets.to_pandas())):
        out = rows(md.time_to_resolution(in_kind(frame, kind), given_))
        assert [row[:-1] for row in out] == rows(frame)
        for ts, market, *_, left in out:
            assert (left is None or math.isnan(left)) == (market == "snow")
            assert market == "snow" or left == ends[market] - (ts - START) / 10**6
    again = md.time_to_resolution(md.time_to_resolution(frame, markets), markets)
    assert again.equals(md.time_to_resolution(frame, markets))
    with pytest.raises(md.errors.ConfigError, match="allowed are what"):
        md.time_to_resolution(frame, {"rain": "Yes"})
    with pytest.raises(md.errors.NotTidyError, match="market_id"):
        md.time_to_resolution(frame.drop("market_id"), markets)
