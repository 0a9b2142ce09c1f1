"""Bytes of pages to a tidy frame, beside the vendor's client and a plain loop."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd

import marketdata as md
from bench.measure import Seconds, measure, print_ratios
from bench.samples import book_pages

SHAPES = {
    "typical: 2 tokens x 100 snapshots of 10 to 60 levels a side": (2, 100, (10, 60)),
    "heavy: 2 tokens x 100 snapshots of 100 to 300 levels a side": (2, 100, (100, 300)),
    "wide: 200 tokens x 1 snapshot of 1 to 6 levels a side": (200, 1, (1, 6)),
}
VENDOR, OURS = "the vendor's client, exploded", "marketdata to pandas"


def run(*, quick: bool) -> None:
    """Print a table for each shape of page."""
    with vendor_client() as vendor:
        for shape, (tokens, snapshots, levels) in SHAPES.items():
            pages = book_pages(4, tokens=tokens, snapshots=snapshots, levels=levels)
            ways = {
                OURS: lambda pages=pages: md.read_pages("books", pages),
                "marketdata to polars": lambda pages=pages: md.read_pages("books", pages, frame="polars"),
                "json.loads, a row for each level": lambda pages=pages: read_in_a_loop(pages),
            }
            if vendor:
                ways[VENDOR] = vendor("rows", pages)
            print_ratios(f"Page of books to a frame, {shape}", measure(ways, 1 if quick else 7), OURS)


def read_in_a_loop(pages: list[bytes]) -> pd.DataFrame:
    """Return the frame as a first attempt would make it."""
    rows = []
    for page in map(json.loads, pages):
        for label, snapshots in page["data"].items():
            for point in snapshots:
                for side in ("bids", "asks"):
                    for level, (price, size) in enumerate(point[side]):
                        rows.append((point["t"], page["tokens"][label], label, side, level, price, size))
    return pd.DataFrame(rows, columns=["ts", "token_id", "token_label", "side", "level", "price", "size"])


@contextmanager
def vendor_client() -> Iterator[Callable[[str, list[bytes]], Callable[[], Seconds]] | None]:
    """Run the vendor's published client in its own environment, which ``make bench`` makes; None without it."""
    python = Path(sys.prefix) / "peer" / "bin" / "python"
    if not python.exists():
        print("\nwithout the vendor's client: make bench installs it")
        yield None
        return
    command = [python, Path(__file__).with_name("vendor_client.py")]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None

        def way(work: str, pages: list[bytes]) -> Callable[[], Seconds]:
            path = Path(folder, f"{len(list(Path(folder).iterdir()))}.pickle")
            path.write_bytes(pickle.dumps(pages))

            def run_once() -> Seconds:
                print(work, path, file=process.stdin, flush=True)
                return Seconds(process.stdout.readline())

            return run_once

        yield way
        process.stdin.close()
