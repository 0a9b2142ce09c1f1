"""Charts of results: an account, calibration, and a study of forward returns by quantile of the signal."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from marketdata.adapters.dispatch import collected, in_memory, series_of
from marketdata.plot.chart import ASK, FAINT, PALETTE, Array, Band, Bars, Detail, Line, Look, Panel, draw
from marketdata.plot.tokens import Questions, broken_at_gaps, is_simulated
from marketdata.tidy import scores


def account(frame: Any, *, markets: Questions = None, **look: Unpack[Look]) -> Any:
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
    columns = ("profit", "profit_sold", "drawdown")
    source = series_of(frame, "A chart of an account", ("ts", *columns))
    order = np.argsort(ts := source.times("ts"), kind="stable")
    x, profit, sold, fall = broken_at_gaps(ts[order].view("M8[us]"), *(source.numbers(c)[order] for c in columns))
    above, below = Panel("profit [USD]", ""), Panel("drawdown [USD]")
    if len(x):
        above.marks += [
            Line(x, profit, "at the mid", PALETTE[0], 1.2, legend="at the mid", marks_alone=False),
            Line(x, sold, "if sold", PALETTE[1], dashed=True, legend="if sold", marks_alone=False),
        ]
        below.marks += [
            Band(x, -fall, np.where(np.isnan(fall), np.nan, 0.0), ASK, 0.25),
            Line(x, -fall, "", ASK, marks_alone=False),
        ]
    return draw(
        [[above], [below]], name="Account", size=(10, 5), heights=(3, 1), simulated=is_simulated(markets), **look
    )


def calibration(
    frame: Any,
    outcomes: Any,
    ax: Any = None,
    *,
    bins: int = 10,
    of: Literal["market", "token"] = "market",
    interval: float | None = None,
    markets: Questions = None,
    **look: Unpack[Look],
) -> Any:
    """Draw how often tokens priced at p won, and below how many forecasts were at each price.

    Returns the chart of the share that came true over the mean price of each bin, both from 0 to 1 on one scale.
    Perfectly calibrated forecasts are on the dashed line. ``interval`` draws the interval of each bin. With ``ax``
    there is no histogram, and a larger dot means more forecasts. For ``outcomes bins of`` see `marketdata.calibration`.
    For other parameters see `prices`.
    """
    simulated = is_simulated(markets)
    table = scores.calibration(collected(frame), outcomes, bins, of=of, interval=interval)
    start, end, points, forecast, outcome = (
        np.asarray(table[c], np.float64) for c in ("bin_start", "bin_end", "points", "forecast", "outcome")
    )
    panel = Panel("share that came true", "price [probability]", time=False, empty="no resolved market in the frame")
    panel.x_range = panel.y_range = (-0.04, 1.04)
    panel.square = True
    if not len(points):
        return draw([[panel]], ax, name="Calibration", size=(5.5, 5.5), simulated=simulated, **look)
    diagonal, perfect = np.array([0.0, 1.0]), "perfectly calibrated"
    panel.marks.append(Line(diagonal, diagonal, perfect, FAINT, dashed=True, legend=perfect))
    if interval is not None:
        low, high = (np.asarray(table[c], np.float64) for c in ("outcome_low", "outcome_high"))
        cluster = str(table["cluster"][0])
        sampled = "events" if cluster.startswith("event") else "markets" if cluster == "market_id" else cluster
        legend = f"{interval:.0%} interval over {sampled}"
        panel.marks.append(Band(forecast, low, high, PALETTE[0], 0.14))
        panel.marks.append(_intervals(forecast, low, high, legend, PALETTE[0], legend))
    details = [Detail("forecasts", points, ",.0f")]
    dots = np.full(len(points), 36.0) if ax is None else 20 + 380 * points / points.max()
    panel.marks.append(Line(forecast, outcome, "", PALETTE[0], details=details, dots=dots))
    name = f"Calibration of {points.sum():,.0f} forecasts"
    if ax is not None:
        return draw([[panel]], ax, name=name, simulated=simulated, **look)
    panel.x_label = ""
    histogram = Panel("forecasts", "price [probability]", time=False, x_range=panel.x_range)
    histogram.y_range = (0.0, 1.05 * float(points.max()))
    edges, heights = np.stack((start, end)), np.stack((0 * points, points))
    histogram.marks.append(Bars(edges, heights, PALETTE[0], "", details, in_legend=False))
    size = (5.5, 7.0)
    return draw([[panel], [histogram]], name=name, size=size, heights=(4, 1), simulated=simulated, **look)


def study(table: Any, ax: Any = None, **look: Unpack[Look]) -> Any:
    """Draw the mean return of each quantile with its interval [probability per share]. Returns the chart."""
    rows = in_memory(table)
    # The row of the difference belongs to no quantile.
    shown = np.flatnonzero(~np.isnan(rows.numbers("quantile")))
    quantile, count = (rows.numbers(name)[shown] for name in ("quantile", "rows"))
    panel = Panel("forward return [probability per share]", "quantile of the signal", time=False)
    panel.x_ticks = [(float(one), f"{one:.0f}") for one in quantile]
    panel.marks.append(Line(quantile, 0 * quantile, "zero", FAINT, dashed=True))
    for place, (name, colour) in enumerate(zip(("gross", "net", "net_worst"), PALETTE, strict=False)):
        at, details = quantile + 0.12 * (place - 1), [Detail("rows", count, ",.0f")]
        mean, legend = rows.numbers(name)[shown], name.replace("_", ", missing exits at their ")
        panel.marks.append(Line(at, mean, name, colour, legend=legend, details=details, dots=np.full(len(at), 30.0)))
        if f"{name}_low" in rows.names:
            low, high = (rows.numbers(f"{name}_{end}")[shown] for end in ("low", "high"))
            panel.marks.append(_intervals(at, low, high, f"{name}, interval", colour))
    return draw([[panel]], ax, size=(7.0, 4.5), **look)


def _intervals(x: Array, low: Array, high: Array, name: str, colour: str, legend: str | None = None) -> Line:
    """A vertical line at each ``x``."""
    at, y = np.full((2, len(x), 3), np.nan)
    at[:, :2], y[:, :2] = x[:, None], np.column_stack((low, high))
    return Line(at.ravel(), y.ravel(), name, colour, 1.2, 0.6, legend=legend)
