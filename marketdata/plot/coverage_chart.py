"""The chart of the ranges that an archive has."""

from __future__ import annotations

from itertools import product
from typing import Any, Unpack

import numpy as np

from marketdata.adapters.dispatch import series_of
from marketdata.plot.chart import ASK, BID, FAINT, Bars, Detail, Look, Panel, draw
from marketdata.plot.tokens import Questions, is_simulated, market_name, questions_of

_STATES = {
    "final": BID,
    "recorded": "#7fb8d6",
    "provisional": "#f0c419",
    "unverified": "#8957e5",
    "not_allowed": "#b08968",
    "expired": FAINT,
    "missing": ASK,
}


def coverage(frame: Any, ax: Any = None, *, markets: Questions = None, **look: Unpack[Look]) -> Any:
    """Draw `marketdata.Archive.coverage`: a row of bars per market and view, coloured by state; see `prices`.

    Returns the chart of markets and views over time [UTC]. Times without a bar were never fetched. A bar is at least
    1/400 as wide as the chart. With more than 150 rows some rows have no name.
    """
    source = series_of(frame, "A coverage frame", ("view", "market_id", "start", "end", "state"))
    row_keys = list(zip(source.texts("market_id"), source.texts("view"), strict=True))
    places = {key: i for i, key in enumerate(sorted(set(row_keys), key=str, reverse=True))}
    questions, _ = questions_of(markets)
    # The rows of a market are adjacent, and the topmost names it.
    top = {market: i for (market, _), i in places.items()}
    named = [
        (i, f"{market_name(questions, market, 60)}  {view}" if top[market] == i else str(view))
        for (market, view), i in places.items()
    ]
    panel = Panel("", y_ticks=named[:: len(places) // 150 + 1], legend_outside=True)
    spans = np.stack((source.times("start"), source.times("end")))
    row, states = np.array([places[key] for key in row_keys]), np.array([s or "missing" for s in source.texts("state")])
    # A range below one or two pixels is widened and drawn above the others, or nobody would see it.
    least = (spans.max() - spans.min()) // 400 if len(row) else 0
    lacking = np.maximum(least - (spans[1] - spans[0]), 0)
    drawn = spans + np.stack((-(lacking // 2), lacking // 2))
    for narrow, state in product((False, True), (*_STATES, *sorted({*states.tolist()} - _STATES.keys()))):
        if (chosen := (states == state) & ((lacking > 0) == narrow)).any():
            x, low = drawn[:, chosen].view("M8[us]"), row[chosen] - 0.35
            details = [
                Detail(name, at.view("M8[us]")) for name, at in zip(("from", "to"), spans[:, chosen], strict=True)
            ]
            panel.marks.append(Bars(x, np.stack((low, low + 0.7)), _STATES.get(state, FAINT), state, details))
    name = f"Coverage of {len(top):,} market{'s' if len(top) != 1 else ''}"
    size = (10, min(1.6 + 0.2 * len(places), 40))
    return draw([[panel]], ax, name=name, size=size, simulated=is_simulated(markets), **look)
