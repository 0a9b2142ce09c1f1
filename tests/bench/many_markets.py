"""Many markets: scans, reads and verification beside plain polars on the same files, and an archive of many files."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from coded import coded_series

from bench.measure import Table, compare, interleaved, ratio
from bench.storing import START, history
from marketdata.archive import Archive
from marketdata.archive.coverage.intervals import CoverageRecord
from marketdata.archive.coverage.state import CoverageState
from marketdata.points.columns import Series, Token, joined
from marketdata.points.views import VIEWS
from marketdata.wire.arrow import to_table

MINUTE = 60_000_000
_IDS = ["market_id", "token_id", "token_label"]
_NEW_PROCESS = """
import sys, time
import deltalake, pandas, polars, pyarrow.parquet  # pyarrow imports pandas with its first array
from marketdata.archive import Archive
import marketdata.accessor, marketdata.tidy.frames
began = time.perf_counter()
rows = Archive(sys.argv[1], frame="polars").prices(sys.argv[2]).height
print(rows, time.perf_counter() - began)
"""


def market_id(market: int) -> str:
    """An id as real ones are."""
    return f"0x{market:064x}"


def prices(first: int, markets: int, minutes: int) -> Series:
    """Prices of some markets of two tokens."""
    tokens = tuple(
        Token(market_id(m), str(2 * m + k).zfill(77), label)
        for m in range(first, first + markets)
        for k, label in enumerate(("Yes", "No"))
    )
    ts = START + np.tile(np.arange(minutes, dtype=np.int64) * MINUTE, len(tokens))
    token = np.repeat(np.arange(len(tokens), dtype=np.int32), minutes)
    return coded_series(tokens, token, ts, {"price": np.random.default_rng(first).random(len(ts))}).sort()


def run(*, quick: bool = False) -> list[Table]:
    """4,000 markets beside polars; 20,000 markets in 10,000 files."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return [_many(root, 400 if quick else 4_000, 2 if quick else 5), _files(root, 200 if quick else 10_000)]


def _many(root: Path, markets: int, rounds: int) -> Table:
    archive = Archive(root / "many", frame="polars")
    for first in range(0, markets, 50):
        books = joined([history(m, 60, 8) for m in range(first, first + 50)]).sort()
        archive.add(books=books, prices=prices(first, 50, 60))
    files = {view: archive.files(view) for view in ("prices", "books")}
    some = [market_id(m) for m in range(0, markets, max(1, markets // 300))][:300]
    one = market_id(markets // 2)
    bucket = pl.col("ts").dt.truncate("1h")

    def last_books() -> pl.DataFrame:
        rows = pl.scan_parquet(files["books"]).group_by(*_IDS, bucket).agg(pl.exclude("ts").sort_by("ts").last())
        sides = [
            rows.select(*_IDS, "ts", pl.lit(side).alias("side"), price=f"{side}_price", size=f"{side}_size").explode(
                "price", "size", empty_as_null=True
            )
            for side in ("bid", "ask")
        ]
        return pl.concat(sides).collect()

    def everything() -> list[pl.DataFrame]:
        return [pl.scan_parquet(files[view]).collect() for view in files]

    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any], float]] = {
        'scan("prices", resolution="1h")': (
            lambda: archive.scan("prices", resolution="1h").collect(),
            lambda: pl.scan_parquet(files["prices"]).group_by(*_IDS, bucket).agg(pl.col("price").mean()).collect(),
            3,
        ),
        'scan("books", resolution="1h")': (
            lambda: archive.scan("books", resolution="1h").collect(), last_books, 3,
        ),
        "verify": (archive.verify, everything, 30),
        f"prices of {len(some)} markets": (
            lambda: archive.prices(some),
            lambda: pl.scan_parquet(files["prices"]).filter(pl.col("market_id").is_in(some)).collect(),
            4,
        ),
        "prices of one market": (
            lambda: archive.prices(one),
            lambda: pl.scan_parquet(files["prices"]).filter(market_id=one).collect(),
            1.4,
        ),
    }  # fmt: skip
    ways = {f"{kind} {name}": way for name, pair in pairs.items() for kind, way in zip(("ours", "polars"), pair)}  # noqa: B905
    times = interleaved(ways, rounds)
    table = Table(
        f"{markets:,} markets, {len(files['books'])} files a view, beside plain polars on the same files",
        ["work", "x polars", "goal"],
    )
    for name, (*_, goal) in pairs.items():
        table.rows.append([name, f"{ratio(times, f'ours {name}', f'polars {name}'):.2g}", f"{goal:g}"])
    return table


def _files(root: Path, files: int) -> Table:
    """Two markets a file: what a new process pays before its first rows, and the coverage of all."""
    archive = Archive(root / "files", frame="polars")
    store = archive._store
    store.points["prices"].create()
    made = []
    for n in range(files):
        columns = prices(2 * n, 2, 30)
        made += store.points["prices"].put(to_table(columns))
    store.points["prices"].plan(lambda _: (made, []))
    records = [
        {"market_id": market_id(m), "slug": f"s-{m}", "token_ids": [str(2 * m).zfill(77)], "token_labels": ["Yes"]}
        for m in range(2 * files)
    ]
    archive.add(markets=records)
    store.coverage.table.create()
    end = START + 30 * MINUTE
    final = CoverageRecord(START, end, CoverageState.FINAL, 60, 0, 2)
    for view in VIEWS:
        store.points[view].create()
        store.record(view, lambda _: {market_id(m): [final] for m in range(2 * files)})
    store.coverage.fold(VIEWS)
    location, market = archive.location, market_id(files)
    took = []
    for _ in range(3):
        out = subprocess.run(
            [sys.executable, "-c", _NEW_PROCESS, location, market], check=True, capture_output=True, text=True
        ).stdout.split()
        took.append(float(out[1]))
    times = interleaved(
        {
            "coverage()": lambda: Archive(location, frame="polars").coverage(),
            "one market-day, archive just opened": lambda: Archive(location, frame="polars").prices(market),
            "one market-day": lambda: archive.prices(market),
        },
        3,
    )
    table = compare(f"{2 * files:,} markets in {files:,} files", times, "one market-day")
    table.notes.append(f"The first read of a new process, once its libraries are loaded: {min(took) * 1e3:.0f} ms.")
    return table
