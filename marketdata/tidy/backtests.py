"""Rows for backtesters: events in the order in which they became known, and records of nautilus_trader."""

from __future__ import annotations

import datetime as dt
import heapq
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory, read
from marketdata.adapters.frame import Native
from marketdata.adapters.widths import width_of
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import choice, whole
from marketdata.points.columns import Books, Data, Floats, Token
from marketdata.points.views import View
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.frames import to_columns
from marketdata.tidy.measures import TOP_KINDS
from marketdata.times import to_datetime, to_text

_DEPTH10 = 10


class Book(NamedTuple):
    """The levels of one snapshot. Each side is an array of (price, size) pairs, best first, or empty."""

    bids: NDArray[np.float64]
    asks: NDArray[np.float64]


# Time when it was known, rank of the stream, ts, view, token, data. The rank decides between equal times.
Entry = tuple[int, int, int, View, Token, Any]
Source = Native | Iterable[Native]
Level = tuple[str, ...]


class ReplayEvent(NamedTuple):
    """One thing that became known; ``data`` is a ``Book``, a price or None, or a dict of metrics or quotes."""

    available_at: dt.datetime
    ts: dt.datetime
    view: View
    market_id: str
    token_id: str | None
    token_label: str | None
    data: Any


def replay(
    *, books: Any = None, quotes: Any = None, prices: Any = None, metrics: Any = None, width: Width | None = None
) -> Iterator[ReplayEvent]:
    """Every row as an event, in the order in which rows became known, over all markets and tokens.

    Parameters
    ----------
    books, quotes, prices, metrics
        Tidy frames of any kind. Or iterables of them in time order, as from `Client.iter_books`, of which one frame at
        a time is in memory.
    width : str or timedelta, optional
        Bucket width of all frames; by default the one that each carries.

    Yields
    ------
    ReplayEvent
        By ``available_at``; at equal times books, quotes, prices, metrics, each in tidy order.

        - ``available_at``, ``ts``: end and start of the bucket [UTC].
        - ``view market_id token_id token_label``.
        - ``data``: a ``Book`` of two arrays of (price, size) pairs, a price or None, or a dict of metrics, or of
          ``best_bid best_bid_size best_ask best_ask_size``.

    Raises
    ------
    NotTidyError
        Frames of an iterable go back in time or share a snapshot.
    GridError
        The times of a frame are of no buckets of ``width``.

    Examples
    --------
    >>> books = md.testing.books()
    >>> prices = md.testing.prices()
    >>> first = next(md.replay(books=books, prices=prices, width="1m"))
    >>> (
    ...     first.view,
    ...     (first.available_at - first.ts).seconds,
    ...     first.data.bids.tolist(),
    ... )
    ('books', 60, [[0.39, 100.0], [0.38, 200.0]])
    """
    given: list[tuple[View, Source]] = [
        ("books", books), ("quotes", quotes), ("prices", prices), ("metrics", metrics)
    ]  # fmt: skip
    common = None if width is None else BucketWidth.of(width, "width")
    streams = [_stream(rank, view, source, common) for rank, (view, source) in enumerate(given) if source is not None]
    if not streams:
        raise ConfigError("Nothing is given; allowed are books=, quotes=, prices= and metrics=.")
    return (
        ReplayEvent(to_datetime(known), to_datetime(ts), view, *token, data)
        for known, _, ts, view, token, data in heapq.merge(*streams, key=lambda item: item[:2])
    )


def _stream(rank: int, view: View, source: Source, width: BucketWidth | None) -> Iterator[Entry]:
    last, seen = None, set[Token]()
    for frame in source if isinstance(source, Iterator | list | tuple) else [source]:
        table = read(frame)
        rows, columns = width_of(table, width, what=view), to_columns(view, in_memory(table, [view]).native)
        rows.check(columns.ts)
        order = np.argsort(columns.ts, kind="stable")
        if len(order) and last is not None and columns.ts[order[0]] < last:
            raise NotTidyError(f"The frames of {view} go back in time; give them in the order of ts.")
        data = _reader(view, columns)
        for i in order.tolist():
            ts, token = int(columns.ts[i]), columns.tokens[columns.token[i]]
            if ts != last:
                last, seen = ts, set()
            if token in seen:
                raise NotTidyError(
                    f"Two frames of {view} have rows of one token at {to_datetime(ts).isoformat()}; cut them between "
                    "two times."
                )
            seen.add(token)
            yield ts + rows.micros, rank, ts, view, token, data(i)


def _reader(view: View, columns: Data) -> Callable[[int], Any]:
    """The data of the i-th entry."""
    if isinstance(columns, Books):
        levels = np.stack(columns.levels(), axis=1)
        ends = np.append(0, np.cumsum(columns.counts)).tolist()
        return lambda i: Book(levels[ends[2 * i] : ends[2 * i + 1]], levels[ends[2 * i + 1] : ends[2 * i + 2]])
    values = {c: [None if math.isnan(v) else v for v in column.tolist()] for c, column in columns.values.items()}
    if view == "prices":
        return lambda i: values["price"][i]
    return lambda i: {c: column[i] for c, column in values.items()}


