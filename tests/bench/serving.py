"""Book pages through HTTP, archive read included, beside FastAPI's default way of answering the same page."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
from coded import coded_books

from bench.loading import Load, walk
from bench.made import MINUTE, START
from bench.measure import Table
from marketdata.archive import Archive
from marketdata.points.columns import Books, Token
from marketdata.times import to_text

CLIENTS = 20
RATE = 250
# Pages of each client that are repeated: as many as one chunk in memory has.
REPEATED = 10
OURS, BOTH, USUAL = "marketdata serve", "marketdata serve --workers 2", "FastAPI's default way"
SERVE = """
import sys
from marketdata.archive import Archive
from marketdata.service import run
plans = {"p": {"requests_per_minute": 10**7}}
def say(line): print(line.split()[-1], flush=True)
run(Archive(sys.argv[1]), port=0, keys={"bench": "p"}, plans=plans, say=say, workers=WORKERS)
"""
PROGRAMS = {
    OURS: SERVE.replace("WORKERS", "1"),
    BOTH: SERVE.replace("WORKERS", "2"),
    # What one writes first: the archive's frame, a dict per point, and the framework makes the JSON.
    USUAL: """
import socket, sys
import uvicorn
from fastapi import FastAPI, Header, HTTPException
from marketdata.archive import Archive
from marketdata.times import Range, parse_iso, to_text

archive, app, MINUTE = Archive(sys.argv[1]), FastAPI(), 60_000_000

def levels(side, k):
    some = slice(side.begins[k], side.begins[k] + side.counts[k])
    return list(zip(side.price[some].tolist(), side.size[some].tolist()))

@app.get("/v1/markets/{market}/books")
def books(market: str, start_ts: str, end_ts: str, resolution: str, limit: int = 100, cursor: int | None = None,
          x_api_key: str = Header()):
    if x_api_key != "bench":
        raise HTTPException(401)
    start, last = cursor or parse_iso(start_ts), parse_iso(end_ts)
    stop = min(start + limit // 2 * MINUTE, last)
    columns = archive.columns("books", market, Range(start, stop), resolution)
    data = {}
    for k, code in enumerate(columns.token.tolist()):
        point = {"t": to_text(int(columns.ts[k])), "bids": levels(columns.bids, k), "asks": levels(columns.asks, k)}
        data.setdefault(columns.tokens[code].token_label, []).append(point)
    tokens = {t.token_label: t.token_id for t in columns.tokens}
    metadata = {"count": len(columns), "limit": limit, "next_cursor": str(stop) if stop < last else None}
    return {"market_id": market, "resolution": resolution, "tokens": tokens, "data": data, "metadata": metadata}

listener = socket.create_server(("127.0.0.1", 0))
print("http://127.0.0.1:%d" % listener.getsockname()[1], flush=True)
uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])
""",
}


def market_books(market: str, minutes: int, seed: int) -> Books:
    """Two tokens, 10 to 60 levels a side: pages of 200 snapshots are about 210 kB."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(10, 60, size=4 * minutes)
    levels = np.empty((counts.sum(), 2))
    levels[:, 0] = rng.integers(1, 999, len(levels)) / 1000
    levels[:, 1] = np.round(rng.exponential(500, len(levels)), 2)
    ts = np.tile(START + np.arange(minutes) * MINUTE, 2)
    token = np.repeat(np.arange(2, dtype=np.int32), minutes)
    tokens = Token(market, f"{market}-1", "Yes"), Token(market, f"{market}-2", "No")
    return coded_books(tokens, token, ts, counts, levels)


def fill(path: Path, pages: int) -> None:
    """A market for each client and one more."""
    archive = Archive(path)
    ids = [f"m{i}" for i in range(CLIENTS + 1)]
    records = [{"market_id": m, "token_ids": [f"{m}-1", f"{m}-2"], "token_labels": ["Yes", "No"]} for m in ids]
    archive.add(markets=records)
    for i, market in enumerate(ids):
        archive.add(books=market_books(market, pages * 100, i))


