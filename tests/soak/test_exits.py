"""Processes that end soon after a statement, a fetch or a call: none is aborted by a thread that goes on."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import marketdata as md

pytestmark = pytest.mark.soak
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
_FETCHES = """
import sys
import marketdata as md
client = md.Client(sys.argv[1], sys.argv[2])
for number in range(100_000):
    client.books(sys.argv[3], "2026-01-01", "2026-01-02", "1m")
    if not number:  # an interrupted import of pandas is an error of pandas
        print("fetches", flush=True)
"""


@pytest.fixture
def archive(tmp_path: Path) -> md.Archive:
    archive = md.Archive(tmp_path / "archive", frame="polars")
    archive.add(prices=md.testing.prices("polars"))
    return archive


@pytest.mark.parametrize("statement", ["from nowhere", "copy (select 1) to 'x.csv'"])
def test_a_process_ends_cleanly_after_a_refused_statement(archive: md.Archive, statement: str) -> None:
    """Its exit code is 0 each time."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    command = [sys.executable, "-c", _STATEMENTS, archive.location, statement]
    codes = [subprocess.run(command, check=False, timeout=60).returncode for _ in range(RUNS)]
    assert codes == [0] * RUNS


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal for a child")
@pytest.mark.fault("N31")
def test_a_fetch_that_is_interrupted_ends_by_the_interrupt() -> None:
    """Its exit code is that of Ctrl-C each time, wherever it was."""
    draw, codes = random.Random(1), []
    archive = md.simulate(events=1, days=1, seed=1)
    market = archive.records("markets")[0]["id"]
    with md.serve(archive) as service:
        command = [sys.executable, "-c", _FETCHES, service.base_url, service.api_key, market]
        for _ in range(RUNS):
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
                assert process.stdout is not None
                assert process.stdout.readline()
                time.sleep(draw.uniform(0, 1))
                process.send_signal(signal.SIGINT)
                codes.append(process.wait(60))
    assert codes == [-signal.SIGINT] * RUNS


def _line(method: str, **content: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, **content}).encode() + b"\n"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such signal for a child")
@pytest.mark.parametrize("is_interrupted", [False, True])
def test_a_server_of_tools_ends_cleanly_in_the_middle_of_a_call(archive: md.Archive, *, is_interrupted: bool) -> None:
    """Its input ends, or Ctrl-C comes, while a statement runs."""
    pytest.importorskip("mcp", reason="mcp is not installed: make engines")
    draw, codes = random.Random(1), []
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    endless = "select count(*) from range(1000000) a, range(1000000) b"
    for _ in range(RUNS // 2):
        command = [sys.executable, "-m", "marketdata.cli", "mcp", archive.location]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(_line("initialize", id=1, params=about))
            process.stdin.flush()
            assert b"serverInfo" in process.stdout.readline()
            process.stdin.write(_line("notifications/initialized"))
            process.stdin.write(_line("tools/call", id=2, params={"name": "sql", "arguments": {"statement": endless}}))
            process.stdin.flush()
            time.sleep(draw.uniform(0, 1))
            if is_interrupted:
                process.send_signal(signal.SIGINT)
            else:
                process.stdin.close()
            codes.append(process.wait(60))
    assert set(codes) <= {130 if is_interrupted else 0}, codes
