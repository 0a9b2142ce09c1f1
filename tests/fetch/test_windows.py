from __future__ import annotations

import itertools
import json
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from reference.faults import Act, Ask, FaultServer, ok, refuse
from reference.oracle import DATE, MINUTE, START, Oracle, expected, fetch, minutes, read, rows

from marketdata.clock import Clock
from marketdata.errors import (
    AuthenticationError,
    BadRequestError,
    ContractError,
    LimitTooSmallError,
    MarketDataError,
    NotFoundError,
    PaginationStalledError,
    PlanError,
    TooManyTokensError,
)
from marketdata.fetch.checkpoint import Report, Resume
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.http.transport import Transport
from marketdata.fetch.reader import Reader
from marketdata.fetch.windows import Window
from marketdata.times import parse_iso

Body = dict[str, Any]
COUNT = 450


@pytest.fixture
def oracle() -> Oracle:
    """A market of two tokens, five pages long."""
    return Oracle.of_prices(COUNT)


def bend(oracle: Oracle, change: Callable[[Body, Ask], Body | None]) -> Callable[[Ask], Act]:
    """An honest service whose bodies are changed on their way."""

    def answer(ask: Ask) -> Act:
        body = oracle.page(ask)
        changed = change(body, ask)
        return ok(body if changed is None else changed).with_header("Date", DATE)

    return answer


def on_page(number: int, change: Callable[[Body], object]) -> Callable[[Body, Ask], None]:
    """Change the page of this number, counted by its cursor; every time it is asked for."""
    first = f"c{START + (number - 1) * 100 * MINUTE}" if number > 1 else None

    def only(body: Body, ask: Ask) -> None:
        if ask.params.get("cursor") == first:
            change(body)

    return only


def once(change: Callable[[Body, Ask], object], when: Callable[[Ask], bool]) -> Callable[[Body, Ask], None]:
    """Change the first body that ``when`` picks."""
    left = [1]

    def only(body: Body, ask: Ask) -> None:
        if left and when(ask):
            left.pop()
            change(body, ask)

    return only


def fetched(transport: Transport, window: Window, **options: Any) -> list[tuple[str, int, Any]]:
    """Every row of a window, sorted."""
    return sorted(rows(read(transport, window, **options)))


def fails(transport: Transport, window: Window, kind: type[MarketDataError], **options: Any) -> Any:
    """The error of a window; it counts its requests."""
    with pytest.raises(kind) as caught:
        read(transport, window, **options)
    assert caught.value.attempts
    return caught.value


@pytest.mark.fault("P1")
@pytest.mark.fault("P2")
@pytest.mark.fault("P3")
@pytest.mark.parametrize("following", ["same", "cycle", "new", "refused"])
def test_cursors_that_bring_nothing_new_end(
    server: FaultServer, transport: Transport, oracle: Oracle, following: str
) -> None:
    """Pagination that repeats a page ends in an error, whether its cursors repeat, alternate, change or expire."""
    cursors = {"same": itertools.repeat("a"), "cycle": itertools.cycle("abc"), "new": map(str, itertools.count())}
    page = oracle.body([("Yes", START), ("No", START)])

    def answer(ask: Ask) -> Act:
        if following == "refused" and "cursor" in ask.params:
            return refuse(400, "cursor expired")
        page["metadata"]["next_cursor"] = next(cursors.get(following, cursors["same"]))
        return ok(page)

    server.answer = answer
    error = fails(transport, oracle.request(COUNT), PaginationStalledError)
    assert "cursor" in str(error)
    assert len(server.asks) < 50


