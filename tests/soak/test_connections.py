"""A service under connections that say nothing, heads that do not end, and answers that nobody reads."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import requests

import marketdata as md

pytestmark = [pytest.mark.soak, pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limits")]
MOST, SLOW, RAW = 10_000, 400, 29
_SERVICE = """
import resource, sys, time
import marketdata as md
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
with md.serve(md.Archive(sys.argv[1]), requests_per_minute=1_000_000) as service:
    print(service.base_url, service.api_key, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def service(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The address and the key of a service in a process of its own, which has as many files as the machine allows."""
    archive = md.Archive(tmp_path / "archive")
    archive.add(prices=md.testing.prices("polars"), markets=md.testing.markets("polars"))
    command = [sys.executable, "-c", _SERVICE, archive.location]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address, key = process.stdout.readline().split()
        yield address, key
        process.communicate("", timeout=60)
        assert process.returncode == 0


def test_idle_connections_slow_heads_and_held_answers_cost_others_nothing(service: tuple[str, str]) -> None:
    """A service with as many connections as the machine allows answers the next request within a second."""
    address, key = service
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit[1], limit[1]))
    host, _, port = address.removeprefix("http://").partition(":")
    count = min(MOST, limit[1] - 500)
    head = f"GET /v1/markets HTTP/1.1\r\nHost: {host}\r\nX-API-Key: {key}\r\n".encode()
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limit)

        def opened() -> socket.socket:
            return stack.enter_context(socket.create_connection((host, int(port)), 30))

        begun = time.monotonic()
        idle = [opened() for _ in range(count - SLOW - RAW)]
        slow = [opened() for _ in range(SLOW)]
        for one in slow:
            one.sendall(head[:20])
        for one in [opened() for _ in range(RAW)]:
            one.sendall(head + b"\r\n")  # its answer is never read
        took = []
        for number in range(50):
            for one in slow[number::50]:
                one.sendall(b"X")
            at = time.monotonic()
            answer = requests.get(f"{address}/v1/markets", headers={"X-API-Key": key}, timeout=30)
            took.append(time.monotonic() - at)
            assert answer.status_code == 200
        print(f"{count:,} connections in {took and time.monotonic() - begun:.0f} s; slowest {max(took):.2f} s", end=" ")
        assert sorted(took)[len(took) // 2] < 1
        assert len(idle) + SLOW + RAW == count
