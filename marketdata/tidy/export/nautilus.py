"""Records of nautilus_trader, without importing it: every event is at the end of its bucket, when it was known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ConfigError
from marketdata.resolution import Resolution
from marketdata.tidy.export.hftbacktest import book_columns

_DEPTH10 = 10
_MOST_DIGITS = 9


def to_nautilus_quotes(
    frame: Any, resolution: str, *, venue: str = "MARKETDATA", digits: tuple[int, int] | None = None
) -> Iterator[dict[str, Any]]:
    """Quotes for nautilus_trader: what ``QuoteTick.from_dict`` takes.

    Parameters
    ----------
    frame
        Tidy books of any kind.
    resolution : {"1m", "10m", "1h", "6h", "1d"}
        Bucket width of the frame.
    venue : str
        Behind the token id in the instrument id.
    digits : (int, int), optional
        Decimals of prices and sizes; without it as many as the frame needs, up to 9.

    Yields
    ------
    dict
        One per snapshot with both sides, in time order: ``type instrument_id bid_price ask_price bid_size ask_size
        ts_event ts_init``, numbers as texts, times the end of the bucket [nanoseconds]. A quote has two sides:
        snapshots that lack one give none.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        If the resolution does not exist, or a number needs more digits.

    Notes
    -----
    Source: nautilus_trader 1.221, ``model.data.QuoteTick.to_dict``.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> quote = next(md.to_nautilus_quotes(archive.books(archive.records("markets")[0]["id"]), "1m"))
    >>> quote["type"], quote["ts_event"] % 60_000_000_000
    ('QuoteTick', 0)
    """
    for name, at, bids, asks in _texts(frame, resolution, venue, digits):
        if bids and asks:
            (bid, bid_size), (ask, ask_size) = bids[0], asks[0]
            sides = {"bid_price": bid, "ask_price": ask, "bid_size": bid_size, "ask_size": ask_size}
            yield {"type": "QuoteTick", "instrument_id": name, **sides, "ts_event": at, "ts_init": at}


def to_nautilus_depth(
    frame: Any, resolution: str, *, venue: str = "MARKETDATA", digits: tuple[int, int] | None = None
) -> Iterator[dict[str, Any]]:
    """Books of ten levels for nautilus_trader: what ``OrderBookDepth10.from_dict`` takes.

    Parameters
    ----------
    frame, resolution, venue, digits
        As `to_nautilus_quotes`.

    Yields
    ------
    dict
        One per snapshot in time order, one-sided and empty ones too: ``type instrument_id bids asks bid_counts
        ask_counts flags sequence ts_event ts_init``. Each side has ten orders, best first; where the book has no such
        level, an order without a side and of size 0, counted 0. Deeper levels are cut.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books.
    ConfigError
        If the resolution does not exist, or a number needs more digits.

    Notes
    -----
    Source: nautilus_trader 1.221, ``model.data.OrderBookDepth10.to_dict``.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> depth = next(md.to_nautilus_depth(archive.books(archive.records("markets")[0]["id"]), "1m"))
    >>> len(depth["bids"]), depth["bids"][0]["side"]
    (10, 'BUY')
    """
    for name, at, *levels in _texts(frame, resolution, venue, digits):
        out: dict[str, Any] = {"type": "OrderBookDepth10", "instrument_id": name}
        counts = {}
        for side, order_side, found in (("bid", "BUY", levels[0]), ("ask", "SELL", levels[1])):
            orders = [_order(order_side, *level) for level in found[:_DEPTH10]]
            counts[f"{side}_counts"] = [1] * len(orders) + [0] * (_DEPTH10 - len(orders))
            out[f"{side}s"] = orders + [_order("NO_ORDER_SIDE", "0", "0")] * (_DEPTH10 - len(orders))
        yield {**out, **counts, "flags": 0, "sequence": 0, "ts_event": at, "ts_init": at}


def _order(side: str, price: str, size: str) -> dict[str, Any]:
    return {"type": "BookOrder", "side": side, "price": price, "size": size, "order_id": 0}


def _texts(frame: Any, resolution: str, venue: str, digits: tuple[int, int] | None) -> Iterator[tuple[Any, ...]]:
    """Instrument, time [ns], bids and asks as pairs of texts, in time order."""
    width = Resolution.of(resolution).micros
    books = book_columns(frame)
    columns = [books.levels[:, i] for i in (0, 1)]
    decimals = digits or (_digits(columns[0]), _digits(columns[1]))
    for name, column, places in zip(("price", "size"), columns, decimals, strict=True):
        if not np.allclose(column, np.round(column, places), rtol=1e-12, atol=1e-12):
            raise ConfigError(f"digits={decimals!r}: some {name} needs more than {places} decimals.")
    written = [[f"{v:.{places}f}" for v in c.tolist()] for c, places in zip(columns, decimals, strict=True)]
    pairs = list(zip(*written, strict=True))
    ends = np.concatenate(([0], np.cumsum(books.counts))).tolist()
    for i in np.argsort(books.ts, kind="stable").tolist():
        a, b, c = ends[2 * i : 2 * i + 3]
        yield (
            f"{books.tokens[books.token[i]].token_id}.{venue}",
            int(books.ts[i] + width) * 1000,
            pairs[a:b],
            pairs[b:c],
        )


def _digits(values: NDArray[Any]) -> int:
    """The fewest decimals that hold every value."""
    for places in range(_MOST_DIGITS):
        if np.allclose(values, np.round(values, places), rtol=1e-12, atol=1e-12):
            return places
    return _MOST_DIGITS