@contextlib.contextmanager
def server(way: str, path: Path) -> Iterator[Callable[..., Load]]:
    """Walks of a service in a process of its own that has answered once; they tell the process's time too."""
    command = [sys.executable, "-c", PROGRAMS[way], str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            url = running.stdout.readline().strip()
            asked = urllib.request.Request(url + way_to("m0", 1), headers={"X-API-Key": "bench"})
            with urllib.request.urlopen(asked) as answer:
                answer.read()

            def timed(paths: list[str], most: int = 10**9, rate: float | None = None) -> Load:
                before = cpu_seconds(running.pid)
                load = walk(url, paths, most, rate=rate)
                return replace(load, cpu_seconds=cpu_seconds(running.pid) - before)

            yield timed
        finally:
            running.terminate()  # so that it ends those that it started


def cpu_seconds(pid: int) -> float:
    """Time of all threads of a process, and of those that it started, on the cores [s]."""
    process = psutil.Process(pid)
    times = [one.cpu_times() for one in (process, *process.children(recursive=True))]
    return float(sum(time.user + time.system for time in times))


def way_to(market: str, pages: int) -> str:
    """The path of so many pages of a market."""
    end = to_text(START + pages * 100 * MINUTE)
    return f"/v1/markets/{market}/books?start_ts={to_text(START)}&end_ts={end}&resolution=1m&limit=200"


def measure(way: str, path: Path, pages: int) -> dict[tuple[str, str], Load]:
    """Every load of one way. The usual way keeps nothing, so it has no repeated pages, and few are enough."""
    many = [way_to(f"m{i}", pages) for i in range(CLIENTS)]
    one = [way_to(f"m{CLIENTS}", pages)]
    out = {}
    with server(way, path) as walked:
        if way == USUAL:
            out["1 client", "fresh"] = walked(one, 5)
            out[f"{CLIENTS} clients", "fresh"] = walked(many, 2)
            return out
        out["1 client", "fresh"] = walked(one)
        out["1 client", "repeated"] = walked(one)
        out[f"{CLIENTS} clients", "fresh"] = walked(many)
        # What was read last is kept; so the first pages are asked once more before they are repeated.
        walked(many, REPEATED)
        out[f"{CLIENTS} clients", "repeated"] = walked(many, REPEATED)
    with server(way, path) as walked:
        out[f"{CLIENTS} clients, {RATE} pages/s requested", "fresh"] = walked(many, rate=RATE)
    return out


def run(*, quick: bool = False) -> list[Table]:
    """Both ways in turn, each with a new process every round, so that fresh pages are fresh."""
    pages, rounds = (15, 1) if quick else (45, 3)
    found: defaultdict[tuple[str, str, str], list[Load]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "archive")
        fill(path, pages)
        for _ in range(rounds):
            for way in PROGRAMS:
                for (clients, pages_are), load in measure(way, path, pages).items():
                    found[clients, pages_are, way].append(load)
    table = Table(
        "Book pages through HTTP", ["load", "pages", "way", "pages/s", "p50 ms", "p99 ms", "server CPU ms a page"]
    )
    for (clients, pages_are, way), loads in found.items():
        rate = statistics.median(load.rate for load in loads)
        took = np.concatenate([load.took for load in loads]) * 1e3
        cpu = statistics.median(load.cpu_seconds / load.pages for load in loads) * 1e3
        shown = way if way == USUAL else f"**{way}**"
        p50, p99 = np.percentile(took, [50, 99])
        table.rows.append([clients, pages_are, shown, f"{rate:.0f}", f"{p50:.3g}", f"{p99:.3g}", f"{cpu:.2g}"])
    size = next(iter(found.values()))[0].page_bytes / 1e3
    table.notes.append(
        f"Pages of 200 snapshots, {size:.0f} kB, from an archive on disk; the server in a process of its own, the\n"
        "clients in one thread of another on the same cores. Fresh pages were never requested before in the\n"
        f"process that answers; all {CLIENTS} clients begin at the same moment, each in a market of its own. They\n"
        f"send the next request at once, so {CLIENTS} of them wait about {CLIENTS} / (pages/s) for a page; where a\n"
        "rate is given they send at that rate together, and a page's time counts from when it was due. The rate is\n"
        "the median of the rounds, p50 and p99 are over all pages."
    )
    return [table]
