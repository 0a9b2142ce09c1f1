"""Time that passes only where somebody sleeps, and how long a test waits for what would else never come."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

# For what comes soon, if it comes at all [s]: a machine that is busy may take long, and no test is about that.
SOON = 600


def stop_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the clocks of the library stand still, but for what sleeps move them: how long a test takes says nothing."""
    steady, unix = time.monotonic(), time.time_ns()
    still = SimpleNamespace(monotonic=lambda: steady, time_ns=lambda: unix, sleep=time.sleep)
    monkeypatch.setattr("marketdata.clock.time", still)
