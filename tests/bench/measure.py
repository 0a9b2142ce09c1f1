"""Time several ways of doing the same work, in turn, and print one table of ratios."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any


class Seconds(float):
    """A duration that a way measured itself, in another process."""


def measure(ways: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each way in each round; a first round only warms up.

    All ways run once in a round, so a slow moment of the machine hits all of them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            gc.collect()
            began = time.perf_counter()
            result = way()
            elapsed = float(result) if isinstance(result, Seconds) else time.perf_counter() - began
            del result
            if number:
                seconds[name].append(elapsed)
    return seconds


def ratio(seconds: Mapping[str, list[float]], slow: str, fast: str) -> float:
    """Return how many times longer ``slow`` took, as the median over the rounds."""
    return statistics.median(a / b for a, b in zip(seconds[slow], seconds[fast], strict=True))


def print_ratios(title: str, seconds: Mapping[str, list[float]], ours: str) -> None:
    """Print the median of each way and its ratio to ours."""
    rows = [
        (name, f"{statistics.median(times) * 1e3:,.1f}", f"{ratio(seconds, name, ours):.3g}")
        for name, times in seconds.items()
    ]
    print_table(title, ("way", "median ms", "x ours"), rows)


def print_table(title: str, head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table in Markdown."""
    lines = [f"\n## {title}\n", f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    print("\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)]), flush=True)
