"""What taking shares out of a book would have cost. No price is ever given for size that is not there."""

from __future__ import annotations

from typing import TypeVar

import narwhals as nw

from marketdata.errors import ConfigError
from marketdata.tidy.arguments import number
from marketdata.tidy.book_measures import BEFORE, PAID_BEFORE, Measure, measured, tag
from marketdata.tidy.schema import ASK, BID

F = TypeVar("F")
# A side holds what is asked for when it lacks no more than this part of it: sums of sizes differ with their order.
TOLERANCE = 1e-9
_SIDES = {ASK: ASK, "buy": ASK, BID: BID, "sell": BID}


def fill_price(frame: F, size: float | None = None) -> F:
    """Average price of taking ``size`` shares from each side of every book.

    Parameters
    ----------
    frame
        Tidy books of any frame kind.
    size : float, optional
        How many shares; without it all that rest there.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label bid_fill_price ask_fill_price`` [probability
        0 to 1]: what each share sold into the bids brings, and what each share bought from the asks costs. Null where
        the side is missing or holds less than ``size``. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        If ``size`` is no finite number above 0.

    Notes
    -----
    fill_price = sum(price * taken) / sum(taken), best levels first, the last one in part. A side holds ``size`` when it
    lacks no more than 1e-9 of it. Fees are not counted.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> book = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"] * 3, "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "side": ["bid", "ask", "ask"], "level": [0, 0, 1], "price": [0.25, 0.5, 0.75], "size": [10.0, 10.0, 20.0],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.fill_price(book, size=20).select("bid_fill_price", "ask_fill_price").row(0)
    (None, 0.625)
    """
    return measured(frame, fill_price_measure(size))


def fill_price_measure(size: float | None = None) -> Measure:
    """The measure; see `fill_price`."""
    price, level = nw.col("price"), nw.col("size")
    wanted = 0.0 if size is None else number("size", size)
    taken = level if size is None else _part(level, wanted - nw.col(BEFORE))
    needs = frozenset() if size is None else frozenset({BEFORE})
    shares, paid = (f"{what}_{tag(size)}" for what in ("shares_of", "paid_for"))
    columns = {}
    for side in (BID, ASK):
        depth, sold = nw.col(f"{side}_depth"), nw.col(f"{side}_{shares}")
        enough = (depth >= wanted * (1 - TOLERANCE)) & (sold > 0)
        columns[f"{side}_fill_price"] = nw.when(enough).then(nw.col(f"{side}_{paid}") / sold)
    return Measure(columns, {"depth": level, shares: taken, paid: price * taken}, needs)


def sweep(frame: F, side: str, *, size: float | None = None, notional: float | None = None) -> F:
    """Take one side of every book, best level first, until ``size`` or ``notional`` is reached or nothing is left.

    Parameters
    ----------
    frame
        Tidy books of any frame kind.
    side : {"ask", "buy", "bid", "sell"}
        Whose levels are taken: "ask" and "buy" mean the asks, "bid" and "sell" the bids.
    size : float
        How many shares; or
    notional : float
        how much money [USD], to be spent on asks or received from bids.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label filled shortfall average_price slippage shares
        notional``. ``filled`` + ``shortfall`` is what was asked for, in its unit [shares or USD]; ``shares`` and
        ``notional`` [USD] are what was exchanged; ``average_price`` [probability 0 to 1]; ``slippage`` from the best
        price of the side [probability, >= 0, the worse the larger]. Where the side is missing: filled 0, prices
        null. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        If ``side`` does not exist, or not exactly one of ``size`` and ``notional`` is given, finite and above 0.

    Notes
    -----
    average_price = notional / shares; slippage = abs(average_price - best). What is not there has no price: compare
    ``shortfall`` with 0 before trusting an average. A side holds what is asked for when it lacks no more than 1e-9 of
    it. Fees are not counted.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> book = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"] * 3, "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "side": ["bid", "ask", "ask"], "level": [0, 0, 1], "price": [0.25, 0.5, 0.75], "size": [10.0, 10.0, 20.0],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.sweep(book, "buy", size=20).select("filled", "shortfall", "average_price", "slippage").row(0)
    (20.0, 0.0, 0.625, 0.125)
    >>> md.sweep(book, "buy", notional=100).select("filled", "shortfall", "shares").row(0)
    (20.0, 80.0, 30.0)
    """
    return measured(frame, sweep_measure(side, size=size, notional=notional))


def sweep_measure(side: str, *, size: float | None = None, notional: float | None = None) -> Measure:
    """The measure; see `sweep`."""
    taken_side = _SIDES.get(str(side))
    if taken_side is None:
        raise ConfigError(f"side={side!r} does not exist; allowed are {', '.join(map(repr, _SIDES))}.")
    asked = {name: value for name, value in {"size": size, "notional": notional}.items() if value is not None}
    if len(asked) != 1:
        raise ConfigError(f"size={size!r} and notional={notional!r}: give exactly one of them.")
    (name, value), money = *asked.items(), "notional" in asked
    wanted = number(name, value)
    price, level = nw.col("price"), nw.col("size")
    if money:
        left, unit, needs = wanted - nw.col(PAID_BEFORE), price * level, PAID_BEFORE
        affordable = nw.when(left < price * level).then(left / price).otherwise(level)
        taken = nw.when(left > 0).then(affordable).otherwise(0.0)
    else:
        unit, needs = level, BEFORE
        taken = _part(level, wanted - nw.col(BEFORE))
    call = f"{name}_{tag(wanted)}"
    sums = {f"there_{name}": unit, f"shares_{call}": taken, f"paid_{call}": price * taken}
    there, shares, paid = (nw.col(f"{taken_side}_{c}") for c in sums)
    filled = nw.when(there < wanted * (1 - TOLERANCE)).then(there).otherwise(wanted)
    average = nw.when(shares > 0).then(paid / shares)
    columns = {
        "filled": filled,
        "shortfall": wanted - filled,
        "average_price": average,
        "slippage": (average - nw.col(f"best_{taken_side}")).abs(),
        "shares": shares,
        "notional": paid,
    }
    return Measure(columns, sums, frozenset({needs}))


def _part(level: nw.Expr, left: nw.Expr) -> nw.Expr:
    """What is taken of a level when so much is still wanted."""
    return nw.when(left <= 0).then(0.0).otherwise(nw.when(left < level).then(left).otherwise(level))