@pytest.mark.fault("P1")
def test_smaller_windows_need_no_cursor(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A service that repeats a cursor but honours times is read in windows that need no cursor."""
    server.answer = bend(
        oracle,
        lambda body, ask: body["metadata"].update(next_cursor=ask.params["cursor"]) if "cursor" in ask.params else None,
    )
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.restarts >= 1


@pytest.mark.fault("P1")
def test_points_that_came_before_a_stall(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A point that came before the pages stalled, and does not come again, is an error."""

    def stall(body: Body, ask: Ask) -> None:
        if "cursor" in ask.params:
            body["metadata"]["next_cursor"] = ask.params["cursor"]
        elif len(server.asks) > 3:
            before = len(body["data"]["Yes"])
            body["data"]["Yes"] = [p for p in body["data"]["Yes"] if p["t"] != "2026-01-01T00:05:00Z"]
            body["metadata"]["count"] -= before - len(body["data"]["Yes"])

    server.answer = bend(oracle, stall)
    error = fails(transport, oracle.request(COUNT), ContractError)
    assert "'Yes' at 2026-01-01T00:05:00Z" in str(error)


@pytest.mark.fault("P3")
def test_cursor_expired(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A window whose cursor expired is asked again in halves, which need fewer cursors."""
    expired = iter([True, False, True])

    def answer(ask: Ask) -> Act:
        if ask.params.get("cursor", "").endswith("200000000") or ("cursor" in ask.params and next(expired, False)):
            return refuse(400, "Invalid cursor.")
        return oracle(ask)

    server.answer = answer
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.restarts == 2
    assert len(server.asks) <= 12


def expiring(every: int, page: Callable[[Ask], Act]) -> Callable[[Ask], Act]:
    """Every so many requests with a cursor one is refused as expired."""
    calls = itertools.count(1)
    return lambda ask: (
        refuse(400, "cursor expired") if "cursor" in ask.params and next(calls) % every == 0 else page(ask)
    )


def in_order(oracle: Oracle, keys: list[tuple[str, int]], size: int, last: str | None = None) -> Callable[[Ask], Act]:
    """A service that cuts its points into pages in this order, inside of buckets too."""

    def answer(ask: Ask) -> Act:
        if ask.path == "/v1/usage":
            return refuse(404)
        start = int(ask.params.get("cursor", "0"))
        mine = [k for k in keys if parse_iso(ask.params["start_ts"]) <= k[1] < parse_iso(ask.params["end_ts"])]
        more = str(start + size) if start + size < len(mine) else last
        return ok(oracle.body(mine[start : start + size], size, more)).with_header("Date", DATE)

    return answer


@pytest.mark.fault("P3")
@pytest.mark.parametrize("size", [1, 7, 30])
def test_pages_that_end_inside_of_a_bucket(server: FaultServer, transport: Transport, size: int) -> None:
    """A walk is resumed at its last bucket, not behind it: a page may end inside of one."""
    oracle = Oracle.of_prices(40, ["A", "B", "C"])
    keys = sorted(oracle.points, key=lambda k: (k[1], k[0]))
    server.answer = expiring(5, in_order(oracle, keys, size))
    assert fetched(transport, oracle.request(40, limit=size)) == expected(oracle.points)
    server.answer = in_order(oracle, keys, size, last="")
    assert fetched(transport, oracle.request(40, limit=size)) == expected(oracle.points)


def refusing(number: int, page: Callable[[Ask], Act]) -> Callable[[Ask], Act]:
    """One request with a cursor is refused as expired."""
    calls = itertools.count(1)
    return lambda ask: refuse(400, "cursor expired") if "cursor" in ask.params and next(calls) == number else page(ask)


@pytest.mark.fault("P3")
@pytest.mark.parametrize("raw", [True, False], ids=["newest first", "newest pages first"])
@pytest.mark.parametrize("number", range(1, 7))
def test_newest_first(server: FaultServer, transport: Transport, number: int, *, raw: bool) -> None:
    """Where the newest points come first, a walk that lost its cursor begins anew, for time says nothing then."""
    oracle = Oracle.of_prices(60, ["A", "B"])
    keys = sorted(oracle.points, key=lambda k: -k[1])
    if not raw:
        keys = [k for i in range(0, len(keys), 20) for k in sorted(keys[i : i + 20], key=lambda k: k[1])]
    server.answer = refusing(number, in_order(oracle, keys, 20))
    assert fetched(transport, oracle.request(60, limit=20)) == expected(oracle.points)


@pytest.mark.parametrize("number", range(1, 7))
def test_label_after_label_of_which_pages_name_their_own(
    server: FaultServer, transport: Transport, number: int
) -> None:
    """P10: pages name only the labels that they hold; what the market's record names must all be seen to pass."""
    oracle = Oracle.of_prices(40, ["A", "B"])
    whole = in_order(oracle, sorted(oracle.points), 12)

    def partial(ask: Ask) -> Act:
        body = json.loads(whole(ask).body)
        body["data"] = {label: points for label, points in body["data"].items() if points}
        body["tokens"] = {label: body["tokens"][label] for label in body["data"]}
        return ok(body).with_header("Date", DATE)

    server.answer = refusing(number, partial)
    assert fetched(transport, oracle.request(40, limit=12)) == expected(oracle.points)


@pytest.mark.fault("P4")
def test_duplicates_across_pages(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Points that come again as they were are dropped and counted."""

    def answer(ask: Ask) -> Act:
        body = oracle.page(ask)
        if "cursor" in ask.params:
            t = int(ask.params["cursor"][1:]) - MINUTE
            for label in oracle.labels:
                body["data"][label].insert(0, oracle.point(label, t))
            body["metadata"]["count"] += 2
        return ok(body)

    server.answer = answer
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.repairs == {"duplicate_points": 8}
    assert fetched(transport, oracle.request(COUNT), strict=True) == expected(oracle.points)


@pytest.mark.fault("P4")
def test_books_and_metrics(server: FaultServer, transport: Transport) -> None:
    """Books and metrics that come again are known by all their values; -0.0 is 0.0."""
    books = Oracle(
        {("Yes", START + i * MINUTE): ([[0.5, float(i)]], [[0.6, 0.0]] * (i % 2)) for i in range(150)}, {"Yes": "1"}
    )
    books.view = "books"

    def again(ask: Ask) -> Act:
        body = books.page(ask)
        first = books.point("Yes", START)
        body["data"]["Yes"] += [{**first, "asks": []}, {"t": first["t"], "bids": [[0.5, -0.0]], "asks": []}]
        body["metadata"]["count"] += 2
        return ok(body)

    server.answer = again
    report = Report()
    assert fetched(transport, books.request(150), report=report) == expected(books.points)
    assert report.repairs["duplicate_points"] == 2
    point = {"t": "2026-01-01T00:00:00Z", "volume": 0.0, "liquidity": None, "spread": 0.1}
    metrics = {"market_id": "m", "resolution": "1m", "metadata": {"count": 2, "limit": 200}}
    server.answer = lambda ask: ok(metrics | {"data": [point, {**point, "volume": -0.0}]})
    request = replace(books.request(150), view="metrics", id="other")
    assert [len(p.columns) for p in read(transport, request)] == [1]
    server.answer = lambda ask: ok(metrics | {"data": [point, {**point, "volume": 1.0}]})
    fails(transport, request, ContractError)


def conflict(date: str) -> tuple[Oracle, Callable[[Ask], Act]]:
    """The second page brings the last bucket of the first again, with another price."""
    oracle = Oracle.of_prices(150)
    border = START + 99 * MINUTE

    def answer(ask: Ask) -> Act:
        body = oracle.page(ask)
        if "cursor" in ask.params:
            body["data"]["Yes"].insert(0, {**oracle.point("Yes", border), "p": 0.75})
            body["metadata"]["count"] += 1
        return ok(body).with_header("Date", date)

    return oracle, answer


@pytest.mark.fault("P5")
def test_conflict_in_closed_bucket(server: FaultServer, transport: Transport) -> None:
    """A closed bucket that comes twice with different values is an error."""
    oracle, server.answer = conflict(DATE)
    error = fails(transport, oracle.request(150), ContractError)
    assert "different values" in str(error)


@pytest.mark.fault("P5")
def test_conflict_in_open_bucket(server: FaultServer, transport: Transport) -> None:
    """By the server's own clock the bucket is still open: its last version is kept, with a warning."""
    oracle, server.answer = conflict("Thu, 01 Jan 2026 01:39:30 GMT")
    report = Report()
    want = oracle.points | {("Yes", START + 99 * MINUTE): 0.75}
    assert fetched(transport, oracle.request(150), report=report) == expected(want)
    assert report.warnings == {"open_bucket_changed": 1}


@pytest.mark.fault("P6")
def test_out_of_order(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Points out of order inside a page are sorted, and the page counted."""
    server.answer = bend(oracle, on_page(2, lambda body: body["data"]["Yes"].reverse()))
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.repairs == {"points_sorted": 1}


@pytest.mark.fault("P7")
def test_count_differs_once(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A page with fewer points than its count is asked for again."""
    lose = once(lambda body, ask: body["data"]["Yes"].pop(), lambda ask: "cursor" in ask.params)
    server.answer = bend(oracle, lose)
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert (report.requests, report.warnings) == (6, {})


@pytest.mark.fault("P7")
def test_count_differs_always(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A count that stays wrong is a warning, and an error for an archive, which is strict."""
    server.answer = bend(oracle, lambda body, ask: body["metadata"].update(count=7))
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.warnings["count_mismatch"] >= 5
    with pytest.raises(ContractError, match="count_mismatch"):
        fetched(transport, oracle.request(COUNT), strict=True)


@pytest.mark.fault("P7")
def test_other_points_each_time(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A page that lacks another point each time it is asked for is an error: they get lost on the way."""
    picks = itertools.count()
    server.answer = bend(oracle, lambda body, ask: body["data"]["Yes"].pop(next(picks)) and None)
    fails(transport, oracle.request(COUNT), ContractError)
    assert len(server.asks) == 2


@pytest.mark.fault("P7")
def test_some_pages_always(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A page whose count stays wrong however it is asked for is kept, with a warning."""

    def miscount(body: Body, ask: Ask) -> None:
        if any(p["t"] == "2026-01-01T04:10:00Z" for p in body["data"]["Yes"]):
            body["metadata"]["count"] += 1

    server.answer = bend(oracle, miscount)
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.warnings["count_mismatch"] >= 1
    assert len(server.asks) <= 24


@pytest.mark.fault("P7")
def test_count_of_times(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A count of distinct times, the other reading, is right too."""
    server.answer = bend(oracle, lambda body, ask: body["metadata"].update(count=len(body["data"]["Yes"])))
    assert fetched(transport, oracle.request(COUNT), strict=True) == expected(oracle.points)


@pytest.mark.fault("P8")
def test_outside_of_the_range(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Points outside of [start, end) are dropped and counted."""
    request = replace(oracle.request(COUNT), rng=minutes(40, first=10))

    def stray(body: Body, ask: Ask) -> None:
        body["data"]["Yes"].insert(0, oracle.point("Yes", START + 9 * MINUTE))
        body["data"]["Yes"].append(oracle.point("Yes", START + 50 * MINUTE))
        body["metadata"]["count"] += 2

    server.answer = bend(oracle, stray)
    report = Report()
    inside = {k: v for k, v in oracle.points.items() if request.rng.start <= k[1] < request.rng.end}
    assert fetched(transport, request, report=report) == expected(inside)
    assert report.repairs == {"outside_range": 2}


@pytest.mark.fault("P8")
def test_partial_first_bucket(server: FaultServer, transport: Transport) -> None:
    """A range that starts inside of a bucket keeps that bucket, which is named by its start."""
    oracle = Oracle({("Yes", START): 0.5, ("Yes", START + 60 * MINUTE): 0.6}, {"Yes": "1"}, resolution="1h")
    request = replace(oracle.request(120), rng=minutes(60, first=30))
    server.answer = oracle
    report = Report()
    assert fetched(transport, request, report=report) == expected(oracle.points)
    assert not report.repairs


@pytest.mark.fault("P9")
def test_label_without_data(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A label of ``tokens`` that ``data`` lacks has no points, and is known."""

    def drop(body: Body, ask: Ask) -> None:
        body["metadata"]["count"] -= len(body["data"].pop("No"))

    server.answer = bend(oracle, drop)
    pages = read(transport, oracle.request(COUNT), strict=True)
    yes = {k: v for k, v in oracle.points.items() if k[0] == "Yes"}
    assert sorted(rows(pages)) == expected(yes)
    assert pages[0].labels == 2


@pytest.mark.fault("P10")
def test_label_without_token(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Points of a label that ``tokens`` lacks are kept, without an id, with a warning."""
    server.answer = bend(oracle, lambda body, ask: body.update(tokens={"Yes": oracle.labels["Yes"]}))
    report = Report()
    pages = read(transport, oracle.request(COUNT), report=report)
    assert sorted(rows(pages)) == expected(oracle.points)
    assert report.warnings == {"label_without_token": 5}
    assert {t.token_id for p in pages for t in p.columns.tokens if t.token_label == "No"} == {None}


@pytest.mark.fault("P11")
def test_empty_label(server: FaultServer, transport: Transport) -> None:
    """A label with an empty list has no points, and is known; so is a market without any."""
    oracle = Oracle({}, {"Yes": "1", "No": "2"})
    server.answer = oracle
    (page,) = read(transport, oracle.request(COUNT), strict=True)
    assert (len(page.columns), page.labels) == (0, 2)


@pytest.mark.fault("P12")
def test_token_id_changes(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A label that names another token on a later page is an error: two instruments would be mixed."""
    server.answer = bend(oracle, on_page(3, lambda body: body.update(tokens={"Yes": "9", "No": "8"})))
    error = fails(transport, oracle.request(COUNT), ContractError)
    assert "is now" in str(error)


@pytest.mark.fault("P13")
@pytest.mark.parametrize(
    ("page", "change"), [(2, {"market_id": "other"}), (2, {"resolution": "10m"}), (1, {"resolution": "1h"})]
)
def test_identity(server: FaultServer, transport: Transport, oracle: Oracle, page: int, change: Body) -> None:
    """Another market or resolution than requested or answered before is an error."""
    server.answer = bend(oracle, on_page(page, lambda body: body.update(change)))
    fails(transport, oracle.request(COUNT), ContractError)


@pytest.mark.fault("P14")
@pytest.mark.parametrize(
    "metadata", [None, [], {}, {"count": "5", "limit": 200}, {"count": 5, "limit": None}, {"limit": 200}]
)
def test_metadata(server: FaultServer, transport: Transport, oracle: Oracle, metadata: Any) -> None:
    """Without metadata the end cannot be proven: asked once more, then an error."""
    server.answer = bend(oracle, on_page(2, lambda body: body.update(metadata=metadata)))
    error = fails(transport, oracle.request(COUNT), ContractError)
    assert (len(server.asks), error.attempts) == (3, 2)


@pytest.mark.fault("P15")
def test_cursor_absent(server: FaultServer, transport: Transport) -> None:
    """An absent next_cursor is the end, as null is."""
    oracle = Oracle.of_prices(50)
    server.answer = bend(oracle, lambda body, ask: body["metadata"].pop("next_cursor") and None)
    assert fetched(transport, oracle.request(COUNT), strict=True) == expected(oracle.points)
    assert len(server.asks) == 1


@pytest.mark.fault("P15")
def test_empty_cursor_at_the_end(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """An empty next_cursor is proven by asking both halves of the window, and warned of."""

    def blank(body: Body, ask: Ask) -> None:
        body["metadata"]["next_cursor"] = body["metadata"]["next_cursor"] or ""

    server.answer = bend(oracle, blank)
    report = Report()
    assert fetched(transport, oracle.request(COUNT + 99), report=report) == expected(oracle.points)
    assert report.warnings == {"cursor_empty": 1}
    assert len(server.asks) <= 11


@pytest.mark.fault("P15")
def test_empty_cursor_that_lies(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Where points lie behind an empty next_cursor, smaller windows bring them."""
    server.answer = bend(oracle, lambda body, ask: body["metadata"].update(next_cursor=""))
    assert fetched(transport, oracle.request(COUNT + 99)) == expected(oracle.points)


@pytest.mark.fault("P15")
def test_silent_label(server: FaultServer, transport: Transport) -> None:
    """An empty cursor of a market with a silent token loses no page."""
    oracle = Oracle.of_prices(COUNT, ["Yes"])
    oracle.labels["No"] = "2"
    server.answer = bend(oracle, lambda body, ask: body["metadata"].update(next_cursor=""))
    assert fetched(transport, oracle.request(COUNT + 99)) == expected(oracle.points)


@pytest.mark.fault("P16")
@pytest.mark.parametrize("cursor", [5, {"a": 1}, ["x"], True, "x" * 8193, "x" * 1_000_000])
def test_cursor_of_another_kind(server: FaultServer, transport: Transport, oracle: Oracle, cursor: Any) -> None:
    """A cursor that is no text, or longer than any is, is an error."""
    server.answer = bend(oracle, lambda body, ask: body["metadata"].update(next_cursor=cursor))
    fails(transport, oracle.request(COUNT), ContractError)
    assert len(server.asks) == 2


@pytest.mark.fault("P16")
@pytest.mark.parametrize("cursor", ["&limit=1&cursor=2", "a\x00b", "../..?x#y", "ü€", " +%20", "x" * 8192])
def test_cursor_with_signs(server: FaultServer, transport: Transport, oracle: Oracle, cursor: str) -> None:
    """Whatever a cursor holds, it comes back as it was, and as a cursor alone."""
    first = oracle.body([("Yes", START), ("No", START)], cursor=cursor)
    server.script = [ok(first)]
    server.answer = lambda ask: ok(oracle.body([]))
    (read(transport, oracle.request(COUNT)))
    assert server.asks[1].params == server.asks[0].params | {"cursor": cursor}


@pytest.mark.fault("P17")
def test_empty_pages(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Up to fifty empty pages with cursors are walked through."""
    empty = [ok(oracle.body([], cursor=f"e{i}")) for i in range(49)]
    server.script = [*empty, ok(oracle.body([], cursor=f"c{START}"))]
    server.answer = oracle
    assert fetched(transport, oracle.request(COUNT)) == expected(oracle.points)


def test_empty_pages_without_end(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Empty pages without end are an error."""
    names = map(str, itertools.count())
    server.answer = lambda ask: ok(oracle.body([], cursor=next(names)))
    fails(transport, oracle.request(COUNT), PaginationStalledError)
    assert len(server.asks) <= 170


TOO_SMALL = "limit too small for this market. Minimum required: {}"


@pytest.mark.fault("P19")
def test_limit_too_small(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """The limit is raised to what the service names, once, and remembered for the market."""

    def answer(ask: Ask) -> Act:
        return refuse(400, TOO_SMALL.format(2)) if int(ask.params["limit"]) < 2 else oracle(ask)

    server.answer = answer
    reader, report = Reader(transport), Report()
    few = oracle.request(5, limit=1)
    want = [r for r in expected(oracle.points) if r[1] < START + 5 * MINUTE]
    assert fetched(transport, few, reader=reader, report=report) == want
    assert report.repairs == {"limit_raised": 1}
    assert len(server.asks) == 6
    assert fetched(transport, few, reader=reader) == want
    assert len(server.asks) == 11


@pytest.mark.fault("P19")
@pytest.mark.parametrize("minimum", ["201", "50", "7", "x", "-3", "9" * 30])
def test_no_loop(server: FaultServer, transport: Transport, oracle: Oracle, minimum: str) -> None:
    """A minimum that cannot help, or is refused again, is an error and no loop."""
    server.answer = lambda ask: refuse(400, TOO_SMALL.format(minimum))
    error = fails(transport, oracle.request(COUNT, limit=40), LimitTooSmallError)
    assert len(server.asks) <= 2
    assert error.minimum == (int(minimum) if minimum in ("201", "50", "7") else None)


@pytest.mark.fault("P20")
def test_too_many_tokens(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A market of more than 200 tokens is an error of its own that says where to ask instead."""
    server.answer = lambda ask: refuse(400, "This market has more than 200 tokens; use /v1/tokens/{token_id}/books.")
    error = fails(transport, oracle.request(COUNT), TooManyTokensError)
    assert "client.token_books" in error.hint
    assert "/v1/tokens/" in str(error)
    assert len(server.asks) == 1


@pytest.mark.fault("P20")
def test_token_endpoint(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A single token's history is walked in the same way."""
    yes = Oracle.of_prices(COUNT, ["Yes"])

    def answer(ask: Ask) -> Act:
        body = yes.page(ask)
        return ok(
            {
                "market_id": "m1",
                "token_id": "1" * 77,
                "token_label": "Yes",
                "resolution": "1m",
                "data": body["data"]["Yes"],
                "metadata": body["metadata"],
            }
        )

    server.answer = answer
    request = Window("prices", "token", "1" * 77, minutes(COUNT), yes.request(1).resolution)
    assert fetched(transport, request, strict=True) == expected(yes.points)
    assert server.asks[0].path == f"/v1/tokens/{'1' * 77}/prices"
    error = fails(transport, replace(request, id="2"), ContractError)
    assert "is about the tokens" in str(error)


@pytest.mark.fault("P21")
@pytest.mark.parametrize("detail", ["the page must be bigger", "so many outcomes!", "position is stale", ""])
def test_reworded(server: FaultServer, transport: Transport, oracle: Oracle, detail: str) -> None:
    """A 400 in other words is a plain BadRequestError with these words, and no loop."""
    server.answer = lambda ask: refuse(400, detail)
    error = fails(transport, oracle.request(COUNT), BadRequestError)
    assert type(error) is BadRequestError
    assert error.detail == detail
    assert len(server.asks) == 1


def test_reworded_cursor(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """That a cursor was refused is seen without any words: without it the same question had passed."""
    calls = itertools.count()
    server.answer = lambda ask: refuse(400, "stale") if next(calls) == 2 else oracle(ask)
    assert fetched(transport, oracle.request(COUNT)) == expected(oracle.points)


def rotating(server: FaultServer, oracle: Oracle, keys: list[str]) -> Transport:
    """The service takes the first key for two pages, then the last; the provider gives one after the other."""
    given = iter(keys)

    def answer(ask: Ask) -> Act:
        right = keys[0] if len(server.asks) <= 2 else "new-key-9876543210"
        return oracle(ask) if ask.header("X-API-Key") == [right] else refuse(401, "Invalid or expired API key.")

    server.answer = answer
    clock = Clock()
    clock.begin_virtual()
    return Transport(server.base_url, lambda: next(given, keys[-1]), pacer=Pacer(clock=clock), clock=clock)


@pytest.mark.fault("P22")
def test_key_rotated(server: FaultServer, oracle: Oracle) -> None:
    """A key that was rotated in the middle of a walk is asked for anew, and the walk goes on with its cursor."""
    transport = rotating(server, oracle, ["old-key-0123456789", "new-key-9876543210"])
    assert fetched(transport, oracle.request(COUNT)) == expected(oracle.points)
    assert len(server.asks) == 6
    transport.close()


@pytest.mark.fault("P22")
def test_key_rotated_once(server: FaultServer, oracle: Oracle) -> None:
    """However many requests are refused at once, the key is asked from its source once."""
    keys, ready = ["old-key-0123456789", "new-key-9876543210"], threading.Barrier(20)
    given: list[str] = []

    def answer(ask: Ask) -> Act:
        if ask.header("X-API-Key") == keys[1:]:
            return oracle(ask)
        ready.wait()
        return refuse(401, "Invalid or expired API key.")

    def source() -> str:
        given.append(keys[min(1, len(given))])
        return given[-1]

    server.answer = answer
    transport = Transport(server.base_url, source, pacer=Pacer())
    window = oracle.request(COUNT)
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: transport.get(window.segments, window.params), range(20)))
    assert given == keys
    transport.close()


def test_key_rotated_in_bad_weather(server: FaultServer, oracle: Oracle) -> None:
    """That a retry came before does not take the new key its chance."""
    transport = rotating(server, oracle, ["old-key-0123456789", "new-key-9876543210"])
    server.script = [refuse(500), refuse(401), refuse(500)]
    assert fetched(transport, oracle.request(COUNT)) == expected(oracle.points)
    transport.close()


@pytest.mark.fault("P22")
def test_key_gone(server: FaultServer, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that left the environment meanwhile leaves the service's own refusal to be read."""
    monkeypatch.setenv("MARKETDATA_API_KEY", "old-key-0123456789")
    transport = Transport(server.base_url, pacer=Pacer())
    monkeypatch.delenv("MARKETDATA_API_KEY")
    server.answer = lambda ask: refuse(401, "Invalid or expired API key.")
    fails(transport, oracle.request(COUNT), AuthenticationError)
    transport.close()


@pytest.mark.fault("P22")
def test_key_expired(server: FaultServer, oracle: Oracle) -> None:
    """A key that has no successor is an error after one request, which says how to go on."""
    transport = rotating(server, oracle, ["old-key-0123456789"])
    error, got = ends(transport, oracle.request(COUNT), AuthenticationError)
    assert (len(got), len(server.asks)) == (400, 3)
    assert error.resume.remaining == (minutes(COUNT - 200, 200),)
    transport.close()


def ends(transport: Transport, window: Window, kind: type[MarketDataError]) -> tuple[Any, list[Any]]:
    """The error of a fetch of several windows, and the rows before it; what is left can be pickled."""
    got: list[Any] = []
    with pytest.raises(kind) as caught:
        got.extend(fetch(transport, window, workers=1))
    assert isinstance(pickle.loads(pickle.dumps(caught.value.resume)), Resume)
    return caught.value, rows(got)


@pytest.mark.fault("P23", "P24")
@pytest.mark.parametrize(("status", "kind"), [(403, PlanError), (404, NotFoundError)])
def test_a_refusal_in_the_middle_keeps_the_pages_before_it(
    server: FaultServer, transport: Transport, oracle: Oracle, status: int, kind: type[MarketDataError]
) -> None:
    """The third page is refused; the resume fetches the rest, and nothing twice."""
    calls = itertools.count()
    server.answer = lambda ask: refuse(status, "no") if next(calls) == 2 else oracle(ask)
    error, got = ends(transport, oracle.request(COUNT), kind)
    assert len(got) == 400
    assert error.resume.remaining == (minutes(COUNT - 200, 200),)
    (window,) = pickle.loads(pickle.dumps(error.resume)).windows
    assert sorted(got + rows(fetch(transport, window))) == expected(oracle.points)
    assert len(server.asks) == 6


@pytest.mark.fault("P24")
def test_resume_in_words(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """What is left to ask can be read, in a few words."""
    server.answer = lambda ask: refuse(404)
    error, _ = ends(transport, oracle.request(COUNT), NotFoundError)
    assert str(error.resume) == "prices of market slug in [2026-01-01T00:00:00Z, 2026-01-01T07:30:00Z)"
    many = Resume(error.resume.windows * 900)
    assert len(repr(many)) < 400
    assert repr(many).endswith("and 897 more>")


@pytest.mark.fault("P25")
def test_slug_names_another_market(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A slug that meanwhile names another market is an error: slugs are names, not ids."""
    server.answer = oracle
    reader = Reader(transport)
    fetched(transport, oracle.request(COUNT), reader=reader)
    oracle.market_id = "another"
    error = fails(transport, oracle.request(COUNT), ContractError, reader=reader)
    assert "'another'" in str(error)


@pytest.mark.fault("P26")
def test_unknown_fields(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Unknown fields are passed over."""

    def more(body: Body, ask: Ask) -> None:
        body["new"] = body["metadata"]["new"] = {"a": 1}
        for point in body["data"]["Yes"]:
            point["volume"] = 3

    server.answer = bend(oracle, more)
    pages = read(transport, oracle.request(COUNT), strict=True)
    assert sorted(rows(pages)) == expected(oracle.points)


@pytest.mark.fault("P27")
def test_duplicate_key(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """JSON with the same label twice has fewer points than its count says, which strict mode refuses."""
    server.answer = lambda ask: Act(body=json.dumps(oracle.page(ask)).replace('"No": [', '"Yes": [').encode())
    with pytest.raises(ContractError, match="count_mismatch"):
        fetched(transport, oracle.request(COUNT), strict=True)


@pytest.mark.fault("P28")
@pytest.mark.parametrize("top", [[], None, "text", 5, {"market_id": "m1"}], ids=str)
def test_top_level(server: FaultServer, transport: Transport, oracle: Oracle, top: Any) -> None:
    """A body of another shape is an error."""
    server.answer = lambda ask: ok(top)
    fails(transport, oracle.request(COUNT), ContractError)


@pytest.mark.fault("P28")
def test_data_is_a_list(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A list where labels should be is an error."""
    server.answer = bend(oracle, lambda body, ask: body.update(data=body["data"]["Yes"]))
    fails(transport, oracle.request(COUNT), ContractError)


@pytest.mark.fault("P28")
@pytest.mark.parametrize("grouped", [False, True])
def test_metrics_envelope(server: FaultServer, transport: Transport, grouped: bool) -> None:
    """Metrics come as a list of points, or as a map of one."""
    points = [{"t": "2026-01-01T00:00:00Z", "volume": 1, "liquidity": 2.5, "spread": None}]
    body = {
        "market_id": "m1",
        "resolution": "1m",
        "data": {"m1": points} if grouped else points,
        "metadata": {"count": 1, "limit": 200, "next_cursor": None},
    }
    server.answer = lambda ask: ok(body)
    request = Window("metrics", "market", "slug", minutes(COUNT), Oracle({}).request(1).resolution)
    (page,) = read(transport, request, strict=True)
    assert page.columns.ts.tolist() == [START]
    assert page.columns.values["liquidity"].tolist() == [2.5]  # type: ignore[union-attr]


LABELS = ["", "x" * 10_000, "ÅNGSTRÖM", "ångström", "A\u030angstr\u00f6m", "__proto__", "t", "data.Yes[0]", "\u202eabc"]


@pytest.mark.fault("P29")
def test_labels_verbatim(server: FaultServer, transport: Transport) -> None:
    """Labels are kept sign by sign, whatever they look like."""
    oracle = Oracle.of_prices(60, LABELS)
    server.answer = oracle
    assert fetched(transport, oracle.request(60), strict=True) == expected(oracle.points)


@pytest.mark.fault("P30")
def test_longer_than_any_window(server: FaultServer, transport: Transport) -> None:
    """A window of more pages than it can have ends, though each page brings something new."""
    oracle = Oracle.of_prices(20, [f"t{i}" for i in range(20)])
    order = itertools.count()

    def answer(ask: Ask) -> Act:
        number = next(order)
        t = START + number // 20 % 20 * MINUTE
        return ok(oracle.body([(f"t{number % 20}", t)], cursor=f"x{number}"))

    server.answer = answer
    fails(transport, oracle.request(20), PaginationStalledError)
    assert len(server.asks) <= 4 * (20 * 20 // 200 * 2 + 50)


@pytest.mark.fault("P30")
def test_pages_of_one_point(server: FaultServer, transport: Transport) -> None:
    """A service whose pages are far below the limit that it tells is read to the last point, in smaller windows."""
    oracle = Oracle.of_prices(100, ["Yes"])
    small = replace(oracle, largest=1)

    def answer(ask: Ask) -> Act:
        if "start_ts" not in ask.params:
            return oracle(ask)
        page = small.page(ask)
        page["metadata"]["limit"] = 200
        return ok(page)

    server.answer = answer
    assert fetched(transport, oracle.request(100)) == expected(oracle.points)
