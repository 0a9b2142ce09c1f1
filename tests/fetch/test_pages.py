"""Windows read from services that err: every point arrives once, or an error names what was wrong."""

from __future__ import annotations

import itertools
import pickle
import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fetch.markets import ORDERS, paged
from reference.faults import Act, Ask, ok, refuse
from reference.oracle import DATE, MINUTE, START, Oracle, expected, fetch, minutes, read, rows

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
from marketdata.fetch.sources.interface import Interface
from marketdata.fetch.windows import Window

Body = dict[str, Any]
COUNT = 450  # minutes of a market of two tokens, on five pages


@pytest.fixture
def oracle() -> Oracle:
    """A market of two tokens, five pages long."""
    return Oracle.of_prices(COUNT)


def altered(oracle: Oracle, alter: Callable[[Body, Ask], object]) -> Callable[[Ask], Act]:
    """An honest service whose bodies are altered on their way."""

    def answer(ask: Ask) -> Act:
        body = oracle.page(ask)
        alter(body, ask)
        return ok(body).with_header("Date", DATE)

    return answer


def refusing_cursors(answer: Callable[[Ask], Act], numbers: Collection[int]) -> Callable[[Ask], Act]:
    """A service that refuses the cursors of requests with these numbers, counted from 1."""
    count = itertools.count(1)
    return lambda ask: refuse(400, "stale") if "cursor" in ask.params and next(count) in numbers else answer(ask)


def fetched(transport: Transport, window: Window, **options: Any) -> list[tuple[str, int, Any]]:
    """Every row of a window, sorted."""
    return sorted(rows(read(transport, window, **options)))


def failure(transport: Transport, window: Window, kind: type[MarketDataError], **options: Any) -> Any:
    """The error of a window; it counts its requests."""
    with pytest.raises(kind) as caught:
        read(transport, window, **options)
    assert caught.value.attempts
    return caught.value


# -- cursors


@pytest.mark.fault("P1", "P2", "P3", "P17")
@pytest.mark.parametrize("following", ["same", "cycle", "new", "refused", "empty"])
def test_cursors_that_bring_nothing_new_are_an_error(server, transport, oracle, following) -> None:
    """Pagination ends with an error whether cursors repeat, alternate, change, expire or bring empty pages."""
    cursors = {"same": itertools.repeat("a"), "cycle": itertools.cycle("abc")}.get(
        following, map(str, itertools.count())
    )

    def answer(ask: Ask) -> Act:
        if following == "refused" and "cursor" in ask.params:
            return refuse(400, "cursor expired")
        return ok(oracle.body([] if following == "empty" else [("Yes", START), ("No", START)], cursor=next(cursors)))

    server.answer = answer
    assert "cursor" in str(
        failure(transport, oracle.request(COUNT if following != "empty" else 2), PaginationStalledError)
    )
    assert len(server.asks) < (170 if following == "empty" else 50)


@pytest.mark.fault("P1")
def test_a_service_that_repeats_a_cursor_is_read_in_windows_without_cursors(server, transport, oracle) -> None:
    """Where times are honoured, smaller windows bring every point."""
    server.answer = altered(
        oracle,
        lambda body, ask: body["metadata"].update(next_cursor=ask.params["cursor"]) if "cursor" in ask.params else None,
    )
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.restarts >= 1


@pytest.mark.fault("P3")
def test_a_window_whose_cursor_expired_is_requested_in_halves(server, transport, oracle) -> None:
    """A refused cursor is recognised whatever the service says of it."""
    server.answer = refusing_cursors(oracle, [1, 3])
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.restarts == 2
    assert len(server.asks) <= 12


