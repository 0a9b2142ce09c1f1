"""Random fetches against a market whose every point is known, with one request in five going wrong.

Rows that are lost, duplicated, invented or changed are counted, and what the faults cost. Other services answer at
random: every fetch of them must end.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from reference.faults import HANG_UP, RESET_PEER, Act, Ask, FaultServer, ok, refuse
from reference.oracle import DATE, MINUTE, START, Oracle, expected, fetch, minutes, rows

from marketdata.clock import Clock
from marketdata.errors import MarketDataError
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.windows import Window
from marketdata.resolution import BucketWidth
from marketdata.times import parse_iso, to_text

KEY = "canary-key-0123456789-abcd"
Fault = Callable[[Oracle, Ask, random.Random], Act]


def _page(change: Callable[[dict[str, Any], Oracle, Ask, random.Random], object]) -> Fault:
    def fault(oracle: Oracle, ask: Ask, draw: random.Random) -> Act:
        body = oracle.page(ask)
        change(body, oracle, ask, draw)
        return ok(body).with_header("Date", DATE)

    return fault


def _bytes(change: Callable[[Act, random.Random], Act]) -> Fault:
    return lambda oracle, ask, draw: change(oracle(ask), draw)


def _lose(body: dict[str, Any], oracle: Oracle, ask: Ask, draw: random.Random) -> None:
    full = [x for x, points in body["data"].items() if points]
    if full:
        points = body["data"][draw.choice(full)]
        points.pop(draw.randrange(len(points)))


def _repeat(body: dict[str, Any], oracle: Oracle, ask: Ask, draw: random.Random) -> None:
    for label, points in body["data"].items():
        earlier = [t for x, t in oracle.points if x == label and t < int(ask.params.get("cursor", "c0")[1:])]
        extra = [oracle.point(label, t) for t in sorted(earlier)[-draw.randint(1, 5) :]] + points[:1]
        body["data"][label] = extra + points
        body["metadata"]["count"] += len(extra)


def _shuffle(body: dict[str, Any], oracle: Oracle, ask: Ask, draw: random.Random) -> None:
    for points in body["data"].values():
        draw.shuffle(points)


def _stray(body: dict[str, Any], oracle: Oracle, ask: Ask, draw: random.Random) -> None:
    label = draw.choice(list(body["data"]))
    outside = START - draw.randint(1, 99) * MINUTE
    body["data"][label].insert(0, {**oracle.point(*next(k for k in oracle.points)), "t": to_text(outside)})
    body["metadata"]["count"] += 1


def _expire(oracle: Oracle, ask: Ask, draw: random.Random) -> Act:
    return refuse(400, "Invalid cursor.") if "cursor" in ask.params else oracle(ask)


def _empty(oracle: Oracle, ask: Ask, draw: random.Random) -> Act:
    again = ask.params.get("cursor", f"c{parse_iso(ask.params['start_ts'])}")
    # Another name of the same place, so that it is no repeated cursor.
    return ok(oracle.body([], int(ask.params["limit"]), "c" + again[1:].zfill(len(again) + draw.randint(1, 9))))


FAULTS: dict[str, Fault] = {
    "reset": lambda *_: RESET_PEER,
    "hang up": lambda *_: HANG_UP,
    "cut body": _bytes(
        lambda act, draw: replace(act, limit_data=draw.randrange(len(act.body)), reset=draw.random() < 0.5)
    ),
    "cut chunks": _bytes(lambda act, draw: replace(act, framing="chunked", limit_data=draw.randrange(len(act.body)))),
    "cut close": _bytes(lambda act, draw: replace(act, framing="close", limit_data=draw.randrange(len(act.body)))),
    "cut gzip": _bytes(lambda act, draw: act.zipped(act.zipped().body[: -draw.randint(1, 20)])),
    "bad crc": _bytes(lambda act, draw: act.zipped(act.zipped().body[:-8] + b"12345678")),
    "500": lambda *_: refuse(500, "Failed to fetch data."),
    "502": lambda *_: Act(status=502, body=b"<html>Bad gateway").with_header("Content-Type", "text/html"),
    "503": lambda *_: refuse(503, "busy", Retry_After="3"),
    "504": lambda *_: refuse(504),
    "429": lambda *_: refuse(429, "Rate limit exceeded.", Retry_After="2"),
    "429 bare": lambda *_: refuse(429),
    "html": lambda *_: ok({}).with_header("Content-Type", "text/html"),
    "cut json": _bytes(lambda act, draw: replace(act, body=act.body[: draw.randrange(len(act.body))])),
    "no metadata": _page(lambda body, *_: body.pop("metadata")),
    "nan": _bytes(lambda act, draw: replace(act, body=act.body.replace(b'"count"', b'"count": NaN, "x"'))),
    "lost point": _page(_lose),
    "repeated": _page(_repeat),
    "shuffled": _page(_shuffle),
    "outside": _page(_stray),
    "expired": _expire,
    "empty page": _empty,
    "no type": _bytes(lambda act, draw: act.with_header("Content-Type", "")),
    "chunked": _bytes(lambda act, draw: replace(act, framing="chunked")),
    "gzip": _bytes(lambda act, draw: act.zipped()),
    "closes": _bytes(lambda act, draw: replace(act, ends=True)),
    "blank cursor": _page(lambda body, *_: body["metadata"].update(next_cursor=body["metadata"]["next_cursor"] or "")),
}


def random_market(draw: random.Random) -> tuple[Oracle, Window]:
    """A market of 1 to 8 tokens with gaps, and a request for all of it."""
    labels = [f"label {i}" for i in range(draw.randint(1, 8))]
    limit = draw.randint(len(labels), 3 * len(labels) + 12)
    buckets = min(draw.randint(1, 60), draw.randint(1, 60)) * (limit // len(labels))
    present = draw.choice([1.0, 0.95, 0.5])
    keys = [(x, START + i * MINUTE) for i in range(buckets) for x in labels if draw.random() < present]
    points = {key: round(draw.random(), 6) for key in keys or [(labels[0], START)]}
    oracle = Oracle(points, {x: str(i) * 70 for i, x in enumerate(labels)}, largest=limit)
    return oracle, Window("prices", "market", "m", minutes(buckets), BucketWidth.of("1m"), limit)


def connect(server: FaultServer, seed: int) -> Transport:
    """A transport that waits for nothing."""
    clock = Clock()
    clock.is_virtual = True
    return Transport(server.base_url, KEY, pacer=Pacer(clock=clock), clock=clock, seed=seed)


def run_fetches(count: int, rate: float, seed: int) -> Counter[str]:
    """Fetch ``count`` random markets, resuming after errors; counts of rows that are wrong, and of fetches by resumes.

    A row may be missing where the report has the warning that a page lacked one.
    """
    tally: Counter[str] = Counter()
    draw, oracle = random.Random(0), Oracle({})

    def answer(ask: Ask) -> Act:
        if "start_ts" not in ask.params:
            return refuse(404, "Not Found")
        return FAULTS[draw.choice(list(FAULTS))](oracle, ask, draw) if draw.random() < rate else oracle(ask)

    with FaultServer(answer) as server:
        for number in range(count):
            draw = random.Random(f"{seed} {number}")
            oracle, request = random_market(draw)
            transport, windows, received, report = connect(server, number), (request,), list[Any](), Report()
            resumes = 0
            while windows and resumes < 10:
                try:
                    for arrival in fetch(transport, *windows, report=report, workers=1):
                        received += rows([arrival])
                    windows = ()
                except MarketDataError as error:
                    windows, resumes = error.resume.windows, resumes + 1
            transport.close()
            tally[f"{resumes} resumes"] += 1
            there, right = Counter(map(repr, received)), Counter(map(repr, expected(oracle.points)))
            tally["doubled"] += sum(n - 1 for n in there.values())
            tally["invented"] += len(set(there) - set(right))
            if not windows and not report.warnings["count_mismatch"]:
                tally["lost"] += len(set(right) - set(there))
    return tally


def run_adversaries(count: int, seed: int) -> tuple[int, int, float]:
    """Services that lie at random; fetches, how many ended by themselves, most requests over the page bound."""
    ended, most = 0, 0.0
    draw = random.Random(seed)

    def answer(ask: Ask) -> Act:
        if "start_ts" not in ask.params:
            return refuse(404, "Not Found")
        if not ask.params.get("cursor", "c0")[1:].isdigit():
            return refuse(400, "Invalid cursor.")
        if draw.random() < wild:
            return FAULTS[draw.choice(list(FAULTS))](oracle, ask, draw)
        some = draw.sample(sorted(oracle.points), min(len(oracle.points), draw.randint(0, 6)))
        cursor = draw.choice(
            [None, "", "a", "c1", "c2", f"c{START}", *(f"c{draw.randrange(10**9)}" for _ in range(5)), 5]
        )
        body = oracle.body(some, 200, None)
        body["metadata"]["next_cursor"] = cursor if draw.random() < 0.95 else None
        if draw.random() < 0.1:
            body["metadata"]["count"] += 1
        return ok(body)

    with FaultServer(answer) as server:
        for number in range(count):
            wild = draw.choice([0.0, 0.1, 0.5])
            oracle, request = random_market(draw)
            server.asks.clear()
            transport = connect(server, number)
            with contextlib.suppress(MarketDataError):
                list(fetch(transport, request, workers=1))
            ended += 1
            bound = 2 * request.buckets * len(oracle.labels) // request.limit + 100
            most = max(most, len(server.asks) / bound)
            transport.close()
    return count, ended, most
