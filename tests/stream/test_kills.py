"""Recorders that are killed, and go on."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from reference.stream_stub import Socket, Stream
from stream.test_record import archive_of, check

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs a system with SIGKILL")
CHILD = Path(__file__).with_name("child.py")


@pytest.mark.fault("AR2")
@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.soak)])
def test_a_killed_recorder_leaves_right_books_and_no_range_that_it_did_not_see(tmp_path: Path, kills: int) -> None:
    """After SIGKILL at any moment every stored book is the venue's, and what passed meanwhile is missing."""
    draw, stream = random.Random(kills), Stream.drawn(7, seconds=100 * (kills + 1), rate=1.0)
    with Socket(stream, pace=0.004, between=25) as socket:
        archive = archive_of(tmp_path, stream)
        for _ in range(kills):
            command = [sys.executable, str(CHILD), socket.address, str(tmp_path), *stream.markets]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
                assert child.stdout is not None
                commits = draw.randint(1, 4)
                for line in child.stdout:
                    commits -= int(line) > 0
                    if not commits:
                        break
                child.send_signal(signal.SIGKILL)
        books = check(archive, socket)
    assert len(socket.missed) >= 25 * (kills - 1)
    assert books >= kills * 4


def test_a_signal_stores_what_was_seen(tmp_path: Path) -> None:
    """SIGTERM ends the command with exit code 0, and all that was seen is stored."""
    stream = Stream.drawn(7, seconds=100, rate=1.0)
    with Socket(stream, pace=0.004) as socket:
        archive = archive_of(tmp_path, stream)
        command = [sys.executable, "-m", "marketdata.cli", "record", str(tmp_path), *stream.markets, "--service"]
        command += ["polymarket", "--commit-every", "60"]
        environment = {"MARKETDATA_POLYMARKET_URL": socket.address.replace("ws:", "http:"), "PATH": "/usr/bin:/bin"}
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as child:
            assert socket.is_half.wait(60)
            child.terminate()
            _, said = child.communicate(timeout=30)
        assert child.returncode == 0
        assert "stopped; the same command goes on from here." in said
        assert check(archive, socket) > 20