@pytest.mark.fault("P3", "P10")
@pytest.mark.parametrize("order", ORDERS)
def test_an_expired_cursor_loses_no_row_in_any_order_of_pages(server, transport, order) -> None:
    """Pages may end inside of a bucket, come in any order, and name only the labels that they hold."""
    oracle = Oracle.of_prices(12, ["A", "B", "C"])
    for own_labels, numbers in itertools.product((False, True), ([1], [2, 7], range(5, 999, 5))):
        size = 20 if own_labels else 7
        pages = partial(paged, oracle, size=size, order=order, own_labels=own_labels)
        server.answer = refusing_cursors(pages, numbers)
        assert fetched(transport, oracle.request(12, limit=size)) == expected(oracle.points), numbers


@pytest.mark.fault("P15")
def test_an_absent_cursor_is_the_end(server, transport) -> None:
    """An absent next_cursor means what null means."""
    oracle = Oracle.of_prices(50)
    server.answer = altered(oracle, lambda body, ask: body["metadata"].pop("next_cursor"))
    assert fetched(transport, oracle.request(COUNT), strict=True) == expected(oracle.points)
    assert len(server.asks) == 1


@pytest.mark.fault("P15")
def test_an_empty_cursor_at_the_end_is_verified(server, transport, oracle) -> None:
    """Both halves of the window are requested, and a warning is counted."""
    server.answer = altered(
        oracle, lambda body, ask: body["metadata"].update(next_cursor=body["metadata"]["next_cursor"] or "")
    )
    report = Report()
    assert fetched(transport, oracle.request(COUNT + 99), report=report) == expected(oracle.points)
    assert report.warnings == {"cursor_empty": 1}
    assert len(server.asks) <= 11


@pytest.mark.fault("P15")
@pytest.mark.parametrize("with_points", [["Yes", "No"], ["Yes"]], ids=["two tokens", "a silent token"])
def test_points_behind_an_empty_cursor_arrive(server, transport, with_points) -> None:
    """Where an empty next_cursor hides points, smaller windows bring them; none is verified."""
    oracle = Oracle.of_prices(COUNT, with_points)
    oracle.labels["No"] = "2"
    server.answer = altered(oracle, lambda body, ask: body["metadata"].update(next_cursor=""))
    assert fetched(transport, oracle.request(COUNT + 99)) == expected(oracle.points)
    assert not any(part.complete for part in read(transport, oracle.request(1)))
    server.answer = lambda ask: paged(oracle, ask, 61, last="")
    assert fetched(transport, oracle.request(COUNT + 99)) == expected(oracle.points)


@pytest.mark.fault("P15", "AR28")
def test_points_behind_silence_and_an_empty_cursor_arrive(server, transport) -> None:
    """A page that is full says nothing of what follows, and nothing of it is called complete."""
    oracle = Oracle.of_prices(0)
    oracle.points = {(x, START + t * MINUTE): 0.5 for t in range(1000, 1300) for x in ("Yes", "No")}
    server.answer = altered(oracle, lambda body, ask: body["metadata"].update(next_cursor=""))
    parts = read(transport, oracle.request(1440))
    assert sorted(rows(parts)) == expected(oracle.points)
    assert not any(part.complete for part in parts if len(part.columns))


@pytest.mark.fault("P16")
@pytest.mark.parametrize("cursor", ["&limit=1&cursor=2", "a\x00b", "../..?x#y", "ü€", " +%20", "x" * 8192])
def test_a_cursor_is_sent_back_as_it_was(server, transport, oracle, cursor) -> None:
    """Whatever a cursor holds, it adds nothing else to the query."""
    server.script = [ok(oracle.body([("Yes", START), ("No", START)], cursor=cursor))]
    server.answer = lambda ask: ok(oracle.body([]))
    read(transport, oracle.request(COUNT))
    assert server.asks[1].params == server.asks[0].params | {"cursor": cursor}


