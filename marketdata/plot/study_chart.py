"""The chart of a study: forward returns by quantile of the signal."""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np

from marketdata.adapters.dispatch import collected
from marketdata.plot.chart import FAINT, PALETTE, Detail, Line, Panel
from marketdata.plot.figure import Look, draw


def study(table: Any, ax: Any = None, **look: Unpack[Look]) -> Any:
    """Draw the mean return of each quantile with its interval [probability per share]. Returns the chart."""
    rows = collected(table)
    quantile, count = (np.asarray(rows[name], np.float64) for name in ("quantile", "rows"))
    panel = Panel("forward return [probability per share]", "quantile of the signal", time=False)
    panel.x_ticks = [(float(one), f"{one:.0f}") for one in quantile]
    panel.marks.append(Line(quantile, 0 * quantile, "zero", FAINT, dashed=True))
    for place, name in enumerate(("gross", "net", "net_worst")):
        at = quantile + 0.12 * (place - 1)
        mean, legend = np.asarray(rows[name], np.float64), name.replace("_", ", missing exits at their ")
        colour = PALETTE[place]
        details = [Detail("rows", count, ",.0f")]
        panel.marks.append(Line(at, mean, name, colour, legend=legend, details=details, dots=np.full(len(at), 30.0)))
        if f"{name}_low" in rows:
            x, y = np.full((2, len(at), 3), np.nan)
            x[:, :2] = at[:, None]
            y[:, :2] = np.column_stack([np.asarray(rows[f"{name}_{end}"], np.float64) for end in ("low", "high")])
            panel.marks.append(Line(x.ravel(), y.ravel(), f"{name}, interval", colour, 1.2, 0.6))
    return draw([[panel]], ax, size=(7.0, 4.5), **look)
