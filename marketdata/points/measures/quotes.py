"""Measures of the best prices: the best bid and offer, and what follows from it."""

from __future__ import annotations

import numpy as np

from marketdata.points.columns import Books, Floats, ratio
from marketdata.points.measures.registry import Values, measure


@measure(
    needs="top",
    units={
        "best_bid": "probability",
        "best_bid_size": "shares",
        "best_ask": "probability",
        "best_ask_size": "shares",
        "mid": "probability: (best_bid + best_ask) / 2",
        "spread": "probability: best_ask - best_bid",
    },
    null="the side is missing, `mid` and `spread` where either is; never 0 or 0.5",
)
def bbo(books: Books) -> dict[str, Floats]:
    """Best bid and offer of every book; a bbo frame is sorted.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.bbo(books).select("best_bid", "best_ask", "mid").rows()
    [(0.39, 0.41, 0.4), (0.59, 0.61, 0.6)]
    """
    (bid, bid_size), (ask, ask_size) = books.bids.top, books.asks.top
    top = {"best_bid": bid, "best_bid_size": bid_size, "best_ask": ask, "best_ask_size": ask_size}
    return {**top, "mid": books.mid, "spread": books.spread}


@measure(needs="top", units={"mid": "probability"}, null="a side is missing")
def mid(books: Books) -> Values:
    """Mid price of every book: (best_bid + best_ask) / 2.

    Examples
    --------
    >>> md.mid(md.testing.books("polars", buckets=1))["mid"].to_list()
    [0.4, 0.6]
    """
    return books.mid


@measure(needs="top", units={"spread": "probability, below 0 if crossed"}, null="a side is missing")
def spread(books: Books) -> Values:
    """Spread of every book: best_ask - best_bid. The metric ``spread`` of a market is another number.

    Examples
    --------
    >>> md.spread(md.testing.books("polars", buckets=1))["spread"].round(9).to_list()
    [0.02, 0.02]
    """
    return books.spread


@measure(
    needs="top",
    units={"microprice": "probability"},
    null="a side is missing",
    source='Gatheral and Oomen (2010), "Zero-intelligence realized variance estimation"',
)
def microprice(books: Books) -> Values:
    """Mid of every book, weighted towards the side with fewer shares.

    (best_bid * best_ask_size + best_ask * best_bid_size) / (best_bid_size + best_ask_size).

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.microprice(books)["microprice"].round(3).to_list()
    [0.395, 0.605]
    """
    bids, asks = books.bids, books.asks
    return ratio(bids.best * asks.best_size + asks.best * bids.best_size, bids.best_size + asks.best_size)


@measure(needs="top", units={"locked": "true or false"}, null="never: false if a side is missing", is_function=False)
def locked(books: Books) -> Values:
    """Whether best bid and best ask are equal."""
    return np.equal(books.bids.best, books.asks.best)


@measure(needs="top", units={"crossed": "true or false"}, null="never: false if a side is missing", is_function=False)
def crossed(books: Books) -> Values:
    """Whether the best bid is above the best ask."""
    return np.greater(books.bids.best, books.asks.best)
