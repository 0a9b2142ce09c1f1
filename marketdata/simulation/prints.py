"""Simulated trades: each takes shares at the best price of the book of its minute."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from marketdata.points.columns import Books, Trades
from marketdata.times import MINUTE, SECOND

_PER_BOOK = 0.25  # prints of a token and minute, in the mean
_ACCOUNTS = 60  # of a market


def draw_accounts(rng: np.random.Generator) -> NDArray[np.object_]:
    """The accounts that trade a market."""
    return np.array([f"0x{number:040x}" for number in rng.integers(1, 2**62, _ACCOUNTS).tolist()], object)


def draw_prints(rng: np.random.Generator, books: Books, name: str, accounts: NDArray[np.object_]) -> Trades:
    """Prints of the tokens of some books, with ids that begin with ``name``.

    A buy is at the best ask, a sale at the best bid, and no print is larger than what is there. Accounts repeat: a few
    of them trade often.
    """
    drawn = rng.poisson(_PER_BOOK, len(books))
    entry = np.repeat(np.arange(len(books)), drawn)
    is_buy = rng.random(len(entry)) < 0.5
    share = np.minimum(1.0, rng.exponential(0.2, len(entry)))
    price = np.where(is_buy, books.asks.best[entry], books.bids.best[entry])
    size = np.round(share * np.where(is_buy, books.asks.best_size[entry], books.bids.best_size[entry]), 2)
    ts = books.ts[entry] + rng.integers(0, MINUTE // SECOND, len(entry)) * SECOND
    maker, taker = (np.minimum(rng.geometric(0.08, len(entry)) - 1, _ACCOUNTS - 1) for _ in range(2))
    kept = np.flatnonzero(size > 0)  # a side without a level has no price and no size
    trades = Trades.of(
        books.tokens,
        books.token[entry[kept]],
        ts[kept],
        {
            "side": np.where(is_buy[kept], "buy", "sell").astype(object),
            "price": price[kept],
            "size": size[kept],
            "maker": accounts[::-1][maker[kept]],
            "taker": accounts[taker[kept]],
        },
    )
    ids = np.array([f"{name}-{number}" for number in range(len(trades))], object)
    return Trades(trades.tokens, trades.bounds, trades.ts, {**trades.values, "trade_id": ids})
