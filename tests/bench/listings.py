"""An archive of 100,000 markets that was just opened, beside plain reads of its files: time and most memory."""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import tempfile

import numpy as np
import polars as pl

import marketdata as md
from bench.measure import print_table
from bench.samples import START

# Each way runs in a process of its own, and its time is what its processor took: the machine may do other work.
_WORK = """
import glob, os, resource, sys, time, zlib
import deltalake, duckdb, msgspec, pandas, polars as pl, pyarrow.dataset, requests
import marketdata as md
way, folder = sys.argv[1:]
files = {kind: sorted(glob.glob(f"{folder}/{kind}/*.parquet")) for kind in ("prices", "markets")}
archive = md.Archive(folder, frame="polars")
def coverage():
    newest = {}
    for name in sorted(glob.glob(f"{folder}/prices/_coverage/*"), key=os.path.getmtime):
        newest[os.path.basename(name).partition("-")[0]] = name
    return [msgspec.json.decode(zlib.decompress(open(name, "rb").read()[4:])) for name in newest.values()]
def first_search():
    with md.serve(archive) as service, requests.Session() as session:
        began = time.process_time()
        url = f"{service.base_url}/v1/markets?search=team+777&limit=20"
        answer = session.get(url, headers={"X-API-Key": service.api_key})
        assert answer.status_code == 200, answer.text
        return time.process_time() - began
ways = {
    "markets()": archive.markets,
    "markets(search)": lambda: archive.markets("team 777"),
    "scan count": lambda: archive.scan("prices").select(pl.len()).collect(),
    "sql count": lambda: archive.sql("select count(*) from prices"),
    "coverage()": archive.coverage,
    "first search of the service": first_search,
    "prices of one market": lambda: archive.prices("will-team-777-win"),
    "plain markets": lambda: pl.read_parquet(files["markets"]),
    "plain scan count": lambda: pl.scan_parquet(files["prices"]).select(pl.len()).collect(),
    "plain sql count": lambda: duckdb.sql(f"select count(*) from read_parquet({files['prices']})").fetchall(),
    "plain coverage": coverage,
}
began = time.process_time()
seconds = ways[way]()
seconds = seconds if isinstance(seconds, float) else time.process_time() - began
print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)
"""
_PAIRS = {
    "markets()": "plain markets", "markets(search)": "plain markets", "scan count": "plain scan count",
    "sql count": "plain sql count", "coverage()": "plain coverage", "prices of one market": "plain scan count",
    "first search of the service": "plain markets",
}  # fmt: skip


def run(*, quick: bool) -> None:
    """Print one table of times, ratios and memory."""
    count, rounds = (1_000, 1) if quick else (100_000, 3)
    with tempfile.TemporaryDirectory() as folder:
        # In a process of its own, because the most memory of a process is at least what its parent had.
        filling = multiprocessing.get_context("spawn").Process(target=fill, args=(folder, count))
        filling.start()
        filling.join()
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in dict.fromkeys([*_PAIRS, *_PAIRS.values()])}
        for _ in range(rounds):
            for way, measured in found.items():
                measured.append(_measured(way, folder))
    middle = {way: [statistics.median(values) for values in zip(*of, strict=True)] for way, of in found.items()}
    rows = [
        (ours, f"{middle[ours][0]:.2f}", f"{middle[ours][0] / middle[plain][0]:.1f}", f"{middle[ours][1]:.2f}")
        for ours, plain in _PAIRS.items()
    ]
    title = f"{count:,} markets, {4 * count:,} prices, just opened"
    print_table(title, ("work", "seconds", "x plain read", "most GB"), rows)


def fill(folder: str, count: int) -> None:
    """Make an archive of so many markets, each with two prices of two tokens."""
    archive = md.Archive(folder, frame="polars")
    ids = [f"0x{(number * 2_654_435_761) % 2**64:064x}" for number in range(count)]
    tokens = [[str(10**76 + 2 * number + side) for side in (0, 1)] for number in range(count)]
    archive.add(
        markets=[
            {
                "market_id": ids[n], "slug": f"will-team-{n}-win", "question": f"Will team {n} win its game?",
                "status": "closed" if n % 3 else "active", "start_date": f"2026-{n % 12 + 1:02d}-01T00:00:00Z",
                "end_date": f"2026-{n % 12 + 1:02d}-20T00:00:00Z", "event_id": str(n // 4),
                "event_slug": f"event-{n // 4}", "tags": [["Politics", "Sports", "Crypto"][n % 3]],
                "token_ids": tokens[n], "token_labels": ["Yes", "No"], "volume": float(n % 9_999),
                "description": "This market resolves to Yes if the team wins its game. " * 6,
            }
            for n in range(count)
        ]
    )  # fmt: skip
    for first in range(0, count, 10_000):
        part = range(first, min(first + 10_000, count))
        rows = pl.DataFrame({
            "market_id": [ids[n] for n in part for _ in range(4)],
            "token_id": [token for n in part for token in tokens[n] for _ in (0, 1)],
            "price": [0.4, 0.5, 0.6, 0.5] * len(part),
        })  # fmt: skip
        times = np.tile(START + np.arange(2).astype("timedelta64[m]"), 2 * len(part))
        archive.add(prices=rows.with_columns(ts=pl.Series(times).dt.replace_time_zone("UTC")))


def _measured(way: str, folder: str) -> tuple[float, float]:
    """The seconds and the most memory [GB] of one way in a process of its own."""
    result = subprocess.run([sys.executable, "-c", _WORK, way, folder], capture_output=True, text=True, check=True)
    seconds, memory = result.stdout.split()[-2:]
    return float(seconds), float(memory)
