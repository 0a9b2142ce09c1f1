"""Simulated history of any size, marked as simulated."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, overload

from marketdata.errors import ConfigError
from marketdata.points.arguments import number, whole
from marketdata.points.columns import joined
from marketdata.simulation.market import END, Observations, observe, simulate_market
from marketdata.simulation.universe import MarketSpec, event_specs, market_record, market_specs

if TYPE_CHECKING:
    from marketdata.archive import Archive
    from marketdata.typing import FrameKind, PandasFrame, PolarsFrame

__all__ = ["END", "simulate"]

_BATCH_LEVELS = 2_000_000  # level rows written at a time


class _Options(TypedDict, total=False):
    """Keyword arguments of `simulate`, for its overloads."""

    events: int
    days: float
    seed: int
    markets: int
    levels: int


@overload
def simulate(
    path: str | os.PathLike[str] | None = None, *, frame: Literal["pandas"] = "pandas", **options: Unpack[_Options]
) -> Archive[PandasFrame]: ...


@overload
def simulate(
    path: str | os.PathLike[str] | None = None, *, frame: Literal["polars"], **options: Unpack[_Options]
) -> Archive[PolarsFrame]: ...


@overload
def simulate(
    path: str | os.PathLike[str] | None = None, *, frame: FrameKind, **options: Unpack[_Options]
) -> Archive[Any]: ...


def simulate(
    path: str | os.PathLike[str] | None = None,
    *,
    events: int = 3,
    days: float = 7,
    seed: int = 0,
    markets: int = 2,
    levels: int = 12,
    frame: FrameKind = "pandas",
) -> Archive[Any]:
    """Create an archive of simulated markets; equal arguments give equal data.

    Returns the Archive, whose ``simulated`` is true. Prices are martingales in [0, 1] that end at 0 or 1 where the
    market resolves; information and volume arrive in bursts. The two tokens of a market have mirrored books, which thin
    out near resolution. Each trade takes shares at the best price of the book of its minute, of a simulated maker.
    Minutes and hours are missing, some books are empty. The first event also has a market of three
    tokens, the last event one of 210, observed once an hour.

    Parameters
    ----------
    path : path, optional
        Folder of the archive, by default a temporary one; ConfigError if it has an archive that is not simulated.
    frame : {"pandas", "polars"}
        Kind of the frames of the archive.
    events, days, seed : int, float, int
        Number of events, two per series; length of the history, which ends at 2026-01-01 00:00 UTC; seed.
    markets, levels : int
        Markets of two tokens per event; most levels of a book side.

    Examples
    --------
    >>> simulate(events=1, days=0.1, markets=1).simulated
    True
    """
    from marketdata.archive import Archive
    from marketdata.archive.reading import Reader

    whole("events", events)
    whole("markets", markets)
    whole("levels", levels)
    whole("seed", seed, 0, 2**53)
    number("days", days, least=0.01)
    if path is None:
        path = tempfile.mkdtemp(prefix="marketdata-simulated-")
        atexit.register(shutil.rmtree, path, ignore_errors=True)
    archive = Archive(path, frame=frame)
    if len(Reader(archive).listing("markets")) and not archive.simulated:
        raise ConfigError(f"{os.fspath(path)!r} has data that is not simulated; choose another folder.")

    minutes = max(2, round(days * 1440))
    all_events = event_specs(events)
    specs = [
        spec
        for event in all_events
        for spec in market_specs(event, markets, seed, three=event.number == 0, wide=event.number == events - 1)
    ]
    archive.add(
        markets=[market_record(s, all_events[s.event], **simulate_market(s, minutes).record_fields()) for s in specs]
    )
    for batch in _batches(specs, minutes, levels):
        books, prices, metrics, trades = map(joined, zip(*batch, strict=True))
        archive.add(books=books, prices=prices, metrics=metrics, trades=trades, complete=True)
    return archive


def _batches(specs: list[MarketSpec], minutes: int, levels: int) -> Iterator[list[Observations]]:
    """Observations in tidy order, in batches for a write; never two of one market together."""
    batch: list[Observations] = []
    rows = 0
    for spec in sorted(specs, key=lambda spec: spec.market_id):
        for nth, part in enumerate(observe(simulate_market(spec, minutes), levels)):
            size = int(part.books.counts.sum())
            if batch and (nth or rows + size > _BATCH_LEVELS):
                yield batch
                batch, rows = [], 0
            batch.append(part)
            rows += size
    if batch:
        yield batch
