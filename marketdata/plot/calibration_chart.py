"""The chart of how often forecasts came true."""

from __future__ import annotations

from typing import Any, Literal, Unpack

import numpy as np

from marketdata.adapters.dispatch import collected
from marketdata.plot.chart import FAINT, PALETTE, Band, Bars, Detail, Line, Panel
from marketdata.plot.figure import Look, draw
from marketdata.tidy import forecast_scores


def calibration(
    frame: Any,
    outcomes: Any,
    ax: Any = None,
    *,
    bins: int = 10,
    of: Literal["market", "token"] = "market",
    interval: float | None = None,
    **look: Unpack[Look],
) -> Any:
    """Draw how often tokens priced at p won, and below how many forecasts were at each price.

    Returns the chart of the share that came true over the mean price of each bin, both from 0 to 1 on one scale.
    Perfectly calibrated forecasts are on the dashed line. ``interval`` draws the interval of each bin. With ``ax``
    there is no histogram, and a larger dot means more forecasts. For ``outcomes bins of`` see `marketdata.calibration`.
    For other parameters see `prices`.
    """
    table = forecast_scores.calibration(collected(frame), outcomes, bins, of=of, interval=interval)
    ends = ("outcome_low", "outcome_high") if interval is not None else ()
    start, end, points, forecast, outcome, *limits = (
        np.asarray(table[c], np.float64) for c in ("bin_start", "bin_end", "points", "forecast", "outcome", *ends)
    )
    panel = Panel("share that came true", "price [probability]", time=False, empty="no resolved market in the frame")
    panel.x_range = panel.y_range = (-0.04, 1.04)
    panel.square = True
    name = f"Calibration of {points.sum():,.0f} forecasts" if len(points) else "Calibration"
    if not len(points):
        return draw([[panel]], ax, name=name, size=(5.5, 5.5), **look)
    diagonal, perfect = np.array([0.0, 1.0]), "perfectly calibrated"
    panel.marks.append(Line(diagonal, diagonal, perfect, FAINT, dashed=True, legend=perfect))
    if interval is not None:
        low, high = limits
        panel.marks.append(Band(forecast, low, high, PALETTE[0], 0.14))
        x, y = np.full((2, len(forecast), 3), np.nan)
        x[:, :2], y[:, :2] = forecast[:, None], np.column_stack(limits)
        legend = f"{interval:.0%} interval over markets"
        panel.marks.append(Line(x.ravel(), y.ravel(), legend, PALETTE[0], 1.2, 0.6, legend=legend))
    details = [Detail("forecasts", points, ",.0f")]
    dots = np.full(len(points), 36.0) if ax is None else 20 + 380 * points / points.max()
    panel.marks.append(Line(forecast, outcome, "", PALETTE[0], details=details, dots=dots))
    if ax is not None:
        return draw([[panel]], ax, name=name, **look)
    panel.x_label = ""
    histogram = Panel("forecasts", "price [probability]", time=False, x_range=panel.x_range)
    histogram.y_range = (0.0, 1.05 * float(points.max()))
    histogram.marks.append(Bars(start, end, 0 * points, points, PALETTE[0], "", details, in_legend=False))
    return draw([[panel], [histogram]], name=name, size=(5.5, 7.0), heights=(4, 1), **look)