@pytest.mark.fault("P30")
def test_more_pages_than_a_window_can_have_are_an_error(server, transport) -> None:
    """The fetch ends, though each page brings something new."""
    oracle = Oracle.of_prices(20, [f"t{i}" for i in range(20)])
    points = itertools.cycle((f"t{k}", START + t * MINUTE) for t in range(20) for k in range(20))
    cursors = map(str, itertools.count())
    server.answer = lambda ask: ok(oracle.body([next(points)], cursor=next(cursors)))
    failure(transport, oracle.request(20), PaginationStalledError)
    assert len(server.asks) <= 4 * (20 * 20 // 200 * 2 + 50)


@pytest.mark.fault("P30")
def test_pages_far_below_the_limit_are_read_to_the_last_point(server, transport) -> None:
    """Where pages have one point and say that 200 fit, smaller windows bring every point."""
    oracle = replace(Oracle.of_prices(30, ["Yes"]), largest=1)
    pages = altered(oracle, lambda body, ask: body["metadata"].update(limit=200))
    server.answer = lambda ask: pages(ask) if "start_ts" in ask.params else refuse(404)
    assert fetched(transport, oracle.request(30)) == expected(oracle.points)


# -- points


@pytest.mark.fault("P4")
def test_equal_points_across_pages_are_dropped_and_counted(server, transport, oracle) -> None:
    """Each page repeats the last bucket of the one before; strict mode allows it."""

    def repeat(body: Body, ask: Ask) -> None:
        if "cursor" in ask.params:
            for label, points in body["data"].items():
                points.insert(0, oracle.point(label, int(ask.params["cursor"][1:]) - MINUTE))
            body["metadata"]["count"] += 2

    server.answer = altered(oracle, repeat)
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report, strict=True) == expected(oracle.points)
    assert report.repairs == {"duplicate_points": 8}


@pytest.mark.fault("P4", "D15")
def test_books_and_metrics_are_duplicates_if_all_their_values_are_equal(server, transport) -> None:
    """-0.0 equals 0.0; a metric that differs is an error."""
    points = {("Yes", START + i * MINUTE): ([[0.5, float(i)]], [[0.6, 0.0]] * (i % 2)) for i in range(150)}
    books = Oracle(points, {"Yes": "1"}, view="books")

    def repeat(body: Body, ask: Ask) -> None:
        first = books.point("Yes", START)
        body["data"]["Yes"] += [{**first, "asks": []}, {"t": first["t"], "bids": [[0.5, -0.0]], "asks": []}]
        body["metadata"]["count"] += 2

    server.answer = altered(books, repeat)
    report = Report()
    assert fetched(transport, books.request(150), report=report) == expected(books.points)
    assert report.repairs["duplicate_points"] == 2
    point = {"t": "2026-01-01T00:00:00Z", "volume": 0.0, "liquidity": None, "spread": 0.1}
    metrics = {"market_id": "m", "resolution": "1m", "metadata": {"count": 2, "limit": 200}}
    server.answer = lambda ask: ok(metrics | {"data": [point, {**point, "volume": -0.0}]})
    request = replace(books.request(150), view="metrics", id="other")
    assert [len(p.columns) for p in read(transport, request)] == [1]
    server.answer = lambda ask: ok(metrics | {"data": [point, {**point, "volume": 1.0}]})
    failure(transport, request, ContractError)


CHANGED = START + 99 * MINUTE  # the last bucket of the first page, which the second page brings with another price


def changing(dates: Iterator[str | None]) -> tuple[Oracle, Callable[[Ask], Act]]:
    """A service that sends the bucket CHANGED twice, and these dates with its pages."""
    oracle = Oracle.of_prices(150)

    def answer(ask: Ask) -> Act:
        body, date = oracle.page(ask), next(dates)
        if "cursor" in ask.params:
            body["data"]["Yes"].insert(0, {**oracle.point("Yes", CHANGED), "p": 0.75})
            body["metadata"]["count"] += 1
        return ok(body) if date is None else ok(body).with_header("Date", date)

    return oracle, answer


