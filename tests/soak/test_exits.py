"""Processes that end soon after a statement: none is aborted by a thread that goes on."""

from __future__ import annotations

import subprocess
import sys

import pytest

import marketdata as md

RUNS = 40
_STATEMENTS = """
import sys
import marketdata as md
archive = md.Archive(sys.argv[1], frame="polars")
assert archive.sql("select count(*) from prices").height == 1
try:
    archive.sql(sys.argv[2])
except md.errors.ConfigError:
    pass
"""


@pytest.mark.soak
@pytest.mark.parametrize("statement", ["from nowhere", "copy (select 1) to 'x.csv'"])
def test_a_process_ends_cleanly_after_a_refused_statement(tmp_path, statement: str) -> None:
    """Its exit code is 0 each time."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    archive = md.Archive(tmp_path / "archive", frame="polars")
    archive.add(prices=md.testing.prices("polars"))
    command = [sys.executable, "-c", _STATEMENTS, archive.location, statement]
    codes = [subprocess.run(command, check=False, timeout=60).returncode for _ in range(RUNS)]
    assert codes == [0] * RUNS
