"""A simulated exchange: history of any size that behaves as the real one does, and says that it is not."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, overload

from marketdata.errors import ConfigError
from marketdata.simulation.lives import END, Stretch, live, observe
from marketdata.simulation.world import EventPlan, Plan, plan_events, plan_markets, record
from marketdata.wire.columns import concat

if TYPE_CHECKING:
    from marketdata.archive import Archive
    from marketdata.typing import FrameKind, PandasFrame, PolarsFrame

__all__ = ["END", "simulate"]

_BATCH_LEVELS = 2_000_000  # level rows written at a time


@overload
def simulate(
    path: str | os.PathLike[str] | None = None,
    *,
    events: int = 3,
    days: float = 7,
    seed: int = 0,
    markets: int = 2,
    levels: int = 12,
    frame: Literal["pandas"] = "pandas",
) -> Archive[PandasFrame]: ...


@overload
def simulate(
    path: str | os.PathLike[str] | None = None,
    *,
    events: int = 3,
    days: float = 7,
    seed: int = 0,
    markets: int = 2,
    levels: int = 12,
    frame: Literal["polars"],
) -> Archive[PolarsFrame]: ...


@overload
def simulate(
    path: str | os.PathLike[str] | None = None,
    *,
    events: int = 3,
    days: float = 7,
    seed: int = 0,
    markets: int = 2,
    levels: int = 12,
    frame: FrameKind,
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
    """Make an archive of simulated markets; equal arguments make equal data.

    Each price is a martingale inside of [0, 1] that ends at 0 or 1 where the market resolves; information
    and volume come in bursts. The two tokens of a market have mirrored books, which thin out and lose a
    side near resolution, and whose tick goes from 0.01 to 0.001 near the edges. Minutes and whole hours
    are missing, some books are empty. The first event has one more market of three tokens, the last event
    one of 210, seen once an hour. Every record is marked: titles start with "Simulated:", slugs with
    ``simulated-``, the field ``simulated`` is true.

    Parameters
    ----------
    path : path, optional
        Folder of the archive. Without it: a temporary folder, removed when the process ends.
    events : int
        How many events; two of a series after each other.
    days : float
        Length of the history [days]; it ends at 2026-01-01 00:00 UTC, whatever the clock says.
    seed : int
        Source of all chance.
    markets : int
        Markets of two tokens per event.
    levels : int
        Most levels of a book side.
    frame : {"pandas", "polars"}
        Kind of frame that the archive answers with.

    Returns
    -------
    Archive
        Its ``simulated`` is true.

    Raises
    ------
    ConfigError
        If an argument is out of range, or the path holds an archive that is not simulated.

    Examples
    --------
    >>> archive = simulate(events=1, days=0.1, markets=1)
    >>> archive.simulated
    True
    """
    from marketdata.archive import Archive

    _check(events=events, days=days, seed=seed, markets=markets, levels=levels)
    if path is None:
        path = tempfile.mkdtemp(prefix="marketdata-simulated-")
        atexit.register(shutil.rmtree, path, ignore_errors=True)
    archive = Archive(path, frame=frame)
    if archive.records("markets") and not archive.simulated:
        raise ConfigError(f"{os.fspath(path)!r} holds data that is not simulated; choose another folder.")

    minutes = max(2, round(days * 1440))
    all_events = plan_events(events)
    plans = [plan for event in all_events for plan in _markets_of(event, events, markets, seed)]
    archive.add(markets=_market_frame(plans, all_events, minutes))
    for batch in _batches(plans, minutes, levels):
        archive.add(
            books=concat([s.books for s in batch]),
            prices=concat([s.prices for s in batch]),
            metrics=concat([s.metrics for s in batch]),
        )
    return archive


def _markets_of(event: EventPlan, events: int, markets: int, seed: int) -> list[Plan]:
    last = event.number == events - 1
    return plan_markets(event, markets, seed, three=event.number == 0, wide=last)


def _batches(plans: list[Plan], minutes: int, levels: int) -> Iterator[list[Stretch]]:
    """Stretches in tidy order, gathered until they are worth a write; never two of one market together."""
    batch: list[Stretch] = []
    rows = 0
    for plan in sorted(plans, key=lambda plan: plan.market_id):
        for nth, stretch in enumerate(observe(live(plan, minutes), levels)):
            size = len(stretch.books.levels)
            if batch and (nth or rows + size > _BATCH_LEVELS):
                yield batch
                batch, rows = [], 0
            batch.append(stretch)
            rows += size
    if batch:
        yield batch


def _market_frame(plans: list[Plan], events: list[EventPlan], minutes: int) -> Any:
    import polars as pl

    rows = [record(plan, events[plan.event], **live(plan, minutes).facts()) for plan in plans]
    return pl.DataFrame(rows, infer_schema_length=None)


def _check(**given: float) -> None:
    least = {"events": 1, "days": 0.01, "seed": 0, "markets": 1, "levels": 1}
    for name, value in given.items():
        whole = name != "days"
        kind_ok = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not kind_ok or not least[name] <= value < 2**53:
            kind = "a whole number" if whole else "a number"
            raise ConfigError(f"{name}={value!r} is refused; allowed is {kind} from {least[name]} on.")
