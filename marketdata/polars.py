"""``import marketdata.polars`` loads polars, whose frames have ``.md``."""

from __future__ import annotations

import polars as polars  # noqa: PLC0414 to be loaded
