"""What a book says beside its top: depth, imbalance, microprice, relative spread, locked and crossed books."""

from __future__ import annotations

from typing import TypeVar

import narwhals as nw

from marketdata.errors import ConfigError
from marketdata.tidy.arguments import number, whole
from marketdata.tidy.book_measures import DISTANCE, LEVELS, Measure, measured, tag
from marketdata.tidy.schema import ASK, BID

F = TypeVar("F")
# Prices are decimals that floats do not hold exactly: 0.5 - 0.48 is a little more than 0.02.
_SLACK = 1e-9

_bid, _ask = nw.col("best_bid"), nw.col("best_ask")
_bid_size, _ask_size = nw.col("best_bid_size"), nw.col("best_ask_size")
_two_sided = ~_bid.is_null() & ~_ask.is_null()
_microprice = nw.when(_two_sided & (_bid_size + _ask_size > 0)).then(
    (_bid * _ask_size + _ask * _bid_size) / (_bid_size + _ask_size)
)
_spread_bps = nw.when(_two_sided & (nw.col("mid") > 0)).then(10_000 * nw.col("spread") / nw.col("mid"))


def _flag(holds: nw.Expr) -> nw.Expr:
    # Through numbers, so that pandas keeps a plain truth value.
    return nw.when(_two_sided & holds).then(1.0).otherwise(0.0) > 0


MICROPRICE = Measure({"microprice": _microprice})
SPREAD_BPS = Measure({"spread_bps": _spread_bps})
LOCKED = Measure({"locked": _flag(_bid == _ask)})
CROSSED = Measure({"crossed": _flag(_bid > _ask)})


def depth(frame: F, *, levels: int | None = None, within: float | None = None) -> F:
    """Shares that rest on each side of every book.

    Parameters
    ----------
    frame
        Tidy books of any frame kind.
    levels : int, optional
        Only the best so many levels of each side.
    within : float, optional
        Only levels no farther than this from the mid [probability]. Without both: the whole side.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label bid_depth ask_depth`` [shares]. Null where the
        side is missing; with ``within`` also where the other side is, for then there is no mid. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        If ``levels`` is no whole number from 1, ``within`` no number from 0, or both are given.

    Notes
    -----
    depth = sum of ``size`` over the levels that count. A level counts as within when its distance is at most
    ``within`` + 1e-9, so that 0.48 is within 0.02 of 0.5.

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> book = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"] * 3, "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "side": ["bid", "bid", "ask"], "level": [0, 1, 0], "price": [0.25, 0.2, 0.75], "size": [10.0, 5.0, 20.0],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.depth(book).select("bid_depth", "ask_depth").row(0)
    (15.0, 20.0)
    >>> md.depth(book, levels=1)["bid_depth"].to_list()
    [10.0]
    """
    return measured(frame, depth_measure(levels=levels, within=within))


def depth_measure(*, levels: int | None = None, within: float | None = None) -> Measure:
    """The measure; see `depth`."""
    counts, needs, sides = _counted(levels, within)
    there = nw.lit(value=True) if within is None else _two_sided
    columns = {
        f"{side}_depth": nw.when((nw.col(f"{side}_{LEVELS}") > 0) & there).then(nw.col(f"{side}_{sides}"))
        for side in (BID, ASK)
    }
    return Measure(columns, {sides: counts}, needs)


def imbalance(frame: F, *, levels: int | None = None, within: float | None = None) -> F:
    """How much more rests on the bid than on the ask side of every book.

    Parameters
    ----------
    frame
        Tidy books of any frame kind.
    levels : int, optional
        Only the best so many levels of each side.
    within : float, optional
        Only levels no farther than this from the mid [probability]. Without both: the whole book.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label imbalance`` [-1 to 1; 1: bids only]. Null where a
        side is missing, and where nothing rests within. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        As `depth`.

    Notes
    -----
    imbalance = (bid_depth - ask_depth) / (bid_depth + ask_depth); Cont, Kukanov, Stoikov (2014), "The price impact of
    order book events", uses the same quantities at the best level.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> out = archive.books(archive.records("markets")[0]["id"]).md.imbalance(levels=3)["imbalance"]
    >>> bool(out.dropna().between(-1, 1).all())
    True
    """
    return measured(frame, imbalance_measure(levels=levels, within=within))


