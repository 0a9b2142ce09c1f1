"""Charts of tidy frames of any kind, drawn with matplotlib or, interactive, with plotly.

Each chart returns matplotlib Axes (`book` a Figure) or a plotly Figure. Bids are teal, asks are coral, and tokens have
the colours of the palette in the order of their labels. Times are UTC; ``tz=`` shows those of another time zone.
"""

from __future__ import annotations

from marketdata.plot.book_chart import book, depth, ladder
from marketdata.plot.coverage_chart import coverage
from marketdata.plot.study_chart import account, calibration
from marketdata.plot.time_chart import candles, metrics, outcomes, prices

__all__ = [
    "account",
    "book",
    "calibration",
    "candles",
    "coverage",
    "depth",
    "ladder",
    "metrics",
    "outcomes",
    "prices",
]
