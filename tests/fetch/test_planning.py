from __future__ import annotations

import itertools
import pickle
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
from faults import Act, Ask, FaultServer, ok, refuse
from hypothesis import given
from hypothesis import strategies as st
from oracle import MINUTE, START, Oracle, expected, minutes, rows

from marketdata.client.targets import Catalogue
from marketdata.errors import NotFoundError, ServerError
from marketdata.fetch.pacing import Pacer
from marketdata.fetch.plan import Plan, make_plan, pages_of
from marketdata.fetch.planning import crew, fetch_all, segment, split
from marketdata.fetch.position import Position, Report, Request
from marketdata.fetch.transport import Transport
from marketdata.resolution import Resolution
from marketdata.times import SECOND, Range, parse_iso


@given(
    start=st.integers(-(10**15), 10**16),
    length=st.integers(1, 10**13),
    resolution=st.sampled_from(list(Resolution)),
    tokens=st.integers(1, 250),
    pages=st.integers(1, 50),
)
def test_split_covers_exactly(start: int, length: int, resolution: Resolution, tokens: int, pages: int) -> None:
    """Parts touch, cover the range exactly, and are cut at bucket edges alone."""
    length = min(length, 300 * resolution.micros * max(1, 200 // tokens) * pages)
    rng = Range(start, start + length)
    parts = split(rng, resolution, tokens=tokens, pages=pages)
    assert (parts[0].start, parts[-1].end) == rng
    assert all(a.end == b.start for a, b in itertools.pairwise(parts))
    assert all(p.start < p.end for p in parts)
    assert all(p.end % resolution.micros == 0 for p in parts[:-1])


@pytest.mark.parametrize("share", [1.0, 0.93, 0.5])
@pytest.mark.parametrize("busy", [8, 16, 96])
def test_segments_cost_few_requests(share: float, busy: int) -> None:
    """Cutting costs at most 5 % more pages than are needed, and one a market, though many buckets are empty."""
    draw = random.Random(7)
    requests = [Request("books", "market", f"m{i}", minutes(10080 * (i + 1)), Resolution.M1) for i in range(3)]
    parts = segment(requests, 2, busy)
    filled = [sum(draw.random() < share for _ in range(p.buckets)) for p in parts]
    asked = sum(-(-n // 100) for n in filled)
    needed = -(-sum(filled) // 100)
    # Where answers take seconds, walks are what there is too few of, and a shorter segment is the smaller evil.
    assert asked <= (1.05 if busy < 50 else 1.10) * needed + len(requests)


def test_segments_keep_the_walks_busy() -> None:
    """A large range is cut into a few rounds of walks; a stream is cut into short parts."""
    year = [Request("books", "market", "m", minutes(525_600), Resolution.M1)]
    assert 24 <= len(segment(year, 2, 16)) <= 40
    short = segment(year, 2, 16, bounded=True)
    assert all(pages_of(p, 2) <= 21 for p in short)
    assert len(segment([Request("prices", "token", "1", minutes(60), Resolution.M1)], 1, 16)) == 1


def test_crew() -> None:
    """Walks side by side follow from rate and latency, between 8 and 96."""
    assert crew(Pacer(), None) == 8
    assert crew(Pacer(120), 0.05) == 8
    assert 8 < crew(Pacer(2000), 0.25) < 20
    assert 67 < crew(Pacer(2000), 2.0) <= 96


@pytest.fixture
def oracle(server: FaultServer) -> Oracle:
    """A market of 3000 minutes, served."""
    out = Oracle.of_prices(3000)
    server.answer = out
    return out


def parts_of(oracle: Oracle) -> list[Request]:
    """Its range in ten parts."""
    return [Request("prices", "market", "slug", r, Resolution.M1) for r in split(minutes(3000), Resolution.M1, pages=3)]


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize("buffer", [None, 1, 4])
def test_in_request_order(transport: Transport, oracle: Oracle, workers: int, buffer: int | None) -> None:
    """Pages come in the order of the requests, all rows once, however many walks and whatever the buffer."""
    report = Report()
    got = list(fetch_all(transport, parts_of(oracle), workers=workers, buffer=buffer, report=report))
    starts = [request.rng.start for request, _ in got]
    assert starts == sorted(starts)
    flat = rows(page for _, page in got)
    assert sorted(flat) == expected(oracle.points)
    assert (report.requests, report.pages, report.points) == (30, 30, 6000)


@pytest.mark.parametrize("buffer", [None, 100])
def test_the_longest_goes_first(server: FaultServer, transport: Transport, oracle: Oracle, buffer: int | None) -> None:
    """No long walk is left alone at the end, unless pages are handed on as they come; the result is in order anyway."""
    lengths = [300, 100, 2000, 600]
    edges = [0, *itertools.accumulate(lengths)]
    parts = [
        Request("prices", "market", "slug", minutes(n, first), Resolution.M1)
        for n, first in zip(lengths, edges, strict=False)
    ]
    got = [request.buckets for request, _ in fetch_all(transport, parts, workers=1, buffer=buffer)]
    asked = [parse_iso(ask.params["start_ts"]) for ask in server.asks if ask.path.endswith("/prices")]
    begun = list(dict.fromkeys((t - START) // MINUTE for t in asked))
    assert begun == ([400, 2400, 0, 300] if buffer is None else edges[:4])
    assert list(dict.fromkeys(got)) == lengths


def test_the_first_fetch_knows_the_rate_before_it_cuts(server: FaultServer, transport: Transport) -> None:
    """A far service is asked by as many walks as its rate needs, from the first fetch on."""
    limits = {"limits": {"requests_per_minute": 2000}}
    server.answer = lambda ask: ok(limits) if ask.path == "/v1/usage" else refuse(404)
    transport._measured = 2.0
    small = Request("prices", "market", "slug", minutes(300), Resolution.M1)
    assert Catalogue(transport).requests([small]) == [small]
    assert [ask.path for ask in server.asks] == ["/v1/markets/slug"]
    large = Request("prices", "market", "slug", minutes(500_000), Resolution.M1)
    assert len(Catalogue(transport).requests([large])) > 2000 / 60 * 2.0
    assert server.asks[-1].path == "/v1/usage"


def test_buffer_is_a_bound(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """Who takes pages slowly does not make others pile up."""
    fetch = fetch_all(transport, parts_of(oracle), workers=8, buffer=3)
    most = 0
    for _ in fetch:
        most = max(most, fetch._buffered)
    # the walk at the head may always add its page
    assert most <= 3 + 3


def test_failure_keeps_what_arrived(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """When one part fails, what arrived is handed out, and the resume fetches the rest and nothing twice."""
    bad = f"c{START + 1400 * MINUTE}"
    server.answer = lambda ask: refuse(404) if ask.params.get("cursor") == bad else oracle(ask)
    got: list[Any] = []
    with pytest.raises(NotFoundError) as caught:
        got.extend(fetch_all(transport, parts_of(oracle), workers=4))
    resume = pickle.loads(pickle.dumps(caught.value.resume))
    before = len(server.asks)
    server.answer = oracle
    more = list(fetch_all(transport, resume.positions, workers=4))
    assert sorted(rows(p for _, p in [*got, *more])) == expected(oracle.points)
    assert len(more) <= 30 - len(got) + len(resume.positions)
    assert before + len(server.asks[before:]) <= 30 + 6


def test_failure_of_a_stream_leaves_no_gap(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """With a buffer, nothing behind the failed part is handed out, and the resume begins at the gap."""
    bad = f"c{START + 1400 * MINUTE}"
    server.answer = lambda ask: refuse(404) if ask.params.get("cursor") == bad else oracle(ask)
    got: list[Any] = []
    with pytest.raises(NotFoundError) as caught:
        got.extend(fetch_all(transport, parts_of(oracle), workers=8, buffer=100))
    times = sorted({t for _, t, _ in rows(p for _, p in got)})
    assert times == [START + i * MINUTE for i in range(len(times))]
    server.answer = oracle
    more = list(fetch_all(transport, caught.value.resume.positions, workers=4, buffer=100))
    assert sorted(rows(p for _, p in [*got, *more])) == expected(oracle.points)


def test_threads_end(transport: Transport, oracle: Oracle) -> None:
    """Who stops taking pages stops the threads too."""
    fetch = iter(fetch_all(transport, parts_of(oracle), workers=6, buffer=2))
    next(fetch)
    fetch.close()  # type: ignore[attr-defined]
    for thread in threading.enumerate():
        if thread.name == "marketdata-fetch":
            thread.join(5.0)
            assert not thread.is_alive()


def test_outage(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A service that fails altogether ends the fetch with its error, few retries, and a resume for everything."""
    server.answer = lambda ask: refuse(500, "Failed to fetch data.")
    with pytest.raises(ServerError) as caught:
        list(fetch_all(transport, parts_of(oracle), workers=8))
    assert len(caught.value.resume.positions) == 10
    assert len(server.asks) <= 1 + 5 + 8 * 5


def test_usage_is_asked_before_a_large_fetch(server: FaultServer, transport: Transport, oracle: Oracle) -> None:
    """A fetch of many pages asks first what the key may spend."""

    def answer(ask: Ask) -> Act:
        return ok({"limits": {"requests_per_minute": 600}}) if ask.path == "/v1/usage" else oracle(ask)

    server.answer = answer
    list(fetch_all(transport, parts_of(oracle)))
    assert server.asks[0].path == "/v1/usage"
    assert transport.pacer.requests_per_minute == 600


def test_progress(transport: Transport, oracle: Oracle) -> None:
    """Progress counts pages and complete requests, in the calling thread."""
    seen: list[tuple[int, int]] = []
    list(fetch_all(transport, parts_of(oracle), progress=lambda pages, done: seen.append((pages, done))))
    assert [pages for pages, _ in seen] == list(range(1, 31))
    assert seen[-1][1] >= 9


def test_a_bug_is_not_a_hang(transport: Transport, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised in a walk is raised where the pages are taken."""

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("marketdata.fetch.paging.decode_page", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        list(fetch_all(transport, parts_of(oracle)))


def test_nothing_to_fetch(server: FaultServer, transport: Transport) -> None:
    """No requests, no pages, nothing asked."""
    assert list(fetch_all(transport, [])) == []
    assert server.asks == []


def test_positions_go_on(transport: Transport, oracle: Oracle) -> None:
    """A position is taken in place of a request, and is not changed by it."""
    position = Position.start(oracle.request(3000))
    assert sorted(rows(p for _, p in fetch_all(transport, [position]))) == expected(oracle.points)
    assert position.pages == 0


WEEK = Request("books", "market", "a<b", minutes(10_080), Resolution.M1)
USAGE = {"limits": {"requests_per_minute": 2000, "granularity_allowed": "1m", "max_history_days": "30"}}


def test_plan_counts() -> None:
    """A plan says requests, points, minutes and memory before anything is fetched."""
    plan = make_plan([WEEK], 2, USAGE, START)
    assert (plan.requests, plan.points, plan.refused) == (101, 20_160, ())
    assert plan.minutes == pytest.approx(101 / 2000)
    assert "101 requests, 20,160 points, 0.1 minutes at 2000 requests a minute, about 34 MB" in repr(plan)
    assert make_plan([WEEK], {"a<b": 200}, None, START).requests == 10_080
    assert make_plan([WEEK], 2, None, START).minutes is None


@pytest.mark.parametrize(
    ("allowed", "days", "words"),
    [
        ("1h", "unlimited", ["the plan allows 1h, 6h, 1d"]),
        ("10m, 1d", None, ["the plan allows 10m, 1d"]),
        ("all", "2", ["[2026-01-01T00:00:00Z, 2026-01-04T00:00:00Z): the plan reaches back 2 days"]),
        ("6h", "1", ["the plan allows 6h, 1d", "reaches back 1 days"]),
        (None, "", []),
        (["1h"], 99999, []),
    ],
)
def test_plan_names_what_is_refused(allowed: Any, days: Any, words: list[str]) -> None:
    """Parts beyond the plan's resolution or history are named with their range."""
    now = START + 5 * 86_400 * SECOND
    limits = {"granularity_allowed": allowed, "max_history_days": days}
    plan = make_plan([WEEK], 2, {"limits": limits}, now)
    assert len(plan.refused) == len(words)
    assert all(word in part for word, part in zip(words, plan.refused, strict=True))


def test_plan_escapes_html() -> None:
    """Ids are text in a notebook, never markup."""
    plan = Plan(1, 1, None, 5, ("books of market a<b>&",))
    assert "a&lt;b&gt;&amp;" in plan._repr_html_()
    assert "<b>" not in plan._repr_html_()


def test_same_result_for_any_cut(server: FaultServer, connect: Callable[..., Transport]) -> None:
    """Where the range is cut changes no row."""
    oracle = Oracle.of_prices(700)
    server.answer = oracle
    transport = connect()
    for pages in (1, 2, 5):
        cuts = split(minutes(700), Resolution.M1, pages=pages)
        requests = [Request("prices", "market", "slug", r, Resolution.M1) for r in cuts]
        assert sorted(rows(p for _, p in fetch_all(transport, requests))) == expected(oracle.points)
