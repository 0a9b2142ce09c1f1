"""One value as a matrix: a row per time, a column per token."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from narwhals.stable.v2.dependencies import is_pandas_dataframe, is_pyarrow_table

from marketdata.errors import ConfigError
from marketdata.tidy.backends import in_memory, is_lazy, opened
from marketdata.tidy.returns import KINDS, value_of


def pivot(frame: Any, value: str | None = None, *, columns: str = "token_id") -> Any:
    """One value as a matrix, a row per time and a column per token, as vectorbt takes prices.

    One row per time that any token has, null where a token has none; of pandas indexed by ``ts`` [UTC], else with a
    column ``ts``, the start of the bucket: shift the signals of a backtest by one row. For a full grid `align` first;
    for ``value`` see `ohlc`. ``columns`` ("token_id", "token_label", "market_id") names the columns, by market for
    metrics. ConfigError if two tokens would share one.

    Examples
    --------
    >>> md.pivot(md.testing.prices(), columns="token_label").columns.tolist()
    ['Yes', 'No']
    """
    native = in_memory(frame)
    table, chosen = value_of(opened(native, KINDS), value)
    name = "market_id" if "token_id" not in table.keys and columns == "token_id" else columns
    if name not in table.keys:
        raise ConfigError(f"columns={columns!r} does not exist; allowed are {', '.join(map(repr, table.keys))}.")
    heads = list(map(str, table.texts(name, table.groups)))
    if len(set(heads)) < len(heads):
        other = "'token_id'" if name != "token_id" else "'token_label', or select one market"
        raise ConfigError(f"columns={columns!r} does not tell the tokens apart; use columns={other}.")
    ts, place = np.unique(table.array("ts"), return_inverse=True)
    matrix = np.full((len(ts), len(heads)), np.nan)
    matrix[place, table.token_numbers] = table.array(chosen)
    if is_pandas_dataframe(frame):
        import pandas as pd

        index = pd.DatetimeIndex(ts.view("M8[us]"), tz="UTC", name="ts")
        return pd.DataFrame(matrix, index=index, columns=pd.Index(heads, dtype="str"))
    times = pl.Series("ts", ts, dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    values = [pl.Series(head, matrix[:, i]).fill_nan(None) for i, head in enumerate(heads)]
    out = pl.DataFrame([times, *values])
    if is_pyarrow_table(frame):
        return out.to_arrow()
    return out.lazy() if is_lazy(frame) else out
