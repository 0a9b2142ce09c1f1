"""Charts of tidy frames of any kind, drawn with matplotlib or, interactive, with plotly.

Each returns matplotlib Axes (book, overview: the Figure) or a plotly Figure. Colours: one per token, in the order of
their labels; bids teal, asks coral. Times are UTC.
"""

from __future__ import annotations

from marketdata.plot.charts import (
    account,
    book,
    calibration,
    coverage,
    depth,
    ladder,
    metrics,
    outcomes,
    overview,
    price_band,
    prices,
    style,
)

__all__ = [
    "account",
    "book",
    "calibration",
    "coverage",
    "depth",
    "ladder",
    "metrics",
    "outcomes",
    "overview",
    "price_band",
    "prices",
    "style",
]
