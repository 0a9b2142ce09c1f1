"""What every function that computes with levels asks of them: prices are probabilities, sizes are not negative."""

from __future__ import annotations

from marketdata.points.columns import Books
from marketdata.points.schema import refuse_cents, refuse_negative


def refuse_no_levels(books: Books, *, all_levels: bool = True) -> None:
    """NotTidyError where a price of the levels, or of the best ones, is no probability, or a size is negative."""
    if all_levels:
        bids, asks = books.bids, books.asks
        for side in (bids,) if bids.price is asks.price and bids.size is asks.size else (bids, asks):
            refuse_cents(price=side.price)
            refuse_negative(size=side.size)
        return
    refuse_cents(best_bid=books.bids.best, best_ask=books.asks.best)
    refuse_negative(best_bid_size=books.bids.best_size, best_ask_size=books.asks.best_size)
