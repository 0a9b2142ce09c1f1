from __future__ import annotations

import re
from pathlib import Path

import pytest

# Rows of the fault matrix, and the last of each: N network, P pages and contract, D values, T time, K keys and secrets,
# AR archive, S service.
LAST = {"N": 37, "P": 30, "D": 17, "T": 12, "K": 8, "AR": 54, "S": 48, "FR": 11}
_MARK = re.compile(r"^ *@pytest\.mark\.fault\(([^)]*)\)", re.MULTILINE)
_ROW = re.compile(rf"\b(?:{'|'.join(LAST)})\d+")


@pytest.fixture(scope="module")
def named() -> set[str]:
    """Rows that tests carry in their markers."""
    texts = [path.read_text(encoding="utf-8") for path in Path(__file__).parent.rglob("test_*.py")]
    return {row for text in texts for rows in _MARK.findall(text) for row in _ROW.findall(rows)}


@pytest.mark.parametrize("letter", LAST)
def test_every_row_has_its_test(named: set[str], letter: str) -> None:
    """Each row of the fault matrix has a test that carries it, so that ``pytest -k N9`` runs row N9."""
    rows = {f"{letter}{i}" for i in range(1, LAST[letter] + 1)}
    assert sorted(rows - named) == []


def test_no_test_names_a_row_that_is_none(named: set[str]) -> None:
    """A name such as N99 would be a slip of the pen."""
    rows = {f"{letter}{i}" for letter, last in LAST.items() for i in range(1, last + 1)}
    assert sorted(named - rows) == []
