"""What a backtest walks over: a matrix of one value, and events in the order in which they became known."""

from __future__ import annotations

import datetime as dt
import heapq
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
from numpy.typing import NDArray

from marketdata.errors import ConfigError, NotTidyError
from marketdata.resolution import Resolution
from marketdata.tidy.frames import to_columns
from marketdata.tidy.kinds import collected, floats, micros, texts, wrapped
from marketdata.tidy.series import value_of
from marketdata.times import to_datetime
from marketdata.wire.columns import AnyColumns, BookColumns, MetricColumns, PriceColumns, Token, View


class Book(NamedTuple):
    """The levels of one snapshot: each side an array of (price, size) pairs, best first; empty where missing."""

    bids: NDArray[np.float64]
    asks: NDArray[np.float64]


class Event(NamedTuple):
    """One thing that became known: when, what, of whom.

    ``data`` is a `Book` for "books", a float or None for "prices", a dict of them for "metrics".
    """

    available_at: dt.datetime
    ts: dt.datetime
    view: View
    market_id: str
    token_id: str | None
    token_label: str | None
    data: Any


def wide(frame: Any, value: str | None = None, *, columns: str = "token_id") -> Any:
    """One value as a matrix: time down, tokens across, as vectorbt takes prices.

    Parameters
    ----------
    frame
        Tidy frame of any kind with one row per (token, ts) or (market, ts), or books, of which `bbo` is taken.
    value : str, optional
        Which column; without it ``price``, or the ``mid`` of books.
    columns : {"token_id", "token_label", "market_id"}
        What names the columns; it must tell the tokens apart. Of metrics it is the market.

    Returns
    -------
    frame of the same kind
        pandas: index ``ts`` [UTC], one column per token. Others: column ``ts``, then one per token. A row per time that
        any token has; null where a token has none. By time; columns in tidy order.

    Raises
    ------
    NotTidyError
        If the frame has no ``ts`` or no ids, or two rows of one (token, ts).
    ConfigError
        If a column does not exist, or two tokens would share a column.

    Notes
    -----
    ``ts`` is the start of the bucket: shift the signals of a backtest by one row, or trade on the next one.
    `align` first, where every bucket is wanted.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> prices = archive.prices(archive.records("markets")[0]["id"])
    >>> md.wide(prices, columns="token_label").columns.tolist()
    ['No', 'Yes']
    """
    computed = collected(frame).to_native() if wrapped(frame).implementation.is_dask() else frame
    data, keys, chosen = value_of(computed, value)
    data = data.collect() if isinstance(data, nw.LazyFrame) else data
    data = data.sort(*keys, "ts", nulls_last=True)
    name = "market_id" if "token_id" not in keys and columns == "token_id" else columns
    if name not in keys:
        raise ConfigError(f"columns={columns!r} does not exist; allowed are {', '.join(map(repr, keys))}.")
    ids = list(zip(*(texts(data[k]) for k in keys), strict=True))
    ts = micros(data["ts"])
    starts = [i for i in range(len(ids)) if i == 0 or ids[i] != ids[i - 1]]
    heads = [str(ids[i][keys.index(name)]) for i in starts]
    if len(set(heads)) < len(heads):
        raise ConfigError(f"columns={columns!r} does not tell the tokens apart; use columns='token_id'.")
    rows, place = np.unique(ts, return_inverse=True)
    across = np.repeat(np.arange(len(starts)), np.diff([*starts, len(ids)]))
    if len(np.unique(place * max(len(starts), 1) + across)) < len(ts):
        raise NotTidyError("Two rows of one token stand at the same time; md.check(frame) shows where.")
    matrix = np.full((len(rows), len(starts)), np.nan)
    matrix[place, across] = floats(data[chosen])
    return _matrix(frame, rows, heads, matrix)