def http_date(seconds: int) -> str:
    """The time so long after the start of CHANGED, as the Date header has it."""
    return time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(CHANGED // 1_000_000 + seconds))


@pytest.mark.fault("P5", "T12")
@pytest.mark.parametrize("skew", [-7200, 0, 7200], ids=["behind", "right", "ahead"])
def test_an_open_bucket_may_change_by_the_clock_of_the_server(server, transport, monkeypatch, skew) -> None:
    """The last version of an open bucket counts; a closed one with two values is an error, as without a Date."""
    monkeypatch.setattr(time, "time", lambda: CHANGED / 1e6 + 30 + skew)
    for dates in ([0, 0], [59, 59], [30, 90]):
        oracle, server.answer = changing(map(http_date, dates))
        report = Report()
        want = expected(oracle.points | {("Yes", CHANGED): 0.75})
        assert fetched(transport, oracle.request(150), report=report) == want, dates
        assert report.warnings == {"open_bucket_changed": 1}
    for date in (http_date(60), http_date(86_400), None):
        oracle, server.answer = changing(itertools.repeat(date))
        assert "different values" in str(failure(transport, oracle.request(150), ContractError)), date


@pytest.mark.fault("P6")
def test_points_out_of_order_inside_a_page_are_sorted(server, transport, oracle) -> None:
    """The page is counted as repaired."""
    server.answer = altered(oracle, lambda body, ask: "cursor" in ask.params or body["data"]["Yes"].reverse())
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.repairs == {"points_sorted": 1}


@pytest.mark.fault("P7", "P14")
@pytest.mark.parametrize(
    "damage", [lambda body: body["data"]["Yes"].pop(), lambda body: body.pop("metadata")], ids=["point", "metadata"]
)
def test_a_page_that_lacks_something_once_is_requested_again(server, transport, oracle, damage) -> None:
    """It costs one request, and leaves no warning."""
    pages = itertools.count()
    server.answer = altered(oracle, lambda body, ask: next(pages) == 1 and damage(body))
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report, strict=True) == expected(oracle.points)
    assert (report.requests, report.warnings) == (6, {})


@pytest.mark.fault("P7")
def test_a_count_that_stays_wrong_is_a_warning_and_an_error_in_strict_mode(server, transport, oracle) -> None:
    """The same page twice means that the service counts otherwise."""
    server.answer = altered(oracle, lambda body, ask: body["metadata"].update(count=7))
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert report.warnings["count_mismatch"] >= 5
    with pytest.raises(ContractError, match="count_mismatch"):
        fetched(transport, oracle.request(COUNT), strict=True)


@pytest.mark.fault("P7")
def test_a_page_that_lacks_another_point_each_time_is_an_error(server, transport, oracle) -> None:
    """Points get lost on the way."""
    picks = itertools.count()
    server.answer = altered(oracle, lambda body, ask: body["data"]["Yes"].pop(next(picks)))
    failure(transport, oracle.request(COUNT), ContractError)
    assert len(server.asks) == 2


@pytest.mark.fault("P8")
def test_points_outside_of_the_range_are_dropped_and_counted(server, transport, oracle) -> None:
    """Start is inside of the range and end is not."""
    request = replace(oracle.request(COUNT), rng=minutes(40, first=10))

    def stray(body: Body, ask: Ask) -> None:
        body["data"]["Yes"].insert(0, oracle.point("Yes", START + 9 * MINUTE))
        body["data"]["Yes"].append(oracle.point("Yes", START + 50 * MINUTE))
        body["metadata"]["count"] += 2

    server.answer = altered(oracle, stray)
    report = Report()
    inside = {k: v for k, v in oracle.points.items() if request.rng.start <= k[1] < request.rng.end}
    assert fetched(transport, request, report=report) == expected(inside)
    assert report.repairs == {"outside_range": 2}


@pytest.mark.fault("P8")
def test_a_range_that_begins_inside_of_a_bucket_has_that_bucket(server, transport) -> None:
    """A bucket is named by its start, which is before the range."""
    oracle = Oracle({("Yes", START): 0.5, ("Yes", START + 60 * MINUTE): 0.6}, {"Yes": "1"}, resolution="1h")
    request = replace(oracle.request(120), rng=minutes(60, first=30))
    server.answer = oracle
    assert fetched(transport, request, strict=True) == expected(oracle.points)


