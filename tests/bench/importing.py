"""What ``import marketdata`` costs."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from bench.measure import Table

WAYS = {
    "bare Python": "pass",
    "import marketdata": "import marketdata",
    "import pandas": "import pandas",
    "import polars": "import polars",
}


def run(*, quick: bool = False) -> list[Table]:
    """A process each, in turn."""
    times: dict[str, list[float]] = {name: [] for name in WAYS}
    for k in range(4 if quick else 11):
        for name, code in WAYS.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            if k:
                times[name].append(time.perf_counter() - began)
    table = Table("Import", ["process", "median ms", "beyond bare Python ms"])
    for name, taken in times.items():
        beyond = statistics.median(a - b for a, b in zip(taken, times["bare Python"], strict=True))
        table.rows.append([name, f"{statistics.median(taken) * 1e3:.0f}", f"{beyond * 1e3:.0f}"])
    return [table]
