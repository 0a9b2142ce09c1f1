"""``marketdata demo``: discover, fetch, resample, compare and draw, on a local service."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marketdata.cli import output
from marketdata.cli.parameters import check_out, recordings
from marketdata.errors import ConfigError, ContractError
from marketdata.points.views import VIEWS, View
from marketdata.resolution import Resolution
from marketdata.times import Range, to_datetime

if TYPE_CHECKING:
    from marketdata.archive import Archive
    from marketdata.client import Client

_RATE = 1_000_000  # requests a minute: no plan limits this service
# Rows of a table.
_ROWS = 12
# Microseconds.
_DAY = Resolution.D1.micros
_MOST_TOKENS = 200  # of a market that the service answers whole (interface 4.2)
# Endings of files that charts are written to.
_PICTURES = (".png", ".jpg", ".pdf", ".svg")


@dataclass(frozen=True, slots=True)
class Part:
    """One view of the demo: its markets and their range."""

    markets: list[str]
    rng: Range

    @property
    def times(self) -> tuple[Any, Any]:
        """Start and end."""
        return to_datetime(self.rng.start), to_datetime(self.rng.end)


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of an archive that is shown."""

    title: str
    parts: dict[View, Part]
    chart_market: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Range and points of a market in a view."""

    rng: Range
    points: int


def demo(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of recorded markets, books, prices and metrics as Parquet, CSV or JSON lines."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Chart: .png, .jpg, .pdf or .svg.")] = Path("demo.png"),
) -> None:
    """Fetch, resample, compare and draw a week of a local service. No key and no network are needed.

    \b
    Example:
      marketdata demo --out chart.png
    """
    check_out(out, _PICTURES)
    from marketdata.client import Client
    from marketdata.service import serve
    from marketdata.simulation import simulate

    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="marketdata-demo-") as scratch:
        _step("Simulating a week of markets" if data is None else f"Reading {data}")
        archive = simulate(levels=15) if data is None else _recorded(data, scratch)
        with serve(archive, requests_per_minute=_RATE) as running:
            _step(f"Serving {'simulated data' if archive.simulated else 'recorded data'} at {running.base_url}")
            client = Client(running.base_url, running.api_key, frame="polars")
            scope = discover(client, archive)
            _step(f"Discovered {scope.title}")
            fine = _fetch(client, scope)
            _step("Resampled 1m to 1h here, and compared with what the service answers at 1h")
            for view, part in scope.parts.items():
                hourly = fine[view].md.resample("1h")
                answer = getattr(client, view)(part.markets, *part.times, "1h")
                compare(view, hourly, answer)
                print(f"  {view:8} {len(hourly):>9,} rows here, {len(answer):,} from the service, every one equal")
            _quotes(client, fine["books"])
            line = _draw(fine, client.market(scope.chart_market), out, simulated=archive.simulated)
    print(f"\nChart: {out.resolve()}, drawn by\n  {line}\nDone in {time.perf_counter() - began:.1f} s.")


def compare(view: View, ours: Any, theirs: Any) -> None:
    """Compare two tidy polars frames: books exactly, means to 1e-12, as sums depend on order; else a ContractError."""
    from polars.testing import assert_frame_equal

    try:
        assert_frame_equal(
            ours.select(theirs.columns), theirs, check_exact=view == "books", rel_tol=1e-12, abs_tol=0.0,
            categorical_as_str=True,
        )  # fmt: skip
    except AssertionError as problem:
        counts = f"{len(ours)} rows here, {len(theirs)} from the service"
        raise ContractError(f"{view}: what we resample is not what the service answers ({counts}): {problem}") from None


def discover(client: Client, archive: Archive) -> Scope:
    """The first event whose markets have every view, else every market that has data; ranges from the coverage."""
    stored = _stored(archive)
    events = client.events()
    for slug, title in zip(events["slug"], events["title"], strict=True):
        listed: Any = client.markets(event_slug=slug)
        tokens = zip(listed["market_id"], listed["token_ids"], strict=True)
        wide = {i for i, some in tokens if some is not None and len(some) > _MOST_TOKENS}
        shown = [i for i in listed["market_id"] if i in stored["books"] and i not in wide]
        if shown and all(i in stored[view] for view in VIEWS for i in shown):
            _left_out(len(events) - 1, "further events")
            _left_out(len(listed) - len(shown) - len(wide), "markets without books")
            _left_out(len(wide), f"markets of more than {_MOST_TOKENS} tokens, which are requested token by token")
            parts = {view: _last_week(view, stored[view], shown) for view in VIEWS}
            return Scope(f"event {slug}: {title}", parts, _first_pair(client, shown))
    every = {view: _last_week(view, markets, markets) for view, markets in stored.items()}
    counts = ", ".join(f"{len(part.markets)} with {view}" for view, part in every.items())
    most = max(every["books"].markets, key=lambda i: stored["books"][i].points)
    return Scope(f"every market that has data: {counts}", every, most)


def _recorded(folder: Path, scratch: str) -> Archive:
    """The files of a folder as an archive; ConfigError if a view is missing."""
    from marketdata.archive import Archive

    archive = Archive(scratch)
    added = archive.add_files(recordings([folder]), frame="polars")
    for file, kind, rows, points, stored in added.select("file", "kind", "rows", "points", "stored").rows():
        each = f", {points:,} points" if points < rows else ""
        merged = f" in {stored:,} buckets of 1m" if stored < points else ""
        print(f"  {Path(file).name}: {rows:,} rows of {kind}{each}{merged}")
    missing = [view for view, markets in _stored(archive).items() if not markets]
    if missing:
        raise ConfigError(f"{str(folder)!r} has no {' and no '.join(missing)}; the demo needs all three views.")
    return archive


def _fetch(client: Client, scope: Scope) -> dict[View, Any]:
    began = time.perf_counter()
    frames = {view: getattr(client, view)(part.markets, *part.times, "1m") for view, part in scope.parts.items()}
    rows = ", ".join(f"{len(frame):,} of {view}" for view, frame in frames.items())
    _step(f"Fetched at 1m over HTTP in {time.perf_counter() - began:.1f} s: {rows}")
    for view, frame in frames.items():
        print(f"\n{view}")
        output.console().print(output.table(frame, 4), crop=False)
    return frames


def _quotes(client: Client, books: Any) -> None:
    import polars as pl

    both = pl.col("mid").is_not_null()
    hours = books.md.resample("1h").md.bbo().with_columns(pl.col("market_id", "token_label").cast(pl.String))
    each = (
        hours.group_by("market_id", "token_label", maintain_order=True)
        .agg(
            pl.len().alias("hours"),
            pl.col("mid").filter(both).first().alias("first mid"),
            pl.col("mid").filter(both).last().alias("last mid"),
            pl.col("spread").mean().round(4).alias("mean spread"),
            pl.format("{} of {} hours", (~both).sum(), pl.len()).alias("one-sided"),
        )
        .filter(pl.col("first mid").is_not_null())
        .sort("hours", descending=True, maintain_order=True)
    )
    names = {i: client.market(i).get("question") or i for i in each["market_id"].unique()}
    table = each.select(pl.col("market_id").replace(names).alias("market"), pl.exclude("market_id", "hours"))
    _step("Mid and spread, from the last book of each hour")
    output.console().print(output.table(table, _ROWS), crop=False)
    _left_out(len(table) - _ROWS, "further tokens")


def _draw(fine: dict[View, Any], market: Any, out: Path, *, simulated: bool) -> str:
    """Save the chart; the line of Python that draws it."""
    import polars as pl

    from marketdata import plot

    books, metrics = (fine[view].filter(pl.col("market_id") == market["id"]) for view in ("books", "metrics"))
    title = market.get("question") or market["slug"]
    middle = books["ts"].unique().sort()[books["ts"].n_unique() // 2]
    figure = plot.book(books, middle, metrics_frame=metrics if len(metrics) else None, title=title, simulated=simulated)
    figure.savefig(out, dpi=110)
    return f'books.md.plot.book("{middle:%Y-%m-%dT%H:%MZ}"{", metrics_frame=metrics" if len(metrics) else ""})'


def _first_pair(client: Client, markets: list[str]) -> str:
    return next((i for i in markets if len(client.market(i).get("tokens") or ()) == 2), markets[0])


def _stored(archive: Archive) -> dict[View, dict[str, Stored]]:
    """Range and points of each market in each view."""
    import polars as pl

    out: dict[View, dict[str, Stored]] = {view: {} for view in VIEWS}
    coverage: Any = archive.coverage(frame="polars")
    each = coverage.group_by("view", "market_id", maintain_order=True)
    found = each.agg(pl.min("start").dt.epoch("us"), pl.max("end").dt.epoch("us"), pl.sum("rows"))
    for view, market, start, end, points in found.rows():
        out[view][market] = Stored(Range(start, end), points)
    return out


def _days(stored: dict[str, Stored]) -> Range:
    """The days from the first to the last point of any market."""
    start, end = min(one.rng.start for one in stored.values()), max(one.rng.end for one in stored.values())
    return Range(start // _DAY * _DAY, -(-end // _DAY) * _DAY)


def _last_week(view: View, stored: dict[str, Stored], markets: Collection[str]) -> Part:
    """The last week of data of some markets, in whole days, and those that have any in it."""
    whole = _days({i: stored[i] for i in markets})
    week = Range(max(whole.start, whole.end - 7 * _DAY), whole.end)
    inside = [i for i in markets if stored[i].rng.end > week.start]
    _left_out((whole.end - whole.start) // _DAY - 7, f"days of {view}: only the last week is shown")
    _left_out(len(markets) - len(inside), f"markets without {view} in it")
    return Part(inside, week)


def _left_out(count: int, what: str) -> None:
    if count > 0:
        print(f"  Left out: {count:,} {what}.")


def _step(text: str) -> None:
    print(f"\n{text}", flush=True)