# -- labels, tokens, markets


@pytest.mark.fault("P9", "P11")
@pytest.mark.parametrize("data", [{}, {"No": []}], ids=["absent", "empty"])
@pytest.mark.parametrize("names", [["Yes"], []], ids=["one of two", "both"])
def test_a_label_without_points_is_normal_and_known(server, transport, data, names) -> None:
    """Whether ``data`` lacks a label of ``tokens`` or has no points for it."""
    oracle = Oracle.of_prices(COUNT, names)
    oracle.labels = {"Yes": "1", "No": "2"}

    def only(body: Body, ask: Ask) -> None:
        body["data"] = {name: body["data"][name] for name in names} | data

    server.answer = altered(oracle, only)
    (window,) = read(transport, oracle.request(COUNT), strict=True)
    assert sorted(rows([window])) == expected(oracle.points)
    assert window.labels == 2


@pytest.mark.fault("P10")
def test_points_of_a_label_without_a_token_are_kept_with_a_warning(server, transport, oracle) -> None:
    """Their token id is null."""
    server.answer = altered(oracle, lambda body, ask: body.update(tokens={"Yes": oracle.labels["Yes"]}))
    report = Report()
    pages = read(transport, oracle.request(COUNT), report=report)
    assert sorted(rows(pages)) == expected(oracle.points)
    assert report.warnings == {"label_without_token": 5}
    assert {t.token_id for p in pages for t in p.columns.tokens if t.token_label == "No"} == {None}


def with_metadata(row: str, **metadata: Any) -> Any:
    """A case of a page whose metadata is this."""
    return pytest.param(2, {"metadata": {"count": 200, "limit": 200} | metadata}, marks=pytest.mark.fault(row))


@pytest.mark.parametrize(
    ("page", "change"),
    [
        pytest.param(3, {"tokens": {"Yes": "9", "No": "8"}}, marks=pytest.mark.fault("P12"), id="tokens change"),
        pytest.param(2, {"market_id": "other"}, marks=pytest.mark.fault("P13"), id="market changes"),
        pytest.param(2, {"resolution": "10m"}, marks=pytest.mark.fault("P13"), id="resolution changes"),
        pytest.param(1, {"resolution": "1h"}, marks=pytest.mark.fault("P13"), id="resolution not requested"),
        pytest.param(2, {"metadata": None}, marks=pytest.mark.fault("P14"), id="no metadata"),
        pytest.param(2, {"metadata": {}}, marks=pytest.mark.fault("P14"), id="empty metadata"),
        with_metadata("P14", count="5"),
        with_metadata("P14", limit=None),
        *(with_metadata("P16", next_cursor=cursor) for cursor in (5, {"a": 1}, True, "x" * 8193)),
    ],
)
def test_a_page_off_the_interface_is_requested_once_more_then_an_error(server, transport, oracle, page, change) -> None:
    """Another market, token or resolution, and metadata that cannot prove the end, are never read as data."""
    first = None if page == 1 else f"c{START + (page - 1) * 100 * MINUTE}"
    server.answer = altered(oracle, lambda body, ask: ask.params.get("cursor") == first and body.update(change))
    error = failure(transport, oracle.request(COUNT), ContractError)
    assert (len(server.asks), error.attempts) == (page + 1, 2)


@pytest.mark.fault("P25")
def test_a_slug_that_names_another_market_later_is_an_error(server, transport, oracle) -> None:
    """Slugs are names, not ids."""
    server.answer = oracle
    source = Interface(transport)
    fetched(transport, oracle.request(COUNT), source=source)
    oracle.market_id = "another"
    assert "'another'" in str(failure(transport, oracle.request(COUNT), ContractError, source=source))


LABELS = ["", "x" * 10_000, "ÅNGSTRÖM", "ångström", "A\u030angstr\u00f6m", "__proto__", "t", "data.Yes[0]", "\u202eabc"]


