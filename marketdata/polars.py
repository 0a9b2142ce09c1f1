"""``import marketdata.polars`` loads polars, whose frames have ``.md``."""

from __future__ import annotations

import polars as pl  # noqa: F401 to be loaded
