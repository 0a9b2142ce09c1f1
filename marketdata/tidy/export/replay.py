"""Events for a backtest, in the order in which they became known."""

from __future__ import annotations

import datetime as dt
import heapq
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters.frame import Native
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.columns import Books, Data, Token
from marketdata.points.views import View
from marketdata.renamed import renamed
from marketdata.resolution import BucketWidth, Width
from marketdata.tidy.frames import to_columns
from marketdata.tidy.grids import check_starts
from marketdata.times import to_datetime


class Book(NamedTuple):
    """The levels of one snapshot. Each side is an array of (price, size) pairs, best first, or empty."""

    bids: NDArray[np.float64]
    asks: NDArray[np.float64]


Value = Book | float | dict[str, float | None] | None
# Time, rank of the stream, view, token, value. The rank decides between equal times.
Entry = tuple[int, int, View, Token, Value]
Source = Native | Iterable[Native]


class ReplayEvent(NamedTuple):
    """One thing that became known; ``data`` is a ``Book``, a price or None, or a dict of metrics."""

    available_at: dt.datetime
    ts: dt.datetime
    view: View
    market_id: str
    token_id: str | None
    token_label: str | None
    data: Any


@renamed
def replay(*, books: Any = None, prices: Any = None, metrics: Any = None, width: Width) -> Iterator[ReplayEvent]:
    """Everything that became known, in that order, over all markets and tokens.

    Parameters
    ----------
    books, prices, metrics
        Tidy frames of any kind. Or iterables of them in time order, as from `Client.iter_books`, of which one frame at
        a time is in memory.
    width : str or timedelta
        Bucket width of the frames.

    Yields
    ------
    ReplayEvent
        By ``available_at``; at equal times books, then prices, then metrics, each in tidy order.

        - ``available_at``, ``ts``: end and start of the bucket [UTC].
        - ``view market_id token_id token_label``.
        - ``data``: a ``Book`` of two arrays of (price, size) pairs, a price or None, or a dict of metrics.

    Raises
    ------
    NotTidyError
        Frames of an iterable go back in time or share a snapshot.

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
    bucket = BucketWidth.of(width, "width")
    given: list[tuple[View, Source]] = [("books", books), ("prices", prices), ("metrics", metrics)]
    streams = [_stream(rank, view, source, bucket) for rank, (view, source) in enumerate(given) if source is not None]
    if not streams:
        raise ConfigError("Nothing is given; allowed are books=, prices= and metrics=.")
    return _timed(streams, bucket.micros)


def _timed(streams: list[Iterator[Entry]], width: int) -> Iterator[ReplayEvent]:
    for ts, _, view, token, value in heapq.merge(*streams, key=lambda item: item[:2]):
        yield ReplayEvent(to_datetime(ts + width), to_datetime(ts), view, *token, value)


def _stream(rank: int, view: View, source: Source, width: BucketWidth) -> Iterator[Entry]:
    last, seen = None, set[Token]()
    for frame in source if isinstance(source, Iterator | list | tuple) else [source]:
        columns = to_columns(view, frame)
        check_starts(columns.ts, width)
        order = np.argsort(columns.ts, kind="stable")
        if len(order) and last is not None and columns.ts[order[0]] < last:
            raise NotTidyError(f"The frames of {view} go back in time; give them in the order of ts.")
        read = _reader(view, columns)
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
            yield ts, rank, view, token, read(i)


def _reader(view: View, columns: Data) -> Callable[[int], Value]:
    """The value of the i-th entry."""
    if isinstance(columns, Books):
        levels = np.stack(columns.levels(), axis=1)
        ends = np.append(0, np.cumsum(columns.counts)).tolist()
        return lambda i: Book(levels[ends[2 * i] : ends[2 * i + 1]], levels[ends[2 * i + 1] : ends[2 * i + 2]])
    plain = {c: [None if math.isnan(v) else v for v in column.tolist()] for c, column in columns.values.items()}
    if view == "prices":
        price = plain["price"]
        return lambda i: price[i]
    return lambda i: {c: values[i] for c, values in plain.items()}
