"""Page bytes to a tidy frame."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import simdjson

import marketdata as md
from bench.made import pages
from bench.measure import Table, Took, compare, interleaved, peak_bytes, ratio

VENDOR = "the vendor's client, exploded"
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


@contextmanager
def vendor() -> Iterator[Callable[[str, list[bytes]], Callable[[], Took]]]:
    """The vendor's published client in a process of its environment, which ``make bench`` makes."""
    python = Path(sys.prefix) / "peer" / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        words = [python, Path(__file__).with_name("vendor_client.py")]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None
            assert process.stdout is not None

            def way(work: str, bodies: list[bytes]) -> Callable[[], Took]:
                path = Path(folder, f"{len(list(Path(folder).iterdir()))}.pickle")
                path.write_bytes(pickle.dumps(bodies))

                def ask() -> Took:
                    print(work, path, file=process.stdin, flush=True)
                    return Took(float(process.stdout.readline()))

                return ask

            yield way
            process.stdin.close()


def run(*, quick: bool = False) -> list[Table]:
    """Every shape of page, every way."""
    rounds = 3 if quick else 7
    with vendor() as client:
        tables = [_shape(client, name, rounds, quick=quick) for name in SHAPES]
        bodies, rows = pages(30, tokens=2, snapshots=100, levels=(10, 60))
        ways: dict[str, Callable[[], Any]] = {
            VENDOR: client("chain", bodies[:6]),
            "marketdata": lambda: md.bbo(md.resample(md.read_pages("books", bodies), "1h")),
        }
        times = interleaved(ways, rounds)
    times[VENDOR] = [t * len(bodies) / 6 for t in times[VENDOR]]
    return [*tables, compare("Pages to the top of the last book of each hour", times, "marketdata", rows=rows)]


def _shape(client: Callable[[str, list[bytes]], Callable[[], Took]], name: str, rounds: int, *, quick: bool) -> Table:
    bodies, rows = pages(20, **SHAPES[name])  # type: ignore[arg-type]
    few = bodies[:4]
    ways: dict[str, Callable[[], Any]] = {
        VENDOR: client("rows", few),
        "json.loads, a row per level": lambda: dict_rows(few),
        "marketdata to pandas": lambda: md.read_pages("books", bodies),
        "marketdata to polars": lambda: md.read_pages("books", bodies, frame="polars"),
        "limit: simdjson parse alone": lambda: parse_only(bodies),
    }
    times = interleaved(ways, rounds)
    for slow in list(ways)[:2]:
        times[slow] = [t * len(bodies) / len(few) for t in times[slow]]
    table = compare(f"Page bytes to a tidy frame, {name}", times, "marketdata to pandas", rows=rows)
    peak = peak_bytes(lambda: md.read_pages("books", bodies * (1 if quick else 5)))
    table.notes.append(
        f"{rows:,} level rows on 20 pages of {len(bodies[0]) / 1e3:.0f} kB. The vendor's client takes "
        f"{ratio(times, VENDOR, 'marketdata to pandas'):.0f} x our time to pandas and "
        f"{ratio(times, VENDOR, 'marketdata to polars'):.0f} x to polars; we reach "
        f"{100 * ratio(times, 'limit: simdjson parse alone', 'marketdata to pandas'):.0f} % of the speed of "
        f"parsing alone. Peak memory {peak / rows / (1 if quick else 5):.0f} bytes per level row, output included."
    )
    return table
