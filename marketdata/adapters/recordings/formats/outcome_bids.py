"""Bids of both outcomes of a market, one row a moment: an ask of Yes at p is a bid of No at 1 - p."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from marketdata.adapters.recordings.batch import Batch
from marketdata.adapters.recordings.columns import MARKET, TIME, coded, first
from marketdata.adapters.recordings.files import RecordingFile
from marketdata.adapters.recordings.format import Format, Reading, having
from marketdata.adapters.recordings.tables import Levels, book_batch, derived_markets, frames_with_time, levels_of
from marketdata.points.columns import Token

_MARKET = ("ticker", "market_ticker", *MARKET, "symbol")
_LABELS = ("Yes", "No")
_YES, _NO = ("yes_levels", "yes_bids", "yes"), ("no_levels", "no_bids", "no")


def read(file: RecordingFile, reading: Reading) -> Iterator[Batch]:
    """Two books of their own moment from each row."""
    yes, no, market = (first(file.columns, names) for names in (_YES, _NO, _MARKET))
    for frame, batch in frames_with_time(file):
        rows, codes = coded(frame[str(market)])
        names = tuple(Token(str(m), f"{m}:{label}", label) for (m,) in rows for label in _LABELS)
        cells = [_books(*row) for row in frame.select(yes, no).iter_rows()]
        token = np.repeat(2 * codes, 2)
        token[1::2] += 1
        twice = frame[np.repeat(np.arange(len(frame)), 2)].drop("best_bid", "best_ask", strict=False)
        batch.markets = derived_markets({str(m): _LABELS for (m,) in rows if m})
        book_batch(batch, twice, reading, (names, token), [sides for both in cells for sides in both])
        # A damaged row is one row, though it would have been two books.
        batch.left_out["damaged"] //= 2
        yield batch


def _books(yes: Any, no: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Bids and asks of Yes, and of No; numbers, which no levels are, if one cannot be read."""
    try:
        bids = [_dollars(levels_of(cell)) for cell in (yes, no)]
    except (KeyError, TypeError, ValueError, StopIteration, msgspec.MsgspecError):
        return (-1, -1), (-1, -1)
    asks = [[(round(1 - price, 9), size) for price, size in levels] for levels in reversed(bids)]
    return (bids[0], asks[0]), (bids[1], asks[1])


def _dollars(levels: Levels) -> Levels:
    """Prices in dollars; whole numbers from 1 on are cents."""
    if levels and all(price >= 1 and price == int(price) for price, _ in levels):
        return [(price / 100, size) for price, size in levels]
    return levels


FORMAT = Format(
    name="outcome-bids",
    kind="books",
    description="a table of the bids of both outcomes: an ask of Yes at p is a bid of No at 1 - p",
    needs="a time, a market, yes_levels and no_levels",
    fits=having(TIME, _MARKET, _YES, _NO),
    read=read,
)
