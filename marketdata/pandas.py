"""``import marketdata.pandas`` registers ``pandas.DataFrame.md``."""

from __future__ import annotations

from marketdata.accessor import register_pandas

register_pandas()
