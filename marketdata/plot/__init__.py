"""Charts of tidy frames of any kind, drawn with matplotlib or, interactive, with plotly.

Each returns matplotlib Axes (overview: the Figure) or a plotly Figure. Colours: one per token, in the order of their
labels; bids teal, asks coral. Times are UTC.
"""

from __future__ import annotations

from marketdata.plot.charts import calibration, coverage, depth, ladder, metrics, overview, price_band, prices

__all__ = ["calibration", "coverage", "depth", "ladder", "metrics", "overview", "price_band", "prices"]
