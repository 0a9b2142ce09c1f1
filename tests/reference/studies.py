"""Which rows count in a study, their thirds, and what a notebook stores; by loops."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
Key = tuple[str, str, dt.datetime]


def code_cells(notebook: str) -> list[tuple[str, list[str]]]:
    """The code of each cell of a notebook, and the texts that are stored as what it gave."""
    cells = json.loads((NOTEBOOKS / notebook).read_text())["cells"]
    return [
        (
            "".join(cell["source"]),
            ["".join(o["data"]["text/plain"]) for o in cell["outputs"] if o["output_type"] == "execute_result"],
        )
        for cell in cells
        if cell["cell_type"] == "code"
    ]


def stored_table(text: str) -> list[dict[str, Any]]:
    """The rows of a table of pandas as text, whose columns may go on in further blocks."""
    rows: list[dict[str, Any]] = []
    for block in text.split("\n\n"):
        header, *lines = block.splitlines()
        names = header.replace("\\", "").split()
        rows = rows or [{} for _ in lines]
        for row, line in zip(rows, lines, strict=True):
            row.update(zip(names, line.split()[1:], strict=True))
    return rows


def in_thirds(signal: Mapping[Key, float]) -> list[list[Key]]:
    """The keys of the lowest, middle and highest third; equal values are together."""
    counts = Counter(signal.values())
    below, third = 0, {}
    for value in sorted(counts):
        third[value] = int((below + counts[value] / 2) / len(signal) * 3)
        below += counts[value]
    return [[key for key in signal if third[signal[key]] == number] for number in range(3)]


def counted_rows(keys: Collection[Key], labels: Mapping[tuple[str, str], str]) -> list[Key]:
    """The rows that count: of two tokens of a market, Yes where both have a row of one time."""
    tokens = defaultdict(list)
    for market, token in sorted(
        labels, key=lambda ids: (ids[0], labels[ids] not in ("Yes", "Up", "Over"), labels[ids])
    ):
        tokens[market].append(token)
    present = {*keys}
    return [
        (market, token, ts)
        for market, token, ts in keys
        if len(tokens[market]) != 2 or token == tokens[market][0] or (market, tokens[market][0], ts) not in present
    ]
