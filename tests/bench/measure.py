"""Timing side by side: every way of doing a thing runs once per round, so drift of the machine hits all alike."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import psutil


@dataclass
class Table:
    """One table of the report.

    ``rows`` hold texts; ``notes`` stand below. The first column names the way.
    """

    title: str
    head: list[str]
    rows: list[list[str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The table as it stands in the page."""
        lines = [f"## {self.title}", "", "| " + " | ".join(self.head) + " |"]
        numbers = [all(cell[:1].isdigit() for cell in column) for column in zip(*self.rows, strict=True)]
        lines.append("|" + "".join("---:|" if number else "---|" for number in numbers or [False] * len(self.head)))
        lines += ["| " + " | ".join(map(_plain, row)) + " |" for row in self.rows]
        return "\n".join([*lines, "", *[f"{note}\n" for note in self.notes]])


def _plain(cell: str) -> str:
    """Numbers of a cell without exponents."""
    return re.sub(r"\d[\d.]*e\+\d+", lambda number: f"{float(number[0]):,.0f}", cell)


class Took(float):
    """Seconds that a way measured itself, in another process [s]."""


def interleaved(
    ways: Mapping[str, Callable[[], Any]], rounds: int = 5, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each way in each round; one round before that is not counted [s]."""
    out: dict[str, list[float]] = {name: [] for name in ways}
    for k in range(rounds + 1):
        for name, way in ways.items():
            gc.collect()
            began = clock()
            result = way()
            took = float(result) if isinstance(result, Took) else clock() - began
            del result
            if k:
                out[name].append(took)
    return out


def ratio(times: Mapping[str, list[float]], slow: str, fast: str) -> float:
    """How many times longer ``slow`` took than ``fast``: the median of the rounds."""
    return statistics.median(a / b for a, b in zip(times[slow], times[fast], strict=True))


def compare(title: str, times: Mapping[str, list[float]], ours: str, *, rows: int | None = None) -> Table:
    """A table of medians: milliseconds, rows per second, and how many times slower than ours."""
    head = ["way", "median ms", "min to max ms", *(["M rows/s"] if rows else []), "x ours"]
    table = Table(title, head)
    for name, taken in times.items():
        middle = statistics.median(taken)
        rate = [f"{rows / middle / 1e6:.3g}"] if rows else []
        span = f"{min(taken) * 1e3:.3g} to {max(taken) * 1e3:.3g}"
        shown = f"**{name}**" if name == ours else name
        table.rows.append([shown, f"{middle * 1e3:.3g}", span, *rate, f"{ratio(times, name, ours):.3g}"])
    return table


def peak_bytes(way: Callable[[], Any]) -> int:
    """Growth of the resident memory while a way runs, at its highest [bytes]."""
    import threading

    process = psutil.Process()
    gc.collect()
    with contextlib.suppress(AttributeError):  # memory that was freed and not given back would be used again, unseen
        ctypes.CDLL(None).malloc_trim(0)
    before = process.memory_info().rss
    highest = before
    done = threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.002):
            highest = max(highest, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        result = way()
        highest = max(highest, process.memory_info().rss)
        del result
    finally:
        done.set()
        watcher.join()
    return highest - before
