"""What the world may send, drawn by hypothesis: tidy frames, columns and raw pages.

Books are one-sided, empty, crossed and locked; there are gaps, nulls, odd labels and ids of 77 digits.

Examples
--------
>>> from hypothesis import given
>>> from marketdata.testing import strategies
>>> @given(strategies.book_frames("polars"))
... def a_mid_is_null_or_between(books):
...     touch = books.md.bbo().drop_nulls("mid")
...     assert ((touch["mid"] >= 0) & (touch["mid"] <= 1)).all()
>>> a_mid_is_null_or_between()
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as missing:
    hint = "marketdata.testing.strategies needs hypothesis, which is not installed: pip install hypothesis"
    raise ModuleNotFoundError(hint, name="hypothesis") from missing

from marketdata.accessor import to_frame
from marketdata.times import to_text
from marketdata.typing import FrameKind
from marketdata.wire.columns import VIEWS, BookColumns, MetricColumns, PriceColumns, Token, View

MINUTE = 60_000_000
START = 1_767_225_600_000_000  # 2026-01-01

__all__ = [
    "book_columns",
    "book_frames",
    "book_pages",
    "encodings",
    "labels",
    "metric_columns",
    "metric_frames",
    "nullable",
    "pages",
    "price_columns",
    "price_frames",
    "prices",
    "sides",
    "sizes",
    "times",
    "token_sets",
]

labels = st.one_of(
    st.sampled_from(["Yes", "No", "Up", "Over 2.5"]), st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
)
prices = st.one_of(
    st.integers(0, 1000).map(lambda k: k / 1000), st.sampled_from([0, 1, 0.5, 1e-3, 0.30000000000000004])
)
sizes = st.one_of(st.integers(1, 10**7), st.floats(0.01, 1e7), st.sampled_from([1e-2, 1.5e3, 12_000_000]))


@st.composite
def sides(draw: st.DrawFn, side: str, most: int = 5) -> list[list[float]]:
    """Levels of a side, best first.

    Parameters
    ----------
    side : {"bid", "ask"}
    most : int
        Most levels.

    Returns
    -------
    strategy
        Of lists of ``[price, size]``: probability 0 to 1, shares.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> [price for price, size in find(strategies.sides("bid"), lambda levels: len(levels) == 2)]
    [0.001, 0.0]
    """
    drawn = draw(st.lists(prices, max_size=most, unique=True))
    return [[p, draw(sizes)] for p in sorted(drawn, reverse=side == "bid")]


@st.composite
def token_sets(draw: st.DrawFn, most: int = 4) -> list[Token]:
    """Tokens of one market.

    Parameters
    ----------
    most : int
        Most tokens.

    Returns
    -------
    strategy
        Of lists of Token with ids of 77 digits.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> [len(token.token_id) for token in find(strategies.token_sets(), lambda tokens: len(tokens) == 2)]
    [77, 77]
    """
    names = draw(st.lists(labels, min_size=1, max_size=most, unique=True))
    return [Token("0xm", str(10**76 + i), name) for i, name in enumerate(names)]


@st.composite
def times(draw: st.DrawFn, step: int = MINUTE, most: int = 12) -> list[int]:
    """Rising times on a grid, with gaps.

    Parameters
    ----------
    step : int
        Grid of the times [microseconds].
    most : int
        Most times.

    Returns
    -------
    strategy
        Of lists of int [microseconds UTC], from 2026-01-01 on.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> first, second = find(strategies.times(), lambda drawn: len(drawn) == 2)
    >>> second - first
    60000000
    """
    ticks = draw(st.lists(st.integers(0, 3000), max_size=most, unique=True))
    return [START + k * step for k in sorted(ticks)]


@st.composite
def book_pages(draw: st.DrawFn) -> dict[str, Any]:
    """The body of a books page, as a Python object.

    Returns
    -------
    strategy
        Of dicts with ``market_id resolution tokens data metadata`` (interface 4.2).

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> find(strategies.book_pages(), lambda page: page["metadata"]["count"] == 0)["data"].keys()
    dict_keys(['Yes'])
    """
    tokens = draw(token_sets())
    shown = [t for t in tokens if draw(st.booleans())] or tokens[:1]
    stamps = draw(times(most=4))
    data = {
        t.token_label: [
            {"t": to_text(ts), "bids": draw(sides("bid")), "asks": draw(sides("ask"))}
            for ts in stamps
            if draw(st.booleans())
        ]
        for t in shown
    }
    return {
        "market_id": "0xm",
        "resolution": "1m",
        "tokens": {t.token_label: t.token_id for t in tokens},
        "data": data,
        "metadata": {
            "count": sum(map(len, data.values())),
            "limit": 200,
            "next_cursor": draw(st.sampled_from([None, "abc", "a[,]b"])),
        },
    }


@st.composite
def encodings(draw: st.DrawFn, page: Any) -> bytes:
    """A page as JSON text in one of the ways JSON may be written.

    Parameters
    ----------
    page : object
        What JSON can say.

    Returns
    -------
    strategy
        Of bytes.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> find(strategies.encodings({"p": [1, 2]}), lambda body: True)
    b'{"p":[1,2]}'
    """
    comma = draw(st.sampled_from([",", ", ", " ,\n\t"]))
    colon = draw(st.sampled_from([":", ": ", " :  "]))
    text = json.dumps(page, separators=(comma, colon), ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8")


@st.composite
def book_columns(draw: st.DrawFn, *, step: int = MINUTE, most: int = 14) -> BookColumns:
    """Snapshots of some tokens: one-sided, empty, crossed, with gaps.

    Parameters
    ----------
    step : int
        Grid of the times [microseconds].
    most : int
        Most snapshots of a token.

    Returns
    -------
    strategy
        Of BookColumns.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> find(strategies.book_columns(), lambda books: books.counts.any()).counts.tolist()
    [0, 1]
    """
    tokens = sorted(draw(token_sets()), key=lambda t: t.sort_key)
    code, ts, counts, levels = [], [], [], []
    for i in range(len(tokens)):
        for moment in draw(times(step=step, most=most)):
            bids, asks = draw(sides("bid", 3)), draw(sides("ask", 3))
            code.append(i)
            ts.append(moment)
            counts += [len(bids), len(asks)]
            levels += [*bids, *asks]
    return BookColumns(
        tuple(tokens),
        np.array(code, np.int32),
        np.array(ts, np.int64),
        np.array(counts, np.int64),
        np.array(levels, np.float64).reshape(-1, 2),
    )


nullable = st.one_of(st.just(math.nan), prices.map(float))


@st.composite
def price_columns(draw: st.DrawFn, *, step: int = MINUTE, most: int = 20) -> PriceColumns:
    """Prices of some tokens, with gaps and nulls.

    Parameters
    ----------
    step : int
        Grid of the times [microseconds].
    most : int
        Most points of a token.

    Returns
    -------
    strategy
        Of PriceColumns.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> find(strategies.price_columns(), lambda prices: len(prices) == 1).price.tolist()
    [nan]
    """
    tokens = sorted(draw(token_sets()), key=lambda t: t.sort_key)
    code, ts, price = [], [], []
    for i in range(len(tokens)):
        for moment in draw(times(step=step, most=most)):
            code.append(i)
            ts.append(moment)
            price.append(draw(nullable))
    return PriceColumns(tuple(tokens), np.array(code, np.int32), np.array(ts, np.int64), {"price": np.array(price)})


@st.composite
def metric_columns(draw: st.DrawFn, *, most: int = 20) -> MetricColumns:
    """Metrics of some markets, with gaps and nulls.

    Parameters
    ----------
    most : int
        Most points.

    Returns
    -------
    strategy
        Of MetricColumns.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> sorted(find(strategies.metric_columns(), len).values)
    ['liquidity', 'spread', 'trades', 'volume']
    """
    markets = [Token(f"0x{i}") for i in range(draw(st.integers(1, 3)))]
    code, ts = [], []
    for i in range(len(markets)):
        for moment in draw(times(most=most)):
            code.append(i)
            ts.append(moment)
    values = {
        name: np.array([draw(nullable) for _ in ts], np.float64) for name in ("volume", "liquidity", "spread", "trades")
    }
    return MetricColumns(tuple(markets), np.array(code, np.int32), np.array(ts, np.int64), values)


def book_frames(frame: FrameKind = "pandas", *, step: int = MINUTE, most: int = 14) -> st.SearchStrategy[Any]:
    """Tidy books of one market.

    Parameters
    ----------
    frame : {"pandas", "polars"}
    step : int
        Grid of the times [microseconds].
    most : int
        Most snapshots of a token.

    Returns
    -------
    strategy
        Of frames as ``client.books`` gives them.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> find(strategies.book_frames(), lambda books: len(books) > 0)["side"].tolist()
    ['bid', 'ask']
    """
    return book_columns(step=step, most=most).map(lambda columns: to_frame(columns, frame))


def price_frames(frame: FrameKind = "pandas", *, step: int = MINUTE, most: int = 20) -> st.SearchStrategy[Any]:
    """Tidy prices of one market, nulls among them.

    Parameters
    ----------
    frame, step, most
        As in `book_frames`.

    Returns
    -------
    strategy
        Of frames as ``client.prices`` gives them.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> find(strategies.price_frames("polars"), lambda prices: prices["price"].null_count() > 0)["price"].to_list()
    [None]
    """
    return price_columns(step=step, most=most).map(lambda columns: to_frame(columns, frame))


def metric_frames(frame: FrameKind = "pandas", *, most: int = 20) -> st.SearchStrategy[Any]:
    """Tidy metrics of one to three markets, with a further metric ``trades``.

    Parameters
    ----------
    frame, most
        As in `book_frames`.

    Returns
    -------
    strategy
        Of frames as ``client.metrics`` gives them.

    Examples
    --------
    >>> from hypothesis import find
    >>> from marketdata.testing import strategies
    >>> find(strategies.metric_frames(), lambda metrics: len(metrics) > 0)["market_id"].nunique()
    1
    """
    return metric_columns(most=most).map(lambda columns: to_frame(columns, frame))


@st.composite
def pages(draw: st.DrawFn, view: View = "books") -> bytes:
    """Bodies of a history page, as JSON in one of the ways it may be written.

    Parameters
    ----------
    view : {"books", "prices", "metrics"}

    Returns
    -------
    strategy
        Of bytes.

    Examples
    --------
    >>> import marketdata as md
    >>> from hypothesis import given
    >>> @given(pages("prices"))
    ... def a_page_is_read(page):
    ...     assert "price" in md.read_pages("prices", [page]).columns
    >>> a_page_is_read()
    """
    if view == "books":
        return draw(encodings(draw(book_pages())))
    drawn: PriceColumns | MetricColumns
    drawn = draw(price_columns(most=6)) if view == "prices" else draw(metric_columns(most=6))
    field_of = {column: field for field, column in VIEWS[view].fields.items()}
    points: dict[str | None, list[dict[str, Any]]] = {token.token_label: [] for token in drawn.tokens}
    for i, (code, ts) in enumerate(zip(drawn.token.tolist(), drawn.ts.tolist(), strict=True)):
        values = {field_of.get(name, name): float(column[i]) for name, column in drawn.values.items()}
        point = {name: None if math.isnan(value) else value for name, value in values.items()}
        points[drawn.tokens[code].token_label].append({"t": to_text(ts), **point})
    count = sum(map(len, points.values()))
    body: dict[str, Any] = {"market_id": "0xm", "resolution": "1m"}
    body["metadata"] = {"count": count, "limit": 200, "next_cursor": None}
    if view == "metrics":
        first = {point["t"]: point for part in points.values() for point in part}
        return draw(encodings({**body, "data": list(first.values())}))
    body["tokens"] = {token.token_label: token.token_id for token in drawn.tokens}
    return draw(encodings({**body, "data": points}))
