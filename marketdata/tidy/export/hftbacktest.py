"""The event array of hftbacktest, without importing it: every event is at the end of its bucket, when it was known."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters.frame import Native
from marketdata.errors import ConfigError
from marketdata.points.arguments import number
from marketdata.points.columns import Books
from marketdata.resolution import BucketWidth
from marketdata.tidy.frames import to_columns
from marketdata.tidy.grids import check_starts

# The layout of hftbacktest's ``event_dtype`` (2.x), and its flags.
HFT_EVENT = np.dtype(
    {
        "names": ["ev", "exch_ts", "local_ts", "px", "qty", "order_id", "ival", "fval"],
        "formats": ["u8", "i8", "i8", "f8", "f8", "u8", "i8", "f8"],
    },
    align=True,
)
# Flags of an event as hftbacktest names them.
_CLEAR, _SNAPSHOT = 3, 4
# The side.
_BUY, _SELL = 1 << 29, 1 << 28
# Seen by the exchange and here.
_SEEN_BY_BOTH = (1 << 31) | (1 << 30)


def to_hftbacktest(frame: Any, resolution: str, *, latency: float = 0.0) -> NDArray[Any]:
    """The event array of hftbacktest: each snapshot clears both sides (event 3) and sets its levels (event 4).

    Returns a numpy array of ``event_dtype`` (hftbacktest 2.4) in time order, for ``BacktestAsset().data(...)``:
    ``exch_ts`` is the end of the bucket (of width ``resolution``), ``local_ts`` later by the ``latency`` [seconds] from
    exchange to you [ns since the epoch UTC], ``px`` [probability], ``qty`` [shares]. ConfigError if the frame has
    several tokens. The depth of hftbacktest is never locked or crossed: it leaves out bids at or above the best ask.

    Examples
    --------
    >>> books = md.testing.books("polars").filter(token_label="Yes")
    >>> md.to_hftbacktest(books, "1m")["px"][:4].tolist()
    [0.0, 0.39, 0.38, 1.0]
    """
    width = BucketWidth.of(resolution)
    delay = round(number("latency", latency, least=0.0) * 1e9)
    books = book_columns(frame, width)
    if len(books.tokens) > 1:
        raise ConfigError("The frame has several tokens; an event array is of one. Filter by token_id first.")
    counts = books.counts
    ends = np.cumsum(counts + 1)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, HFT_EVENT)
    clears = ends - counts - 1
    is_level = np.ones(len(out), bool)
    is_level[clears] = False
    side = np.tile(np.array([_BUY, _SELL]), len(books))
    out["ev"] = np.repeat(side, counts + 1) | _SEEN_BY_BOTH | np.where(is_level, _SNAPSHOT, _CLEAR)
    out["exch_ts"] = np.repeat((books.ts + width.micros) * 1000, (counts + 1).reshape(-1, 2).sum(axis=1))
    out["local_ts"] = out["exch_ts"] + delay
    # A clear reaches from the best price to its own: to the end of all prices.
    out["px"][clears] = np.tile([0.0, 1.0], len(books))
    out["px"][is_level], out["qty"][is_level] = books.levels()
    return out


def book_columns(frame: Native, width: BucketWidth) -> Books:
    """Tidy books of any frame kind as columns, in tidy order; ConfigError if a row is no bucket of this width."""
    books = to_columns("books", frame)
    assert isinstance(books, Books)
    check_starts(books.ts, width)
    return books
