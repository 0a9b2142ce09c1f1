"""A day of books from the service: as one Arrow stream, as the JSON of one long page, and as pages."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import marketdata as md
from bench.made import START
from bench.measure import Table
from bench.serving import OURS, PROGRAMS, cpu_seconds, market_books
from marketdata.archive import Archive
from marketdata.times import DAY, to_text

ARROW, PAGES = "one Arrow stream", "pages of JSON"


@contextmanager
def served(path: Path) -> Iterator[tuple[str, int]]:
    """The address of a service in a process of its own, and the number of the process."""
    command = [sys.executable, "-c", PROGRAMS[OURS], str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            yield running.stdout.readline().strip(), running.pid
        finally:
            running.kill()


def run(*, quick: bool = False) -> list[Table]:
    """Both ways in turn, each in a market of its own, whose chunks nobody has requested before."""
    rounds = 2 if quick else 7
    found: defaultdict[str, list[tuple[float, float, float, int]]] = defaultdict(list)
    first = -(-START // DAY) * DAY
    with tempfile.TemporaryDirectory() as folder:
        archive = Archive(Path(folder, "archive"))
        markets = [f"m{k}" for k in range(2 * rounds + 2)]
        tokens = [{"market_id": m, "token_ids": [f"{m}-1", f"{m}-2"], "token_labels": ["Yes", "No"]} for m in markets]
        archive.add(markets=tokens)
        for k, market in enumerate(markets):
            archive.add(books=market_books(market, (first - START + DAY) // 60_000_000, k))
        with served(Path(folder, "archive")) as (url, process):
            for k, market in enumerate(markets):
                way = (ARROW, PAGES)[k % 2]
                client = md.Client(url, "bench", frame="polars")
                if way == ARROW:
                    client.usage()  # as a client that has any answer, it knows that there are days
                report = md.Report()
                service, own, began = cpu_seconds(process), time.process_time(), time.perf_counter()
                client.books(market, to_text(first), to_text(first + DAY), report=report)
                took = (time.perf_counter() - began, time.process_time() - own, cpu_seconds(process) - service)
                client.close()
                if k >= 2:  # the first of each way loads modules
                    found[way].append((*took, report.requests))
    head = ["way", "requests", "client CPU ms", "server CPU ms", "ms in all"]
    table = Table("A day of books from the service", head)
    for way, runs in found.items():
        wall, own, service = (median(run[i] for run in runs) * 1e3 for i in range(3))
        shown = f"**{way}**" if way == ARROW else way
        table.rows.append([shown, str(runs[0][3]), f"{own:.3g}", f"{service:.3g}", f"{wall:.3g}"])
    table.notes.append(
        "2,880 snapshots of 70 levels, read from the archive on disk by a service in a process of its own, and made\n"
        "a polars frame by `md.Client`; a client without an answer of the service asks for pages. Medians; the\n"
        "processor time of the server is measured in steps of 10 ms."
    )
    return [table]


if __name__ == "__main__":
    print(run(quick="--quick" in sys.argv)[0].markdown())