@pytest.mark.fault("P29")
def test_labels_are_kept_as_they_are(server, transport) -> None:
    """Whatever they look like, each names its own token."""
    oracle = Oracle.of_prices(60, LABELS)
    server.answer = oracle
    assert fetched(transport, oracle.request(60), strict=True) == expected(oracle.points)


# -- limits


@pytest.mark.fault("P18")
@pytest.mark.parametrize(("told", "warnings"), [(60, {"limit_clamped": 1}), (200, {})])
def test_a_page_below_its_limit_is_not_the_end(server, transport, oracle, told, warnings) -> None:
    """Pages have 60 points where 200 were requested; a limit that says so is warned of once."""
    oracle.largest = 60
    server.answer = altered(oracle, lambda body, ask: body["metadata"].update(limit=told))
    report = Report()
    assert fetched(transport, oracle.request(COUNT), report=report) == expected(oracle.points)
    assert (report.pages, report.warnings) == (15, warnings)


TOO_SMALL = "limit too small for this market. Minimum required: {}"


@pytest.mark.fault("P19")
def test_a_limit_that_is_too_small_is_raised_and_remembered(server, transport, oracle) -> None:
    """The second fetch of the market asks with the right limit from the start."""
    server.answer = lambda ask: refuse(400, TOO_SMALL.format(2)) if ask.params["limit"] == "1" else oracle(ask)
    source, report = Interface(transport), Report()
    few = oracle.request(5, limit=1)
    want = [row for row in expected(oracle.points) if row[1] < few.rng.end]
    assert fetched(transport, few, source=source, report=report) == want
    assert report.repairs == {"limit_raised": 1}
    assert fetched(transport, few, source=source) == want
    assert [ask.params["limit"] for ask in server.asks].count("1") == 1


@pytest.mark.fault("P19")
@pytest.mark.parametrize("minimum", ["201", "50", "7", "x", "-3", "9" * 30])
def test_a_minimum_that_cannot_help_is_an_error(server, transport, oracle, minimum) -> None:
    """A limit beyond 200, below the own one, unreadable, or refused again is requested at most once more."""
    server.answer = lambda ask: refuse(400, TOO_SMALL.format(minimum))
    error = failure(transport, oracle.request(COUNT, limit=40), LimitTooSmallError)
    assert len(server.asks) <= 2
    assert error.minimum == (int(minimum) if minimum in ("201", "50", "7") else None)


@pytest.mark.fault("P20")
def test_a_market_of_more_than_200_tokens_is_an_error_that_names_the_token_call(server, transport, oracle) -> None:
    """A market without such a record is not requested again."""
    server.answer = lambda ask: refuse(400, "This market has more than 200 tokens; use /v1/tokens/{token_id}/books.")
    assert "client.token_books" in failure(transport, oracle.request(COUNT), TooManyTokensError).hint
    assert len(server.asks) <= 2


@pytest.mark.fault("P20")
def test_the_history_of_a_token_is_read_from_its_own_path(server, transport) -> None:
    """An answer about another token is an error."""
    yes = Oracle.of_prices(COUNT, ["Yes"])

    def answer(ask: Ask) -> Act:
        body = yes.page(ask)
        token = {"token_id": "1" * 77, "token_label": "Yes", "data": body["data"]["Yes"]}
        return ok({name: body[name] for name in ("market_id", "resolution", "metadata")} | token)

    server.answer = answer
    request = replace(yes.request(COUNT), kind="token", id="1" * 77)
    assert fetched(transport, request, strict=True) == expected(yes.points)
    assert server.asks[0].path == f"/v1/tokens/{'1' * 77}/prices"
    assert "is about the tokens" in str(failure(transport, replace(request, id="2"), ContractError))


@pytest.mark.fault("P21")
@pytest.mark.parametrize("detail", ["the page must be bigger", "so many outcomes!", "position is stale"])
def test_a_400_in_other_words_is_a_bad_request_with_these_words(server, transport, oracle, detail) -> None:
    """It is requested once."""
    server.answer = lambda ask: refuse(400, detail)
    error = failure(transport, oracle.request(COUNT), BadRequestError)
    assert (type(error), error.detail, len(server.asks)) == (BadRequestError, detail, 1)


