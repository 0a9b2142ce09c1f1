"""Import this module to give Dask DataFrames their ``.md``."""

from __future__ import annotations

from marketdata.accessor import register_dask

try:
    register_dask()
except ModuleNotFoundError as missing:
    needs = "marketdata.dask needs dask, which is not installed: pip install 'marketdata[dask]'"
    raise ModuleNotFoundError(needs, name=missing.name) from missing
