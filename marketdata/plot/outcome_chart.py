"""The chart of all outcomes of a market or an event, stacked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Unpack

import numpy as np

from marketdata.adapters.dispatch import collected, opened
from marketdata.errors import ConfigError
from marketdata.plot.chart import FURTHER, PALETTE, Band, Detail, Line, Panel
from marketdata.plot.figure import Look, draw
from marketdata.plot.tokens import (
    Questions,
    TokenSeries,
    broken_at_gaps,
    last_value,
    market_name,
    questions_of,
    token_series,
)
from marketdata.tidy.baskets import event_probabilities
from marketdata.tidy.cross_token import probabilities


def outcomes(
    frame: Any,
    ax: Any = None,
    *,
    markets: Questions = None,
    **look: Unpack[Look],
) -> Any:
    """Draw the outcomes of one market, or of one event, stacked through time: the share of each in the sum of prices.

    Returns the chart of stacked `marketdata.probabilities` [0 to 1] over time [UTC], the greatest at the end lowest.

    - A time at which an outcome has no price is a gap.
    - The legend has the order of the stack and the last value of each outcome.
    - With more than six outcomes, the others are one area.
    - With ``events``, records as for `marketdata.event_overround`, the outcomes are the Yes of each market of an event.
      Their names are the questions of ``markets``, else of the records.

    For other parameters see `prices`.

    Examples
    --------
    >>> ax = md.plot.outcomes(md.testing.prices())
    >>> [line.get_label() for line in ax.lines]
    ['No 57.0%', 'Yes 43.0%']
    """
    if "events" in look:
        raise ConfigError("is now markets=.", argument="events")
    rows = collected(frame)
    stacked = list(token_series(opened(probabilities(rows), ["series"]), ["probability"]))
    count = len({token.market_id for token in stacked})
    if count > 1 and markets is None:
        raise ConfigError(
            f"One market is drawn, the frame has {count}; filter it on one market_id, or give markets=, the records of "
            "the markets of an event."
        )
    if count > 1:
        stacked = list(token_series(opened(event_probabilities(rows, markets), ["series"]), ["probability"]))
    questions, _ = questions_of(markets)
    panel = Panel("probability", y_range=(0.0, 1.0), legend_outside=True, legend_reversed=True)
    panel.marks.extend(_stack(stacked, questions if count > 1 else None))
    name = market_name(questions, stacked[0].market_id, 200) if count == 1 else f"{len(stacked)} markets of an event"
    return draw([[panel]], ax, name=name, **look)


def _stack(tokens: Sequence[TokenSeries], questions: Mapping[str, str] | None) -> Iterator[Line | Band]:
    """Areas one upon the other, the greatest at the end first; those that have no colour of their own as one."""
    if not tokens:
        return
    ordered = sorted(tokens, key=lambda t: -last_value(t.columns["probability"]))
    ts = np.unique(np.concatenate([token.ts for token in ordered]))
    shares = np.full((len(ordered), len(ts)), np.nan)
    for row, token in zip(shares, ordered, strict=True):
        row[np.searchsorted(ts, token.ts)] = token.columns["probability"]
    names = [t.label if questions is None else market_name(questions, t.market_id, 40) for t in ordered]
    colours, most = list(PALETTE), len(PALETTE)
    if len(ordered) > most:
        shares = np.vstack((shares[:most], shares[most:].sum(axis=0)))
        names, colours = [*names[:most], f"{len(ordered) - most} further outcomes"], [*PALETTE, FURTHER]
    ts, *each = broken_at_gaps(ts, *shares)
    edge = np.where(np.isnan(each).any(axis=0), np.nan, 0.0)
    for share, name, colour in zip(each, names, colours, strict=False):
        low, edge = edge, edge + share
        yield Band(ts, low, edge, colour, 0.8)
        legend = f"{name} {last_value(share):.1%}"
        yield Line(ts, edge, name, colour, 2.0, legend=legend, details=[Detail("share", share, ".1%")])
