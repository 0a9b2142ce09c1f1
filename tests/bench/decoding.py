"""Page bytes to a tidy frame."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pandas as pd
import simdjson

import marketdata as md
from bench.made import pages
from bench.measure import Table, compare, interleaved, peak_bytes, ratio
from bench.usual_way import books_frame

SHAPES = {
    "typical: 2 tokens x 100 snapshots, 10 to 60 levels a side": {"tokens": 2, "snapshots": 100, "levels": (10, 60)},
    "heavy: 2 tokens x 100 snapshots, 100 to 300 levels a side": {"tokens": 2, "snapshots": 100, "levels": (100, 300)},
    "wide: 200 tokens x 1 snapshot, 1 to 6 levels a side": {"tokens": 200, "snapshots": 1, "levels": (1, 6)},
}


def dict_rows(bodies: list[bytes]) -> pd.DataFrame:
    """What one writes first: a dict per level."""
    rows = []
    for body in bodies:
        page = json.loads(body)
        for label, snapshots in page["data"].items():
            for point in snapshots:
                for side in ("bids", "asks"):
                    for level, (price, size) in enumerate(point[side]):
                        rows.append((point["t"], page["tokens"][label], label, side, level, price, size))
    return pd.DataFrame(rows, columns=["ts", "token_id", "token_label", "side", "level", "price", "size"])


def parse_only(bodies: list[bytes]) -> None:
    """The limit: parsing without reading a value."""
    for body in bodies:
        simdjson.Parser().parse(body)


def usual_chain(bodies: list[bytes]) -> Any:
    """The whole chain as users of such a client write it: rows, last book of the hour, top of the book."""
    rows = books_frame(bodies)
    last = rows.groupby(["token_id", pd.Grouper(key="ts", freq="1h")], observed=True)["ts"].transform("max")
    rows = rows[rows["ts"] == last]
    bids = rows[rows["side"] == "bid"].groupby(["token_id", "ts"], observed=True)["price"].max()
    asks = rows[rows["side"] == "ask"].groupby(["token_id", "ts"], observed=True)["price"].min()
    return pd.concat([bids.rename("best_bid"), asks.rename("best_ask")], axis=1)


def run(*, quick: bool = False) -> list[Table]:
    """Every shape of page, every way."""
    tables = []
    rounds = 3 if quick else 7
    for name, shape in SHAPES.items():
        bodies, rows = pages(20, **shape)  # type: ignore[arg-type]
        few = bodies[:4]
        ways: dict[str, Callable[[], Any]] = {
            "the usual client: models, nested frame, explode": lambda few=few: books_frame(few),
            "json.loads, a row per level": lambda few=few: dict_rows(few),
            "marketdata to pandas": lambda bodies=bodies: md.read_pages("books", bodies),
            "marketdata to polars": lambda bodies=bodies: md.read_pages("books", bodies, frame="polars"),
            "limit: simdjson parse alone": lambda bodies=bodies: parse_only(bodies),
        }
        times = interleaved(ways, rounds)
        for slow in list(ways)[:2]:
            times[slow] = [t * len(bodies) / len(few) for t in times[slow]]
        usual = next(iter(ways))
        table = compare(f"Page bytes to a tidy frame, {name}", times, "marketdata to pandas", rows=rows)
        peak = peak_bytes(lambda bodies=bodies: md.read_pages("books", bodies * (1 if quick else 5)))
        table.notes.append(
            f"{rows:,} level rows on 20 pages of {len(bodies[0]) / 1e3:.0f} kB. The usual client takes "
            f"{ratio(times, usual, 'marketdata to pandas'):.0f} x our time to pandas and "
            f"{ratio(times, usual, 'marketdata to polars'):.0f} x to polars; we reach "
            f"{100 * ratio(times, 'limit: simdjson parse alone', 'marketdata to pandas'):.0f} % of the speed of "
            f"parsing alone. Peak memory {peak / rows / (1 if quick else 5):.0f} bytes per level row, output included."
        )
        tables.append(table)
    bodies, rows = pages(30, tokens=2, snapshots=100, levels=(10, 60))
    few = bodies[:6]
    ways = {
        "the usual way": lambda: usual_chain(few),
        "marketdata": lambda: md.bbo(md.resample(md.read_pages("books", bodies), "1h")),
    }
    times = interleaved(ways, rounds)
    times["the usual way"] = [t * len(bodies) / len(few) for t in times["the usual way"]]
    tables.append(compare("Pages to the top of the last book of each hour", times, "marketdata", rows=rows))
    return tables
