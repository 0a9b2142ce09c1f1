"""The top of the book: best bid, best ask, mid and spread of every snapshot."""

from __future__ import annotations

from marketdata.adapters.dispatch import F
from marketdata.points import book
from marketdata.tidy.measures import of_books


def bbo(frame: F) -> F:
    """Best bid and offer of every book; a bbo frame is sorted.

    One row per (token, ts): ``ts market_id token_id token_label best_bid best_bid_size best_ask best_ask_size mid
    spread`` [probability 0 to 1, shares]. A missing side is null, also in ``mid`` = (best_bid + best_ask) / 2 and
    ``spread`` = best_ask - best_bid, never 0 or 0.5. The metric ``spread`` of a market is another number.

    Examples
    --------
    >>> books = md.testing.books("polars", buckets=1)
    >>> md.bbo(books).select("best_bid", "best_ask", "mid").rows()
    [(0.39, 0.41, 0.4), (0.59, 0.61, 0.6)]
    """
    return of_books(frame, book.bbo, all_levels=False)


def mid(frame: F) -> F:
    """Mid price of every book, one row per (token, ts): ts, ids and the column ``mid`` of `bbo`; see `bbo`."""
    return of_books(frame, book.OF_TOP["mid"], all_levels=False)


def spread(frame: F) -> F:
    """Spread of every book, one row per (token, ts): ts, ids and the column ``spread`` of `bbo`; see `bbo`.

    Negative where the book is crossed. NotTidyError for metrics, whose ``spread`` is another number.
    """
    return of_books(frame, book.OF_TOP["spread"], all_levels=False)
