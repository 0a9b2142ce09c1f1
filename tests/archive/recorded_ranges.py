"""Ranges of the recorded data."""

from __future__ import annotations

WIDTHS = {"1m": 60, "10m": 600, "1h": 3600, "6h": 21600, "1d": 86400}


ASKED = [("1m", "polars"), ("10m", "pandas"), ("1d", "polars")]
