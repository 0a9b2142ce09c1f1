from __future__ import annotations

import functools
import itertools
import json
import pickle
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fetch import markets
from fetch.markets import PLANS, wide
from fetch.turns import Near, Paced, Turns, fetch
from reference.faults import HANG_UP, Act, Ask, ok, refuse
from reference.oracle import DATE, MINUTE, START, Oracle, expected, minutes, rows

from marketdata.errors import ContractError, NetworkError, NotFoundError, PlanError, ServerError
from marketdata.fetch.checkpoint import Report
from marketdata.fetch.http.rate_limit import Pacer
from marketdata.fetch.threads import worker_count
from marketdata.fetch.windows import Window
from marketdata.resolution import BucketWidth
from marketdata.times import Range, parse_iso, to_text

# -- cutting


def test_worker_count() -> None:
    """Requests side by side follow from rate and latency; until the rate is known there are few."""
    assert worker_count(Pacer(), None) == 8
    assert worker_count(Pacer(120), 0.05) == 16
    assert 16 <= worker_count(Pacer(2000), 0.25) < 20
    assert 67 < worker_count(Pacer(2000), 2.0) <= 96


# -- asking

# Who comes first, a service whose ``answer`` the test sets, and a market of 3000 minutes that it serves.
turns, server, oracle = markets.turns, markets.server, markets.oracle


@pytest.fixture
def transport(server: Near) -> Paced:
    """One whose requests take as long as a seed says."""
    return Paced(server)


def history(server: Near) -> list[Ask]:
    return [ask for ask in server.asks if ask.path.endswith("/prices")]


def test_the_first_window_tells_how_the_rest_goes_at_once(server: Near, transport: Paced) -> None:
    """The first page of a day is requested alone, then all others concurrently in chunks of two pages."""
    oracle = Oracle.of_prices(1440)

    def answer(ask: Ask) -> Act:
        return ok({"limits": {"requests_per_minute": 6000}}) if ask.path == "/v1/usage" else oracle(ask)

    server.answer = answer
    assert sorted(rows(fetch(transport, oracle.request(1440)))) == expected(oracle.points)
    assert len(server.asks) == 15 + 1
    assert server.most_at_once >= 7  # usage may be beside them


