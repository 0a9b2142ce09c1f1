"""Books as records of nautilus_trader, without importing it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np

from marketdata.errors import ConfigError
from marketdata.points.arguments import choice, whole
from marketdata.points.columns import Books, Floats
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.frames import to_columns
from marketdata.tidy.grids import check_starts

_DEPTH10 = 10
# Texts of price and size, because nautilus_trader reads texts exactly.
Level = tuple[str, str]


def to_nautilus(
    frame: Any, instrument: Any, width: Width, *, kind: Literal["quotes", "depth"] = "quotes"
) -> Iterator[dict[str, Any]]:
    """Quotes or books of one token for nautilus_trader (1.221), as its ``from_dict`` takes them.

    Yields one dictionary per snapshot in time order. ``ts_event`` and ``ts_init`` are the end of the bucket [ns since
    the epoch], when the snapshot was known.

    - ``kind="quotes"``: what ``QuoteTick.from_dict`` takes, only of snapshots with both sides.
    - ``kind="depth"``: what ``OrderBookDepth10.from_dict`` takes, of every snapshot. Each side has ten orders, best
      first. The orders of missing levels have no side, and price, size and count are 0.

    Parameters
    ----------
    frame : tidy books of one token, of any kind
    instrument : instrument of nautilus_trader
        Its ``id``, ``price_precision`` and ``size_precision`` are read.
    width : str
        Bucket width of the books.

    Raises
    ------
    ConfigError
        The frame has several tokens, or a number has more decimals than the instrument: nothing is rounded.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> yes = SimpleNamespace(id="11.X", price_precision=2, size_precision=0)
    >>> books = md.testing.books("polars").filter(token_label="Yes")
    >>> quote = next(md.to_nautilus(books, yes, "1m"))
    >>> quote["bid_price"], quote["ask_price"], quote["bid_size"]
    ('0.39', '0.41', '100')
    """
    choice("kind", kind, ("quotes", "depth"))
    bucket = BucketWidth.of(width, "width")
    books = to_columns("books", frame)
    assert isinstance(books, Books)
    check_starts(books.ts, bucket)
    if len(books.tokens) > 1:
        raise ConfigError("The frame has several tokens, an instrument is one; filter by token_id first.")
    places = _decimals(instrument, "price_precision"), _decimals(instrument, "size_precision")
    texts = (_exact(values, n, what) for values, n, what in zip(books.levels(), places, ("price", "size"), strict=True))
    levels = list(zip(*texts, strict=True))
    ends = np.concatenate(([0], np.cumsum(books.counts))).tolist()
    record = _quote if kind == "quotes" else _depth
    return (
        {"instrument_id": str(instrument.id), **made, "ts_event": at, "ts_init": at}
        for i in np.argsort(books.ts, kind="stable").tolist()
        if (made := record(levels[ends[2 * i] : ends[2 * i + 1]], levels[ends[2 * i + 1] : ends[2 * i + 2]], places))
        for at in [int(books.ts[i] + bucket.micros) * 1000]
    )


def _quote(bids: Sequence[Level], asks: Sequence[Level], _places: tuple[int, int]) -> dict[str, Any]:
    """The best prices; nothing if a side is missing."""
    if not bids or not asks:
        return {}
    (bid, bid_size), (ask, ask_size) = bids[0], asks[0]
    return {"type": "QuoteTick", "bid_price": bid, "ask_price": ask, "bid_size": bid_size, "ask_size": ask_size}


def _depth(bids: Sequence[Level], asks: Sequence[Level], places: tuple[int, int]) -> dict[str, Any]:
    no_order = _order("NO_ORDER_SIDE", *(f"{0:.{n}f}" for n in places))
    made: dict[str, Any] = {"type": "OrderBookDepth10", "flags": 0, "sequence": 0}
    for name, order_side, levels in (("bid", "BUY", bids[:_DEPTH10]), ("ask", "SELL", asks[:_DEPTH10])):
        lacking = _DEPTH10 - len(levels)
        made[f"{name}s"] = [_order(order_side, *level) for level in levels] + [no_order] * lacking
        made[f"{name}_counts"] = [1] * len(levels) + [0] * lacking
    return made


def _order(side: str, price: str, size: str) -> dict[str, str | int]:
    return {"type": "BookOrder", "side": side, "price": price, "size": size, "order_id": 0}


def _decimals(instrument: Any, name: str) -> int:
    if not hasattr(instrument, name) or not hasattr(instrument, "id"):
        raise ConfigError(
            "is refused; pass an instrument of nautilus_trader, with id, price_precision and size_precision.",
            argument="instrument",
            value=instrument,
        )
    return whole(name, getattr(instrument, name), least=0)


def _exact(values: Floats, decimals: int, what: str) -> list[str]:
    """The numbers as texts with these decimals; ConfigError where one has more."""
    wrong = values[~np.isclose(values, np.round(values, decimals), rtol=1e-12, atol=1e-12)]
    if len(wrong):
        raise ConfigError(f"The {what} {wrong[0]!r} has more than the {decimals} decimals of the instrument.")
    return [f"{value:.{decimals}f}" for value in values.tolist()]
