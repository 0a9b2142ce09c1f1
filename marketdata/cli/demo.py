"""``marketdata demo``: the whole chain on a local service, and the proof that it adds up."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marketdata.cli import scene as scenes
from marketdata.cli import show
from marketdata.errors import ContractError
from marketdata.times import to_datetime
from marketdata.wire.columns import AnyColumns, BookColumns, View

if TYPE_CHECKING:
    from marketdata.client import Client

_RATE = 1_000_000  # requests a minute: the service is our own
_WIDEST = 16


def run(data: Path | None, out: Path) -> None:
    """Serve, discover, fetch, resample, prove, show, draw.

    Parameters
    ----------
    data : path, optional
        Folder of recorded files; simulated markets without it.
    out : path
        Where the chart goes (PNG).

    Raises
    ------
    ContractError
        If what we resample differs from what the service answers.
    ConfigError
        If the folder has no data.
    """
    from marketdata.client import Client
    from marketdata.service import serve

    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="marketdata-demo-") as scratch:
        _step("Simulating a week of markets" if data is None else f"Reading {data}")
        archive = scenes.simulated() if data is None else scenes.recorded(data, scratch)
        with serve(archive, requests_per_minute=_RATE) as running:
            _step(f"Serving {'simulated data' if archive.simulated else 'recorded data'} at {running.base_url}")
            client = Client(running.base_url, running.api_key)
            scene = scenes.discover(client, archive)
            _step(f"Discovered {scene.title}")
            fine = fetch(client, scene)
            _heads(fine)
            _step("Resampled 1m to 1h here, and compared with what the service answers at 1h")
            for view, part in scene.parts.items():
                hourly = fine[view].md.resample("1h")
                answer = getattr(client, view)(part.markets, *_times(part), "1h")
                print(f"  {view:8} {equal_rows(view, hourly, answer):>9,} rows, all equal")
            _touch(fine["books"])
            market = client.market(scene.chart_market)
            draw(fine, market, out, simulated=archive.simulated)
    print(f"\nChart: {out.resolve()}\nDone in {time.perf_counter() - began:.1f} s.")


def fetch(client: Client, scene: scenes.Scene) -> dict[View, Any]:
    """Every view at 1m over HTTP, with a progress bar."""
    from tqdm import tqdm

    frames: dict[View, Any] = {}
    total = sum(len(part.markets) for part in scene.parts.values())
    bar = tqdm(total=total, desc="  fetching", unit=" market", leave=False, disable=None, file=sys.stderr)
    began = time.perf_counter()
    with bar:
        for view, part in scene.parts.items():
            bar.set_postfix_str(view)
            frames[view] = getattr(client, view)(part.markets, *_times(part), "1m")
            bar.update(len(part.markets))
    rows = ", ".join(f"{len(frame):,} of {view}" for view, frame in frames.items())
    _step(f"Fetched at 1m: {rows} in {time.perf_counter() - began:.1f} s")
    return frames


def equal_rows(view: View, ours: Any, theirs: Any) -> int:
    """How many rows two tidy frames have, all of which are equal.

    Books must be equal bit for bit; means to 1e-12, for sums of floats depend on their order.

    Raises
    ------
    ContractError
        If any row differs.
    """
    from marketdata.tidy.frames import to_columns

    left, right = to_columns(view, ours), to_columns(view, theirs)
    same = (
        left.tokens == right.tokens
        and np.array_equal(left.token, right.token)
        and np.array_equal(left.ts, right.ts)
        and _same_values(left, right)
    )
    if not same:
        raise ContractError(
            f"{view}: what we resample is not what the service answers ({len(ours)}, {len(theirs)} rows)."
        )
    return len(theirs)


def _same_values(left: AnyColumns, right: AnyColumns) -> bool:
    if isinstance(left, BookColumns) and isinstance(right, BookColumns):
        return np.array_equal(left.counts, right.counts) and np.array_equal(left.levels, right.levels)
    if isinstance(left, BookColumns) or isinstance(right, BookColumns):
        return False
    return all(
        np.allclose(left.values[name], values, rtol=1e-12, atol=0.0, equal_nan=True)
        for name, values in right.values.items()
    )


def draw(fine: dict[View, Any], market: Any, out: Path, *, simulated: bool) -> None:
    """One market on one page, as PNG."""
    from marketdata import plot

    books, metrics = (_of(fine[view], market["id"]) for view in ("books", "metrics"))
    title = market.get("question") or market["slug"]
    figure = plot.overview(books, metrics if len(metrics) else None, title=title, simulated=simulated)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


def _of(frame: Any, market_id: str) -> Any:
    return frame[frame["market_id"] == market_id]


def _heads(fine: dict[View, Any]) -> None:
    for view, frame in fine.items():
        print(f"\n{view}\n{show.table(frame, 4, widest=_WIDEST)}")


def _touch(books: Any) -> None:
    """Mid and spread of each token at the end of each day."""
    daily = books.md.resample("1d").md.bbo()
    daily = daily[daily["mid"].notna()]
    columns = ("ts", "market_id", "token_label", "best_bid", "best_ask", "mid", "spread")
    _step("Mid and spread of the last book of each day")
    print(show.table(daily, 8, columns=columns, widest=_WIDEST))


def _times(part: scenes.Part) -> tuple[Any, Any]:
    return to_datetime(part.rng.start), to_datetime(part.rng.end)


def _step(text: str) -> None:
    print(f"\n{text}", flush=True)
