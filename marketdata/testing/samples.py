"""Small tidy frames with round numbers, for examples and tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from marketdata.points.arguments import whole
from marketdata.points.columns import Books, Ints, Series, Token, Trades
from marketdata.resolution import BucketWidth, Resolution
from marketdata.tidy import records
from marketdata.tidy.frames import FrameKind, to_frame
from marketdata.times import SECOND, to_micros, to_text

_START = to_micros("2026-01-01", "start")
_MARKET_IDS = ("rain", "snow", "wind", "frost")


def _tokens(markets: int) -> tuple[Token, ...]:
    markets = whole("markets", markets, most=len(_MARKET_IDS))
    labels = ("Yes", "No")
    return tuple(Token(_MARKET_IDS[m], f"{m + 1}{t + 1}", labels[t]) for m in range(markets) for t in range(2))


def _grid(tokens: tuple[Token, ...], buckets: int, resolution: str) -> tuple[tuple[Token, ...], Ints, Ints]:
    """Return tokens, their bounds and the time of each entry."""
    ts = _START + np.arange(buckets, dtype=np.int64) * Resolution.of(resolution).micros
    tokens = tokens if buckets else ()
    return tokens, np.arange(len(tokens) + 1) * buckets, np.tile(ts, len(tokens))


def _moves(buckets: int) -> Ints:
    """Return how far the mid is from its start in each bucket [cents]."""
    return np.resize(np.array([0, 1, 3, 2, 4, 2, 1], dtype=np.int64), whole("buckets", buckets, least=0))


def _mids(markets: int, buckets: int) -> Ints:
    """Return the mids [cents], one row per token; Yes and No add up to 100."""
    yes = 40 + 10 * np.arange(markets)[:, None] + _moves(buckets)
    return np.stack((yes, 100 - yes), axis=1).reshape(2 * markets, buckets)


def books(
    frame: FrameKind = "pandas", *, markets: int = 1, buckets: int = 3, levels: int = 2, resolution: str = "1m"
) -> Any:
    """Order books of two tokens a market, Yes and No, from 2026-01-01 on.

    One row per level of a book side: ``ts market_id token_id token_label side level price size``. The book of No
    mirrors the book of Yes. Levels are one cent apart, and the best ones are one cent from the mid.

    Parameters
    ----------
    frame : {"pandas", "polars"}
        Kind of frame.
    markets : int
        1 to 4 markets: "rain", "snow", "wind" and "frost".
    buckets : int
        Snapshots of each token.
    levels : int
        1 to 30 levels on each side.
    resolution : str
        Time between snapshots, "1m" to "1d".

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> books.select("token_label", "side", "level", "price", "size").row(1)
    ('Yes', 'bid', 1, 0.38, 200.0)
    """
    tokens, mids = _tokens(markets), _mids(markets, buckets)
    level = np.arange(whole("levels", levels, most=30))
    smaller, larger = 100.0 * (level + 1), 100.0 * (level + 3)
    sizes = np.array([[[smaller, larger]], [[larger, smaller]]] * markets)
    price = (mids[:, :, None, None] + np.stack([-1 - level, 1 + level])) / 100
    size = np.broadcast_to(sizes, price.shape).ravel()
    counts = np.full(2 * len(tokens) * buckets, levels, np.int64)
    books = Books.of_levels(*_grid(tokens, buckets, resolution), counts, price.ravel(), size)
    return to_frame(books, frame, width=BucketWidth.of(resolution))


def prices(frame: FrameKind = "pandas", *, markets: int = 1, buckets: int = 3, resolution: str = "1m") -> Any:
    """Prices of the tokens, equal to the mids of `books`; for parameters see `books`.

    One row per token and bucket: ``ts market_id token_id token_label price``.
    """
    tokens, mids = _tokens(markets), _mids(markets, buckets)
    prices = Series(*_grid(tokens, buckets, resolution), {"price": mids.ravel() / 100})
    return to_frame(prices, frame, width=BucketWidth.of(resolution))


def quotes(frame: FrameKind = "pandas", *, markets: int = 1, buckets: int = 3, resolution: str = "1m") -> Any:
    """Quotes of the tokens, the top of `books`.

    One row per token and bucket: ``ts market_id token_id token_label best_bid best_bid_size best_ask best_ask_size mid
    spread``.

    Parameters
    ----------
    markets, buckets, resolution
        As for `books`.

    Examples
    --------
    >>> md.testing.quotes("polars", buckets=1)["mid"].round(2).to_list()
    [0.4, 0.6]
    """
    from marketdata.tidy.book_measures import FUNCTIONS

    return FUNCTIONS["bbo"](books(frame, markets=markets, buckets=buckets, resolution=resolution))


def metrics(frame: FrameKind = "pandas", *, markets: int = 1, buckets: int = 3, resolution: str = "1m") -> Any:
    """Metrics of the markets; for parameters see `books`.

    One row per market and bucket: ``ts market_id volume liquidity spread``.
    """
    market_tokens = tuple(Token(token.market_id) for token in _tokens(markets)[::2])
    volume = 100.0 + 10.0 * np.tile(_moves(buckets), markets)
    values = {"volume": volume, "liquidity": np.full(len(volume), 1000.0), "spread": np.full(len(volume), 0.02)}
    metrics = Series(*_grid(market_tokens, buckets, resolution), values)
    return to_frame(metrics, frame, width=BucketWidth.of(resolution))


def trades(frame: FrameKind = "pandas", *, markets: int = 1, buckets: int = 3, resolution: str = "1m") -> Any:
    """Prints of the markets, two in each bucket at the best prices of the books; for parameters see `books`.

    One row per print: ``ts market_id token_id token_label side price size trade_id``. The taker buys, then sells.

    Examples
    --------
    >>> md.testing.trades("polars", buckets=1).select("side", "price", "trade_id").rows()[:2]
    [('buy', 0.41, 'rain-11-0'), ('sell', 0.39, 'rain-11-1')]
    """
    rows = quotes("polars", markets=markets, buckets=buckets, resolution=resolution).rows(named=True)
    tokens = [Token(*(row[name] for name in Token._fields)) for row in rows for _ in range(2)]
    numbers = [place - tokens.index(token) for place, token in enumerate(tokens)]
    ids = [f"{token.market_id}-{token.token_id}-{number}" for token, number in zip(tokens, numbers, strict=True)]
    seconds = [round(row["ts"].timestamp()) + second for row in rows for second in (0, 20)]
    values = {
        "side": np.array(["buy", "sell"] * len(rows), object),
        "price": np.array([row[name] for row in rows for name in ("best_ask", "best_bid")], float),
        "size": np.tile([5.0, 3.0], len(rows)),
        "trade_id": np.array(ids, object),
    }
    return to_frame(Trades.of(tokens, np.arange(len(tokens)), np.array(seconds, np.int64) * SECOND, values), frame)


def markets(frame: FrameKind = "pandas", *, markets: int = 1) -> Any:
    """Records of the markets, resolved in turn as Yes and No; for parameters see `books`.

    One row per market: ``market_id slug question status start_date end_date token_ids token_labels closed_at event_slug
    resolved_token_id resolved_token_label``.
    """
    tokens = _tokens(markets)
    end = to_text(_START + Resolution.D1.micros)
    rows = [
        {
            "id": yes.market_id,
            "slug": f"{yes.market_id}-tomorrow",
            "question": f"Will there be {yes.market_id} tomorrow?",
            "status": "resolved",
            "start_date": to_text(_START),
            "end_date": end,
            "closed_at": end,
            "tokens": [{"id": token.token_id, "label": token.token_label} for token in (yes, no)],
            "event_slug": "weather-tomorrow",
            "resolved_token_id": (yes, no)[i % 2].token_id,
            "resolved_token_label": (yes, no)[i % 2].token_label,
        }
        for i, (yes, no) in enumerate(zip(tokens[::2], tokens[1::2], strict=True))
    ]
    return records.to_frame("markets", rows, frame)


__all__ = ["books", "markets", "metrics", "prices", "quotes", "trades"]
