"""Candles and quotes of this moment, as venues have them, against plain loops over the data of their stubs."""

from __future__ import annotations

import math
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import polymarket_stub
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub
from reference.venues import client_of

from marketdata.errors import ConfigError, NotFoundError
from marketdata.points.candles import CANDLES
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, HOUR, MINUTE, SECOND, Range, to_datetime
from marketdata.wire import kalshi

START = polymarket_stub.START
CORNERS = ("open", "high", "low", "close")
pytestmark = pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning")


@given(st.sampled_from(["1m", "5m", "1h", "1d"]), st.integers(0, 2_000), st.integers(1, 1_500), st.integers(0, 5))
@settings(max_examples=10)
def test_candles_of_polymarket_are_made_of_minutes(resolution: str, first: int, count: int, k: int) -> None:
    """First, highest, lowest, last and mean of the minutes of each bucket; the report says what they are."""
    stub, width = PolymarketStub(days=2.0), BucketWidth.of(resolution).micros
    market, start = stub.markets[k], START + first * MINUTE
    end = start + count * MINUTE
    with client_of(stub) as client:
        frame = client.candles(market.slug, to_datetime(start), to_datetime(end), resolution)
    minutes: dict[Any, list[float]] = defaultdict(list)
    for i, token in enumerate(market.tokens):
        for ts, price in stub.minute_prices(market, i, start // width * width, -(-end // width) * width):
            minutes[token, ts // width * width].append(price)
    rows = {(row["token_id"], round(row["ts"].timestamp() * SECOND)): row for row in frame.iter_rows(named=True)}
    assert rows.keys() == minutes.keys()
    for key, prices in minutes.items():
        got = [rows[key][f"price_{name}"] for name in (*CORNERS, "mean")]
        wanted = [prices[0], max(prices), min(prices), prices[-1], sum(prices) / len(prices)]
        assert got == pytest.approx(wanted)
        assert rows[key]["volume"] is rows[key]["bid_close"] is None
    assert frame.columns == ["ts", "market_id", "token_id", "token_label", *CANDLES]
    assert frame.md.report.observed["candles_of_minutes"] == len(frame)


CENTS = st.none() | st.integers(0, 100)


def drawn_candle(end: int, cents: list[int | None], suffix: str) -> dict[str, Any]:
    """A candle in either form, dollars as texts."""
    texts = [None if one is None else f"{one / 100:.4f}" for one in cents]
    sides = [
        dict(zip((f"{c}{suffix and '_dollars'}" for c in CORNERS), texts[4 * k :], strict=False)) for k in range(3)
    ]
    names = {f"volume{suffix}": f"{cents[0] or 0}.50", f"open_interest{suffix}": f"{cents[1] or 0}.00"}
    return {"end_period_ts": end // SECOND, "yes_bid": sides[0], "yes_ask": sides[1], "price": sides[2], **names}


@given(
    st.lists(
        st.tuples(st.integers(0, 60), st.lists(CENTS, min_size=12, max_size=12)), max_size=12, unique_by=lambda h: h[0]
    ),
    st.sampled_from([HOUR, DAY]),
    st.sampled_from(["", "_fp"]),
)
def test_candles_of_kalshi_are_those_of_its_hours(hours: list[Any], width: int, suffix: str) -> None:
    """Days have the first open, highest high, lowest low and last close of their hours; No mirrors Yes."""
    rows = [drawn_candle(START + (hour + 1) * HOUR, cents, suffix) for hour, cents in hours]
    series = kalshi.bars(rows, "KXRAIN-1", Range(START, START + 3 * DAY), width)
    groups: dict[int, list[Any]] = defaultdict(list)
    for hour, cents in sorted(hours, key=lambda one: one[0]):
        groups[(START + hour * HOUR) // width * width].append(cents)
    half = len(series) // 2
    assert series.ts[:half].tolist() == series.ts[half:].tolist() == sorted(groups)
    for i, start in enumerate(sorted(groups)):
        for k, side in enumerate(("bid", "ask", "price")):
            known = [
                [None if side != "price" and c in (0, 100) else c for c in cents[4 * k : 4 * k + 4]]
                for cents in groups[start]
            ]
            columns = [[one[c] for one in known if one[c] is not None] for c in range(4)]
            wanted = [f(column) if column else None for f, column in
                      zip((lambda v: v[0], max, min, lambda v: v[-1]), columns, strict=True)]  # fmt: skip
            other = {"bid": "ask", "ask": "bid", "price": "price"}[side]
            for corner, value in zip(CORNERS, wanted, strict=True):
                mirror = {"high": "low", "low": "high"}.get(corner, corner)
                yes, no = series.values[f"{side}_{corner}"][i], series.values[f"{other}_{mirror}"][half + i]
                if value is None:
                    assert math.isnan(yes)
                    assert math.isnan(no)
                else:
                    assert (yes, no) == pytest.approx((value / 100, 1 - value / 100))
        volumes = [(cents[0] or 0) + 0.5 for cents in groups[start]]
        assert series.values["volume"][i] == pytest.approx(sum(volumes))
        assert series.values["open_interest"][i] == (groups[start][-1][1] or 0)


@pytest.mark.parametrize("resolution", ["1m", "1h", "1d"])
@pytest.mark.parametrize("is_archived", [False, True])
def test_candles_of_kalshi_have_the_closes_of_its_quotes(resolution: str, is_archived: bool) -> None:
    """Of both tiers, and of several markets, with the volume of the metrics."""
    stub = KalshiStub(cutoff=START + 30 * DAY if is_archived else START)
    names = [market.ticker for market in stub.markets[:3]]
    span = to_datetime(START), to_datetime(START + DAY), resolution
    with client_of(stub) as client:
        frame, quotes, metrics = client.candles(names, *span), client.quotes(names, *span), client.metrics(names, *span)
        with pytest.raises(ConfigError, match="1m, 1h, 1d"):
            client.candles(names, *span[:2], "5m")
    keys = ["market_id", "token_id", "ts"]
    assert frame.sort(keys)["bid_close"].to_list() == quotes.sort(keys)["best_bid"].to_list()
    assert frame.sort(keys)["ask_close"].to_list() == quotes.sort(keys)["best_ask"].to_list()
    assert frame["volume"].sum() == pytest.approx(2 * metrics["volume"].sum())


@pytest.mark.parametrize("kind", [PolymarketStub, KalshiStub])
def test_the_quotes_of_now_are_the_tops_of_the_books(kind: Any) -> None:
    """One request for all tokens of known markets; a closed one has no row, an unknown one is an error."""
    stub = kind(count=12, days=0.5)
    names = [m.slug if kind is PolymarketStub else m.ticker for m in stub.markets]
    with client_of(stub) as client:
        client.now(names)
        before = sum(stub.paths.values())
        frame = client.now(names)
        assert sum(stub.paths.values()) == before + 1
        top: dict[str, tuple[float | None, ...]] = {}
        for market in stub.markets:
            if market.closed is not None and market.closed <= stub.now:
                continue
            if kind is PolymarketStub:
                for i, token in enumerate(market.tokens):
                    bids, asks = stub.levels(market, i, stub.now)
                    top[token] = (bids[0][0] if bids else None, asks[0][0] if asks else None)
            else:
                yes, no = ([(c / 100) for c, _ in side] for side in stub.levels(market, stub.now))
                bid, other = max(yes, default=None), max(no, default=None)
                top[f"{market.ticker}:yes"] = bid, None if other is None else 1 - other
                top[f"{market.ticker}:no"] = other, None if bid is None else 1 - bid
        rows = frame.iter_rows(named=True)
        got = {row["token_id"]: (row["best_bid"], row["best_ask"], row["token_label"]) for row in rows}
        assert {token: pytest.approx(values[:2]) for token, values in got.items()} == top
        assert {label for *_, label in got.values()} == {"Yes", "No"}
        assert (frame["ts"].dt.epoch("us") - stub.now).abs().max() < 60 * SECOND
        with pytest.raises(NotFoundError) as caught:
            client.now([*names, "NO-SUCH-MARKET"])
        assert caught.value.partial.height == frame.height
