"""One value as a matrix: a row per time, a column per token."""

from __future__ import annotations

from typing import Any

import numpy as np

from marketdata.adapters.dispatch import as_frame_of, in_memory
from marketdata.errors import ConfigError
from marketdata.points.arguments import choice
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
    own = in_memory(frame, KINDS)
    series, chosen = value_of(own, value)
    name = "market_id" if "token_id" not in own.ids and columns == "token_id" else columns
    choice("columns", name, own.ids)
    names = [str(getattr(token, name)) for token in series.tokens]
    if len(set(names)) < len(names):
        other = "'token_id'" if name != "token_id" else "'token_label', or select one market"
        raise ConfigError(f"columns={columns!r} does not tell the tokens apart; use columns={other}.")
    ts, place = np.unique(series.ts, return_inverse=True)
    matrix = np.full((len(ts), len(names)), np.nan)
    matrix[place, series.token] = series.values[chosen]
    return as_frame_of(frame, lambda like: like.matrix(ts, names, matrix))
