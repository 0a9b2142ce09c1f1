"""The fault matrix as a page: each row with the sentences of the tests that carry its id."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

AREAS = {
    "N": "Network",
    "P": "Pages and contract",
    "D": "Values",
    "T": "Times",
    "K": "Keys and secrets",
    "FR": "Frames",
    "AR": "Archive",
    "S": "Service",
}
_AREA = "|".join(AREAS)
_IN_MARK = re.compile(rf"'((?:{_AREA})\d+)'")


def tests(folder: Path) -> Iterator[tuple[str, list[str], bool]]:
    """Sentence, rows, and whether it is a long run, of every test."""
    for path in sorted(folder.rglob("test_*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        whole = "mark.soak" in "".join(ast.unparse(n) for n in module.body if isinstance(n, ast.Assign))
        for one in ast.walk(module):
            if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef) and one.name.startswith("test_"):
                marks = " ".join(ast.unparse(mark) for mark in one.decorator_list)
                rows = set(_IN_MARK.findall(marks)) if "mark.fault" in marks else set()
                sentence = " ".join((ast.get_docstring(one) or one.name).split())
                yield sentence, sorted(rows), whole or "mark.soak" in marks


def page(folder: Path) -> str:
    """The page as Markdown."""
    rows: dict[str, list[str]] = defaultdict(list)
    long_runs = []
    for sentence, ids, long_run in tests(folder):
        for row in ids:
            rows[row].append(sentence)
        if long_run:
            long_runs.append(sentence)
    parts = [
        "# Fault matrix",
        "Faults that are handled, and what their tests show. The id of a row selects its tests: `pytest -k N9`.",
    ]
    for area, title in AREAS.items():
        some = {int(row.removeprefix(area)): row for row in rows if row.rstrip("0123456789") == area}
        if some:
            lines = [f"| {some[i]} | {'<br>'.join(map(_cell, rows[some[i]]))} |" for i in sorted(some)]
            parts += [f"## {title}", "\n".join(["| row | what its tests show |", "|---|---|", *lines])]
    parts += ["(long-runs)=\n## Long runs", "Of `make soak`:", "\n".join(f"- {one}" for one in long_runs)]
    return "\n\n".join(parts) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")
