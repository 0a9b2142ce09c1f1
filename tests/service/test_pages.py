"""Any walk over any data against plain loops, with chunks so small that every edge is met."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from typing import Any

import numpy as np
import polars as pl
import pytest
import requests
from coded import coded_series
from hypothesis import given, settings
from hypothesis import strategies as st
from service.memory import MINUTE, MemoryArchive
from service.web import START, Web, stop_minute
from starlette.exceptions import HTTPException
from still import SOON

from marketdata.archive.coverage.intervals import union
from marketdata.points.columns import Series, Token
from marketdata.points.views import empty
from marketdata.resolution import Resolution
from marketdata.service import cache
from marketdata.service.auth import Entry, Keys, digest
from marketdata.service.cache import Cache, CachedChunk, Subject, chunk_ranges
from marketdata.service.coverage import covered_intervals
from marketdata.service.dependencies import Parts
from marketdata.service.pagination import Cursors, KeptPage, Pages, labels_of
from marketdata.service.plans import AccessPlan
from marketdata.service.server import build, start
from marketdata.times import Range, to_datetime

SPAN = 3 * 1440
TIME = pl.Datetime("us", "UTC")
COVERAGE = {"view": pl.String, "market_id": pl.String, "start": TIME, "end": TIME, "state": pl.String, "rows": pl.Int64}


@st.composite
def worlds(draw: st.DrawFn) -> tuple[MemoryArchive, int]:
    """A market of one to four tokens with clusters of points over three days."""
    archive = MemoryArchive()
    count = draw(st.integers(1, 4))
    archive.add_market("m", {f"L{i}": str(i) for i in range(count)})
    clusters = draw(st.lists(st.tuples(st.integers(0, SPAN - 1), st.integers(1, 40), st.integers(1, 7)), max_size=5))
    for begin, length, step in clusters:
        for minute in range(begin, min(begin + length * step, SPAN), step):
            for token in range(count):
                if draw(st.integers(0, 9)) or count == 1:
                    price = draw(st.sampled_from([None, 0.25, 0.5]))
                    archive.put("prices", "m", str(token), START + minute * MINUTE, price)
    return archive, count


def walk(pages: Pages, subject: Subject, rng: Range, limit: int) -> dict[tuple[str | None, int], float]:
    """All points of a walk; fails on one that comes twice, and on a page that is too long or ends nothing."""
    out: dict[tuple[str | None, int], float] = {}
    position, turns = None, 0
    while True:
        page = pages.page(subject, rng, limit, position)
        assert page.count <= limit
        assert page.count == sum(len(columns) for columns in page.parts)
        for columns in page.parts:
            assert isinstance(columns, Series)
            for i in range(len(columns)):
                key = columns.tokens[columns.token[i]].token_id, int(columns.ts[i])
                assert key not in out
                out[key] = float(columns.price[i])
        if page.position is None:
            return out
        assert position is None or page.position > position
        position = page.position
        turns += 1
        assert turns < 10_000


@settings(max_examples=150, deadline=None)
@given(
    worlds(),
    st.sampled_from(list(Resolution)),
    st.tuples(st.integers(-90, SPAN * 60), st.integers(1, SPAN * 60)),
    st.integers(0, 9),
    st.integers(1, 30),
    st.booleans(),
)
def test_every_walk_is_the_loop(
    world: tuple[MemoryArchive, int],
    resolution: Resolution,
    cut: tuple[int, int],
    extra: int,
    small: int,
    one_token: bool,
) -> None:
    """Pages of any size over any range and any chunk length are what plain loops over the base points give."""
    archive, count = world
    rng = Range(START + cut[0] * 1_000_000, START + (cut[0] + cut[1]) * 1_000_000)
    token = "0" if one_token else None
    subject = Subject("prices", "m", token, resolution, 1 if one_token else count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cache.POINTS, "prices", small)
        patch.setitem(cache.BASE_POINTS, "prices", small * 100)
        got = walk(Pages(archive), subject, rng, subject.tokens + extra)
    width = resolution.micros
    expected: dict[tuple[str | None, int], list[float]] = defaultdict(list)
    for (owner, ts), price in archive.points["prices", "m"].items():
        if rng.start <= ts < rng.end and token in {None, owner}:
            expected[owner, ts // width * width].append(np.nan if price is None else price)
    assert set(got) == set(expected)
    for key, prices in expected.items():
        np.testing.assert_allclose(got[key], np.nanmean(prices) if not np.isnan(prices).all() else np.nan, rtol=1e-12)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 40)), max_size=6), st.integers(0, 340), st.integers(1, 90)
)
def test_chunks_cover_what_is_covered(spans: list[tuple[int, int]], begin: int, length: int) -> None:
    """The cells that are read hold every held minute of the range, rise, and each touches something held."""
    held = union(Range(a * MINUTE, (a + n) * MINUTE) for a, n in spans)
    subject = Subject("prices", "m", None, Resolution.M1, 1)
    rng = Range(begin * MINUTE, (begin + length) * MINUTE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(cache.POINTS, "prices", 7)
        cells = list(chunk_ranges(held, subject, rng, rng.start))
    assert cells == sorted(set(cells))
    assert all(a.end <= b.start for a, b in itertools.pairwise(cells))
    minutes = {m for a, n in spans for m in range(a, a + n) if begin <= m < begin + length}
    inside = {m for c in cells for m in range(c.start // MINUTE, c.end // MINUTE)}
    assert minutes <= inside
    assert all(minutes & set(range(c.start // MINUTE, c.end // MINUTE)) for c in cells)


def test_a_range_that_was_cut_or_has_unknown_rows_is_looked_at() -> None:
    """Coverage of unknown size counts as held; what is missing or was empty does not, unless it has rows."""
    rows = [
        ("prices", "m", to_datetime(0), to_datetime(MINUTE), "final", None),
        ("prices", "m", to_datetime(2 * MINUTE), to_datetime(3 * MINUTE), "missing", 0),
        ("prices", "m", to_datetime(4 * MINUTE), to_datetime(5 * MINUTE), "provisional", 0),
        ("books", "m", to_datetime(6 * MINUTE), to_datetime(7 * MINUTE), "final", 3),
        ("prices", "m", to_datetime(8 * MINUTE), to_datetime(9 * MINUTE), "provisional", 1),
        ("prices", "m", to_datetime(10 * MINUTE), to_datetime(11 * MINUTE), "provisional", 1),
    ]
    frame = pl.DataFrame(rows, schema=COVERAGE, orient="row")
    found = covered_intervals(frame, "prices")["m"]
    assert [(r.start // MINUTE, r.end // MINUTE) for r in found] == [(0, 1), (8, 9), (10, 11)]
    assert covered_intervals(frame.clear(), "prices") == {}


def test_coverage_is_read_again_after_a_commit() -> None:
    """What a commit added is seen at once."""
    archive = MemoryArchive()
    archive.put("prices", "m", "1", 0, 0.5)
    parts = Parts(archive, bytes(16))
    assert len(parts.covered("prices")["m"]) == 1
    archive.put("prices", "m", "1", 10 * MINUTE, 0.5)
    assert len(parts.covered("prices")["m"]) == 2


def one_chunk(size: int) -> CachedChunk:
    token, ts = np.zeros(size, np.int32), np.arange(size, dtype=np.int64)
    return CachedChunk(coded_series((Token("m"),), token, ts, {"price": np.zeros(size)}))


def test_the_cache_keeps_the_chunks_used_last() -> None:
    """Above its bytes the cache lets go of what was used longest ago, and reads that again when it is asked."""
    cache = Cache(3 * one_chunk(1000).nbytes)
    for key in ("a", "b", "c"):
        assert cache.get(key, lambda: one_chunk(1000))[1]
    assert not cache.get("a", lambda: one_chunk(1000))[1]
    assert cache.get("d", lambda: one_chunk(1000))[1]
    assert not cache.get("a", lambda: one_chunk(1000))[1]
    assert cache.get("b", lambda: one_chunk(1000))[1]
    assert cache.nbytes <= 3 * one_chunk(1000).nbytes


def test_a_chunk_that_fails_is_asked_again() -> None:
    """A read that fails is not kept."""
    cache = Cache(1_000_000)

    def fails() -> CachedChunk:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        cache.get("a", fails)
    assert cache.get("a", lambda: one_chunk(3))[1]


def test_chunks_are_longer_for_coarse_and_shorter_for_wide() -> None:
    """A chunk is a whole number of buckets, at least one, and bounded in points and base points."""
    for view in ("books", "prices", "metrics"):
        for tokens in (1, 2, 3, 200):
            lengths = [Subject(view, "m", None, r, tokens).chunk_micros for r in Resolution]
            assert all(length % r.micros == 0 for length, r in zip(lengths, Resolution, strict=True))
            assert lengths[0] <= lengths[1] <= lengths[-1]
            assert lengths[0] // MINUTE * tokens <= cache.POINTS[view]
    assert (
        Subject("books", "m", None, Resolution.M1, 200).chunk_micros
        < Subject("books", "m", None, Resolution.M1, 2).chunk_micros
    )


def test_a_bucket_that_no_page_can_hold_names_its_size() -> None:
    """Rows of more tokens than the record names do not make a walk stand still."""
    archive = MemoryArchive()
    for token in "abc":
        archive.put("prices", "m", token, START, 0.5)
    with pytest.raises(HTTPException, match="Minimum required: 3"):
        Pages(archive).page(Subject("prices", "m", None, Resolution.M1, 1), Range(START, START + MINUTE), 2)


def test_labels_that_repeat_or_lack_are_told_apart() -> None:
    """Of two tokens with one label the later goes by its id, and so does one without a label."""
    tokens = [{"id": "1", "label": "Yes"}, {"id": "2", "label": "Yes"}, {"id": "3", "label": None}, {"id": "4"}]
    assert labels_of({"tokens": tokens}) == {"Yes": "1", "2": "2", "3": "3", "4": "4"}
    assert labels_of({"tokens": []}) == {}
    assert labels_of({}) == {}


def test_an_empty_chunk_has_no_bucket() -> None:
    """A chunk without points has no buckets and one edge."""
    for view in ("books", "prices", "metrics"):
        chunk = CachedChunk(empty(view))
        assert len(chunk.buckets) == 0
        assert chunk.edges.tolist() == [0]
        assert chunk.nbytes > 0


@given(st.integers(0, 300), st.integers(0, 5))
def test_a_cache_counts_what_it_has(rows: int, further: int) -> None:
    """The size of a chunk is at least that of its arrays, also of further columns of prices and of metrics."""
    token, ts = np.zeros(rows, np.int32), np.arange(rows, dtype=np.int64) * MINUTE
    extra = {f"x{k}": np.zeros(rows) for k in range(further)}
    prices = coded_series((Token("m", "1", "Yes"),), token, ts, {"price": np.zeros(rows), **extra})
    metrics = coded_series((Token("m"),), token, ts, {"volume": np.zeros(rows), **extra})
    for columns in (prices, metrics):
        chunk = CachedChunk(columns)
        held = [token, ts, chunk.order, chunk.buckets, chunk.edges, *columns.values.values()]
        assert chunk.nbytes >= sum(array.nbytes for array in held)


class Unkept(Pages):
    """Pages that are made for each request."""

    def is_current(self, kept: KeptPage, now: float) -> bool:
        return False


steps = st.tuples(
    st.sampled_from(["books", "prices", "metrics"]),
    st.sampled_from(["m", "slug"]),
    st.sampled_from(["1m", "10m"]),
    st.sampled_from([2, 3, 200]),
    st.sampled_from(["gzip", "identity"]),
    st.sampled_from(["all", "prices"]),
    st.sampled_from(["", "point", "record", "hour", "day"]),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, min_size=2, max_size=12))
def test_a_page_that_is_kept_is_the_one_that_would_be_made(asked: list[tuple[str, ...]]) -> None:
    """While points, records and time change, each page of a walk is that of a service which keeps none."""
    archive, now = MemoryArchive(), [START / 1e6]
    archive.add_market("m", {"Yes": "1", "No": "2"}, slug="slug")
    for minute in range(12):
        archive.put("prices", "m", "1", START + minute * MINUTE, 0.5)
        archive.put("books", "m", "2", START + minute * MINUTE, ([(0.4, 1.0)], []))
        archive.put("metrics", "m", None, START + minute * MINUTE, {"volume": 1.0})
    plans = {"all": AccessPlan("all"), "prices": AccessPlan("prices", views=("prices",), max_history_days=1)}
    keys = Keys([Entry(name, digest(name.encode()), name) for name in plans], plans, clock=lambda: now[0])
    sides = [build(archive, keys, secret=b"0123456789abcdef", clock=lambda: now[0]) for _ in range(2)]
    sides[1].parts.pages = Unkept(archive)
    with start(sides[0]) as ours, start(sides[1]) as reference, requests.Session() as session:
        for view, market, resolution, limit, encoding, key, change in asked:
            cursor: str | None = ""
            while cursor is not None:
                params = {"start_ts": START // 10**6, "end_ts": START // 10**6 + 3600, "resolution": resolution}
                params |= {"limit": limit} | ({"cursor": cursor} if cursor else {})
                # Twice, as the first request keeps what the second one gets.
                found = [
                    session.get(
                        f"{service.base_url}/v1/markets/{market}/{view}",
                        params=params,
                        headers={"X-API-Key": key, "Accept-Encoding": encoding},
                        timeout=SOON,
                    )
                    for service in (ours, ours, reference)
                ]
                answers = [(a.status_code, without_cursor(a), a.headers.get("content-encoding")) for a in found]
                assert answers[0] == answers[1] == answers[2]
                cursor = found[-1].json().get("metadata", {}).get("next_cursor")
            if change == "point":
                archive.put("prices", "m", "1", START + len(archive.points["prices", "m"]) * MINUTE, 0.25)
            elif change == "record":
                archive._records["markets"][0]["tokens"].reverse()
                archive._version += 1
            elif change:
                now[0] += {"hour": 3_600, "day": 90_000}[change]


def test_the_page_behind_is_made_while_its_client_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second page of a pagination on, where nobody waits; for the plan it is no request."""
    archive = MemoryArchive()
    archive.add_market("m", {"Yes": "1"})
    for minute in range(60):
        archive.put("prices", "m", "1", START + minute * MINUTE, 0.5)
    access = build(archive, Keys([Entry("k", digest(b"k"), "p")], {"p": AccessPlan("p", 20)}))
    with start(access, api_key="k") as service, requests.Session() as session:
        stop_minute(service, monkeypatch)
        web = Web(service.base_url, "k", session)

        def follow(cursor: str | None) -> str:
            answer = web.history("prices", "m", limit=5, cursor=cursor)
            assert answer.status == 200
            return str(answer.body["metadata"]["next_cursor"])

        def kept() -> int:
            while access._ahead:
                time.sleep(0.01)
            return sum(isinstance(page, KeptPage) for page, _ in access.parts.pages.cache._kept.values())

        cursor = follow(None)
        assert kept() == 1
        cursor = follow(cursor)
        assert kept() == 3
        # Somebody waits.
        access.queue.in_flight += 1
        cursor = follow(cursor)
        assert kept() == 3
        access.queue.in_flight -= 1
        assert web.get("/v1/usage").body["limits"]["requests_remaining"] == 16


def without_cursor(answer: requests.Response) -> Any:
    """A cursor holds the second in which it was given."""
    body = answer.json()
    if cursor := body.get("metadata", {}).get("next_cursor"):
        body["metadata"]["next_cursor"] = cursor.split(".")[1]
    return body


def test_a_kept_page_outlives_no_cursor() -> None:
    """A page is answered again for an hour at most, and not after the cursor by which it was asked."""
    cursors = Cursors(b"0123456789abcdef", lifetime=24 * 3600, clock=lambda: 100_000.0)
    assert cursors.until(None) == 103_600.0
    assert cursors.until(cursors.give(["x"], "1")) == 103_600.0
    assert cursors.until("14000.1.x") == 100_400.0
