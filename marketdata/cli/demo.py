"""``marketdata demo``: the whole chain on a local service, and the proof that it adds up."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from marketdata.cli import files, show
from marketdata.cli import scene as scenes
from marketdata.errors import ContractError
from marketdata.times import to_datetime
from marketdata.wire.columns import AnyColumns, BookColumns, View

if TYPE_CHECKING:
    from marketdata.client import Client

_RATE = 1_000_000  # requests a minute: the service is our own
_WIDEST = 16
_MOST_ROWS = 12
_PICTURES = (".png", ".jpg", ".pdf", ".svg")


def run(data: Path | None, out: Path) -> None:
    """Serve, discover, fetch, resample, prove, show, draw.

    Parameters
    ----------
    data : path, optional
        Folder of recorded files; simulated markets without it.
    out : path
        Where the chart goes (PNG, JPEG, PDF or SVG).

    Raises
    ------
    ContractError
        If what we resample differs from what the service answers.
    ConfigError
        If the folder has no data, or the chart's name is not that of a picture.
    """
    files.named(out, _PICTURES)
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
                prove(view, hourly, answer)
                print(f"  {view:8} {len(hourly):>9,} rows here, {len(answer):,} from the service, every one equal")
            market = client.market(scene.chart_market)
            names = {i: client.market(i).get("question") or i for i in scene.parts["books"].markets}
            _touch(fine["books"], names)
            draw(fine, market, out, simulated=archive.simulated)
    print(f"\nChart: {out.resolve()}\nDone in {time.perf_counter() - began:.1f} s.")


def fetch(client: Client, scene: scenes.Scene) -> dict[View, Any]:
    """Every view at 1m over HTTP; the client shows its progress bar where a person is watching."""
    began = time.perf_counter()
    frames = {view: getattr(client, view)(part.markets, *_times(part), "1m") for view, part in scene.parts.items()}
    rows = ", ".join(f"{len(frame):,} of {view}" for view, frame in frames.items())
    _step(f"Fetched at 1m over HTTP in {time.perf_counter() - began:.1f} s: {rows}")
    return frames


def prove(view: View, ours: Any, theirs: Any) -> None:
    """Compare two tidy frames row by row.

    Books must be equal bit for bit; means to 1e-12, for sums of floats depend on their order.

    Raises
    ------
    ContractError
        If any row differs, or one frame has a row that the other has not.
    """
    from marketdata.tidy.frames import to_columns

    left, right = to_columns(view, ours), to_columns(view, theirs)
    same = (
        len(ours) == len(theirs)
        and left.tokens == right.tokens
        and np.array_equal(left.token, right.token)
        and np.array_equal(left.ts, right.ts)
        and _same_values(left, right)
    )
    if not same:
        raise ContractError(
            f"{view}: what we resample is not what the service answers ({len(ours)}, {len(theirs)} rows)."
        )


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
    """One market on one page, as a picture."""
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


def _touch(books: Any, names: dict[str, str]) -> None:
    """Mid and spread of each token, hour by hour in a few numbers."""
    rows = []
    hourly = books.md.resample("1h").md.bbo()
    for (market, label), one in hourly.groupby(["market_id", "token_label"], observed=True, sort=False):
        both = one.dropna(subset=["mid"])
        if len(both):
            mid, spread = both["mid"], both["spread"]
            rows.append(
                (
                    names[market],
                    label,
                    len(one),
                    mid.iloc[0],
                    mid.iloc[-1],
                    round(spread.mean(), 4),
                    len(one) - len(both),
                )
            )
    rows.sort(key=lambda row: -row[2])
    _step("Mid and spread, from the last book of each hour")
    names_of_columns = ("market", "token", "hours", "first mid", "last mid", "mean spread", "one-sided hours")
    print(show.grid(names_of_columns, rows[:_MOST_ROWS], widest=46))


def _times(part: scenes.Part) -> tuple[Any, Any]:
    return to_datetime(part.rng.start), to_datetime(part.rng.end)


def _step(text: str) -> None:
    print(f"\n{text}", flush=True)
