"""Markets of many tokens, and services that fill and order their pages in ways of their own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from fetch.turns import Near, Turns
from reference.faults import Act, Ask, ok, refuse
from reference.oracle import DATE, MINUTE, START, Oracle, minutes

from marketdata.times import Range, parse_iso, to_text

# Requests per minute of the key, by seed.
PLANS = {0: None, 1: 60_000, 2: 600}


@pytest.fixture(params=[1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in (0, 2))])
def turns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Turns]:
    """Who comes first."""
    out = Turns(request.param)
    monkeypatch.setattr("marketdata.fetch.scheduler.start_thread", out.start)
    yield out
    out.end()


@pytest.fixture
def server(turns: Turns) -> Near:
    """A service whose ``answer`` the test sets."""
    return Near(turns)


@pytest.fixture
def oracle(server: Near) -> Oracle:
    """A market of 3000 minutes, served."""
    out = Oracle.of_prices(3000)
    server.answer = out
    return out


def wide(count: int, step: Callable[[int], int], life: Range | None = None) -> tuple[Oracle, Callable[..., Act]]:
    """A market of 210 tokens, of which token k has a point each ``step(k)`` minutes of its life, and its service."""
    oracle = Oracle.of_prices(0, [f"t{i:03}" for i in range(210)])
    oracle.labels = {x: f"id{x}" for x in oracle.labels}
    alive = life or minutes(count)
    for k, x in enumerate(oracle.labels):
        every = range(START, START + count * MINUTE, step(k) * MINUTE) if step(k) else ()
        oracle.points |= {(x, t): (t // MINUTE % 9999 + k) / 1e5 for t in every if alive.start <= t < alive.end}
    only = {x: Oracle({}, {x: i}) for x, i in oracle.labels.items()}
    for (x, t), value in oracle.points.items():
        only[x].points[x, t] = value
    record = {"id": "m1", "slug": "slug", "tokens": [{"id": i, "label": x} for x, i in oracle.labels.items()]}
    if life is not None:
        record |= {"start_date": to_text(life.start), "end_date": to_text(life.end)}

    def answer(ask: Ask) -> Act:
        if ask.path == "/v1/usage":
            return refuse(404)
        _, _, kind, name, *view = ask.path.split("/")
        if kind == "markets" and not view:
            return ok(record)
        if kind == "markets":
            return refuse(400, "This market has more than 200 tokens; use /v1/tokens/{token_id}/prices.")
        label = name.removeprefix("id")
        body = only[label].page(ask)
        del body["tokens"]
        return ok({**body, "token_id": name, "token_label": label, "data": body["data"][label]})

    return oracle, answer


ORDERS = ["time", "label after label", "last label first", "newest first", "newest pages first", "any"]


def ordered(keys: list[tuple[str, int]], order: str, size: int) -> list[tuple[str, int]]:
    """Keys of points, which are in order of time, in another order."""
    match order:
        case "label after label":
            return sorted(keys)
        case "last label first":
            return sorted(keys, key=lambda key: key[0], reverse=True)
        case "newest first":
            return keys[::-1]
        case "newest pages first":
            return [key for at in range(len(keys) // size * size, -1, -size) for key in keys[at : at + size]]
        case "any":
            random.Random(1).shuffle(keys)
    return keys


def keys_of(oracle: Oracle, ask: Ask) -> list[tuple[str, int]]:
    """Keys of the points in the range that is requested, by time."""
    start, end = parse_iso(ask.params["start_ts"]), parse_iso(ask.params["end_ts"])
    return sorted((key for key in oracle.points if start <= key[1] < end), key=lambda key: (key[1], key[0]))


def paged(
    oracle: Oracle,
    ask: Ask,
    size: int = 200,
    order: str = "time",
    *,
    own_labels: bool = False,
    last: str | None = None,
    told: int | None = None,
) -> Act:
    """Pages of ``size`` points in an order; ``own_labels``: a page names only the labels that it has points of.

    ``last`` is the cursor of the last page, and ``told`` the limit that a page states.
    """
    if "start_ts" not in ask.params:
        return refuse(404)
    keys, at = ordered(keys_of(oracle, ask), order, size), int(ask.params.get("cursor", "0"))
    body = oracle.body(keys[at : at + size], told or size, str(at + size) if at + size < len(keys) else last)
    if own_labels:
        body["data"] = {label: points for label, points in body["data"].items() if points}
        body["tokens"] = {label: oracle.labels[label] for label in body["data"]}
    return ok(body).with_header("Date", DATE)