def test_a_point_each_half_hour_takes_one_request(server: Near, transport: Paced) -> None:
    """A day that fits a page is requested as a page."""
    oracle = Oracle.of_prices(1440)
    oracle.points = {k: v for k, v in oracle.points.items() if (k[1] - START) // MINUTE % 30 == 0}
    server.answer = oracle
    assert sorted(rows(fetch(transport, oracle.request(1440)))) == expected(oracle.points)
    assert len(history(server)) == 1
    assert len(server.asks) <= 2


@pytest.mark.parametrize(
    ("before", "behind", "pages"),
    [(10**6, 300_000, 20), (10**6, 2000, 20), (-1000, 300_000, 10), (-3000, 300_000, 0), (10**6, -100, 0)],
    ids=["whole range", "begins within", "ends within", "ended before", "begins later"],
)
def test_the_active_range_of_a_market_bounds_a_long_range(
    server: Near, transport: Paced, before: int, behind: int, pages: int
) -> None:
    """One request a side covers the range outside of the active range of a market, and points there arrive."""
    oracle = Oracle.of_prices(2000)
    start, end = START - before * MINUTE, START + behind * MINUTE
    for t in (START - 900_000 * MINUTE, START + 200_000 * MINUTE):
        oracle.points["Yes", t] = 0.5
    record = {"id": "m1", "tokens": [{"id": "1"}, {"id": "2"}], "start_date": to_text(START)}
    record["end_date"] = to_text(START + 2000 * MINUTE)
    server.answer = lambda ask: ok(record) if ask.path == "/v1/markets/slug" else oracle(ask)
    there = {key: value for key, value in oracle.points.items() if start <= key[1] < end}
    range_ = Window("prices", "market", "slug", Range(start, end), BucketWidth.of("1m"))
    assert sorted(rows(fetch(transport, range_))) == expected(there)
    assert len(history(server)) <= pages + 4


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize(
    "bursts",
    [[(400_000, 2000)], [(100_000, 1500), (450_000, 1500)], [(k * 50_000, 120) for k in range(1, 11)]],
    ids=["one", "two", "ten small"],
)
def test_bursts_in_a_long_silence(server: Near, transport: Paced, bursts: list[tuple[int, int]], workers: int) -> None:
    """In a year without other points a burst costs its pages, and four cuts into eight behind six pages each."""
    oracle = Oracle({("Yes", START + t * MINUTE): t / 1e6 for a, n in bursts for t in range(a, a + n)})
    server.answer = oracle
    assert sorted(rows(fetch(transport, oracle.request(525_600), workers=workers))) == expected(oracle.points)
    assert len(history(server)) <= sum(-(-n // 200) + 4 * (8 + 6) for _, n in bursts)


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("buffer", [None, 1, 4])
def test_in_order(transport: Paced, oracle: Oracle, workers: int, buffer: int | None) -> None:
    """Windows come in the order of time, all rows once, however many requests are side by side."""
    report = Report()
    got = list(fetch(transport, oracle.request(3000), workers=workers, buffer=buffer, in_order=True, report=report))
    assert all(a.window.rng.end == b.window.rng.start for a, b in itertools.pairwise(got))
    assert sorted(rows(got)) == expected(oracle.points)
    assert report.pages <= 1.05 * 30 + 2
    assert report.points == 6000 + report.repairs["duplicate_points"]


@pytest.mark.fault("N35")
def test_a_buffer_is_a_bound(turns: Turns, transport: Paced, oracle: Oracle) -> None:
    """Who takes windows slowly does not make others pile up, however long the history."""
    fetching = fetch(transport, oracle.request(3000), workers=8, buffer=5, in_order=True)
    most = 0
    for _ in fetching:
        turns.sleep(0.005)
        most = max(most, fetching._pending)
    assert most <= 5


def test_a_failure_keeps_what_arrived(server: Near, transport: Paced, oracle: Oracle) -> None:
    """When one window fails, what arrived is handed out, and the resume fetches the rest and nothing twice."""
    bad = to_text(START + 1400 * MINUTE)
    server.answer = lambda ask: refuse(403) if ask.params.get("start_ts", "") >= bad else oracle(ask)
    got: list[Any] = []
    with pytest.raises(Exception, match="403") as caught:
        got.extend(fetch(transport, oracle.request(3000), workers=4))
    resume = pickle.loads(pickle.dumps(caught.value.resume))  # type: ignore[attr-defined]
    before = len(history(server))
    server.answer = oracle
    more = list(fetch(transport, *resume.windows, workers=4))
    assert sorted(rows([*got, *more])) == expected(oracle.points)
    assert len(history(server)) <= 30 + 4 + 2 * 3  # at most three windows of each fetch end within a page
    assert before >= len(got)


def test_a_failure_of_a_stream_leaves_no_gap(server: Near, transport: Paced, oracle: Oracle) -> None:
    """In order, nothing behind the failed window is handed out, and the resume begins at the gap."""
    bad = to_text(START + 1400 * MINUTE)
    server.answer = lambda ask: refuse(403) if ask.params.get("start_ts", "") >= bad else oracle(ask)
    got: list[Any] = []
    with pytest.raises(Exception, match="403") as caught:
        got.extend(fetch(transport, oracle.request(3000), workers=8, buffer=100, in_order=True))
    times = sorted({t for _, t, _ in rows(got)})
    assert times == [START + i * MINUTE for i in range(len(times))]
    server.answer = oracle
    (left,) = caught.value.resume.windows  # type: ignore[attr-defined]
    assert left.rng.start == START + len(times) * MINUTE
    assert sorted(rows([*got, *fetch(transport, left)])) == expected(oracle.points)


def test_unknown_markets_do_not_keep_others_from_coming(server: Near, transport: Paced) -> None:
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
@pytest.mark.parametrize("status", [500, 503, None], ids=["500", "503", "closed"])
@pytest.mark.parametrize(
    ("count", "markets", "at_once"), [(60, 1, 1), (300, 1, 3), (1440, 1, 2), (30_000, 1, 3), (300, 24, 9)]
)
def test_an_outage_ends(
    server: Near,
    transport: Paced,
    turns: Turns,
    status: int | None,
    count: int,
    markets: int,
    at_once: int,
) -> None:
    """Of a service that fails altogether all learn by the five attempts of one request, however much is asked."""
    server.answer = lambda ask: HANG_UP if status is None else refuse(status, "Failed to fetch data.")
    whole = Oracle.of_prices(1).request(count)
    with pytest.raises((ServerError, NetworkError)) as caught:
        list(fetch(transport, *(replace(whole, id=f"m{k}") for k in range(markets))))
    assert sum(w.buckets for w in caught.value.resume.windows) == count * markets
    # Two may have been tried again before the third failure said that it is no chance.
    assert 5 <= len(server.asks) <= (at_once + 6 if at_once > 1 else 5)
    assert turns.now < 0.5 + 1 + 2 + 4 + 2


@pytest.mark.fault("N17")
def test_a_burst_of_failures_is_survived(server: Near, transport: Paced) -> None:
    """Where all that is on its way fails, one request finds out that the service is back, and every row arrives."""
    oracle = Oracle.of_prices(1500)  # so few that no market is looked up
    asked = itertools.count()

    def answer(ask: Ask) -> Act:
        return refuse(503) if next(asked) in range(5, 15) else oracle(ask)

    server.answer = answer
    windows = [replace(oracle.request(1500), id=f"slug{k}") for k in range(8)]
    assert sorted(rows(fetch(transport, *windows, workers=8))) == sorted(expected(oracle.points) * 8)


def test_usage_is_asked_once_for_a_large_fetch(server: Near, transport: Paced, oracle: Oracle) -> None:
    """A fetch of many pages asks what the key may spend, beside its first window."""

    def answer(ask: Ask) -> Act:
        return ok({"limits": {"requests_per_minute": 600}}) if ask.path == "/v1/usage" else oracle(ask)

    server.answer = answer
    list(fetch(transport, oracle.request(3000)))
    assert [ask.path for ask in server.asks].count("/v1/usage") == 1
    assert transport.pacer.requests_per_minute == 600


def test_a_bug_is_not_a_hang(transport: Paced, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised in a thread is raised where the windows are taken."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("marketdata.fetch.reader.decode_page", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        list(fetch(transport, oracle.request(3000)))


def test_a_fetch_that_cannot_go_on_is_no_hang(
    transport: Paced, oracle: Oracle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is on its way, and nothing of what is left can be requested, an error says whose it is."""
    monkeypatch.setattr("marketdata.fetch.scheduler.Scheduler._next_request", lambda scheduler: None)
    with pytest.raises(RuntimeError, match="an error in marketdata"):
        list(fetch(transport, oracle.request(3000)))


def test_nothing_to_fetch(server: Near, transport: Paced) -> None:
    """No windows, nothing asked."""
    assert list(fetch(transport)) == []
    assert server.asks == []


@pytest.mark.fault("N34")
@pytest.mark.parametrize("in_order", [True, False])
def test_a_closed_generator_sends_nothing_more(
    server: Near, transport: Paced, oracle: Oracle, turns: Turns, *, in_order: bool
) -> None:
    """After those on their way there are no requests, and no thread stays."""
    windows = iter(fetch(transport, oracle.request(3000), workers=6, in_order=in_order))
    next(windows)
    before = len(server.asks)
    windows.close()  # type: ignore[attr-defined]
    turns.end()
    assert len(server.asks) <= before + 6


@pytest.mark.fault("N34")
def test_an_error_stops_the_others(server: Near, transport: Paced, oracle: Oracle, turns: Turns) -> None:
    """A refusal in one window ends all: what is on its way comes, nothing more is sent."""
    server.answer = lambda ask: oracle(ask) if "T00:00" in ask.params.get("start_ts", "T00:00") else refuse(403)
    with pytest.raises(Exception, match="403"):
        list(fetch(transport, oracle.request(3000), workers=4))
    before = len(server.asks)
    turns.end()
    assert len(server.asks) <= before + 4


# -- services that fill pages in ways of their own


def served(
    server: Near, oracle: Oracle, page: Callable[[Oracle, Ask], Act], tokens: int | None = None
) -> Callable[[Ask], Act]:
    """A service that answers history with ``page``, and tells of the market what it has."""
    record = {"id": "m1", "slug": "slug", "tokens": [{"id": i, "label": x} for x, i in oracle.labels.items()]}

    def answer(ask: Ask) -> Act:
        if ask.path in ("/v1/markets/slug", "/v1/markets/m1"):
            return ok(record)
        return page(oracle, ask) if ask.path.endswith(("/prices", "/books")) else refuse(404, "Not Found")

    server.answer = answer
    return answer


def keys_of(oracle: Oracle, ask: Ask) -> list[tuple[str, int]]:
    """What lies in the range that is asked, by time."""
    start, end = parse_iso(ask.params["start_ts"]), parse_iso(ask.params["end_ts"])
    return sorted((k for k in oracle.points if start <= k[1] < end), key=lambda k: (k[1], k[0]))


def paged(oracle: Oracle, keys: list[tuple[str, int]], ask: Ask, size: int, told: int | None = None) -> Act:
    """Pages of so many points in this order."""
    at = int(ask.params.get("cursor", "0"))
    more = str(at + size) if at + size < len(keys) else None
    return ok(oracle.body(keys[at : at + size], told or size, more)).with_header("Date", DATE)


@pytest.mark.fault("P18")
@pytest.mark.parametrize("minutes_", [90, 1000])
def test_limit_clamped_to_50(server: Near, transport: Paced, minutes_: int) -> None:
    """A service that gives 50 points where 200 were asked is read to its end, at little more than its pages."""
    oracle = Oracle.of_prices(minutes_)
    served(server, oracle, lambda o, ask: paged(o, keys_of(o, ask), ask, min(50, int(ask.params["limit"]))))
    report = Report()
    assert sorted(rows(fetch(transport, oracle.request(minutes_), report=report))) == expected(oracle.points)
    assert report.warnings == {"limit_clamped": 1}
    assert len(history(server)) <= 1.12 * (2 * minutes_ / 50) + 2


def named(act: Act) -> Act:
    """A page that names only the tokens that it has points of."""
    body = json.loads(act.body)
    data = {label: points for label, points in body["data"].items() if points}
    return ok({**body, "data": data, "tokens": {label: body["tokens"][label] for label in data}})


def ordered(keys: list[tuple[str, int]], order: str, first: int = 0) -> list[tuple[str, int]]:
    """Points in another order than by time."""
    if order == "label after label":
        return sorted(keys, key=lambda key: (key[0] == "No") != bool(first))
    if order == "newest first":
        return keys[::-1]
    if order == "newest pages first":
        return [key for at in range(len(keys) - len(keys) % 200, -1, -200) for key in keys[at : at + 200]]
    if order == "any":
        random.Random(1).shuffle(keys)
    return keys


@pytest.mark.fault("P6")
@pytest.mark.parametrize("order", ["label after label", "newest first", "newest pages first", "any"])
@pytest.mark.parametrize("seed", range(2))
def test_pages_in_another_order(server: Near, transport: Paced, order: str, seed: int) -> None:
    """Whatever is the order of pages, and however sparse a token, no row of the first page's range is missing."""
    draw = random.Random(seed)
    share = {"Yes": 1.0, "No": draw.choice([0.02, 0.3, 0.9])}
    oracle = Oracle.of_prices(draw.randint(400, 1500))
    oracle.points = {key: value for key, value in oracle.points.items() if draw.random() < share[key[0]]}

    served(server, oracle, lambda o, ask: paged(o, ordered(keys_of(o, ask), order, first=seed % 2), ask, 200))
    got = fetch(transport, oracle.request(1500), in_order=bool(seed % 3), buffer=3)
    assert sorted(rows(got)) == expected(oracle.points)


@pytest.mark.fault("P6")
def test_pages_that_name_only_their_own_tokens_lose_none(server: Near, transport: Paced) -> None:
    """Where tokens come one after the other, each on pages of its own, no point of one that ends early is missing."""
    oracle = Oracle.of_prices(1500)
    oracle.points = {
        key: value for key, value in oracle.points.items() if key[0] == "Yes" or key[1] < START + 60 * MINUTE
    }

    def page(o: Oracle, ask: Ask) -> Act:
        return named(paged(o, ordered(keys_of(o, ask), "label after label"), ask, 200))

    served(server, oracle, page)
    assert sorted(rows(fetch(transport, oracle.request(1500)))) == expected(oracle.points)


@pytest.mark.fault("P6")
@pytest.mark.parametrize("order", ["time", "label after label", "newest first", "newest pages first", "any"])
@pytest.mark.parametrize(("in_order", "own"), [(True, False), (False, True)], ids=["all labels", "own labels"])
@pytest.mark.parametrize("pages", [1, 7])
def test_what_came_of_a_window_is_kept(
    server: Near, transport: Paced, order: str, pages: int, *, in_order: bool, own: bool
) -> None:
    """Of a service that ends after some pages those in order of time are kept; in no order a row is lost or twice."""
    oracle, draw = Oracle.of_prices(3000), random.Random(pages)
    oracle.points = {key: value for key, value in oracle.points.items() if draw.random() < 0.7}
    lives = itertools.count()

    def page(o: Oracle, ask: Ask) -> Act:
        if next(lives) >= pages:
            return refuse(403)
        act = paged(o, ordered(keys_of(o, ask), order), ask, 200)
        return named(act) if own else act

    served(server, oracle, page)
    came: list[Any] = []
    with pytest.raises(PlanError) as caught:
        came.extend(fetch(transport, oracle.request(3000), in_order=in_order, workers=3))
    if order == "time" and pages == 16:
        # The page before the one that failed is the last that is not kept, of each window on its way.
        assert len(rows(came)) > 0
    lives = itertools.count(-1000)
    assert caught.value.resume is not None
    came += fetch(transport, *caught.value.resume.windows, in_order=in_order)
    assert sorted(rows(came)) == expected(oracle.points)
    assert next(lives) + 1000 <= 80  # three for each of its pages, whatever their order


@pytest.mark.fault("N37")
@pytest.mark.parametrize(
    ("names", "days", "share"),
    [
        *(("abcd", 3, share) for share in (1.0, 0.9, 0.5, 0.2, 0.05, 0.01, "bursts", "growing")),
        *(("a", 3, share) for share in (1.0, 0.9, 0.8, 0.7, 0.5, 0.2, 0.05, 0.01)),
        *(("a", 3, share) for share in ("bursts", "growing", "nights", "thinner")),
        *(("a", 7, share) for share in (0.99, 0.9, 0.2, "bursts", "growing", "nights")),
        *(("a", 1, share) for share in (1.0, 0.9, 0.5, "bursts", "nights")),
    ],
)
def test_requests_over_pages(server: Near, transport: Paced, turns: Turns, names: str, days: int, share: Any) -> None:
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
    assert len(history(server)) <= (1.05 * pages if pages >= 20 else pages + len(oracles)) + 2


@pytest.mark.fault("N37")
@pytest.mark.parametrize("share", [1.0, 0.9, 0.3])
@pytest.mark.parametrize("names", ["a", "abcde"])
def test_requests_over_pages_of_a_range_beyond_the_active_range(
    server: Near, transport: Paced, turns: Turns, names: str, share: float
) -> None:
    """The same where a range begins before its markets and ends behind them: that silence takes no request."""
    draw, count = random.Random(3), round(3000 / len(names) / share)
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
def test_a_cursor_behind_every_full_page(server: Near, transport: Paced) -> None:
    """A service that gives one whatever follows is asked for no empty page where every bucket has all its points."""
    oracle = Oracle.of_prices(4320)

    def page(o: Oracle, ask: Ask) -> Act:
        keys, at = keys_of(o, ask), int(ask.params.get("cursor", "0"))
        more = str(at + 200) if at + 200 <= len(keys) else None
        return ok(o.body(keys[at : at + 200], 200, more)).with_header("Date", DATE)

    served(server, oracle, page)
    assert sorted(rows(fetch(transport, oracle.request(4320)))) == expected(oracle.points)
    assert len(history(server)) <= 1.05 * 44 + 2


@functools.cache
def independent(tokens: int, share: float | str, pages: int) -> tuple[Oracle, int, int]:
    """A market whose tokens have points each for itself, so many minutes of it, and the pages that it has."""
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
        *((tokens, share, 25) for tokens in (3, 30, 190) for share in (1.0, 0.9, 0.5, 0.2, 0.05, "growing")),
        *((tokens, share, 60) for tokens in (10, 100) for share in (0.5, 0.05, "bursts")),
        *((tokens, share, 4) for tokens in (10, 200) for share in (0.9, 0.2)),
    ],
)
def test_requests_over_pages_of_many_tokens(
    server: Near, transport: Paced, tokens: int, share: float | str, pages: int
) -> None:
    """Markets whose tokens trade independently need at most 1.1 requests per page, and two more."""
    oracle, count, needed = independent(tokens, share, pages)
    served(server, oracle, Oracle.__call__)
    assert len(rows(fetch(transport, oracle.request(count)))) == len(oracle.points)
    assert len(history(server)) <= (1.1 * needed if needed >= 20 else needed + 1) + 2


@pytest.mark.fault("P18")
def test_limit_ignored(server: Near, transport: Paced) -> None:
    """A service that gives everything it has, or its own number of points, whatever was asked, loses nothing."""
    oracle = Oracle.of_prices(700)
    served(server, oracle, lambda o, ask: ok(o.body(keys_of(o, ask), 10**6)))
    assert sorted(rows(fetch(transport, oracle.request(700)))) == expected(oracle.points)
    served(server, oracle, lambda o, ask: paged(o, keys_of(o, ask), ask, 100, told=200))
    assert sorted(rows(fetch(transport, oracle.request(700)))) == expected(oracle.points)


@pytest.mark.fault("P18")
def test_limit_of_times(server: Near, transport: Paced) -> None:
    """If limit and count mean distinct times, windows become as wide as such a page."""
    oracle = Oracle.of_prices(3000)

    def page(o: Oracle, ask: Ask) -> Act:
        keys = keys_of(o, ask)
        times = sorted({t for _, t in keys})
        at, size = int(ask.params.get("cursor", "0")), int(ask.params["limit"])
        inside = set(times[at : at + size])
        body = o.body([k for k in keys if k[1] in inside], size, str(at + size) if at + size < len(times) else None)
        body["metadata"]["count"] = len(inside)
        return ok(body)

    served(server, oracle, page)
    assert sorted(rows(fetch(transport, oracle.request(3000), strict=True))) == expected(oracle.points)
    assert len(history(server)) <= 1.12 * 15 + 2


@pytest.mark.fault("P2")
def test_a_cursor_that_never_ends(server: Near, transport: Paced) -> None:
    """Cursors without an end are left with a typed error, and what is left can be resumed."""
    oracle = Oracle.of_prices(300)
    names = itertools.count()

    def page(o: Oracle, ask: Ask) -> Act:
        return ok(o.body(keys_of(o, ask)[:200], 200, f"x{next(names)}"))

    served(server, oracle, page)
    got: list[Any] = []
    with pytest.raises(ContractError) as caught:
        got.extend(fetch(transport, oracle.request(300)))
    left = [window.rng for window in caught.value.resume.windows]
    assert left
    came = {key: value for key, value in oracle.points.items() if not any(r.start <= key[1] < r.end for r in left)}
    assert sorted(rows(got)) == expected(came)
    assert len(history(server)) < 300


@pytest.mark.fault("P3", "P15")
@pytest.mark.parametrize("ends", ["refused", "empty"])
def test_a_cursor_that_ends_too_early_costs_two_requests(
    server: Near, transport: Paced, oracle: Oracle, ends: str
) -> None:
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
@pytest.mark.parametrize(("tokens", "limit", "share", "count"), [(3, 4, 0.002, 1400), (100, 200, 0.01, 3000)])
def test_few_points_of_many_tokens(
    server: Near, transport: Paced, tokens: int, limit: int, share: float, count: int
) -> None:
    """A page holds few buckets with all tokens, and many of a market that trades now and then."""
    draw, oracle = random.Random(5), Oracle.of_prices(count, [f"t{i:03}" for i in range(tokens)])
    oracle.points = {key: value for key, value in oracle.points.items() if draw.random() < share}
    served(server, oracle, Oracle.__call__)
    assert sorted(rows(fetch(transport, oracle.request(count, limit)))) == expected(oracle.points)
    assert len(history(server)) <= 1.5 * len(oracle.points) / limit + 3


@pytest.mark.fault("P20")
@pytest.mark.parametrize(
    ("count", "step", "lived", "in_order"),
    [
        (120, lambda k: 10, minutes(120, 60), False),
        (210, lambda k: 1, None, True),
        (1440, lambda k: 30, minutes(200, 1000), False),
        (2000, lambda k: 100 * (k % 3), minutes(3000), False),
    ],
    ids=["short range", "two pages", "late half hours", "few"],
)
def test_a_market_of_210_tokens(
    server: Near, transport: Paced, count: int, step: Any, lived: Range | None, *, in_order: bool
) -> None:
    """A market too wide for a page is asked token by token, at a quarter more requests than the least at most."""
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
def test_the_tokens_of_a_wide_market_are_left_to_be_resumed(server: Near, transport: Paced) -> None:
    """If a token of a wide market fails, the rows that arrived and those of the resume are all."""
    oracle, answer = wide(500, lambda k: 7)
    server.answer = lambda ask: refuse(403) if "idt100" in ask.path else answer(ask)
    came, fetched = [], fetch(transport, oracle.request(500))
    with pytest.raises(PlanError) as caught:
        came += fetched
    server.answer = answer
    came += fetch(transport, *caught.value.resume.windows)
    assert sorted(rows(came)) == expected(oracle.points)


@pytest.mark.fault("N14")
@pytest.mark.parametrize("usage", [None, {}, {"limits": {"requests_per_minute": 10**9, "requests_remaining": 10**9}}])
def test_a_plan_that_is_absent_or_lies(server: Near, transport: Paced, turns: Turns, usage: Any) -> None:
    """Without usage, or with one that promises too much, refusals teach the rate and every row arrives."""
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
