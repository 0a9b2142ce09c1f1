"""``import marketdata.polars`` registers ``polars.DataFrame.md`` and ``polars.LazyFrame.md``."""

from __future__ import annotations

from marketdata.accessor import register_polars

register_polars()
