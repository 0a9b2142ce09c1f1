"""What the demo shows: an archive, and for each view the markets and the range to fetch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from marketdata.cli import files
from marketdata.resolution import Resolution
from marketdata.times import Range, to_micros
from marketdata.wire.columns import VIEWS, View

if TYPE_CHECKING:
    from marketdata.archive import Archive
    from marketdata.client import Client

_WEEK = 7 * Resolution.D1.micros
_SMALL = 100_000  # points; more is cut to a week, so that the demo stays short


@dataclass(frozen=True, slots=True)
class Part:
    """One view of the demo: which markets, from when to when."""

    markets: list[str]
    rng: Range


@dataclass(frozen=True, slots=True)
class Scene:
    """What is shown of an archive."""

    title: str
    parts: dict[View, Part]
    chart_market: str


def simulated() -> Archive:
    """A week of three events, in a temporary folder."""
    from marketdata.simulation import simulate

    return simulate(events=3, days=7, markets=2, levels=15, seed=0)


def recorded(folder: Path, scratch: str) -> Archive:
    """The recorded files of a folder as an archive.

    Raises
    ------
    ConfigError
        If the folder has none.
    """
    from marketdata.archive import Archive

    archive = Archive(scratch)
    for line in files.load(archive, folder):
        print(f"  {line}")
    return archive


def discover(client: Client, archive: Archive) -> Scene:
    """Find an event whose markets have books; where none has, take every market that has data.

    The event and its markets come from the service; which ranges hold data says the archive's coverage.
    """
    held = _held(archive)
    events = client.events()
    for slug, title in zip(events["slug"], events["title"], strict=True):
        ids = list(client.markets(event_slug=slug)["market_id"])
        wide = [i for i in ids if len(client.market(i).get("tokens") or ()) > 200]
        shown = [i for i in ids if i in held["books"] and i not in wide]
        if shown and all(i in held[view] for view in VIEWS for i in shown):
            parts = {view: Part(shown, _last_week(held[view], shown)) for view in VIEWS}
            return Scene(f"event {slug}: {title}", parts, _first_pair(client, shown))
    parts = {view: Part(list(markets), _most(markets)) for view, markets in held.items()}
    counts = ", ".join(f"{len(markets)} with {view}" for view, markets in held.items())
    return Scene(f"every market that has data: {counts}", parts, max(held["books"], key=lambda i: held["books"][i][1]))


def _first_pair(client: Client, markets: list[str]) -> str:
    return next((i for i in markets if len(client.market(i).get("tokens") or ()) == 2), markets[0])


def _held(archive: Archive) -> dict[View, dict[str, tuple[Range, int]]]:
    """Range and rows of each market in each view."""
    out: dict[View, dict[str, tuple[Range, int]]] = {view: {} for view in VIEWS}
    coverage: Any = archive.coverage(frame="polars")
    for row in coverage.iter_rows(named=True):
        rng = Range(to_micros(row["start"], "start"), to_micros(row["end"], "end"))
        before, rows = out[row["view"]].get(row["market_id"], (rng, 0))
        union = Range(min(before.start, rng.start), max(before.end, rng.end))
        out[row["view"]][row["market_id"]] = union, rows + (row["rows"] or 0)
    return out


def _whole(held: dict[str, tuple[Range, int]]) -> Range:
    """The days from the first to the last point of any market."""
    day = Resolution.D1.micros
    start, end = min(rng.start for rng, _ in held.values()), max(rng.end for rng, _ in held.values())
    return Range(start // day * day, -(-end // day) * day)


def _most(held: dict[str, tuple[Range, int]]) -> Range:
    """All that is held, or of very much the week in which the most begins and ends."""
    whole = _whole(held)
    if sum(rows for _, rows in held.values()) <= _SMALL:
        return whole
    weeks = [Range(start, start + _WEEK) for start in range(whole.start, whole.end, Resolution.D1.micros)]
    return max(
        weeks,
        key=lambda week: sum(rows for rng, rows in held.values() if week.start <= rng.start and rng.end <= week.end),
    )


def _last_week(held: dict[str, tuple[Range, int]], markets: list[str]) -> Range:
    """The last week that any of the markets has data in, in whole days."""
    whole = _whole({i: held[i] for i in markets})
    return Range(max(whole.start, whole.end - _WEEK), whole.end)
