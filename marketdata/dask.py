"""``import marketdata.dask`` registers ``dask.dataframe.DataFrame.md``."""

from __future__ import annotations

from marketdata.accessor import register_dask

register_dask()
