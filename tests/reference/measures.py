"""Each measure of books as a plain loop over exact levels, with arguments to try it with; and fees, exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from reference.columns import each_book

Levels = list[tuple[Fraction, Fraction]]
Loop = Callable[..., dict[str, Any]]
SLACK = Fraction(1, 10**9)
amounts = st.one_of(st.integers(1, 10**7), st.floats(0.01, 1e8), st.sampled_from([1e-2, 1.5e3, 12_000_000]))

LOOPS: dict[str, tuple[Loop, tuple[Mapping[str, Any], ...]]] = {}


def loop(*arguments: Mapping[str, Any]) -> Callable[[Loop], Loop]:
    """Register the loop of the measure of this name."""

    def register(function: Loop) -> Loop:
        LOOPS[function.__name__] = function, arguments or ({},)
        return function

    return register


def middle(bids: Levels, asks: Levels) -> Fraction | None:
    return (bids[0][0] + asks[0][0]) / 2 if bids and asks else None


@loop()
def bbo(bids: Levels, asks: Levels) -> dict[str, Any]:
    (bid, bid_size), (ask, ask_size) = (side[0] if side else (None, None) for side in (bids, asks))
    top = {"best_bid": bid, "best_bid_size": bid_size, "best_ask": ask, "best_ask_size": ask_size}
    return {**top, **mid(bids, asks), **spread(bids, asks)}


@loop()
def mid(bids: Levels, asks: Levels) -> dict[str, Any]:
    return {"mid": middle(bids, asks)}


@loop()
def spread(bids: Levels, asks: Levels) -> dict[str, Any]:
    return {"spread": asks[0][0] - bids[0][0] if bids and asks else None}


@loop()
def microprice(bids: Levels, asks: Levels) -> dict[str, Any]:
    if not bids or not asks:
        return {"microprice": None}
    (bid, bid_size), (ask, ask_size) = bids[0], asks[0]
    return {"microprice": (bid * ask_size + ask * bid_size) / (bid_size + ask_size)}


@loop()
def locked(bids: Levels, asks: Levels) -> dict[str, Any]:
    return {"locked": bool(bids and asks) and bids[0][0] == asks[0][0]}


@loop()
def crossed(bids: Levels, asks: Levels) -> dict[str, Any]:
    return {"crossed": bool(bids and asks) and bids[0][0] > asks[0][0]}


@loop({}, {"levels": 2}, {"within": 0.0}, {"within": 0.1})
def depth(bids: Levels, asks: Levels, levels: int | None = None, within: float | None = None) -> dict[str, Any]:
    price, out = middle(bids, asks), []
    for side in (bids, asks):
        if within is None:
            out.append(sum(size for _, size in side[:levels]) if side else None)
        else:
            near = [s for p, s in side if price is not None and abs(p - price) <= Fraction(within) + SLACK]
            out.append(None if price is None else sum(near, Fraction(0)))
    return dict(zip(("bid_depth", "ask_depth"), out, strict=True))


@loop({}, {"levels": 1}, {"within": 0.02})
def imbalance(bids: Levels, asks: Levels, **cut: Any) -> dict[str, Any]:
    bid, ask = depth(bids, asks, **cut).values()
    return {"imbalance": None if bid is None or ask is None or bid + ask == 0 else (bid - ask) / (bid + ask)}


def taken(side: Levels, wanted: Fraction, *, money: bool) -> tuple[Fraction, Fraction]:
    """Shares and money that change hands, level by level."""
    shares = paid = Fraction(0)
    for price, size in side:
        remaining = wanted - (paid if money else shares)
        if remaining <= 0:
            break
        part = min(remaining, size) if not money else size if remaining >= price * size else remaining / price
        shares, paid = shares + part, paid + part * price
    return shares, paid


@loop({}, {"size": 150}, {"size": 1e5})
def fill_price(bids: Levels, asks: Levels, size: float | None = None, fees: float = 0) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, side, sign in (("bid_fill_price", bids, -1), ("ask_fill_price", asks, 1)):
        total = sum((s for _, s in side), Fraction(0))
        wanted = total if size is None else Fraction(size)
        enough = side and total >= wanted * (1 - SLACK)
        shares, paid = taken(side, wanted, money=False)
        out[name] = paid * (1 + sign * Fraction(fees)) / shares if enough else None
    return out


@loop(
    {"side": "buy", "size": 1000},
    {"side": "sell", "notional": 40.0},
    {"side": "ask", "size": 50},
)
def sweep(
    bids: Levels, asks: Levels, side: str, size: float | None = None, notional: float | None = None, fees: float = 0
) -> dict[str, Any]:
    levels = asks if side in {"buy", "ask"} else bids
    wanted = Fraction(notional if size is None else size)
    shares, paid = taken(levels, wanted, money=size is None)
    filled = paid if size is None else shares
    filled = wanted if filled >= wanted * (1 - SLACK) else filled
    average = paid / shares if shares else None
    slippage = None if average is None else abs(average - levels[0][0])
    out = {"filled": filled, "shortfall": wanted - filled, "average_price": average, "slippage": slippage}
    return {**out, "shares": shares, "notional": paid, **({"fee": paid * Fraction(fees)} if fees else {})}


def looped(books: Any, measure: Callable[[Levels, Levels], Any]) -> list[tuple[Any, ...]]:
    """Rows of a measure that is a loop over the exact levels of each book."""
    out = []
    for token, ts, *sides in each_book(books):
        values = measure(*([(Fraction(p), Fraction(s)) for p, s in side] for side in sides))
        values = values.values() if isinstance(values, dict) else values
        plain = (float(v) if isinstance(v, int | Fraction) and not isinstance(v, bool) else v for v in values)
        out.append((ts, *token, *plain))
    return out


def exact(kind: str, rate: float, price: Fraction, shares: Fraction) -> Fraction:
    """The fee of one trade, unrounded."""
    return Fraction(rate) * price * shares * (1 - price if kind == "quadratic" else 1)


def legs(side: list[Any], wanted: Fraction) -> list[tuple[Fraction, Fraction]]:
    """Price and shares of each level that is taken, the last one in part."""
    out = []
    for price, size in side:
        if wanted <= 0:
            break
        out.append((price, min(size, wanted)))
        wanted -= size
    return out
