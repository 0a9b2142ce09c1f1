"""Saved answers of venues, each with its request: a client reads from each what it means."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from reference.replay import check

OWN = Path(__file__).parent / "answers"
SHARED = (Path(__file__).resolve().parents[2] / ".." / "shared" / "answers").resolve()
FILES = sorted([*OWN.glob("*.json"), *SHARED.glob("*.json")])
CASES = [(file, k) for file in FILES for k in range(len(json.loads(file.read_text())["expect"]))]


@pytest.mark.parametrize(("file", "k"), CASES, ids=[f"{file.stem}-{k}" for file, k in CASES])
def test_an_answer_means_what_its_file_says(file: Path, k: int, tmp_path: Path) -> None:
    """Rows, values, warnings and errors of a call are those that a plain loop over the answer found."""
    expected: dict[str, Any] = json.loads(file.read_text())["expect"][k]
    check(file, expected, tmp_path)


def test_the_recorded_answers_are_here() -> None:
    """Without them only the small files of this folder are read."""
    if not SHARED.is_dir():
        pytest.skip(f"the recorded answers are not here: {SHARED}")
    assert len([file for file in FILES if file.parent == SHARED]) > 60
