"""Time: nothing is seen before it is known, no hole is missed, nothing is invented."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.columns import coded_series
from reference.kinds import few, of_kind, rows

import marketdata as md
from marketdata.points.columns import Series, Token
from marketdata.testing.strategies import MINUTE, START, nullable
from marketdata.tidy.frames import to_frame
from marketdata.times import to_datetime

TOKENS = (Token("m", "1", "No"), Token("m", "2", "Yes"))


@st.composite
def ticks(draw: st.DrawFn, most: int = 40) -> Series:
    """Prices of two tokens on a short grid of minutes, so that times meet."""
    found = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(0, most)), unique=True, max_size=12))
    found.sort()
    return coded_series(
        TOKENS,
        np.array([i for i, _ in found], np.int32),
        np.array([START + k * MINUTE for _, k in found], np.int64),
        {"price": np.array([draw(nullable) for _ in found], float)},
    )


@given(
    kind=st.sampled_from(["pandas", "polars", "lazy", "arrow"]),
    left=ticks(),
    right=ticks(),
    cut=st.integers(0, 40),
    data=st.data(),
)
def test_no_look_ahead(kind: str, left: Any, right: Any, cut: int, data: st.DataObject) -> None:
    """Whatever is changed in rows that are known only at a time or later, joins before it stay the same."""
    moment = START + cut * MINUTE
    late = right.ts + MINUTE >= moment
    price = np.where(late, data.draw(st.floats(0, 1)), right.price)
    changed = coded_series(right.tokens, right.token, right.ts, {"price": price})
    dropped = right.take(np.flatnonzero(~late))
    frame = of_kind(left, kind)

    def before(known: Any) -> list[tuple[Any, ...]]:
        return [r for r in rows(md.asof_join(frame, of_kind(known, kind), width="1m")) if r[0] <= moment]

    assert before(right) == before(changed) == before(dropped)


@few
@given(columns=ticks(), cut=st.integers(0, 40), how=st.sampled_from(["simple", "change", "log", "log_odds"]))
def test_series_do_not_look_ahead(columns: Any, cut: int, how: str) -> None:
    """Returns and grids filled from before are the same for a frame that ends at a time."""
    moment = START + cut * MINUTE
    whole, head = to_frame(columns, "polars"), to_frame(columns.between(0, moment), "polars")
    rng = {"start": to_datetime(START), "end": to_datetime(START + 41 * MINUTE), "fill": "forward"}

    def early(out: Any) -> list[tuple[Any, ...]]:
        return [r for r in rows(out) if r[0] < moment and r[2] in set(head["token_id"])]

    assert early(md.returns(whole, how=how)) == early(md.returns(head, how=how))
    assert early(md.align(whole, "1m", **rng)) == early(md.align(head, "1m", **rng))  # type: ignore[arg-type]


def test_metrics_join_prices_by_market() -> None:
    """A frame without tokens is joined by market, and its ids are not doubled."""
    prices, metrics = md.testing.prices("polars"), md.testing.metrics("polars")
    out = md.asof_join(prices, metrics, width="1m")
    names = ["ts", "market_id", "token_id", "token_label", "price"]
    assert out.columns == [*names, "ts_right", "volume", "liquidity", "spread", "available_at"]
    assert out.select(names).equals(prices.select(names))
    assert (out["available_at"].is_null() | (out["available_at"] < out["ts"])).all()


def test_a_join_refuses_what_it_can_not_know() -> None:
    """Books, two kinds of frames and an unknown bucket width each have their error."""
    books, prices = md.testing.books("polars"), md.testing.prices("polars")
    with pytest.raises(md.errors.NotTidyError, match="bbo"):
        md.asof_join(prices, books, width="1m")
    with pytest.raises(md.errors.ConfigError, match=r"width is missing.* of right"):
        md.asof_join(prices, prices.clone())
    with pytest.raises(md.errors.ConfigError, match=r"left is polars DataFrame, right is polars LazyFrame.*one kind"):
        md.asof_join(prices, prices.lazy(), width="1m")
    with pytest.raises(md.errors.NotTidyError, match="moment"):
        md.asof_join(prices, prices, width="1m", on="moment")
    assert len(md.asof_join(prices, md.bbo(books), width="1m")) == len(prices)


def test_align_fills_no_price_of_a_market_that_is_over() -> None:
    """With records nothing is carried beyond the close; what was observed there stays."""
    prices = md.testing.prices("polars", markets=2, buckets=4).filter(token_label="Yes")
    times = prices["ts"].unique().sort()
    short = prices.filter((pl.col("market_id") != "rain") | (pl.col("ts") == times[0]))
    records = md.testing.markets("polars", markets=2).with_columns(closed_at=pl.Series([times[2], None]))
    grid = md.align(short, "1m", fill="forward", markets=records).filter(market_id="rain")
    first = short["price"][0]
    assert grid.select("price", "observed").rows() == [(first, True), (first, False), (None, False), (None, False)]
    without = md.align(short, "1m", fill="forward").filter(market_id="rain")
    assert without["price"].to_list() == [first] * 4
    seen = md.align(prices, "1m", fill="forward", markets=md.outcomes(records))
    assert seen["price"].to_list() == prices["price"].to_list()


def test_align_refuses_what_does_not_fit() -> None:
    """Rows off the grid, books, and an unknown fill each have their error; an empty frame stays empty."""
    columns = coded_series(TOKENS, np.zeros(1, np.int32), np.array([START + MINUTE]), {"price": np.array([0.5])})
    frame = to_frame(columns, "polars")
    with pytest.raises(md.errors.ConfigError, match=r"resample\(frame, '1h'\)"):
        md.align(frame, "1h")
    with pytest.raises(md.errors.ConfigError, match="'forward'"):
        md.align(frame, "1m", fill="zero")
    with pytest.raises(md.errors.NotTidyError, match="bbo"):
        md.align(to_frame(md.points.views.empty("books"), "polars"), "1m")  # type: ignore[attr-defined]
    assert len(md.align(frame.clear(), "1m")) == 0
    assert md.align(frame, "1m", start="2026-01-01", end="2026-01-01T00:04")["observed"].to_list() == [
        False,
        True,
        False,
        False,
    ]


def test_a_value_that_is_not_there_is_refused() -> None:
    """The columns of numbers are named; of metrics one has to be chosen."""
    metrics = md.testing.metrics("polars")
    with pytest.raises(md.errors.ConfigError, match="volume, liquidity, spread"):
        md.ohlc(metrics, "1h")
    with pytest.raises(md.errors.ConfigError, match="volume, liquidity, spread"):
        md.returns(metrics, "price")
    with pytest.raises(md.errors.ConfigError, match="'simple'"):
        md.returns(metrics, "volume", how="fast")
    assert len(md.ohlc(metrics, "1d", "volume"))
    with pytest.raises(md.errors.NotTidyError, match="ts"):
        md.gaps(pl.DataFrame({"market_id": ["m"]}), "1m")


@pytest.mark.parametrize("lazy", [False, True])
def test_ids_that_are_texts_join_ids_that_are_categories(*, lazy: bool) -> None:
    """A frame of a scan or of one's own, whose ids are plain text, joins one of a client, and the other way round."""
    prices = md.testing.prices("polars").select("ts", "token_id", "price")
    plain = prices.with_columns(pl.col("token_id").cast(pl.String))
    want = md.asof_join(prices, prices.rename({"price": "before"}), width="1m")
    for left, right in ((plain, prices), (prices, plain)):
        a, b = (f.lazy() if lazy else f for f in (left, right.rename({"price": "before"})))
        got = md.asof_join(a, b, width="1m")
        out = got.collect() if lazy else got
        assert out.schema["token_id"] == left.schema["token_id"]
        assert out["before"].to_list() == want["before"].to_list()


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_a_join_takes_the_column_that_tells_when_rows_are_known(kind: Any) -> None:
    """With available_at on the right, the join needs no width and has the same rows."""
    prices = md.testing.prices(kind)
    known = md.available_at(prices, "1m")
    told, width = md.asof_join(prices, known), md.asof_join(prices, prices, width="1m")
    assert told["price_right"].equals(width["price_right"])
