from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from reference.clocks import stop_time
from reference.faults import FaultServer

from marketdata.clock import Clock
from marketdata.fetch.http.connection import Policy
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.transport import Transport

KEY = "s3cret-key-0123456789-abcd"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that sleeps move, instead of waiting, and nothing else."""
    stop_time(monkeypatch)
    out = Clock()
    out.is_virtual = True
    return out


@pytest.fixture
def server() -> Iterator[FaultServer]:
    """A server whose ``answer`` and ``script`` the test sets."""
    with FaultServer() as out:
        yield out


@pytest.fixture
def connect(server: FaultServer, clock: Clock) -> Iterator[Callable[..., Transport]]:
    """Transports to the server, with fields of Policy as keyword arguments."""
    made: list[Transport] = []

    def make(base_url: str | None = None, **policy: Any) -> Transport:
        pacer = Pacer(clock=clock)
        out = Transport(base_url or server.base_url, KEY, pacer=pacer, clock=clock, policy=Policy(**policy), seed=1)
        made.append(out)
        return out

    yield make
    for transport in made:
        transport.close()


@pytest.fixture
def transport(connect: Callable[..., Transport]) -> Transport:
    """One with the default policy."""
    return connect()


@pytest.fixture(autouse=True)
def _no_key_in_logs(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever a test does, no logger at DEBUG may show the key."""
    caplog.set_level(logging.DEBUG)
    yield
    assert KEY not in "".join(r.getMessage() for when in ("setup", "call") for r in caplog.get_records(when))  # type: ignore[arg-type]
