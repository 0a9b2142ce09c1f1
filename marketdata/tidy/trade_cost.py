"""What taking shares out of a book would have cost. No price is ever given for size that is not there."""

from __future__ import annotations

from typing import Any, TypeVar

import narwhals as nw

from marketdata.errors import ConfigError
from marketdata.tidy.arguments import number
from marketdata.tidy.partitions import token_by_token
from marketdata.tidy.schema import ASK, BID
from marketdata.tidy.snapshots import HELD, KEYS, closed, is_ask_row, is_bid_row, only, snapshots

F = TypeVar("F")
_BEFORE = "__before"
_SIDES = {ASK: ASK, "buy": ASK, BID: BID, "sell": BID}


@token_by_token
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
    fill_price = sum(price * taken) / sum(taken), best levels first, the last one in part. Fees are not counted.

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
    book, level = snapshots(frame), nw.col("size")
    taken = level
    if size is not None:
        wanted = number("size", size)
        book = book.with_before(**{_BEFORE: only(nw.col(HELD), level)})
        taken = _part(level, wanted - nw.col(_BEFORE))
    values: dict[str, nw.Expr] = {}
    for side, rows in ((BID, is_bid_row), (ASK, is_ask_row)):
        values |= {
            f"__{side}_depth": only(rows, level),
            f"__{side}_taken": only(rows, taken),
            f"{side}_fill_price": only(rows, nw.col("price") * taken),
        }
    out = book.sums(**values)
    prices = []
    for side in (BID, ASK):
        enough = nw.col(f"__{side}_depth") >= (size or 0.0)
        shares = nw.col(f"__{side}_taken")
        prices.append(
            nw.when(enough & (shares > 0)).then(nw.col(f"{side}_fill_price") / shares).alias(f"{side}_fill_price")
        )
    return closed(out.select(*KEYS, *prices), frame)  # type: ignore[no-any-return]


@token_by_token
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
    ``shortfall`` with 0 before trusting an average. Fees are not counted.

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
    taken_side = _SIDES.get(str(side))
    if taken_side is None:
        raise ConfigError(f"side={side!r} does not exist; allowed are {', '.join(map(repr, _SIDES))}.")
    asked = {name: value for name, value in {"size": size, "notional": notional}.items() if value is not None}
    if len(asked) != 1:
        raise ConfigError(f"size={size!r} and notional={notional!r}: give exactly one of them.")
    rows = is_ask_row if taken_side == ASK else is_bid_row
    (name, value), money = *asked.items(), "notional" in asked
    wanted = number(name, value)
    price, level = nw.col("price"), nw.col("size")
    unit = price * level if money else level
    book = snapshots(frame).with_before(**{_BEFORE: only(rows, unit)})
    left = wanted - nw.col(_BEFORE)
    if not money:
        taken = _part(level, left)
    else:
        affordable = nw.when(left < price * level).then(left / price).otherwise(level)
        taken = nw.when(left > 0).then(affordable).otherwise(0.0)
    out = book.sums(
        __there=only(rows, unit),
        shares=only(rows, taken),
        notional=only(rows, price * taken),
        __best=only(rows & (nw.col("level") == 0).fill_null(value=False), price),
    )
    return closed(_filled(out, wanted), frame)  # type: ignore[no-any-return]


def _filled(out: Any, wanted: float) -> Any:
    there, shares = nw.col("__there"), nw.col("shares")
    # What is there decides, not the sum of parts: a side that holds exactly what is wanted leaves no crumb.
    out = out.with_columns(filled=nw.when(there < wanted).then(there).otherwise(wanted))
    out = out.with_columns(
        shortfall=wanted - nw.col("filled"),
        average_price=nw.when(shares > 0).then(nw.col("notional") / shares),
    )
    slippage = nw.when(shares > 0).then((nw.col("average_price") - nw.col("__best")).abs())
    names = ("filled", "shortfall", "average_price")
    return out.select(*KEYS, *names, slippage.alias("slippage"), "shares", "notional")


def _part(level: nw.Expr, left: nw.Expr) -> nw.Expr:
    """What is taken of a level when so much is still wanted."""
    return nw.when(left <= 0).then(0.0).otherwise(nw.when(left < level).then(left).otherwise(level))
