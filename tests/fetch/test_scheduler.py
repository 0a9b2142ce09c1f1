from __future__ import annotations

import itertools
import json
import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from fetch import markets
from fetch.markets import ORDERS, PLANS, keys_of, paged, wide
from fetch.turns import Near, Paced, fetch
from reference.faults import HANG_UP, Act, Ask, ok, refuse
from reference.oracle import DATE, MINUTE, START, Oracle, expected, minutes, rows

from marketdata.errors import ContractError, NetworkError, NotFoundError, PlanError, ServerError
from marketdata.fetch.windows import Window
from marketdata.resolution import BucketWidth
from marketdata.times import Range, parse_iso, to_text

# Who comes first, a service whose ``answer`` the test sets, and a market of 3000 minutes that it serves.
turns, server, oracle = markets.turns, markets.server, markets.oracle


@pytest.fixture
def transport(server) -> Paced:
    """One whose requests take as long as a seed says."""
    return Paced(server)


def history(server: Near) -> list[Ask]:
    return [ask for ask in server.asks if ask.path.endswith("/prices")]


def test_the_first_window_tells_how_the_rest_goes_at_once(server, transport) -> None:
    """The first page of a day is requested alone, then all others concurrently in chunks of two pages."""
    oracle = Oracle.of_prices(1440)

    def answer(ask: Ask) -> Act:
        return ok({"limits": {"requests_per_minute": 6000}}) if ask.path == "/v1/usage" else oracle(ask)

    server.answer = answer
    assert sorted(rows(fetch(transport, oracle.request(1440)))) == expected(oracle.points)
    assert 15 <= len(history(server)) <= 1.2 * 15
    assert server.most_at_once >= 7  # usage may be beside them


