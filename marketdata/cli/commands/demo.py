"""``marketdata demo``: discover, fetch, resample, compare and draw, on a local service."""

from __future__ import annotations

import datetime as dt
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from marketdata.cli import output
from marketdata.cli.parameters import check_out
from marketdata.errors import ConfigError, ContractError
from marketdata.points.views import VIEWS, View

if TYPE_CHECKING:
    import polars as pl

    from marketdata.archive import Archive
    from marketdata.client import Client

_RATE = 1_000_000  # requests a minute: no plan limits this service
_MOST_TOKENS = 200  # of a market that the service answers whole (interface 4.2)
_PICTURES = (".png", ".jpg", ".pdf", ".svg")


class Part(NamedTuple):
    """The markets of a view that the demo shows, and their range."""

    markets: list[str]
    start: dt.datetime
    end: dt.datetime


def demo(
    data: Annotated[
        Path | None,
        typer.Option(help="Folder of recorded markets, books, prices and metrics as Parquet, CSV or JSON lines."),
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Chart: .png, .jpg, .pdf or .svg.")] = Path("demo.png"),
) -> None:
    """Fetch, resample and draw a simulated week.

    A service on this machine answers, so no key and no network are needed. Each hour that is resampled here is compared
    with the answer of the service.

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
        archive = simulate(events=1, levels=15) if data is None else _recorded(data, scratch)
        with serve(archive, requests_per_minute=_RATE) as running:
            _step(f"Serving {'simulated data' if archive.simulated else 'recorded data'} at {running.base_url}")
            client = Client(running.base_url, running.api_key, frame="polars")
            parts, chart_market = discover(client, archive)
            fine = _fetch(client, parts)
            _step("Resampled 1m to 1h here, and compared with what the service answers at 1h")
            for view, part in parts.items():
                hourly = fine[view].md.resample("1h")
                answer = getattr(client, view)(*part, "1h")
                compare(view, hourly, answer)
                print(f"  {view:8} {len(hourly):>9,} rows here, {len(answer):,} from the service, every one equal")
            line = _draw(fine, client.market(chart_market), out, simulated=archive.simulated)
    print(f"\nChart: {out.resolve()}, drawn by\n  {line}\nDone in {time.perf_counter() - began:.1f} s.")


def compare(view: View, ours: Any, theirs: Any) -> None:
    """ContractError unless two tidy polars frames are equal; means to 1e-12, as a sum depends on its order."""
    from polars.testing import assert_frame_equal

    try:
        assert_frame_equal(
            ours.select(theirs.columns), theirs, check_exact=view == "books", rel_tol=1e-12, abs_tol=0.0,
            categorical_as_str=True,
        )  # fmt: skip
    except AssertionError as problem:
        counts = f"{len(ours)} rows here, {len(theirs)} from the service"
        raise ContractError(f"{view}: what we resample is not what the service answers ({counts}): {problem}") from None


def discover(client: Client, archive: Archive) -> tuple[dict[View, Part], str]:
    """The last week of each view, and the market to draw: of two tokens if there is one, and with most books."""
    import polars as pl

    listed: Any = client.markets()
    _step(f"Discovered {len(listed):,} markets")
    tokens = {market: len(token_ids or ()) for market, token_ids in listed.select("market_id", "token_ids").rows()}
    wide = [i for i, count in tokens.items() if count > _MOST_TOKENS]
    _left_out(len(wide), f"markets of more than {_MOST_TOKENS} tokens, which are requested token by token")
    stored = _coverage(archive).filter(~pl.col("market_id").is_in(wide))
    parts = {view: _last_week(stored.filter(view=view)) for view in VIEWS}
    points = dict(stored.filter(view="books").group_by("market_id").agg(pl.sum("rows")).rows())
    return parts, max(parts["books"].markets, key=lambda i: (tokens.get(i) == 2, points[i]))


def _coverage(archive: Archive) -> pl.DataFrame:
    import polars as pl

    from marketdata.archive.reader import Reader

    return Reader(archive).coverage().with_columns(pl.col("view", "market_id").cast(pl.String))  # type: ignore[no-any-return]


def _last_week(stored: pl.DataFrame) -> Part:
    """The last week of data of a view, in whole days, and the markets that have any in it."""
    import polars as pl

    first, end = stored.select(
        pl.col("start").min().dt.truncate("1d"), pl.col("end").max().dt.offset_by("86399999999us").dt.truncate("1d")
    ).row(0)
    start = max(first, end - dt.timedelta(days=7))
    _left_out((start - first).days, f"days of {stored['view'][0]}: only the last week is shown")
    return Part(stored.filter(pl.col("end") > start)["market_id"].unique(maintain_order=True).to_list(), start, end)


def _recorded(folder: Path, scratch: str) -> Archive:
    """The files of a folder as an archive; ConfigError if a view is missing."""
    from marketdata.archive import Archive

    archive = Archive(scratch, frame="polars")
    added = archive.add_files(folder).drop_nulls("rows")
    for file, kind, rows, points in added.select("file", "kind", "rows", "points").rows():
        print(f"  {Path(file).name}: {rows:,} rows of {kind}" + (f", {points:,} points of 1m" if points else ""))
    if missing := sorted(set(VIEWS) - set(_coverage(archive)["view"])):
        raise ConfigError(f"{str(folder)!r} has no {' and no '.join(missing)}; the demo needs all three views.")
    return archive


def _fetch(client: Client, parts: dict[View, Part]) -> dict[View, Any]:
    began = time.perf_counter()
    frames = {view: getattr(client, view)(*part, "1m") for view, part in parts.items()}
    rows = ", ".join(f"{len(frame):,} of {view}" for view, frame in frames.items())
    _step(f"Fetched at 1m over HTTP in {time.perf_counter() - began:.1f} s: {rows}")
    for view, frame in frames.items():
        print(f"\n{view}")
        output.console().print(output.table(frame, 4), crop=False)
    return frames


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


def _left_out(count: int, what: str) -> None:
    if count > 0:
        print(f"  Left out: {what}: {count:,}.")


def _step(text: str) -> None:
    print(f"\n{text}", flush=True)