def imbalance_measure(*, levels: int | None = None, within: float | None = None) -> Measure:
    """The measure; see `imbalance`."""
    depths = depth_measure(levels=levels, within=within)
    bid, ask = (depths.columns[f"{side}_depth"] for side in (BID, ASK))
    value = nw.when(bid + ask > 0).then((bid - ask) / (bid + ask))
    return Measure({"imbalance": value}, depths.sums, depths.needs)


def microprice(frame: F) -> F:
    """Mid of every book, weighted towards the side where less rests.

    Parameters
    ----------
    frame
        Tidy books or bbo of any frame kind.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label microprice`` [probability 0 to 1]. Null where a
        side is missing. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books or bbo.

    Notes
    -----
    microprice = (best_bid * best_ask_size + best_ask * best_bid_size) / (best_bid_size + best_ask_size); the weighted
    mid of Gatheral and Oomen (2010), "Zero-intelligence realized variance estimation".

    Examples
    --------
    >>> import polars as pl, marketdata as md
    >>> book = pl.DataFrame({
    ...     "ts": ["2026-01-01T00:00"] * 2, "market_id": "m", "token_id": "1", "token_label": "Yes",
    ...     "side": ["bid", "ask"], "level": [0, 0], "price": [0.25, 0.75], "size": [30.0, 10.0],
    ... }).with_columns(pl.col("ts").str.to_datetime(time_zone="UTC"))
    >>> md.microprice(book)["microprice"].to_list()
    [0.625]
    """
    return measured(frame, MICROPRICE)


def spread_bps(frame: F) -> F:
    """Spread of every book relative to its mid.

    Parameters
    ----------
    frame
        Tidy books or bbo of any frame kind.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label spread_bps`` [1/10000 of the mid]. Null where a
        side is missing or the mid is 0, negative where the book is crossed. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books or bbo.

    Notes
    -----
    spread_bps = 10000 * (best_ask - best_bid) / mid. Near a mid of 0 it grows without a bound; `spread` does not.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> list(archive.books(archive.records("markets")[0]["id"]).md.spread_bps().columns)
    ['ts', 'market_id', 'token_id', 'token_label', 'spread_bps']
    """
    return measured(frame, SPREAD_BPS)


def locked(frame: F) -> F:
    """Whether best bid and best ask of every book are equal.

    Parameters
    ----------
    frame
        Tidy books or bbo of any frame kind.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label locked`` [true or false]. A book with a missing
        side is not locked: false, so that the column can filter. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books or bbo.

    Notes
    -----
    locked = (best_bid == best_ask).

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> int(archive.books(archive.records("markets")[0]["id"]).md.locked()["locked"].sum())
    0
    """
    return measured(frame, LOCKED)


def crossed(frame: F) -> F:
    """Whether the best bid of every book is above its best ask.

    Parameters
    ----------
    frame
        Tidy books or bbo of any frame kind.

    Returns
    -------
    frame of the same kind
        One row per (token, ts): ``ts market_id token_id token_label crossed`` [true or false]. A book with a missing
        side is not crossed: false, so that the column can filter. Tidy order.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books or bbo.

    Notes
    -----
    crossed = (best_bid > best_ask). Such books are kept by every function; this lists them.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> int(archive.books(archive.records("markets")[0]["id"]).md.crossed()["crossed"].sum())
    0
    """
    return measured(frame, CROSSED)


def _counted(levels: int | None, within: float | None) -> tuple[nw.Expr, frozenset[str], str]:
    """The size of a level that counts, what it needs, and a name for the sum."""
    size = nw.col("size")
    if levels is not None and within is not None:
        raise ConfigError(f"levels={levels!r} and within={within!r} exclude each other; give one of them.")
    if levels is not None:
        return nw.when(nw.col("level") < whole("levels", levels)).then(size), frozenset(), f"depth_levels_{levels}"
    if within is None:
        return size, frozenset(), "depth"
    number("within", within, least=0.0)
    near = nw.when(nw.col(DISTANCE) <= within + _SLACK).then(size)
    return near, frozenset({DISTANCE}), f"depth_within_{tag(within)}"