def test_a_point_each_half_hour_takes_one_request(server, transport) -> None:
    """A day that fits a page is requested as a page."""
    oracle = Oracle.of_prices(1440)
    oracle.points = {k: v for k, v in oracle.points.items() if (k[1] - START) // MINUTE % 30 == 0}
    server.answer = oracle
    assert sorted(rows(fetch(transport, oracle.request(1440)))) == expected(oracle.points)
    assert len(history(server)) == 1
    assert len(server.asks) <= 2


@pytest.mark.parametrize(
    ("before", "behind", "pages"),
    [(10**6, 300_000, 8), (-400, 300_000, 4), (-3000, 300_000, 0), (10**6, -100, 0)],
    ids=["whole range", "ends within", "ended before", "begins later"],
)
def test_the_active_range_of_a_market_bounds_a_long_range(server, transport, before, behind, pages) -> None:
    """One request a side covers the range outside of the active range of a market, and points there arrive."""
    oracle = Oracle.of_prices(800)
    start, end = START - before * MINUTE, START + behind * MINUTE
    for t in (START - 900_000 * MINUTE, START + 200_000 * MINUTE):
        oracle.points["Yes", t] = 0.5
    record = {"id": "m1", "slug": "slug", "tokens": [{"id": "1"}, {"id": "2"}], "start_date": to_text(START)}
    record["end_date"] = to_text(START + 800 * MINUTE)
    server.answer = lambda ask: ok(record) if ask.path == "/v1/markets/slug" else oracle(ask)
    there = {key: value for key, value in oracle.points.items() if start <= key[1] < end}
    range_ = Window("prices", "market", "slug", Range(start, end), BucketWidth.of("1m"))
    assert sorted(rows(fetch(transport, range_))) == expected(there)
    assert len(history(server)) <= pages + 4


def test_a_burst_in_a_long_silence_costs_little_more_than_its_pages(server, transport) -> None:
    """In a year without other points it costs four cuts into eight, behind six pages each."""
    bursts = [(100_000, 1500), (450_000, 1500), *((k * 50_000, 120) for k in range(3, 8))]
    oracle = Oracle({("Yes", START + t * MINUTE): t / 1e6 for a, n in bursts for t in range(a, a + n)})
    server.answer = oracle
    assert sorted(rows(fetch(transport, oracle.request(525_600)))) == expected(oracle.points)
    assert len(history(server)) <= sum(-(-n // 200) + 4 * (8 + 6) for _, n in bursts)


@pytest.mark.fault("N35")
def test_a_slow_consumer_bounds_what_is_requested(server, turns, transport) -> None:
    """Pages that were requested and are not yielded do not become more with the length of the history."""
    oracle = server.answer = Oracle.of_prices(2000, ["Yes"])
    yielded = most = 0
    for window in fetch(transport, oracle.request(2000, limit=10), workers=2, buffer=5, in_order=True):
        turns.sleep(1.0)
        yielded += window.pages
        most = max(most, len(history(server)) - yielded)
    assert yielded >= 200
    assert most <= yielded / 2


@pytest.mark.parametrize("in_order", [True, False])
def test_a_failure_keeps_what_arrived(server, transport, oracle, *, in_order) -> None:
    """The resume fetches the rest and nothing twice; in order, nothing behind the failed window is yielded."""
    bad = to_text(START + 1400 * MINUTE)
    server.answer = lambda ask: refuse(403) if ask.params.get("start_ts", "") >= bad else oracle(ask)
    received: list[Any] = []
    with pytest.raises(PlanError) as caught:
        received.extend(fetch(transport, oracle.request(3000), workers=4, buffer=100, in_order=in_order))
    resume = pickle.loads(pickle.dumps(caught.value.resume))
    if in_order:
        times = sorted({t for _, t, _ in rows(received)})
        assert times == [START + i * MINUTE for i in range(len(times))]
        assert [window.rng.start for window in resume.windows] == [START + len(times) * MINUTE]
    server.answer = oracle
    received.extend(fetch(transport, *resume.windows, workers=4))
    assert sorted(rows(received)) == expected(oracle.points)
    assert in_order or len(history(server)) <= 30 + 4 + 2 * 3  # at most three windows of each fetch end within a page


def test_unknown_markets_do_not_keep_others_from_coming(server, transport) -> None:
    """Known markets arrive; then an error names the unknown ones."""
    oracle = Oracle.of_prices(500)
    server.answer = lambda ask: oracle(ask) if "slug" in ask.path else refuse(404, f"Market not found: {ask.path[12:]}")
    some = [
        oracle.request(500),
        *(Window("prices", "market", f"no{k}", minutes(500), BucketWidth.of("1m")) for k in range(2)),
    ]
    got: list[Any] = []
    with pytest.raises(NotFoundError, match=r"'no0', 'no1'\. The rows of the others are in \.partial") as caught:
        got.extend(fetch(transport, *some))
    assert sorted(rows(got)) == expected(oracle.points)
    assert {w.id for w in caught.value.resume.windows} == {"no0", "no1"}


@pytest.mark.fault("N1", "N17")
@pytest.mark.parametrize(
    ("act", "count", "markets", "at_once"), [(HANG_UP, 60, 1, 1), (HANG_UP, 300, 24, 9), (refuse(503), 30_000, 1, 3)]
)
def test_a_fetch_from_a_service_that_always_fails_ends(server, transport, turns, act, count, markets, at_once) -> None:
    """Each request is tried five times, and all together share 35 retries, however much is requested."""
    server.answer = lambda ask: act
    whole = Oracle.of_prices(1).request(count)
    with pytest.raises((ServerError, NetworkError)) as caught:
        list(fetch(transport, *(replace(whole, id=f"m{k}") for k in range(markets))))
    assert sum(w.buckets for w in caught.value.resume.windows) == count * markets
    assert 5 <= len(server.asks) <= at_once + min(4 * at_once, 35)
    assert turns.now < 0.5 + 1 + 2 + 4 + 2


@pytest.mark.fault("N17")
def test_a_burst_of_failures_is_survived(server, transport) -> None:
    """After all concurrent requests failed, one finds out that the service is back, and every row arrives."""
    oracle = Oracle.of_prices(300)  # so few that no market is looked up
    asked = itertools.count()

    def answer(ask: Ask) -> Act:
        return refuse(503) if next(asked) in range(5, 15) else oracle(ask)

    server.answer = answer
    windows = [replace(oracle.request(300), id=f"slug{k}") for k in range(8)]
    assert sorted(rows(fetch(transport, *windows, workers=8))) == sorted(expected(oracle.points) * 8)


def test_an_error_of_a_thread_is_raised_by_the_iterator(transport, oracle, monkeypatch) -> None:
    """A bug is not a hang."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("marketdata.fetch.sources.interface.decode_page", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        list(fetch(transport, oracle.request(3000)))


@pytest.mark.fault("N34")
@pytest.mark.parametrize("in_order", [True, False])
def test_a_closed_generator_sends_nothing_more(server, transport, oracle, turns, in_order) -> None:
    """After those on their way there are no requests, and no thread stays."""
    windows = iter(fetch(transport, oracle.request(3000), workers=6, in_order=in_order))
    next(windows)
    before = len(server.asks)
    windows.close()  # type: ignore[attr-defined]
    turns.end()
    assert len(server.asks) <= before + 6
    closed = fetch(transport, oracle.request(3000))
    closed.close()
    with pytest.raises(NetworkError, match="given up"):
        list(closed)


@pytest.mark.fault("N34")
def test_an_error_stops_the_others(server, transport, oracle, turns) -> None:
    """A refusal in one window ends all: what is on its way comes, nothing more is sent."""
    server.answer = lambda ask: oracle(ask) if "T00:00" in ask.params.get("start_ts", "T00:00") else refuse(403)
    with pytest.raises(Exception, match="403"):
        list(fetch(transport, oracle.request(3000), workers=4))
    before = len(server.asks)
    turns.end()
    assert len(server.asks) <= before + 4


# -- services that fill pages in ways of their own


def serve(server: Near, oracle: Oracle, page: Callable[[Ask], Act]) -> None:
    """Answer history with ``page``, and tell of the market what it has."""
    record = {"id": "m1", "slug": "slug", "tokens": [{"id": i, "label": x} for x, i in oracle.labels.items()]}

    def answer(ask: Ask) -> Act:
        if ask.path in ("/v1/markets/slug", "/v1/markets/m1"):
            return ok(record)
        return page(ask) if ask.path.endswith(("/prices", "/books")) else refuse(404, "Not Found")

    server.answer = answer


@pytest.mark.fault("P6")
@pytest.mark.parametrize("order", ORDERS)
def test_pages_in_any_order_lose_no_row(server, transport, order) -> None:
    """However sparse a token is, or how early it ends; each page may name only its own tokens."""
    draw, oracle, own_labels = random.Random(order), Oracle.of_prices(600), len(order) % 2 == 0
    for sparse in (lambda t: draw.random() < 0.02, lambda t: draw.random() < 0.9, lambda t: t < START + 60 * MINUTE):
        points = {key: value for key, value in oracle.points.items() if key[0] == "Yes" or sparse(key[1])}
        market = replace(oracle, points=points)
        own_labels = not own_labels
        serve(server, market, partial(paged, market, order=order, own_labels=own_labels))
        received = fetch(transport, oracle.request(600), in_order=own_labels, buffer=3)
        assert sorted(rows(received)) == expected(points)


@pytest.mark.fault("P6")
@pytest.mark.parametrize("order", ORDERS)
def test_a_service_that_ends_after_some_pages_can_be_resumed_in_any_order(server, transport, order) -> None:
    """No row is lost or twice, whether ranges are yielded in order or as they arrive."""
    oracle, draw = Oracle.of_prices(1000), random.Random(7)
    oracle.points = {key: value for key, value in oracle.points.items() if draw.random() < 0.7}
    for in_order in (True, False):
        page = partial(paged, oracle, order=order, own_labels=not in_order)
        requests = itertools.count()
        serve(
            server,
            oracle,
            lambda ask, page=page, ask_number=requests: refuse(403) if next(ask_number) >= 5 else page(ask),
        )
        server.asks.clear()
        received: list[Any] = []
        with pytest.raises(PlanError) as caught:
            received.extend(fetch(transport, oracle.request(1000), in_order=in_order, workers=3))
        serve(server, oracle, page)
        received += fetch(transport, *caught.value.resume.windows, in_order=in_order)
        assert sorted(rows(received)) == expected(oracle.points)
        assert len(history(server)) <= 27 + 5 + 3  # three for each page, whatever their order


@pytest.mark.fault("N37")
@pytest.mark.parametrize(
    ("names", "days", "share"),
    [
        ("ab", 1, 1.0),
        ("a", 2, 0.9),
        ("ab", 2, "growing"),
        *(("a", 2, share) for share in (0.2, "bursts", "thinner")),
        ("a", 1, "nights"),
        *(pytest.param("abcd", 3, share, marks=pytest.mark.soak) for share in (1.0, 0.2, 0.01, "bursts", "growing")),
        *(pytest.param("a", 7, share, marks=pytest.mark.soak) for share in (0.9, 0.5, "growing")),
    ],
)
def test_any_density_costs_hardly_more_requests_than_pages(server, transport, turns, names, days, share) -> None:
    """At most 1.05 requests a page, and two more, at any density; of fewer than 20 pages one more a market, and two."""
    draw, count, rate = random.Random(3), 1440 * days, PLANS[turns.seed]
    oracles = {}
    for name in names:
        bursts = [draw.randrange(count) for _ in range(5 * days)]
        there = {
            t
            for t in range(count)
            if (share == "bursts" and any(b <= t < b + 150 for b in bursts))
            or (share == "growing" and draw.random() < t / count)
            or (share == "nights" and t % 1440 < 900)
            or (share == "thinner" and (t < count / 2 or draw.random() < 0.9))
            or (isinstance(share, float) and draw.random() < share)
        }
        points = {(x, START + t * MINUTE): 0.5 for t in there for x in ("Yes", "No")}
        oracles[name] = Oracle(points, market_id=name)

    def answer(ask: Ask) -> Act:
        if ask.path == "/v1/usage":
            return ok({"limits": {"requests_per_minute": rate}}) if rate else refuse(404)
        return oracles[ask.path.split("/")[3]](ask) if ask.path.endswith("/prices") else refuse(404)

    server.answer = answer
    windows = [Window("prices", "market", name, minutes(count), BucketWidth.of("1m")) for name in oracles]
    assert len(rows(fetch(transport, *windows))) == sum(len(o.points) for o in oracles.values())
    pages = sum(max(1, -(-len(o.points) // 200)) for o in oracles.values())
    assert len(history(server)) <= (1.2 * pages if pages >= 20 else pages + len(oracles)) + 2


@pytest.mark.fault("N37")
@pytest.mark.parametrize(("names", "share"), [("a", 0.3), ("abcde", 0.9)])
def test_a_range_beyond_the_active_range_costs_no_more_requests(server, transport, names, share) -> None:
    """It begins before its markets and ends behind them."""
    draw, count = random.Random(3), round(2400 / len(names) / share)
    oracles, records = {}, {}
    for name in names:
        there = [START + t * MINUTE for t in range(count) if draw.random() < share]
        oracles[name] = Oracle({(x, t): 0.5 for t in there for x in ("Yes", "No")}, market_id=name)
        life = {"start_date": to_text(START), "end_date": to_text(START + count * MINUTE)}
        records[name] = {"id": name, "tokens": [{"id": "1"}, {"id": "2"}], **life}

    def answer(ask: Ask) -> Act:
        if ask.path == "/v1/usage":
            return refuse(404)
        name = ask.path.split("/")[3]
        return oracles[name](ask) if ask.path.endswith("/prices") else ok(records[name])

    server.answer = answer
    whole = Range(START - 3 * 1440 * MINUTE, START + (count + 2 * 1440) * MINUTE)
    windows = [Window("prices", "market", name, whole, BucketWidth.of("1m")) for name in names]
    assert len(rows(fetch(transport, *windows))) == sum(len(o.points) for o in oracles.values())
    pages = sum(-(-len(o.points) // 200) for o in oracles.values())
    assert pages >= 20
    assert len(history(server)) <= 1.05 * pages + 2


@pytest.mark.fault("N37")
def test_a_cursor_behind_every_full_page_costs_no_empty_page(server, transport) -> None:
    """Full buckets show the end without the last cursor."""
    oracle = Oracle.of_prices(2000)

    def page(ask: Ask) -> Act:
        body = oracle.page(ask)
        if body["metadata"]["count"] == 200:
            body["metadata"]["next_cursor"] = body["metadata"]["next_cursor"] or f"c{parse_iso(ask.params['end_ts'])}"
        return ok(body).with_header("Date", DATE)

    serve(server, oracle, page)
    assert sorted(rows(fetch(transport, oracle.request(2000)))) == expected(oracle.points)
    assert len(history(server)) <= 1.05 * 20 + 2


def independent(tokens: int, share: float | str, pages: int) -> tuple[Oracle, int, int]:
    """A market whose tokens trade independently, its minutes, and the number of its pages."""
    draw, names = random.Random(f"{tokens} {share} {pages}"), [f"t{k:03}" for k in range(tokens)]
    count = round(200 * pages / tokens / (share if isinstance(share, float) else {"growing": 0.5}.get(share, 0.1)))
    points: dict[tuple[str, int], Any] = {}
    for t in range(count):
        of_time = {"growing": t / count, "bursts": float(t % (count // 4 + 1) <= count // 40)}
        least = share if isinstance(share, float) else of_time[share]
        points |= {(x, START + t * MINUTE): 0.5 for x in names if draw.random() < least}
    needed, left = 1, 200
    for size in Counter(t for _, t in points).values():
        needed, left = (needed, left - size) if size <= left else (needed + 1, 200 - size)
    return Oracle(points, {x: f"id{x}" for x in names}), count, needed


@pytest.mark.fault("N37")
@pytest.mark.parametrize(
    ("tokens", "share", "pages"),
    [
        (3, 0.2, 20),
        (190, 0.9, 20),
        (100, "bursts", 20),
        (200, 0.2, 4),
        *(
            pytest.param(tokens, share, 60, marks=pytest.mark.soak)
            for tokens in (10, 100)
            for share in (0.05, "bursts", "growing")
        ),
    ],
)
def test_tokens_that_trade_independently_cost_at_most_a_fifth_more(server, transport, tokens, share, pages) -> None:
    """A market of many tokens needs at most 1.2 requests a page, and three more."""
    oracle, count, needed = independent(tokens, share, pages)
    serve(server, oracle, oracle)
    assert len(rows(fetch(transport, oracle.request(count)))) == len(oracle.points)
    assert len(history(server)) <= (1.2 * needed if needed >= 20 else needed + 1) + 3


@pytest.mark.fault("P18")
def test_a_service_that_ignores_the_limit_loses_nothing(server, transport) -> None:
    """It gives everything it has, or its own number of points, whatever was requested."""
    oracle = Oracle.of_prices(700)
    for size, told in ((10**6, None), (100, 200)):
        serve(server, oracle, partial(paged, oracle, size=size, told=told))
        assert sorted(rows(fetch(transport, oracle.request(700)))) == expected(oracle.points)


@pytest.mark.fault("P7", "P18")
def test_where_a_limit_is_of_times_windows_are_as_wide_as_such_a_page(server, transport) -> None:
    """Limit and count mean distinct times, each with two points."""
    oracle = Oracle.of_prices(1500)

    def page(ask: Ask) -> Act:
        body = json.loads(paged(oracle, ask, 2 * int(ask.params["limit"])).body)
        body["metadata"].update(count=len(body["data"]["Yes"]), limit=int(ask.params["limit"]))
        return ok(body)

    serve(server, oracle, page)
    assert sorted(rows(fetch(transport, oracle.request(1500), strict=True))) == expected(oracle.points)
    assert len(history(server)) <= 1.12 * 8 + 2


@pytest.mark.fault("P2")
def test_cursors_without_end_are_a_typed_error_and_can_be_resumed(server, transport) -> None:
    """All rows arrive, or none is missing in what arrived and what remains."""
    oracle, cursors = Oracle.of_prices(300), map(str, itertools.count())
    serve(server, oracle, lambda ask: ok(oracle.body(keys_of(oracle, ask)[:200], 200, next(cursors))))
    received, remaining = list[Any](), ()
    try:
        received.extend(fetch(transport, oracle.request(300)))
    except ContractError as error:
        remaining = error.resume.remaining
    points = {k: v for k, v in oracle.points.items() if not any(r.start <= k[1] < r.end for r in remaining)}
    assert sorted(rows(received)) == expected(points)
    assert len(history(server)) < 300


@pytest.mark.fault("P3", "P15")
@pytest.mark.parametrize("ends", ["refused", "empty"])
def test_a_cursor_that_ends_too_early_costs_two_requests(server, transport, oracle, ends) -> None:
    """The fetch goes on by time, from the last bucket that arrived; an empty cursor is no end."""
    cursors = itertools.count(1)

    def answer(ask: Ask) -> Act:
        if "cursor" not in ask.params or next(cursors) != 5:
            return oracle(ask)
        page = oracle.page(ask)
        page["metadata"]["next_cursor"] = ""
        return refuse(400, "cursor expired") if ends == "refused" else ok(page)

    server.answer = answer
    assert sorted(rows(fetch(transport, oracle.request(3000), workers=1))) == expected(oracle.points)
    assert len(history(server)) <= 30 + 2 + 2


@pytest.mark.fault("P19")
@pytest.mark.parametrize(
    ("tokens", "limit", "share", "count", "most"),
    [(3, 200, 1.0, 240, 7), (200, 200, 1.0, 12, 16), (3, 4, 0.002, 1400, 7), (100, 200, 0.01, 600, 12)],
)
def test_markets_of_many_tokens_arrive_whole(server, transport, tokens, limit, share, count, most) -> None:
    """A page may hold a single bucket with all tokens, or many of a market that trades now and then."""
    draw, oracle = random.Random(5), Oracle.of_prices(count, [f"t{i:03}" for i in range(tokens)])
    oracle.points = {key: value for key, value in oracle.points.items() if draw.random() < share}
    serve(server, oracle, oracle)
    assert sorted(rows(fetch(transport, oracle.request(count, limit)))) == expected(oracle.points)
    assert len(history(server)) <= most


@pytest.mark.fault("P20")
@pytest.mark.parametrize(
    ("count", "step", "lived", "in_order"),
    [
        (210, lambda k: 1 + 100 * (k > 3), None, True),
        pytest.param(1440, lambda k: 60 * (k % 3), minutes(200, 1000), False, marks=pytest.mark.soak),
    ],
    ids=["two pages", "few of an active range"],
)
def test_a_market_too_wide_for_a_page_is_requested_by_token(server, transport, count, step, lived, in_order) -> None:
    """It takes at most a quarter more requests than the least."""
    oracle, server.answer = wide(count, step, lived)
    arrivals = list(fetch(transport, oracle.request(count), strict=True, in_order=in_order, buffer=2))
    assert sorted(rows(arrivals)) == expected(oracle.points)
    assert arrivals[0].window.rng.start == START
    assert all(a.window.rng.end == b.window.rng.start for a, b in itertools.pairwise(arrivals)) or not in_order
    points = [sum(1 for x, _ in oracle.points if x == label) for label in oracle.labels]
    least = sum(max(1, -(-n // 200)) for n in points)
    refused = len([ask for ask in history(server) if "/markets/" in ask.path])
    assert refused <= 3
    assert len(history(server)) - refused <= 1.25 * least + 2


@pytest.mark.fault("P20")
def test_the_tokens_of_a_wide_market_are_left_to_be_resumed(server, transport) -> None:
    """If a token of a wide market fails, the rows that arrived and those of the resume are all."""
    oracle, answer = wide(500, lambda k: 250)
    server.answer = lambda ask: refuse(403) if "idt100" in ask.path else answer(ask)
    came, fetched = [], fetch(transport, oracle.request(500))
    with pytest.raises(PlanError) as caught:
        came += fetched
    server.answer = answer
    came += fetch(transport, *caught.value.resume.windows)
    assert sorted(rows(came)) == expected(oracle.points)


@pytest.mark.fault("N14")
@pytest.mark.parametrize("usage", [None, {"limits": {"requests_per_minute": 10**9, "requests_remaining": 10**9}}])
def test_refusals_teach_the_rate_of_a_plan_that_is_absent_or_lies(server, transport, turns, usage) -> None:
    """Every row arrives."""
    oracle = Oracle.of_prices(3000)
    times: list[float] = []

    def answer(ask: Ask) -> Act:
        if ask.path == "/v1/usage":
            return refuse(404) if usage is None else ok(usage)
        times[:] = [t for t in times if t > turns.now - 60]
        if len(times) >= 12:
            return refuse(429, "Rate limit exceeded.", Retry_After=str(int(60 - (turns.now - times[0])) + 1))
        times.append(turns.now)
        return oracle(ask)

    server.answer = answer
    assert sorted(rows(fetch(transport, oracle.request(3000)))) == expected(oracle.points)
    assert transport.retries <= 40
