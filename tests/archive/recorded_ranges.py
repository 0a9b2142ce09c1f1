"""Ranges of the recorded data."""

from __future__ import annotations

WIDTHS = {"1m": 60, "10m": 600, "1h": 3600, "6h": 21600, "1d": 86400}


# Each resolution once, in the libraries by turns: which rows come does not depend on the library.
ASKED = [(resolution, ("polars", "pandas")[k % 2]) for k, resolution in enumerate(WIDTHS)]
