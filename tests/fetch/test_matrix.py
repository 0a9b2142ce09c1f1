from __future__ import annotations

import re
from pathlib import Path

ROWS = [f"N{i}" for i in range(1, 34)] + [f"P{i}" for i in range(1, 31)] + [f"K{i}" for i in range(1, 9)]


def test_every_row_has_its_test() -> None:
    """Each row of the fault matrix of the network, of pages and of secrets has a test with its name."""
    text = "\n".join(p.read_text(encoding="utf-8") for p in Path(__file__).parent.glob("test_*.py"))
    named = set(re.findall(r"^def test_([NPK]\d+)_\w+\(", text, re.MULTILINE))
    assert [row for row in ROWS if row not in named] == []
    assert sorted(named - set(ROWS)) == []
