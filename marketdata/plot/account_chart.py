"""The chart of an account."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from marketdata.adapters.dispatch import series_of
from marketdata.plot.chart import ASK, PALETTE, Band, Line, Panel
from marketdata.plot.figure import Look, draw
from marketdata.plot.tokens import broken_at_gaps

_COLUMNS = ("profit", "profit_sold", "drawdown")


def account(frame: Any, **look: Unpack[Look]) -> Any:
    """Draw the profit and the drawdown of an account through time, the ``total`` of `marketdata.account`.

    Returns the Axes of the profit over time [UTC] (``ax.figure.axes`` has both) or a plotly Figure. The solid line is
    the profit with positions at the mid [USD], and the dashed line is the profit with positions sold. The lower panel
    is the drawdown [USD]. The lines have gaps while a position has no price. For other parameters see `prices`.

    Examples
    --------
    >>> books = md.testing.books("polars")
    >>> orders = (
    ...     books.md.mid()
    ...     .head(1)
    ...     .select("ts", "market_id", "token_id", side=pl.lit("buy"), size=10.0)
    ... )
    >>> ax = md.plot.account(
    ...     md.account(
    ...         md.execute(orders, books, "1m", fees=0).fills, books, "1m"
    ...     ).total
    ... )
    >>> (
    ...     [line.get_label() for line in ax.lines],
    ...     [one.get_ylabel() for one in ax.figure.axes],
    ... )
    (['at the mid', 'if sold'], ['profit [USD]', 'drawdown [USD]'])
    """
    source = series_of(frame, "A chart of an account", ("ts", *_COLUMNS))
    order = np.argsort(ts := source.times("ts"), kind="stable")
    x, profit, sold, fall = broken_at_gaps(ts[order].view("M8[us]"), *(source.numbers(c)[order] for c in _COLUMNS))
    above, below = Panel("profit [USD]", ""), Panel("drawdown [USD]")
    if len(x):
        above.marks += [
            Line(x, profit, "at the mid", PALETTE[0], 1.2, legend="at the mid"),
            Line(x, sold, "if sold", PALETTE[1], dashed=True, legend="if sold"),
        ]
        below.marks += [Band(x, -fall, np.where(np.isnan(fall), np.nan, 0.0), ASK, 0.25), Line(x, -fall, "", ASK)]
    return draw([[above], [below]], name="Account", size=(10, 5), heights=(3, 1), **look)
