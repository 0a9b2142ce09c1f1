"""The chart of the ranges that an archive has."""

from __future__ import annotations

from itertools import product
from typing import Any, Unpack

import numpy as np

from marketdata.adapters.dispatch import series_of
from marketdata.plot.chart import ASK, BID, FAINT, Bars, Detail, Panel
from marketdata.plot.figure import Look, draw
from marketdata.plot.tokens import Questions, market_name, questions_of

_COLUMNS = ("view", "market_id", "start", "end", "state")
_STATES = {"final": BID, "recorded": "#7fb8d6", "provisional": "#f0c419", "unverified": "#8957e5", "missing": ASK}


def coverage(
    frame: Any,
    ax: Any = None,
    *,
    markets: Questions = None,
    **look: Unpack[Look],
) -> Any:
    """Draw `marketdata.Archive.coverage`: a row of bars per market and view, coloured by state; see `prices`.

    Returns the chart of markets and views over time [UTC]. Times without a bar were never fetched. A bar is at least
    1/400 as wide as the chart. With more than 150 rows some rows have no name.
    """
    source = series_of(frame, "A coverage frame", _COLUMNS)
    row_keys = list(zip(source.texts("market_id"), source.texts("view"), strict=True))
    places = {key: i for i, key in enumerate(sorted(set(row_keys), key=str, reverse=True))}
    questions, _ = questions_of(markets)
    # The rows of a market are adjacent, and the topmost names it.
    top = {market: i for (market, _), i in places.items()}
    named = [
        (i, f"{market_name(questions, market, 24)}  {view}" if top[market] == i else str(view))
        for (market, view), i in places.items()
    ]
    panel = Panel("", y_ticks=named[:: len(places) // 150 + 1], legend_outside=True)
    starts, ends = source.times("start"), source.times("end")
    row, states = np.array([places[key] for key in row_keys]), np.array([s or "missing" for s in source.texts("state")])
    # A range below one or two pixels is widened and drawn above the others, or nobody would see it.
    least = (ends.max() - starts.min()) // 400 if len(row) else 0
    lacking = np.maximum(least - (ends - starts), 0)
    left, right = (starts - lacking // 2).view("M8[us]"), (ends + lacking // 2).view("M8[us]")
    states_in_legend = set[str]()
    for narrow, state in product((False, True), (*_STATES, *sorted({*states.tolist()} - _STATES.keys()))):
        if (chosen := (states == state) & ((lacking > 0) == narrow)).any():
            span = [Detail("from", starts[chosen].view("M8[us]")), Detail("to", ends[chosen].view("M8[us]"))]
            low = row[chosen] - 0.35
            bars = left[chosen], right[chosen], low, low + 0.7, _STATES.get(state, FAINT), state, span
            panel.marks.append(Bars(*bars, in_legend=state not in states_in_legend))
            states_in_legend.add(state)
    markets_shown = len(top)
    size = (10, min(1.6 + 0.2 * len(places), 40))
    name = f"Coverage of {markets_shown:,} market{'s' if markets_shown != 1 else ''}"
    return draw([[panel]], ax, name=name, size=size, **look)
