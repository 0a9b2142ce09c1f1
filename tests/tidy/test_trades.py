"""Trades in functions on frames: bars, scores and checks, compared with plain loops over the prints."""

from __future__ import annotations

import datetime as dt
import math
import warnings
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import marketdata as md
from marketdata.errors import ConfigError, NotTidyError
from marketdata.testing import strategies

SECONDS = {"10s": 10, "1m": 60, "1h": 3600}


def plain_bars(prints: pl.DataFrame, width: int) -> dict[tuple[str, int], tuple[Any, ...]]:
    """Bars by token and bucket, by a loop over the prints in their order."""
    groups: dict[tuple[str, int], list[tuple[str | None, float, float]]] = {}
    rows = prints.with_columns(pl.col("side").cast(pl.String), at=pl.col("ts").dt.epoch("s")).sort(
        "token_id", "at", maintain_order=True
    )
    for token, at, side, price, size in rows.select("token_id", "at", "side", "price", "size").rows():
        groups.setdefault((token, at // width * width), []).append((side, price, size))
    out = {}
    for key, some in groups.items():
        prices, volume = [price for _, price, _ in some], math.fsum(size for *_, size in some)
        vwap = math.fsum(price * size for _, price, size in some) / volume if volume > 0 else None
        signed = None
        if all(side for side, *_ in some):
            signed = math.fsum(size if side == "buy" else -size for side, _, size in some)
        out[key] = (prices[0], max(prices), min(prices), prices[-1], vwap, volume, signed, len(some))
    return out


@settings(max_examples=20)
@given(strategies.trade_frames("polars"), st.sampled_from([*SECONDS]))
def test_bars_are_those_of_a_plain_loop(prints: pl.DataFrame, width: str) -> None:
    """First, greatest, least and last price, their mean by size, volume and number of each token and bucket."""
    bars = md.resample(prints, width)
    names = ["open", "high", "low", "close", "vwap", "volume", "signed_volume", "count"]
    assert bars.columns == ["ts", "market_id", "token_id", "token_label", *names]
    at = bars["ts"].dt.epoch("s").to_list()
    got = dict(zip(zip(bars["token_id"], at, strict=True), bars.select(names).rows(), strict=True))
    expected = plain_bars(prints, SECONDS[width])
    assert got.keys() == expected.keys()
    for key, bar in expected.items():
        for mine, theirs in zip(got[key], bar, strict=True):
            assert mine == (theirs if theirs is None else pytest.approx(theirs, rel=1e-9, abs=1e-6))


def test_bars_are_equal_on_every_kind_of_frame() -> None:
    """The library and the order of rows change nothing."""
    prints = md.testing.trades("polars", markets=2, buckets=4)
    expected = md.resample(prints, "2m").select("open", "close", "volume", "count").rows()
    for other in (
        prints.to_pandas(),
        prints.lazy(),
        prints.to_arrow(),
        prints.sample(fraction=1.0, shuffle=True, seed=1),
    ):
        bars = md.resample(other, "2m")
        table = bars.collect() if isinstance(bars, pl.LazyFrame) else bars
        table = pl.DataFrame(pl.from_arrow(table) if hasattr(table, "column_names") else table)
        assert table.select("open", "close", "volume", "count").rows() == expected


def test_buckets_without_a_print_are_filled() -> None:
    """Their volume is 0; their prices are null, or the close before."""
    prints = md.testing.trades("polars", buckets=3).filter(pl.col("ts").dt.minute() != 1)
    for fill, price in (("null", None), ("forward", 0.39)):
        bars = md.resample(prints, "1m", fill=fill).filter(pl.col("token_id") == "11")
        assert bars.select("open", "close", "volume", "count", "observed").row(1) == (price, price, 0.0, 0, False)
    with pytest.raises(ConfigError, match="own times"):
        md.resample(prints, "1m", width="1s")


def test_each_print_is_a_forecast_at_its_price() -> None:
    """The score of prints is the mean over all of them, also of those that share a time."""
    prints = md.testing.trades("polars", markets=2, buckets=3)
    prints = md.concat([prints, prints.with_columns(trade_id=pl.col("trade_id") + "b")])
    markets = md.testing.markets("polars", markets=2)
    won = {row["resolved_token_id"] for row in markets.rows(named=True)}
    squares = [(row["price"] - (row["token_id"] in won)) ** 2 for row in prints.rows(named=True)]
    score = md.brier(prints, md.outcomes(markets), of="all", interval=None)
    assert score["brier"][0] == pytest.approx(math.fsum(squares) / len(squares))
    assert score["points"].sum() == len(prints) if "points" in score.columns else True
    bins = md.calibration(prints, md.outcomes(markets), interval=None)
    assert bins["points"].sum() == len(prints)


def test_prints_are_checked() -> None:
    """Cents, sizes of nothing, unknown sides and ids that come twice are listed with their rows."""
    prints = md.testing.trades("polars")
    assert md.check(prints)["n_failed"].sum() == 0
    odd = md.concat([prints, prints.head(1)]).with_columns(
        price=pl.when(pl.int_range(pl.len()) == 2).then(52.0).otherwise("price"),
        size=pl.when(pl.int_range(pl.len()) == 3).then(0.0).otherwise("size"),
    )
    found = md.check(odd).filter(pl.col("n_failed") > 0)
    assert dict(found.select("check", "n_failed").rows()) == {"outside_0_1": 1, "bad_size": 1, "duplicates": 1}


def test_functions_of_one_row_a_time_name_the_kind() -> None:
    """Prints are no books, and the error says what makes one row a bucket of them."""
    with pytest.raises(NotTidyError, match="frame of trades"):
        md.mid(md.testing.trades())
    with pytest.raises(NotTidyError, match="resample"):
        md.align(md.testing.trades(), "1m")


@given(strategies.trade_frames("polars"), st.sampled_from([*SECONDS]))
@settings(max_examples=20)
def test_ohlc_of_trades_are_the_prices_of_their_bars(prints: pl.DataFrame, width: str) -> None:
    """Open to close are those of `resample`, and points its count."""
    bars = md.resample(prints, width)
    want = bars.select("ts", "token_id", "open", "high", "low", "close", points="count")
    found = md.ohlc(prints, width)
    assert found.select(want.columns).cast({"points": pl.Int64}).equals(want.cast({"points": pl.Int64}))
    assert md.ohlc(prints.lazy(), width).collect().equals(found)
    with pytest.raises(ConfigError, match="trades have their own times"):
        md.ohlc(prints, width, width="1s")


def test_what_takes_one_row_a_time_says_how_trades_become_that() -> None:
    """Bars of trades are a way out that works."""
    trades = md.testing.trades("polars")
    with pytest.raises(NotTidyError, match=r"md\.resample\(trades, '1m'\) gives bars"):
        md.returns(trades, width="1m")
    assert md.returns(md.resample(trades, "1m"), "close").height > 0


@given(
    rows=st.lists(
        st.tuples(st.sampled_from(["buy", "sell", None]), st.sampled_from(["maker", "taker", None]), st.integers(1, 9)),
        min_size=1, max_size=8,
    ),
    named=st.booleans(),
)  # fmt: skip
def test_the_fill_of_a_maker_counts_as_what_its_taker_did(rows: Any, named: bool) -> None:
    """Signed volume, the effective spread and profits are those of the same prints with the side of the taker."""
    books = md.testing.books("polars", buckets=2)
    prints = pl.DataFrame({
        "ts": [books["ts"].min() + dt.timedelta(seconds=61 + i) for i in range(len(rows))],
        "market_id": "rain", "token_id": "11", "token_label": "Yes", "side": [side for side, *_ in rows],
        "price": [price / 10 for *_, price in rows], "size": 5.0, "role": [role for _, role, _ in rows],
        "maker": "a" if named else None, "taker": "b",
    }, schema_overrides=dict.fromkeys(("side", "role", "maker"), pl.String))  # fmt: skip
    other = {"buy": "sell", "sell": "buy", None: None}
    plain_prints = prints.with_columns(
        side=pl.Series([other[side] if role == "maker" else side for side, role, _ in rows], dtype=pl.String),
        role=pl.lit(None, pl.String),
    )
    paid = md.testing.markets("polars")
    pair = (prints, plain_prints)
    spreads, of_plain = (md.effective_spread(frame, books, width="1m") for frame in pair)
    assert spreads["effective_spread"].to_list() == of_plain["effective_spread"].to_list()
    how = "accounts" if named else "source"
    assert spreads["side_by"].to_list() == [None if side is None else how for side, *_ in rows]
    volumes = [md.resample(frame, "1h")["signed_volume"].to_list() for frame in pair]
    assert volumes[0] == volumes[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", md.errors.MissingValuesWarning)
        profits = [md.pnl(frame, paid, interval=None)["profit"].to_list() for frame in pair]
    assert profits[0] == profits[1]
