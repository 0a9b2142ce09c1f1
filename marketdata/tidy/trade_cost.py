"""The cost of taking shares out of a book. Shares that are not there have no price."""

from __future__ import annotations

from typing import TypeVar

import polars as pl

from marketdata.errors import ConfigError
from marketdata.tidy.arguments import number
from marketdata.tidy.level_sums import BEFORE, PAID_BEFORE, Measure, measured, tag
from marketdata.tidy.schema import ASK, BID, TOLERANCE

F = TypeVar("F")
_SIDES = {ASK: ASK, "buy": ASK, BID: BID, "sell": BID}


def fill_price(frame: F, size: float | None = None) -> F:
    """Average price of taking shares from each side of every book, best levels first, the last one in part.

    One row per (token, ts): ts, ids and ``bid_fill_price ask_fill_price`` = sum(price * taken) / sum(taken)
    [probability]: what shares sold into the bids bring and shares bought from the asks cost, without fees. Null where
    the side is missing or lacks more than 1e-9 of ``size`` [shares], by default all that rest there.

    Examples
    --------
    >>> md.fill_price(md.testing.books("polars", buckets=1), 200).select("bid_fill_price", "ask_fill_price").row(0)
    (0.385, 0.41)
    """
    return measured(frame, fill_price_measure(size))


def fill_price_measure(size: float | None = None) -> Measure:
    """The `Measure` of `fill_price`."""
    price, level = pl.col("price"), pl.col("size")
    wanted = 0.0 if size is None else number("size", size)
    taken = level if size is None else _part(level, wanted - pl.col(BEFORE))
    needs = frozenset() if size is None else frozenset({BEFORE})
    shares, paid = (f"{what}_{tag(size)}" for what in ("shares_of", "paid_for"))
    columns = {}
    for side in (BID, ASK):
        depth, sold = pl.col(f"{side}_depth"), pl.col(f"{side}_{shares}")
        enough = (depth >= wanted * (1 - TOLERANCE)) & (sold > 0)
        columns[f"{side}_fill_price"] = pl.when(enough).then(pl.col(f"{side}_{paid}") / sold)
    return Measure(columns, {"depth": level, shares: taken, paid: price * taken}, needs)


def sweep(frame: F, side: str, *, size: float | None = None, notional: float | None = None) -> F:
    """Take one side of every book, best level first, until ``size`` or ``notional`` is reached or nothing is left.

    One row per (token, ts): ts, ids, ``filled shortfall average_price slippage shares notional``. ``filled`` +
    ``shortfall`` is the amount requested [shares or USD]; ``shares`` and ``notional`` [USD] are the amounts exchanged;
    ``average_price`` = notional / shares; ``slippage`` = abs(average_price - best price of the side). Where the side is
    missing, filled is 0 and prices are null. Check that ``shortfall`` is 0 before using a price. Tolerance and fees as
    for `fill_price`. ``side`` is "ask" or "buy" for the asks, "bid" or "sell" for the bids; give one of ``size``
    [shares] and ``notional`` [USD], to spend or to receive.

    Examples
    --------
    >>> md.sweep(md.testing.books("polars"), "buy", size=1000).select("filled", "shortfall").row(0)
    (700.0, 300.0)
    """
    return measured(frame, sweep_measure(side, size=size, notional=notional))


def sweep_measure(side: str, *, size: float | None = None, notional: float | None = None) -> Measure:
    """The `Measure` of `sweep`."""
    taken_side = _SIDES.get(str(side))
    if taken_side is None:
        raise ConfigError(f"side={side!r} does not exist; allowed are {', '.join(map(repr, _SIDES))}.")
    given = {name: value for name, value in {"size": size, "notional": notional}.items() if value is not None}
    if len(given) != 1:
        raise ConfigError(f"size={size!r} and notional={notional!r}: give exactly one of them.")
    (name, value), money = *given.items(), "notional" in given
    wanted = number(name, value)
    price, level = pl.col("price"), pl.col("size")
    if money:
        left, unit, needs = wanted - pl.col(PAID_BEFORE), price * level, PAID_BEFORE
        affordable = pl.when(left < price * level).then(left / price).otherwise(level)
        taken = pl.when(left > 0).then(affordable).otherwise(0.0)
    else:
        unit, needs = level, BEFORE
        taken = _part(level, wanted - pl.col(BEFORE))
    call = f"{name}_{tag(wanted)}"
    sums = {f"there_{name}": unit, f"shares_{call}": taken, f"paid_{call}": price * taken}
    there, shares, paid = (pl.col(f"{taken_side}_{c}") for c in sums)
    filled = pl.when(there < wanted * (1 - TOLERANCE)).then(there).otherwise(wanted)
    average = pl.when(shares > 0).then(paid / shares)
    columns = {
        "filled": filled,
        "shortfall": wanted - filled,
        "average_price": average,
        "slippage": (average - pl.col(f"best_{taken_side}")).abs(),
        "shares": shares,
        "notional": paid,
    }
    return Measure(columns, sums, frozenset({needs}))


def _part(level: pl.Expr, left: pl.Expr) -> pl.Expr:
    """The part taken of a level when ``left`` is still needed."""
    return pl.when(left <= 0).then(0.0).otherwise(pl.when(left < level).then(left).otherwise(level))
