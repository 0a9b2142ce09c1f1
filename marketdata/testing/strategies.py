"""Strategies of hypothesis for tidy frames, columns and raw pages, with gaps, nulls, odd labels and long ids."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np

try:
    from hypothesis import strategies as st
except ModuleNotFoundError as missing:
    hint = "marketdata.testing.strategies needs hypothesis, which is not installed: pip install hypothesis"
    raise ModuleNotFoundError(hint, name="hypothesis") from missing

from marketdata.points.columns import METRICS, Books, Ints, Series, Token, Trades
from marketdata.points.views import VIEWS, View, quotes_of
from marketdata.tidy.frames import to_frame
from marketdata.times import MINUTE, SECOND, to_text
from marketdata.typing import FrameKind

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
    "quote_columns",
    "quote_frames",
    "sides",
    "sizes",
    "times",
    "token_sets",
    "trade_columns",
    "trade_frames",
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
    """Strategy of ``[price, size]`` levels of a ``side``, best first, ``most`` at most; see `book_frames`."""
    drawn = draw(st.lists(prices, max_size=most, unique=True))
    return [[p, draw(sizes)] for p in sorted(drawn, reverse=side == "bid")]


@st.composite
def token_sets(draw: st.DrawFn, most: int = 4) -> list[Token]:
    """Strategy of lists of Tokens of one market, ``most`` at most, with ids of 77 digits; see `book_frames`."""
    token_labels = draw(st.lists(labels, min_size=1, max_size=most, unique=True))
    return [Token("0xm", str(10**76 + i), label) for i, label in enumerate(token_labels)]


@st.composite
def times(draw: st.DrawFn, step: int = MINUTE, most: int = 12) -> list[int]:
    """Strategy of rising times [microseconds UTC] on a grid with gaps, from 2026-01-01 on; see `book_frames`."""
    ticks = draw(st.lists(st.integers(0, 3000), max_size=most, unique=True))
    return [START + k * step for k in sorted(ticks)]


@st.composite
def book_pages(draw: st.DrawFn) -> dict[str, Any]:
    """Strategy of bodies of books pages, as dicts (interface 4.2); see `pages`."""
    tokens = draw(token_sets())
    present = [t for t in tokens if draw(st.booleans())] or tokens[:1]
    moments = draw(times(most=4))
    data = {
        t.token_label: [
            {"t": to_text(ts), "bids": draw(sides("bid")), "asks": draw(sides("ask"))}
            for ts in moments
            if draw(st.booleans())
        ]
        for t in present
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
def encodings(draw: st.DrawFn, page: object) -> bytes:
    """Strategy of a ``page`` as JSON bytes, with keys in any order and any white space; see `pages`."""
    if isinstance(page, dict):
        page = {key: page[key] for key in draw(st.permutations(list(page)))}
    comma = draw(st.sampled_from([",", ", ", " ,\n\t"]))
    colon = draw(st.sampled_from([":", ": ", " :  "]))
    text = json.dumps(page, separators=(comma, colon), ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8")


@st.composite
def _entries(draw: st.DrawFn, tokens: list[Token], step: int, most: int) -> tuple[Ints, Ints]:
    """Strategy of the bounds of tokens and the times of their entries."""
    ts = [draw(times(step=step, most=most)) for _ in tokens]
    return np.cumsum([0, *map(len, ts)]), np.array([moment for part in ts for moment in part], np.int64)


@st.composite
def book_columns(draw: st.DrawFn, *, step: int = MINUTE, most: int = 14) -> Books:
    """Strategy of one-sided, empty and crossed Books with gaps; parameters as for `book_frames`."""
    tokens = sorted(draw(token_sets()), key=lambda t: t.sort_key)
    edges, ts = draw(_entries(tokens, step, most))
    drawn_sides = [draw(sides(side, 3)) for _ in ts for side in ("bid", "ask")]
    counts = np.array([len(side) for side in drawn_sides], np.int64)
    price, size = np.array([level for side in drawn_sides for level in side], np.float64).reshape(-1, 2).T
    return Books.of_levels((), edges, ts, counts, price, size).with_tokens(tokens, edges)


nullable = st.one_of(st.just(math.nan), prices.map(float))


@st.composite
def _series(draw: st.DrawFn, tokens: list[Token], names: tuple[str, ...], step: int, most: int) -> Series:
    """Strategy of Series with these values, nulls among them; parameters as for `book_frames`."""
    edges, ts = draw(_entries(tokens, step, most))
    values = {name: np.array([draw(nullable) for _ in ts], np.float64) for name in names}
    return Series((), edges, ts, values).with_tokens(tokens, edges)


@st.composite
def price_columns(draw: st.DrawFn, *, step: int = MINUTE, most: int = 20) -> Series:
    """Strategy of Series of prices of some tokens, with gaps and nulls; parameters as for `book_frames`."""
    tokens = sorted(draw(token_sets()), key=lambda t: t.sort_key)
    return draw(_series(tokens, ("price",), step, most))


@st.composite
def quote_columns(draw: st.DrawFn, *, step: int = MINUTE, most: int = 14) -> Series:
    """Strategy of Series of one-sided, empty and crossed quotes without sizes; parameters as for `book_frames`."""
    quotes = quotes_of(draw(book_columns(step=step, most=most)))
    unknown = np.array([draw(st.booleans()) for _ in quotes.ts], bool)
    sizes = {name: np.where(unknown, np.nan, quotes.values[name]) for name in ("best_bid_size", "best_ask_size")}
    return replace(quotes, values={**quotes.values, **sizes})


@st.composite
def metric_columns(draw: st.DrawFn, *, most: int = 20) -> Series:
    """Strategy of Series of metrics of some markets, with gaps and nulls; parameters as for `book_frames`."""
    markets = [Token(f"0x{i}") for i in range(draw(st.integers(1, 3)))]
    return draw(_series(markets, (*METRICS, "trades"), MINUTE, most))


def book_frames(frame: FrameKind = "pandas", *, step: int = MINUTE, most: int = 14) -> st.SearchStrategy[Any]:
    """Strategy of tidy books of one market: one-sided, empty, crossed and locked.

    Parameters
    ----------
    frame : {"pandas", "polars"}
        Kind of frame; its columns are those of `marketdata.Client.books`.
    step : int
        Grid of the times [microseconds].
    most : int
        Largest number of snapshots of a token.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> from marketdata.testing.strategies import book_frames
    >>> @settings(max_examples=3)
    ... @given(book_frames())
    ... def check(books):
    ...     assert set(books["side"]) <= {"bid", "ask"}
    >>> check()
    """
    return book_columns(step=step, most=most).map(lambda columns: to_frame(columns, frame))


def price_frames(frame: FrameKind = "pandas", *, step: int = MINUTE, most: int = 20) -> st.SearchStrategy[Any]:
    """Strategy of tidy prices of one market, nulls among them; see `book_frames`."""
    return price_columns(step=step, most=most).map(lambda columns: to_frame(columns, frame))


def quote_frames(frame: FrameKind = "pandas", *, step: int = MINUTE, most: int = 14) -> st.SearchStrategy[Any]:
    """Strategy of tidy quotes of one market, some without sizes or a side; see `book_frames`."""
    return quote_columns(step=step, most=most).map(lambda columns: to_frame(columns, frame))


def metric_frames(frame: FrameKind = "pandas", *, most: int = 20) -> st.SearchStrategy[Any]:
    """Strategy of tidy metrics of one to three markets, with a further metric ``trades``; see `book_frames`."""
    return metric_columns(most=most).map(lambda columns: to_frame(columns, frame))


@st.composite
def trade_columns(draw: st.DrawFn, *, step: int = SECOND, most: int = 14) -> Trades:
    """Strategy of Trades of one market, several of one time and equal ones; parameters as for `book_frames`."""
    tokens = draw(token_sets(most=2))
    prints = draw(st.lists(st.tuples(st.sampled_from(tokens), st.integers(0, 40), prices, sizes), max_size=most))
    known = draw(st.booleans())
    sides = [draw(st.sampled_from(["buy", "sell", None])) for _ in prints]
    values: dict[str, Any] = {
        "side": np.array(sides, object),
        "price": np.array([one[2] for one in prints], float),
        "size": np.array([one[3] for one in prints], float),
    }
    if known:
        values |= {"trade_id": np.array([f"t{i}" for i in range(len(prints))], object)}
        values |= {"is_block": np.array([draw(st.sampled_from([0.0, 1.0, np.nan])) for _ in prints], float)}
    ts = np.array([START + one[1] * step for one in prints], np.int64)
    return Trades.of([one[0] for one in prints], np.arange(len(prints)), ts, values)


def trade_frames(frame: FrameKind = "pandas", *, step: int = SECOND, most: int = 14) -> st.SearchStrategy[Any]:
    """Strategy of tidy trades of one market, some with ids, some of unknown side; see `book_frames`."""
    return trade_columns(step=step, most=most).map(lambda columns: to_frame(columns, frame))


@st.composite
def pages(draw: st.DrawFn, view: View = "books") -> bytes:
    """Strategy of bytes: bodies of history pages of a ``view``, as a service may write them.

    Examples
    --------
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=3)
    ... @given(pages("prices"))
    ... def check(page):
    ...     assert "price" in md.read_pages("prices", [page]).columns
    >>> check()
    """
    if view == "books":
        return draw(encodings(draw(book_pages())))
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
