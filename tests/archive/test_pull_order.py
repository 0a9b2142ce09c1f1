"""A service may give points in any order: what a broken walk left is never called complete."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from reference.faults import Act, Ask, FaultServer, ok, refuse
from reference.oracle import DATE, START, Oracle, minutes

import marketdata as md
from marketdata.times import parse_iso, to_datetime

COUNT = 450
LABELS = ("A", "B")
# Of 18 pages. At most eight are on their way, so nine came before: two of them follow each other and show their order.
BY_THEN = 16
ORDERS = {
    "by time": lambda k: (k[1], k[0]),
    "newest first": lambda k: (-k[1], k[0]),
    "label after label": lambda k: (k[0], k[1]),
}


def service(order: str, broken: int, *, own: bool) -> Any:
    """Pages in an order; one history request is refused, and pages may name only the labels that they hold."""
    oracle = Oracle.of_prices(COUNT, LABELS)
    keys = sorted(oracle.points, key=ORDERS[order])
    calls = itertools.count()

    def answer(ask: Ask) -> Act:
        if ask.path == "/v1/health":
            return ok({"status": "ok", "timestamp": "2026-07-01T00:00:00Z"}).with_header("Date", DATE)
        if not ask.path.endswith("/prices"):
            record = {"id": "m1", "slug": "slug", "tokens": [{"id": i, "label": x} for x, i in oracle.labels.items()]}
            return ok(record) if ask.path.startswith("/v1/markets/") else refuse(404)
        if next(calls) == broken:
            return refuse(403, "not now")
        start, end = parse_iso(ask.params["start_ts"]), parse_iso(ask.params["end_ts"])
        mine, at = [k for k in keys if start <= k[1] < end], int(ask.params.get("cursor", "0"))
        body = oracle.body(mine[at : at + 50], 50, str(at + 50) if at + 50 < len(mine) else None)
        if own:
            body["data"] = {label: points for label, points in body["data"].items() if points}
            body["tokens"] = {label: body["tokens"][label] for label in body["data"]}
        return Act(body=json.dumps(body).encode()).with_header("Date", DATE)

    return answer


@pytest.mark.filterwarnings("ignore:.*limit_clamped:marketdata.errors.ServiceOddityWarning")
@pytest.mark.parametrize("order", ORDERS)
def test_a_pull_that_broke_and_went_on_holds_everything(tmp_path: Path, order: str) -> None:
    """After a refusal in the middle the second pull brings what is missing, whatever the order of points."""
    wanted = minutes(COUNT)
    span = {"start": to_datetime(wanted.start), "end": to_datetime(wanted.end)}
    for broken, own in ((2, True), (11, False)):
        archive = md.Archive(tmp_path / str(broken), frame="polars")
        with (
            FaultServer(service(order, broken, own=own)) as server,
            md.Client(server.base_url, "a-key-of-a-test-0123456789") as client,
        ):
            with pytest.raises(md.errors.PlanError):
                archive.pull(client, "m1", views=["prices"], **span)
            archive.pull(client, "m1", views=["prices"], **span)
            assert archive.pull(client, "m1", views=["prices"], **span).is_empty()
        prices = archive.prices("m1")
        assert len(prices) == prices["price"].n_unique() == COUNT * len(LABELS)
        assert prices["ts"].min() == to_datetime(START)
        assert archive.verify().is_empty()


@pytest.mark.filterwarnings("ignore:.*limit_clamped:marketdata.errors.ServiceOddityWarning")
def test_a_client_with_an_archive_shows_what_it_holds_when_it_stops(tmp_path: Path) -> None:
    """The rows that had come hang on the error; the same call goes on, and there is nothing else to resume."""
    wanted = minutes(COUNT)
    with FaultServer(service("by time", BY_THEN, own=False)) as server:
        archive = md.Archive(tmp_path, frame="polars")
        with md.Client(server.base_url, "a-key-of-a-test-0123456789", "polars", archive=archive) as client:
            with pytest.raises(md.errors.PlanError) as stopped:
                client.prices("m1", to_datetime(wanted.start), to_datetime(wanted.end), "1m")
            whole = client.prices("m1", to_datetime(wanted.start), to_datetime(wanted.end), "1m")
    assert stopped.value.resume is None
    assert 0 < len(stopped.value.partial) < len(whole) == COUNT * len(LABELS)
    assert stopped.value.partial.join(whole, on=["ts", "token_id", "price"], how="anti").is_empty()