def to_nautilus(
    frame: Any, instrument: Any, width: Width | None = None, *, kind: Literal["quotes", "depth"] = "quotes"
) -> Iterator[dict[str, Any]]:
    """Quotes or books of one token for nautilus_trader (1.221), as its ``from_dict`` takes them.

    Yields one dictionary per snapshot in time order. ``ts_event`` and ``ts_init`` are the end of the bucket [ns since
    the epoch], when the snapshot was known.

    - ``kind="quotes"``: what ``QuoteTick.from_dict`` takes, only of snapshots with both sides. Best prices are enough.
    - ``kind="depth"``: what ``OrderBookDepth10.from_dict`` takes, of every snapshot. Each side has ten orders, best
      first. The orders of missing levels have no side, and price, size and count are 0.

    Parameters
    ----------
    frame : tidy books, or quotes, of one token, of any kind
    instrument : instrument of nautilus_trader
        Its ``id``, ``price_precision`` and ``size_precision`` are read.
    width : str or timedelta, optional
        Bucket width of the books; by default the one that they carry.

    Raises
    ------
    ConfigError
        The frame has several tokens, a size is not known, or a number has more decimals than the instrument: nothing
        is rounded.

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
    table = read(frame)
    rows = width_of(table, width, what="the books")
    books = frames.sorted_books(in_memory(table, TOP_KINDS if kind == "quotes" else TOP_KINDS[:2]))[1].sort()
    rows.check(books.ts)
    if len(books.tokens) > 1:
        raise ConfigError("The frame has several tokens, an instrument is one; filter by token_id first.")
    has_both = (books.bids.counts > 0) & (books.asks.counts > 0)
    unknown = has_both & np.isnan(books.bids.top[1] + books.asks.top[1])
    if unknown.any():
        at = to_text(int(books.ts[unknown][0]))
        raise ConfigError(
            f"A size of the best prices at {at} is null, and nautilus_trader needs both sizes; fill them."
        )
    # Texts of price and size, because nautilus_trader reads texts exactly; the last pair stands for a missing level.
    columns = zip(("price", "size"), books.levels(), strict=True)
    texts = (_exact(instrument, name, np.append(values, 0.0)) for name, values in columns)
    *levels, no_level = zip(*texts, strict=True)
    ends = np.append(0, np.cumsum(books.counts)).tolist()

    def record(i: int) -> dict[str, Any]:
        bids, asks = levels[ends[2 * i] : ends[2 * i + 1]], levels[ends[2 * i + 1] : ends[2 * i + 2]]
        at = int(books.ts[i] + rows.micros) * 1000
        values = _depth(bids, asks, no_level) if kind == "depth" else _quote(*bids[0], *asks[0])
        return {"instrument_id": str(instrument.id), **values, "ts_event": at, "ts_init": at}

    return (record(i) for i in np.argsort(books.ts, kind="stable").tolist() if kind == "depth" or has_both[i])


def _quote(bid: str, bid_size: str, ask: str, ask_size: str) -> dict[str, Any]:
    return {"type": "QuoteTick", "bid_price": bid, "ask_price": ask, "bid_size": bid_size, "ask_size": ask_size}


def _depth(bids: Sequence[Level], asks: Sequence[Level], no_level: Level) -> dict[str, Any]:
    """Ten orders and their counts per side, best first."""
    sides: dict[str, Any] = {"type": "OrderBookDepth10", "flags": 0, "sequence": 0}
    for name, order_side, levels in (("bid", "BUY", bids[:_DEPTH10]), ("ask", "SELL", asks[:_DEPTH10])):
        orders = [(order_side, level) for level in levels]
        orders += [("NO_ORDER_SIDE", no_level)] * (_DEPTH10 - len(levels))
        sides[f"{name}s"] = [
            {"type": "BookOrder", "side": side, "price": price, "size": size, "order_id": 0}
            for side, (price, size) in orders
        ]
        sides[f"{name}_counts"] = [int(side == order_side) for side, _ in orders]
    return sides


def _exact(instrument: Any, name: str, values: Floats) -> list[str]:
    """Prices or sizes as texts with the decimals of the instrument; ConfigError where one has more."""
    if not hasattr(instrument, f"{name}_precision") or not hasattr(instrument, "id"):
        raise ConfigError(
            "is refused; pass an instrument of nautilus_trader, with id, price_precision and size_precision.",
            argument="instrument",
            value=instrument,
        )
    decimals = whole(f"{name}_precision", getattr(instrument, f"{name}_precision"), least=0)
    wrong = values[~np.isclose(values, np.round(values, decimals), rtol=1e-12, atol=1e-12)]
    if len(wrong):
        raise ConfigError(f"The {name} {wrong[0]!r} has more than the {decimals} decimals of the instrument.")
    return [f"{value:.{decimals}f}" for value in values.tolist()]
