"""The figures of ``benchmarks.md`` that come first, as one bar chart; as a script it draws them into a file."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

# The beginnings of the titles of the tables that are drawn.
JOBS = (
    "Page bytes to a tidy frame, typical",
    "Last book of each hour",
    "Mean price of each hour",
    "Top of the book",
)
OURS, OTHERS = "#0d7f8c", "#b9c3ca"


class Way(NamedTuple):
    """One way of doing a job: its name, its median time, and how many times ours that is."""

    name: str
    millis: float
    ratio: float


def ways(page: str) -> dict[str, list[Way]]:
    """The rows of the tables that are drawn, by title, without limits that nothing can be below."""
    found: dict[str, list[Way]] = {}
    for title, table in re.findall(r"^## (.*)\n\n\| way \|.*\n\|[-:|]+\n((?:\|.*\n)+)", page, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|\n").split("|")] for line in table.splitlines()]
        found[title] = [
            Way(row[0], float(row[1].replace(",", "")), float(row[-1].replace(",", "")))
            for row in rows
            if not row[0].startswith("limit")
        ]
    return {title: rows for job in JOBS for title, rows in found.items() if title.startswith(job)}


def draw(page: str, file: Path) -> None:
    """Draw the bars, ours in colour."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    jobs = ways(page)
    figure, axes = plt.subplots(
        len(jobs), figsize=(8, 9), height_ratios=[len(rows) + 1 for rows in jobs.values()], layout="constrained"
    )
    for ax, (title, unsorted) in zip(axes, jobs.items(), strict=True):
        rows = sorted(unsorted, key=lambda way: -way.millis)
        names = [way.name.strip("*") for way in rows]
        bars = ax.barh(
            names, [way.millis for way in rows], color=[OURS if "marketdata" in name else OTHERS for name in names]
        )
        ax.bar_label(bars, [f"{way.millis:,.0f} ms, {way.ratio:.3g} x" for way in rows], padding=4, fontsize=8)
        ax.set_title(title, loc="left", fontsize=10)
        ax.set_xlim(0, rows[0].millis * 1.25)
        ax.xaxis.set_visible(False)
        ax.tick_params(left=False, labelsize=8)
        ax.spines[:].set_visible(False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=110)


if __name__ == "__main__":
    draw(Path(__file__).with_name("benchmarks.md").read_text(encoding="utf-8"), Path(sys.argv[1]))
