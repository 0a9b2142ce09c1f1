"""Charts of tidy frames; every function takes a frame of any kind and returns the Axes (overview: the Figure).

Colours: one per token, in the order of their labels in the frame; bids teal, asks coral. The time axis is UTC.
"""

from __future__ import annotations

from marketdata.plot.history import depth, metrics, overview, price_band
from marketdata.plot.moment import calibration, coverage, ladder
from marketdata.plot.style import Page

__all__ = ["Page", "calibration", "coverage", "depth", "ladder", "metrics", "overview", "price_band"]