# -- keys that change, and refusals on the way

OLD, NEW = "old-key-0123456789", "new-key-9876543210"


@pytest.mark.fault("P22")
@pytest.mark.parametrize("script", [[], [refuse(500), refuse(401), refuse(500)]], ids=["alone", "among failures"])
def test_a_key_that_is_rotated_on_the_way_is_read_again(server, oracle, clock, script) -> None:
    """The service takes the old key for two pages; the pagination goes on with its cursor."""
    keys, failures = iter([OLD]), len(script) or 1

    def answer(ask: Ask) -> Act:
        right = OLD if len(server.asks) <= 2 else NEW
        return oracle(ask) if ask.header("X-API-Key") == [right] else refuse(401, "Invalid or expired API key.")

    server.script, server.answer = script.copy(), answer
    transport = Transport(server.base_url, lambda: next(keys, NEW), pacer=Pacer(clock=clock), clock=clock)
    assert fetched(transport, oracle.request(COUNT)) == expected(oracle.points)
    assert len(server.asks) <= 1.2 * 5 + failures
    transport.close()


@pytest.mark.fault("P22")
def test_a_rotated_key_is_read_once_for_all_threads(server, oracle) -> None:
    """However many requests are refused at once."""
    refused, given = threading.Barrier(20), list[str]()

    def answer(ask: Ask) -> Act:
        if ask.header("X-API-Key") == [NEW]:
            return oracle(ask)
        refused.wait()
        return refuse(401, "Invalid or expired API key.")

    def source() -> str:
        given.append(NEW if given else OLD)
        return given[-1]

    server.answer = answer
    transport = Transport(server.base_url, source, pacer=Pacer())
    window = oracle.request(COUNT)
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda _: transport.get(window.segments, window.params), range(20)))
    assert given == [OLD, NEW]
    transport.close()


@pytest.mark.fault("P22")
def test_a_key_that_left_the_environment_is_refused_by_the_service(server, oracle, monkeypatch) -> None:
    """The error is the refusal, not the missing variable."""
    monkeypatch.setenv("MARKETDATA_API_KEY", OLD)
    transport = Transport(server.base_url, pacer=Pacer())
    monkeypatch.delenv("MARKETDATA_API_KEY")
    server.answer = lambda ask: refuse(401, "Invalid or expired API key.")
    failure(transport, oracle.request(COUNT), AuthenticationError)
    transport.close()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        pytest.param(401, AuthenticationError, marks=pytest.mark.fault("P22")),
        pytest.param(403, PlanError, marks=pytest.mark.fault("P23")),
        pytest.param(404, NotFoundError, marks=pytest.mark.fault("P24")),
    ],
)
def test_a_refusal_on_the_way_keeps_what_arrived(server, transport, oracle, status, kind) -> None:
    """The third request is refused; the resume, pickled, brings the rest and nothing twice."""
    calls = itertools.count()
    server.answer = lambda ask: refuse(status) if next(calls) == 2 else oracle(ask)
    received: list[Any] = []
    with pytest.raises(kind) as caught:
        received.extend(fetch(transport, oracle.request(COUNT), workers=1))
    assert len(rows(received)) == 400
    assert caught.value.resume.remaining == (minutes(COUNT - 200, 200),)
    received.extend(fetch(transport, *pickle.loads(pickle.dumps(caught.value.resume)).windows))
    assert sorted(rows(received)) == expected(oracle.points)
    assert len(server.asks) <= 1.2 * 6


def test_a_resume_is_shown_as_a_short_text(oracle) -> None:
    """It names the first windows and counts the others."""
    window = oracle.request(COUNT)
    assert str(Resume((window,))) == "prices of market slug in [2026-01-01T00:00:00Z, 2026-01-01T07:30:00Z)"
    assert repr(Resume((window,) * 900)).endswith("and 897 more>")
