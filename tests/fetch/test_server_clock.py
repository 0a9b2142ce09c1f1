from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from email.utils import format_datetime
from typing import Any

import pytest
from reference.faults import Act, Ask, FaultServer, ok
from reference.oracle import MINUTE, START, Oracle, expected, read, rows

from marketdata.errors import ContractError
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.transport import Transport

COUNT = 150
LIVE = START + 99 * MINUTE  # the last bucket of the first page, which the second brings again
HOUR = 3600.0


def http_date(micros: int) -> str:
    """A moment as the Date header says it."""
    return format_datetime(dt.datetime.fromtimestamp(micros / 1e6, dt.UTC), usegmt=True)


def moving(date: str | None) -> tuple[Oracle, Callable[[Ask], Act]]:
    """A service at this time of its own, whose bucket LIVE moves between two pages."""
    oracle = Oracle.of_prices(COUNT)

    def answer(ask: Ask) -> Act:
        body = oracle.page(ask)
        if "cursor" in ask.params:
            body["data"]["Yes"].insert(0, {**oracle.point("Yes", LIVE), "p": 0.75})
            body["metadata"]["count"] += 1
        return ok(body) if date is None else ok(body).with_header("Date", date)

    return oracle, answer


@pytest.fixture(params=[-2 * HOUR, 0.0, 2 * HOUR], ids=["behind", "right", "ahead"])
def skewed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of this machine, two hours wrong to either side of the bucket, or right."""
    monkeypatch.setattr(time, "time", lambda: LIVE / 1e6 + 30 + request.param)


def fetched(transport: Transport, oracle: Oracle, report: Report) -> list[tuple[str, int, Any]]:
    return sorted(rows(read(transport, oracle.request(COUNT), report=report)))


@pytest.mark.fault("T12")
@pytest.mark.parametrize("into", [0, 1, 59])
def test_open_by_the_servers_clock(skewed: None, server: FaultServer, transport: Transport, into: int) -> None:
    """Up to its last second by the server's Date a bucket is open: its last version wins, whatever our clock says."""
    oracle, server.answer = moving(http_date(LIVE + into * 1_000_000))
    report = Report()
    got = fetched(transport, oracle, report)
    assert got == expected(oracle.points | {("Yes", LIVE): 0.75})
    assert report.warnings == {"open_bucket_changed": 1}


@pytest.mark.fault("T12")
@pytest.mark.parametrize("after", [0, 1, 86_400])
def test_closed_by_the_servers_clock(skewed: None, server: FaultServer, transport: Transport, after: int) -> None:
    """From its end by the server's Date a bucket is closed: two values are an error, whatever our clock says."""
    oracle, server.answer = moving(http_date(LIVE + MINUTE + after * 1_000_000))
    with pytest.raises(ContractError, match="different values"):
        fetched(transport, oracle, Report())


@pytest.mark.fault("T12")
def test_no_date(skewed: None, server: FaultServer, transport: Transport) -> None:
    """A service that does not tell its time has no open buckets: ours is not taken in its place."""
    oracle, server.answer = moving(None)
    with pytest.raises(ContractError, match="different values"):
        fetched(transport, oracle, Report())


@pytest.mark.fault("T12")
def test_one_bucket_that_closes_on_the_way(skewed: None, server: FaultServer, transport: Transport) -> None:
    """A bucket that was open when it came first and is closed when it comes again has its last value."""
    dates = iter([http_date(LIVE + 30_000_000), http_date(LIVE + 90_000_000)])
    oracle, answer = moving(None)
    server.answer = lambda ask: answer(ask).with_header("Date", next(dates))
    report = Report()
    assert fetched(transport, oracle, report) == expected(oracle.points | {("Yes", LIVE): 0.75})
    assert report.warnings == {"open_bucket_changed": 1}
