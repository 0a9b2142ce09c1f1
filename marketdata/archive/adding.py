"""What ``Archive.add`` does: records into the catalog, points into the table of their view, and what they prove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from marketdata.archive import intake, points, records
from marketdata.archive.coverage import CoverageState
from marketdata.archive.holdings import Holdings
from marketdata.errors import ArchiveError, PartialCoverageWarning, warn
from marketdata.resolution import Resolution
from marketdata.times import Range
from marketdata.wire.columns import AnyColumns, Token, View, concat

# From so many times on a coarse grid on they are no chance, and no few moments that someone chose.
_ENOUGH = 12


def add_records(holdings: Holdings, markets: Any, events: Any, series: Any) -> None:
    """Keep records; events and series that are not given are derived from the markets."""
    catalog = holdings.catalog
    new_events = None if events is None else [records.event(r) for r in records.rows_of(events)]
    new_series = None if series is None else [records.series(r) for r in records.rows_of(series)]
    if markets is not None:
        new = [records.market(r) for r in records.rows_of(markets)]
        catalog["markets"].upsert(new)
        every = catalog["markets"].records()
        if new_events is None:
            new_events = records.derive_events(new, every, catalog["events"].records())
        if new_series is None:
            new_series = records.derive_series(new, every, catalog["series"].records())
    catalog["events"].upsert(new_events or ())
    catalog["series"].upsert(new_series or ())


def add_points(holdings: Holdings, view: View, data: Any) -> None:
    """Keep points of a view, from the first to the last of each market.

    Raises
    ------
    NotTidyError, ArchiveError
        If they are not points of the view, or would replace finer ones.
    """
    markets = holdings.catalog["markets"]
    columns = intake.points(view, data, markets)
    if not len(columns):
        return
    markets.upsert(intake.seen_markets(columns, markets))
    width = Resolution.M1.micros
    ranges = {
        market: Range(int(part.ts.min()), int(part.ts.max()) + width)
        for market, part in points.by_market(columns).items()
    }
    coarse = intake.coarse(columns)
    if coarse is not None:
        _check_width(holdings, view, ranges, coarse)
    every = _with_others(holdings, view, columns, ranges)
    if coarse is None or len(np.unique(columns.ts)) < _ENOUGH:
        holdings.store(view, every, ranges, CoverageState.FINAL)
        return
    warn(
        f"The {view} rows stand on the grid of {coarse.value}. They are kept as the 1m points of these moments, "
        "and their range as unproven, so that pull asks for the minutes between. If they are aggregates, add the "
        "1m points they were made of instead.",
        PartialCoverageWarning,
    )
    holdings.store(view, every, ranges, CoverageState.UNPROVEN)


def _with_others(holdings: Holdings, view: View, columns: AnyColumns, ranges: Mapping[str, Range]) -> AnyColumns:
    """The points, and those of other tokens that are held between them: who adds one token means that one."""
    mine = {_who(token) for token in columns.tokens}
    parts = [columns]
    for market, rng in ranges.items() if view != "metrics" else ():
        held = points.read(holdings.points[view], view, market, rng)
        others = [code for code, token in enumerate(held.tokens) if _who(token) not in mine]
        if others:
            parts.append(held.take(np.flatnonzero(np.isin(held.token, others))))
    return columns if len(parts) == 1 else concat(parts).sort()  # type: ignore[type-var]


def _who(token: Token) -> tuple[str | None, ...]:
    """A token is told by its id, and by its label where it has none."""
    return (token.market_id, token.token_id, None if token.token_id else token.token_label)


def _check_width(holdings: Holdings, view: View, ranges: Mapping[str, Range], width: Resolution) -> None:
    """Rows that were aggregated must not take the place of the points they were made of."""
    for market, rng in ranges.items():
        held = points.read(holdings.points[view], view, market, rng)
        if len(held) and (held.ts % width.micros).any():
            raise ArchiveError(
                f"The {view} rows stand on the grid of {width.value}, while finer points of market "
                f"{market[:200]!r} are held in {rng}, which they would replace. An archive holds 1m points and "
                "derives coarser ones: there is no need to add those."
            )