def _matrix(frame: Any, ts: NDArray[Any], heads: list[str], matrix: NDArray[Any]) -> Any:
    source = wrapped(frame)
    if source.implementation.is_pandas():
        import pandas as pd

        index = pd.DatetimeIndex(ts.view("M8[us]"), tz="UTC", name="ts")
        return pd.DataFrame(matrix, index=index, columns=pd.Index(heads, dtype="str"))
    import polars as pl

    times = pl.Series("ts", ts, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    values = [pl.Series(head, matrix[:, i]).fill_nan(None) for i, head in enumerate(heads)]
    out = pl.DataFrame([times, *values])
    if source.implementation.is_pyarrow():
        return out.to_arrow()
    return out.lazy() if isinstance(source, nw.LazyFrame) and source.implementation.is_polars() else out


def events(*, books: Any = None, prices: Any = None, metrics: Any = None, resolution: str) -> Iterator[Event]:
    """Everything that became known, in the order in which it did, over all markets and tokens.

    Parameters
    ----------
    books, prices, metrics
        Each a tidy frame of any kind, or an iterable of them in time order, such as `client.iter_books` gives; of
        an iterable one frame at a time is held.
    resolution : {"1m", "10m", "1h", "6h", "1d"}
        Bucket width of the frames.

    Yields
    ------
    Event
        ``available_at ts view market_id token_id token_label data``: the end and the start of the bucket [UTC];
        ``data`` a `Book` of two arrays of (price, size) pairs, a price or None, or a dict of metrics. By
        ``available_at``; at equal times books, then prices, then metrics, each in tidy order.

    Raises
    ------
    NotTidyError
        If a frame is not of its kind, or the frames of an iterable go back in time.
    ConfigError
        If the resolution does not exist, or nothing is given.

    Examples
    --------
    >>> import marketdata as md
    >>> archive = md.simulate(events=1, days=1)
    >>> market = archive.records("markets")[0]["id"]
    >>> first = next(md.events(books=archive.books(market), prices=archive.prices(market), resolution="1m"))
    >>> first.view, (first.available_at - first.ts).seconds, first.data.bids.shape[1]
    ('books', 60, 2)
    """
    width = Resolution.of(resolution)
    given: list[tuple[View, Any]] = [("books", books), ("prices", prices), ("metrics", metrics)]
    streams = [_stream(rank, view, source) for rank, (view, source) in enumerate(given) if source is not None]
    if not streams:
        raise ConfigError("Nothing is given; allowed are books=, prices= and metrics=.")
    return _timed(streams, width.micros)


def _timed(streams: list[Iterator[tuple[int, int, View, Token, Any]]], width: int) -> Iterator[Event]:
    for ts, _, view, who, value in heapq.merge(*streams, key=lambda item: item[:2]):
        yield Event(to_datetime(ts + width), to_datetime(ts), view, *who, value)


def _stream(rank: int, view: View, source: Any) -> Iterator[tuple[int, int, View, Token, Any]]:
    last = None
    for frame in _frames(source):
        columns = to_columns(view, frame)
        order = np.argsort(columns.ts, kind="stable")
        if len(order) and last is not None and columns.ts[order[0]] < last:
            raise NotTidyError(f"The frames of {view} go back in time; give them in the order of ts.")
        read = _reader(columns)
        for i in order.tolist():
            last = int(columns.ts[i])
            yield last, rank, view, columns.tokens[columns.token[i]], read(i)


def _frames(source: Any) -> Iterable[Any]:
    if isinstance(source, Iterator | list | tuple):
        return source
    return [source]


def _numbers(columns: PriceColumns | MetricColumns) -> dict[str, NDArray[np.float64]]:
    return columns.values  # noqa: PD011  # no pandas here


def _reader(columns: AnyColumns) -> Any:
    """What the i-th entry says."""
    if isinstance(columns, BookColumns):
        ends = np.concatenate(([0], np.cumsum(columns.counts))).tolist()
        return lambda i: Book(
            columns.levels[ends[2 * i] : ends[2 * i + 1]], columns.levels[ends[2 * i + 1] : ends[2 * i + 2]]
        )
    plain = {c: [None if math.isnan(v) else v for v in column.tolist()] for c, column in _numbers(columns).items()}
    if isinstance(columns, PriceColumns):
        price = plain["price"]
        return lambda i: price[i]
    return lambda i: {c: values[i] for c, values in plain.items()}
