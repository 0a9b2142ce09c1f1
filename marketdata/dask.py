"""Import this module to give Dask DataFrames their ``.md``."""

from __future__ import annotations

from marketdata.accessor import register_dask
from marketdata.errors import not_installed

try:
    register_dask()
except ModuleNotFoundError as missing:
    raise not_installed("marketdata.dask", missing.name or "dask", "dask") from missing
