"""What a venue's data say, by plain loops over the data of its stub; one entry a venue."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from reference import kalshi_stub, polymarket_stub
from reference.kalshi_stub import KalshiStub
from reference.polymarket_stub import PolymarketStub

from marketdata.times import HOUR, MINUTE, SECOND, Range

Rows = dict[tuple[str, int], tuple[float | None, ...]]
Prints = list[tuple[int, str, float, float, str]]


def keyed(frame: Any, *columns: str) -> Rows:
    """Values by token (or market) and time [microseconds]."""
    ids = frame["token_id" if "token_id" in frame.columns else "market_id"]
    values = zip(*(frame[name].to_list() for name in columns), strict=True)
    return dict(zip(zip(ids, frame["ts"].dt.epoch("us"), strict=True), values, strict=True))


def is_equal(got: Rows, expected: Rows) -> bool:
    """Whether both have the same keys and numbers."""

    def same(a: float | None, b: float | None) -> bool:
        return a is b or (a is not None and b is not None and math.isclose(a, b, abs_tol=1e-9))

    return got.keys() == expected.keys() and all(all(map(same, got[key], row)) for key, row in expected.items())


def printed(frame: Any) -> Prints:
    """Trades of a frame, by token and time."""
    columns = (frame[name].to_list() for name in ("token_id", "price", "size", "side"))
    return sorted((ts, *row) for ts, *row in zip(frame["ts"].dt.epoch("us").to_list(), *columns, strict=True))


def polymarket_prices(stub: PolymarketStub, markets: Sequence[Any], rng: Range, width: int) -> Rows:
    """Means of the minutes of each bucket, of the whole hours from an hour on, without the minute of the present."""
    first, last = rng.start // width * width, min(-(-rng.end // width) * width, stub.now // MINUTE * MINUTE)
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    for market in markets:
        for i, token in enumerate(market.tokens):
            for ts, price in stub.minute_prices(market, i, first, last):
                if width < HOUR or ts % HOUR == 0:
                    values[token, ts // width * width].append(price)
    return {key: (sum(group) / len(group),) for key, group in values.items()}


def polymarket_buckets(stub: PolymarketStub, markets: Sequence[Any], rng: Range, width: int) -> Rows:
    """The last price of each bucket, as the Data API has them."""
    first, last, out = rng.start // width * width, -(-rng.end // width) * width, {}
    for market in markets:
        for i, token in enumerate(market.tokens):
            for ts, price in stub.minute_prices(market, i, first, last):
                out[token, ts // width * width] = (price,)
    return out


def polymarket_trades(stub: PolymarketStub, market: Any, rng: Range) -> Prints:
    rows = stub.prints(market)
    every = [(r["timestamp"] * SECOND, r["token_id"], r["price"], r["size"], r["side"].lower()) for r in rows]
    return sorted(row for row in every if rng.start <= row[0] < rng.end)


def kalshi_views(stub: KalshiStub, markets: Sequence[Any], rng: Range, width: int) -> dict[str, Rows]:
    """Prices, quotes and metrics of markets, candle by candle."""
    out: dict[str, Rows] = {"prices": {}, "quotes": {}, "metrics": {}}
    first, last = rng.start // width * width, -(-rng.end // width) * width
    for market in markets:
        for candle in stub.buckets(market, first, last, width):
            bid, ask = (None if cents is None else cents / 100 for cents in (candle["bid"], candle["ask"]))
            at, mid, spread = candle["start"], None, None
            if bid is not None and ask is not None:
                mid, spread = (bid + ask) / 2, ask - bid
            for side, b, a in (("yes", bid, ask), ("no", 1 - ask if ask else None, 1 - bid if bid else None)):
                out["quotes"][f"{market.ticker}:{side}", at] = b, a
                out["prices"][f"{market.ticker}:{side}", at] = (mid if side == "yes" or mid is None else 1 - mid,)
            out["metrics"][market.ticker, at] = candle["volume"], 40.0, spread
    return out


def kalshi_trades(stub: KalshiStub, market: Any, rng: Range) -> Prints:
    rows = [
        (int(r["trade_id"].split("-")[1]) * MINUTE + 123_456, r["taker_outcome_side"], r) for r in stub.prints(market)
    ]
    every = [(at, f"{market.ticker}:{side}", float(r[f"{side}_price_dollars"]), 2.5, "buy") for at, side, r in rows]
    return sorted(row for row in every if rng.start <= row[0] < rng.end)


@dataclass(frozen=True)
class Venue:
    """A stub, what it is to answer (of markets, a range and a width, or a market and a range), and client options."""

    stub: Callable[..., Any]
    traps: Callable[..., Any]
    name: Callable[[Any], str]
    prices: Callable[[Any, Sequence[Any], Range, int], Rows]
    trades: Callable[[Any, Any, Range], Prints]
    options: Mapping[str, Any] = field(default_factory=dict)
    kept: str = "1m"  # the finest width that it keeps for ever

    @property
    def any_traps(self) -> st.SearchStrategy[Any]:
        """Any setting of the traps of the stub."""
        switches = {name: st.booleans() for name, v in vars(self.traps()).items() if isinstance(v, bool)}
        return st.builds(self.traps, **switches)


VENUES = {
    "polymarket": Venue(
        PolymarketStub, polymarket_stub.Traps, lambda m: str(m.slug), polymarket_prices, polymarket_trades
    ),
    "polymarket by the data api": Venue(
        PolymarketStub,
        polymarket_stub.Traps,
        lambda m: str(m.slug),
        polymarket_buckets,
        polymarket_trades,
        {"route": "data"},
        "3h",
    ),
    "kalshi": Venue(
        KalshiStub, kalshi_stub.Traps, lambda m: str(m.ticker), lambda *a: kalshi_views(*a)["prices"], kalshi_trades
    ),
}
