"""``marketdata demo``: discover, fetch, resample, compare and draw, on a local service."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marketdata.cli import output
from marketdata.cli.parameters import check_out
from marketdata.errors import ContractError
from marketdata.points.views import INTERFACE_VIEWS, View

if TYPE_CHECKING:
    from marketdata.client import Client

_MOST_TOKENS = 200  # of a market that the service answers whole (interface 4.2)


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Chart: .png, .jpg, .pdf or .svg.")] = Path("demo.png"),
) -> None:
    """Fetch, resample and draw a simulated week.

    A service on this machine answers, so no key and no network are needed. Each hour that is resampled here is compared
    with the answer of the service.

    \b
    Example:
      marketdata demo --out chart.png
    """
    check_out(out, (".png", ".jpg", ".pdf", ".svg"))
    import polars as pl

    from marketdata import plot
    from marketdata.client import Client
    from marketdata.service import serve
    from marketdata.simulation import simulate

    began = time.perf_counter()
    _step("Simulating a week of markets")
    archive = simulate(events=1, levels=15, frame="polars")
    stored = archive.coverage()
    with serve(archive, requests_per_minute=1_000_000) as running:
        _step(f"Serving simulated data at {running.base_url}")
        client = Client(running.base_url, running.api_key, frame="polars")
        markets: Any = client.markets()
        _step(f"Discovered {len(markets)} markets")
        # The tokens of others are requested one by one.
        markets = markets.filter(pl.col("token_ids").list.len() <= _MOST_TOKENS)
        wanted = (markets["market_id"].to_list(), stored["start"].min(), stored["end"].max())
        fine = _fetch(client, wanted)
        _step("Resampled 1m to 1h here, and compared with what the service answers at 1h")
        for view in INTERFACE_VIEWS:
            hourly = fine[view].md.resample("1h")
            answer = getattr(client, view)(*wanted, "1h")
            compare(view, hourly, answer)
            print(f"  {view:8} {len(hourly):>9,} rows here, {len(answer):,} from the service, every one equal")
    market = markets.filter(pl.col("token_ids").list.len() == 2).row(0, named=True)
    books, metrics = (fine[view].filter(pl.col("market_id") == market["market_id"]) for view in ("books", "metrics"))
    middle = books["ts"].unique().sort()[books["ts"].n_unique() // 2]
    plot.book(books, middle, metrics_frame=metrics, title=market["question"], markets=markets).savefig(out, dpi=110)
    line = f'books.md.plot.book("{middle:%Y-%m-%dT%H:%MZ}", metrics_frame=metrics)'
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


def _fetch(client: Client, wanted: tuple[list[str], Any, Any]) -> dict[View, Any]:
    began = time.perf_counter()
    frames = {view: getattr(client, view)(*wanted, "1m") for view in INTERFACE_VIEWS}
    rows = ", ".join(f"{len(frame):,} of {view}" for view, frame in frames.items())
    _step(f"Fetched at 1m over HTTP in {time.perf_counter() - began:.1f} s: {rows}")
    for view, frame in frames.items():
        print(f"\n{view}")
        output.console().print(output.table(frame, 4), crop=False)
    return frames


def _step(text: str) -> None:
    print(f"\n{text}", flush=True)
