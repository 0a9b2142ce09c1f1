from __future__ import annotations

import json
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.faults import Act, Ask, FaultServer, ok

import marketdata as md
from marketdata.clock import SYSTEM
from marketdata.errors import ConfigError, ContractError, PlanError, PlanWarning
from marketdata.resolution import BucketWidth
from marketdata.times import DAY, MINUTE, SECOND, Range, parse_iso, to_text

MISSING_EVERY = 11  # one bucket in so many has no point


@dataclass(frozen=True)
class Habits:
    """How a vendor answers where vendors differ."""

    resolutions: tuple[str, ...] = ("1m", "10m", "1h", "6h", "1d")
    finest: str = "1m"
    views: tuple[str, ...] = ("books", "prices", "metrics")
    history_days: int | None = None
    requests_per_minute: int = 60_000
    error: str = "detail"  # detail, error, message
    counts_buckets: bool = False
    largest_limit: int = 200
    listing_page: int = 1000
    repeats_boundary: bool = False
    refuses_future: bool = False
    hides_closed: bool = False
    lacks_token: bool = False
    usage: str = "texts"  # texts, numbers, lists, nulls
    knows_end: bool = True  # whether the last page has no cursor


FREE_PLAN_A = Habits(finest="10m", views=("prices", "metrics"), history_days=30, requests_per_minute=10)
STARTER_B = Habits(
    resolutions=("250ms", "1s", "60s", "1m", "5m", "10m", "15m", "1h", "6h", "1d"),
    finest="250ms",
    error="error",
    counts_buckets=True,
    listing_page=100,
    repeats_boundary=True,
    refuses_future=True,
    hides_closed=True,
    usage="numbers",
)


@dataclass
class VendorStub:
    """Answers for a `FaultServer`; ``paths`` counts what was requested, without the market."""

    habits: Habits
    markets: int = 3
    paths: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)

    labels = ("Up", "Down")

    @property
    def now(self) -> int:
        return int(SYSTEM.time()) * SECOND

    def __call__(self, ask: Ask) -> Act:
        self.paths[re.sub(r"/(markets|tokens)/[^/]+/", r"/\1/", ask.path)] += 1
        parts = ask.path.removeprefix("/v1/").split("/")
        if parts == ["usage"]:
            act = ok(self.usage())
        elif parts == ["markets"]:
            act = self.listing(ask.params)
        elif parts[0] == "markets" and not re.fullmatch(r"m?\d+", parts[1]):
            act = self.refuse(404, f"Market not found: {parts[1]}")
        elif parts[0] == "markets" and len(parts) == 2:
            act = ok(self.record(int(parts[1].removeprefix("m")), single=True))
        elif parts[0] == "markets" and len(parts) == 3:
            act = self.history(parts[1].removeprefix("m"), parts[2], ask.params)
        else:
            act = self.refuse(404, "Not Found")
        return act.with_header("Date", format_datetime(datetime.fromtimestamp(self.now / SECOND, UTC), usegmt=True))

    def refuse(self, status: int, text: str) -> Act:
        self.refusals[text] += 1
        bodies = {"detail": {"detail": text}, "error": {"error": "refused", "message": text}}
        return Act(status=status, body=json.dumps(bodies.get(self.habits.error, {"message": text})).encode())

    def usage(self) -> dict[str, Any]:
        habits = self.habits
        days: Any = habits.history_days
        limits: dict[str, Any] = {"requests_per_minute": habits.requests_per_minute, "requests_remaining": None}
        if habits.usage == "texts":
            limits |= {"granularity_allowed": habits.finest, "max_history_days": str(days or "unlimited")}
        elif habits.usage == "lists":
            allowed = [name for name in habits.resolutions if self.allows(name)]
            limits |= {"granularity_allowed": allowed, "max_history_days": days}
        elif habits.usage == "numbers":
            limits |= {"max_history_days": days}
        else:
            limits |= {"granularity_allowed": None, "max_history_days": None, "requests_per_day": "none"}
        return {"plan": "a plan", "limits": limits}

    def allows(self, resolution: str) -> bool:
        return BucketWidth.of(resolution).micros >= BucketWidth.of(self.habits.finest).micros

    def record(self, k: int, *, single: bool = False) -> dict[str, Any]:
        tokens = [{"id": f"{k}-{label}", "label": label} for label in self.labels]
        is_closed = k % 3 == 2
        record = {"id": str(k), "slug": f"m{k}", "question": f"Question {k}?", "tokens": tokens, "winner": None}
        record |= {"status": "closed" if is_closed else "open", "is_resolved": is_closed}
        return record | ({"winner": "Up"} if single and is_closed else {})

    def listing(self, params: dict[str, str]) -> Act:
        limit = int(params["limit"])
        if limit > self.habits.listing_page:
            return self.refuse(400, f"limit must be <= {self.habits.listing_page}")
        rows = [self.record(k) for k in range(self.markets)]
        if self.habits.hides_closed and params.get("include_closed") != "true":
            rows = [row for row in rows if row["status"] == "open"]
        first = int(params.get("cursor", "0"))
        following = str(first + limit) if first + limit < len(rows) else None
        return ok({"data": rows[first : first + limit], "metadata": {"next_cursor": following}})

    def history(self, market: str, view: str, params: dict[str, str]) -> Act:
        habits, limit = self.habits, int(params["limit"])
        start, end = parse_iso(params["start_ts"]), parse_iso(params["end_ts"])
        if params["resolution"] not in habits.resolutions:
            return self.refuse(400, f"resolution must be one of {', '.join(habits.resolutions)}")
        if view not in habits.views:
            return self.refuse(403, "Your plan does not allow historical order books")
        if not self.allows(params["resolution"]):
            words = f"Your plan does not allow {params['resolution']} granularity. Minimum: {habits.finest}"
            return self.refuse(403, words)
        if habits.history_days is not None and start < self.now - habits.history_days * DAY:
            first = to_text(self.now - habits.history_days * DAY)
            words = {
                "detail": f"Your plan allows up to the last {habits.history_days} days of historical data",
                "error": f"History window exceeds your starter plan (max {habits.history_days} days). "
                f"Earliest allowed start_ts is {first}.",
            }
            return self.refuse(403, words.get(habits.error, words["error"]))
        if limit > habits.largest_limit:
            words = {"detail": f"limit too large. Requested: {limit}, Maximum: {habits.largest_limit}"}
            return self.refuse(400, words.get(habits.error, f"limit must be <= {habits.largest_limit}"))
        if habits.refuses_future and end > self.now:
            return self.refuse(400, "end_ts must not be in the future")
        return ok(self.page(market, view, params["resolution"], Range(start, end), limit, params.get("cursor")))

    def page(
        self, market: str, view: str, resolution: str, rng: Range, limit: int, cursor: str | None
    ) -> dict[str, Any]:
        width = BucketWidth.of(resolution).micros
        most = limit if self.habits.counts_buckets or view == "metrics" else limit // len(self.labels)
        first = rng.start // width if cursor is None else int(cursor[1:])
        buckets: list[int] = []
        for bucket in self.buckets(first, min(rng.end, self.now), width):
            if len(buckets) == most:
                following: str | None = f"c{buckets[-1] if self.habits.repeats_boundary else bucket}"
                break
            buckets.append(bucket)
        else:
            following = None
        points = {
            label: [{"t": to_text(b * width), **self.point(view, market, k, b)} for b in buckets]
            for k, label in enumerate(self.labels)
        }
        count = len(buckets) * (1 if self.habits.counts_buckets or view == "metrics" else len(self.labels))
        head = {
            "market_id": market,
            "resolution": resolution,
            "metadata": {"count": count, "limit": limit, "next_cursor": following},
        }
        if view == "metrics":
            return {**head, "data": points[self.labels[0]]}
        known = self.labels[: -1 if self.habits.lacks_token else None]
        return {**head, "tokens": {label: f"{market}-{label}" for label in known}, "data": points}

    def buckets(self, first: int, end: int, width: int) -> Iterator[int]:
        return (bucket for bucket in range(first, -(-end // width)) if bucket % MISSING_EVERY)

    def point(self, view: str, market: str, k: int, bucket: int) -> dict[str, Any]:
        number = (bucket * 7 + k * 13 + int(market) * 3) % 89
        if view == "prices":
            return {"p": (number + 5) / 100}
        if view == "metrics":
            return {"volume": number / 10, "liquidity": number * 2, "spread": 0.01}
        bids = [[(number + 3 - level) / 100, 10 + level] for level in range(number % 3)]
        asks = [[(number + 6 + level) / 100, 20 + level] for level in range(bucket % 3)]
        return {"bids": bids, "asks": asks}

    def rows(self, view: str, market: str, resolution: str, rng: Range) -> list[tuple[Any, ...]]:
        """All points by a plain loop: label, time [microseconds] and the values of each."""
        market = market.removeprefix("m")
        width = BucketWidth.of(resolution).micros
        return [
            (label, bucket * width, self.point(view, market, k, bucket))
            for k, label in enumerate(self.labels if view != "metrics" else self.labels[:1])
            for bucket in self.buckets(rng.start // width, rng.end, width)
        ]


KEY = "a-key-of-a-test-0123456789"
HOUR = 60 * MINUTE
habits = st.builds(
    Habits,
    error=st.sampled_from(["detail", "error", "message"]),
    counts_buckets=st.booleans(),
    largest_limit=st.sampled_from([200, 120]),
    listing_page=st.sampled_from([100, 200, 1000]),
    repeats_boundary=st.booleans(),
    refuses_future=st.booleans(),
    history_days=st.sampled_from([None, 3, 30]),
    usage=st.sampled_from(["texts", "numbers", "lists", "nulls"]),
)


@contextmanager
def service(stub: VendorStub, **options: Any) -> Iterator[md.Client[Any]]:
    """A client of the stub, on a simulated clock."""
    with (
        md.testing.no_waiting(),
        FaultServer(stub) as server,
        md.Client(server.base_url, KEY, frame="polars", **options) as client,
    ):
        yield client


def times(rng: Range) -> tuple[str, str]:
    return to_text(rng.start), to_text(rng.end)


def price_rows(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    stamps = frame["ts"].dt.epoch("us").to_list()
    return sorted(zip(frame["token_label"].to_list(), stamps, frame["price"].to_list(), strict=True))


def book_rows(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    """Label, time, side and levels of each side, [] of an empty one."""
    frame = frame.with_columns(ts=pl.col("ts").dt.epoch("us"), level=pl.col("price").is_not_null())
    sides = frame.group_by("token_label", "ts", "side", maintain_order=True).agg(
        pl.struct("price", "size").filter(pl.col("level"))
    )
    return sorted(
        (label, ts, side, [list(level.values()) for level in levels]) for label, ts, side, levels in sides.iter_rows()
    )


def books_by_loop(stub: VendorStub, resolution: str, rng: Range) -> list[tuple[Any, ...]]:
    rows = stub.rows("books", "m1", resolution, rng)
    return sorted((label, ts, side[:3], point[side]) for label, ts, point in rows for side in ("bids", "asks"))


@given(habits, st.integers(2, 500))
@settings(max_examples=4)
def test_whatever_a_vendor_does_a_history_equals_a_plain_loop(how: Habits, minutes: int) -> None:
    """Limits, counts, repeated boundaries, error bodies and types of usage change no row, also in strict mode."""
    stub = VendorStub(how)
    end = (stub.now // MINUTE) * MINUTE
    rng = Range(end - minutes * MINUTE, end)
    with service(stub, strict=True) as client:
        prices = client.prices("m1", *times(rng), "1m")
        later = client.prices("m1", to_text(rng.start), to_text(end + 9 * MINUTE), "1m")
        books = client.books("m1", *times(rng), "10m")
    expected = [(label, ts, point["p"]) for label, ts, point in stub.rows("prices", "m1", "1m", rng)]
    assert price_rows(prices) == sorted(expected)
    assert set(price_rows(later)) >= set(expected[:-2]), "an end in the future is no error"
    assert book_rows(books.filter(pl.col("ts").dt.epoch("us") > rng.start)) == [
        row for row in books_by_loop(stub, "10m", rng) if row[1] > rng.start
    ]


@given(habits, st.sampled_from(["5m", "15m", "30m", "2h"]))
@settings(max_examples=3)
def test_a_resolution_that_a_service_lacks_is_made_of_a_finer_one(how: Habits, resolution: str) -> None:
    """The mean of each bucket is the mean of its minutes."""
    stub = VendorStub(how)
    width = md.resolution.BucketWidth.of(resolution).micros
    end = (stub.now // (6 * 60 * MINUTE)) * 6 * 60 * MINUTE
    rng = Range(end - DAY // 2, end)
    with service(stub) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr("marketdata.client.history._ITERATED_FRAME_BYTES", 10_000)  # several frames, within buckets
        whole = price_rows(client.prices("m1", *times(rng), resolution))
        parts = [row for frame in client.iter_prices("m1", *times(rng), resolution) for row in price_rows(frame)]
    values: dict[tuple[str, int], list[float]] = {}
    for label, ts, point in stub.rows("prices", "m1", "1m", rng):
        values.setdefault((label, ts // width * width), []).append(point["p"])
    expected = sorted((label, ts, statistics.fmean(points)) for (label, ts), points in values.items())
    for rows in (whole, sorted(parts)):
        assert [row[:2] for row in rows] == [row[:2] for row in expected]
        assert [row[2] for row in rows] == pytest.approx([row[2] for row in expected], abs=1e-12)


@pytest.mark.parametrize(
    ("resolution", "view", "span"),
    [
        ("1s", "books", 900 * SECOND),
        ("250ms", "books", 240 * SECOND),
        ("5m", "prices", 7 * DAY),
        pytest.param("1s", "books", DAY, marks=pytest.mark.soak),
        pytest.param("250ms", "books", DAY, marks=pytest.mark.soak),
    ],
)
def test_fine_history_of_b_equals_a_plain_loop(resolution: str, view: str, span: int) -> None:
    """Seconds, quarters of a second and five minutes are requested as they are."""
    stub = VendorStub(STARTER_B)
    end = stub.now // (300 * SECOND) * 300 * SECOND
    rng = Range(end - span, end)
    with service(stub, strict=True) as client:
        frame = getattr(client, view)("m1", *times(rng), resolution)
    if view == "books":
        assert book_rows(frame) == books_by_loop(stub, resolution, rng)
    else:
        rows = stub.rows(view, "m1", resolution, rng)
        assert price_rows(frame) == sorted((label, ts, point["p"]) for label, ts, point in rows)


@pytest.mark.fault("V1")
def test_a_free_plan_says_what_it_allows() -> None:
    """The errors have the finest resolution, the view that is lacking, and the window; a default resolution works."""
    stub = VendorStub(FREE_PLAN_A)
    end = stub.now // DAY * DAY
    day = times(Range(end - DAY, end))
    with service(stub) as client:
        with pytest.raises(PlanError) as refused:
            client.prices("m1", *day, "1m")
        assert refused.value.minimum_resolution == "10m"
        with pytest.raises(PlanError) as refused:
            client.books("m1", *day, "10m")
        assert refused.value.view == "books"
        with pytest.raises(PlanError) as refused:
            client.prices("m1", to_text(end - 60 * DAY), day[1], "10m")
        assert refused.value.history_days == 30
        assert abs(refused.value.earliest.timestamp() * SECOND - (stub.now - 30 * DAY)) < 120 * SECOND
        default = client.prices("m1", *day)
        clamped = client.prices("m1", to_text(end - 60 * DAY), day[1], "10m", clamp=True)
        plan = client.plan("prices", "m1", to_text(end - 60 * DAY), day[1], "1m")
    rows = stub.rows("prices", "m1", "10m", Range(end - DAY, end))
    assert price_rows(default) == sorted((label, ts, point["p"]) for label, ts, point in rows)
    first = clamped["ts"].dt.epoch("us").min()
    assert abs(first - (stub.now - 30 * DAY)) < 3600 * SECOND
    assert any("reaches back 30 days" in part for part in plan.refused)
    assert any("10m and coarser" in part for part in plan.refused)


@pytest.mark.parametrize("markets", [2, pytest.param(20, marks=pytest.mark.soak)])
def test_two_weeks_on_a_free_plan_is_pulled_served_and_resampled(tmp_path: Path, markets: int) -> None:
    """A pull uses 95 % of ten requests a minute, and the archive answers as the vendor and a plain loop do."""
    stub = VendorStub(FREE_PLAN_A, markets)
    end = (stub.now - HOUR) // DAY * DAY  # what ended minutes ago is not final
    rng = Range(end - 14 * DAY, end)
    names = [f"m{k}" for k in range(markets)]
    span, archive = times(rng), md.Archive(tmp_path / "archive")
    with service(stub) as client:
        began = stub.now
        with pytest.warns(PlanWarning) as told:
            archive.pull(client, names, start=span[0], end=span[1])
        minutes = (stub.now - began) / MINUTE
    assert minutes <= sum(stub.paths.values()) / 10 / 0.95 + 1  # the last minute is not full
    assert sum(stub.paths.values()) <= markets * (21 + 11) * 1.2 + 20
    assert len(told) == 2  # of the base and of the books
    # The plan told its resolutions, so none was asked for in vain.
    assert not any("granularity" in text for text in stub.refusals)
    states = archive.coverage().groupby("view", observed=True)["state"].unique()
    assert states["books"].tolist() == ["not_allowed"]
    assert states["prices"].tolist() == ["final"]
    with md.serve(archive) as local, md.Client(local.base_url, local.api_key, frame="polars") as client:
        for view, column in (("prices", "price"), ("metrics", "volume")):
            served = getattr(client, view)(names[-1], *times(rng), "1h")
            values: dict[tuple[str, int], list[float]] = {}
            for label, ts, point in stub.rows(view, names[-1], "10m", rng):
                values.setdefault((label, ts // HOUR * HOUR), []).append(point["p" if view == "prices" else column])
            labels = served["token_label"] if view == "prices" else [stub.labels[0]] * len(served)
            means = zip(zip(labels, served["ts"].dt.epoch("us"), strict=True), served[column], strict=True)
            assert dict(means) == pytest.approx({key: statistics.fmean(points) for key, points in values.items()})


@pytest.mark.fault("V1")
def test_a_clamped_fetch_through_an_archive_says_what_was_not_allowed(tmp_path: Path) -> None:
    """The frame begins where the plan does, and the coverage before that is not_allowed, not empty."""
    stub = VendorStub(FREE_PLAN_A)
    end = stub.now // DAY * DAY
    span = times(Range(end - 60 * DAY, end))
    archive = md.Archive(tmp_path / "archive", base="10m")
    with service(stub, archive=archive) as client:
        with pytest.raises(PlanError):
            client.prices("m1", *span, "10m")
        with pytest.raises(PlanError, match="order books"):
            client.books("m1", *span, "10m")
        with pytest.warns(PlanWarning):
            frame = client.prices("m1", *span, "10m", clamp=True)
    assert abs(frame["ts"].dt.epoch("us").min() - (stub.now - 30 * DAY)) < 2 * HOUR
    states = archive.coverage().sort_values("start")["state"].to_list()
    assert states[0] == "not_allowed"
    assert "final" in states


@pytest.mark.fault("V2")
def test_the_text_of_an_error_is_shown_in_any_body() -> None:
    """The status decides the class, and the text is whole."""
    for error in ("detail", "error", "message"):
        with service(VendorStub(Habits(error=error, views=("prices",)))) as client, pytest.raises(PlanError) as refused:
            client.books("m1", "2026-01-01", "2026-01-02", "1h")
        assert refused.value.detail == "Your plan does not allow historical order books"


@pytest.mark.fault("V3")
def test_a_window_that_moves_during_a_fetch_leaves_a_resume() -> None:
    """The rows that arrived stay, resume has the rest, and a refused range is not empty."""
    stub = VendorStub(Habits(history_days=30))
    end = stub.now // DAY * DAY
    rng = Range(end - 6 * DAY, end)
    answer = VendorStub.__call__

    def shrinking(ask: Any) -> Any:
        if sum(stub.paths.values()) > 12:
            stub.habits = Habits(history_days=2)
        return answer(stub, ask)

    with md.testing.no_waiting(), FaultServer(shrinking) as server:
        client = md.Client(server.base_url, KEY, frame="polars")
        with pytest.raises(PlanError) as refused:
            client.prices("m1", *times(rng), "1m")
    left = refused.value.resume.remaining
    expected = {(label, ts, p["p"]) for label, ts, p in stub.rows("prices", "m1", "1m", rng)}
    came = set(price_rows(refused.value.partial))
    assert came
    assert came <= expected
    assert all(any(a <= ts < b for a, b in left) for _, ts, _ in expected - came)


@pytest.mark.fault("V5")
def test_labels_and_winners_are_those_of_the_service() -> None:
    """Labels need not be Yes and No; a listing without winners says nothing, the single market does."""
    stub = VendorStub(STARTER_B, markets=250)
    with service(stub) as client:
        listed = client.markets()
        open_only = client.markets(include_closed=False)
        both = client.markets(include_closed=True)
        record = client.market("m2")
    assert len(both) == 250
    assert len(listed) == len(open_only) < 250, "an unknown service decides by itself"
    assert both["winner"].is_null().all()
    assert both["token_labels"][0].to_list() == ["Up", "Down"]
    assert record["winner"] == "Up"


def test_labels_without_a_token_are_kept() -> None:
    """Their rows have no token id; strict mode refuses them."""
    stub = VendorStub(Habits(lacks_token=True))
    end = stub.now // DAY * DAY
    span = times(Range(end - DAY, end))
    with service(stub) as client, pytest.warns(md.errors.ServiceOddityWarning, match="label_without_token"):
        frame = client.prices("m1", *span, "1h")
    assert frame.filter(pl.col("token_label") == "Down")["token_id"].is_null().all()
    with service(stub, strict=True) as client, pytest.raises(ContractError, match="label_without_token"):
        client.prices("m1", *span, "1h")


@given(st.sampled_from([100, 200, 1000]), st.integers(1, 1200))
@settings(max_examples=3)
def test_listings_have_every_record_in_the_largest_pages(page: int, markets: int) -> None:
    """A service with shorter pages costs one request more."""
    stub = VendorStub(Habits(listing_page=page), markets=markets)
    with service(stub) as client:
        assert len(client.markets()) == markets
    assert stub.paths["/v1/markets"] <= -(-markets // page) + (page < 1000)


def test_a_wrong_filter_is_named_before_any_request() -> None:
    """A misspelt filter never lists everything; the message has the filters, or the values, that the vendor has."""
    local, a = "http://127.0.0.1:9", "https://api.polymarketdata.co/v1"
    cases: list[tuple[str, dict[str, Any], str]] = [
        (local, {"tag": ["nba"]}, "Did you mean tags=?"),
        (local, {"foo": "x"}, "params="),
        (local, {"order": "up"}, "asc, desc"),
        (local, {"min_liquidity": "much"}, "numbers from 0"),
        (local, {"end_date_max": "soon"}, "end_date_max='soon'"),
        (local, {"include_closed": "no"}, "False, True"),
        (local, {"tags": ""}, "not empty"),
        (a, {"category": "sports"}, "is no filter of polymarketdata.co"),
        (a, {"include_closed": False}, "is no filter of polymarketdata.co"),
    ]
    for address, filters, words in cases:
        with pytest.raises(ConfigError) as refused:
            md.Client(address, KEY).markets(**filters)
        assert words in str(refused.value)


VARIABLES = ("MARKETDATA_BASE_URL", "MARKETDATA_API_KEY", "POLYMARKETDATA_API_KEY", "POLYORDERBOOKS_API_KEY")


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_the_key_of_a_vendor_is_for_its_host_alone(environ: pytest.MonkeyPatch) -> None:
    """It brings its address; at any other one it is ignored, and the missing key is named."""
    for name, host in (("POLYMARKETDATA", "polymarketdata.co"), ("POLYORDERBOOKS", "polyorderbooks.com")):
        with environ.context() as patch:
            patch.setenv(f"{name}_API_KEY", KEY)
            address = f"https://api.{host}"
            assert repr(md.Client()) == f"Client({address!r}, frame='pandas', service={host!r})"
            assert md.Client(address + "/v1")._source.transport.keys.get() == KEY
            for other in ("http://127.0.0.1:9", "https://example.org", address + ".example.org", address + ":8443"):
                with pytest.raises(ConfigError, match="api_key is missing"):
                    md.Client(other)
            patch.setenv("MARKETDATA_BASE_URL", "http://127.0.0.1:9")
            with pytest.raises(ConfigError, match="api_key is missing"):
                md.Client()


def test_two_vendors_need_an_address(environ: pytest.MonkeyPatch) -> None:
    """The error names both variables and both addresses."""
    environ.setenv("POLYMARKETDATA_API_KEY", KEY)
    environ.setenv("POLYORDERBOOKS_API_KEY", KEY)
    with pytest.raises(ConfigError, match=r"api\.polymarketdata\.co.*api\.polyorderbooks\.com"):
        md.Client()
    assert "polyorderbooks" in repr(md.Client("https://api.polyorderbooks.com"))


def test_a_record_of_a_market_is_taken_in_place_of_its_id() -> None:
    """Also in a list."""
    stub = VendorStub(Habits())
    end = stub.now // DAY * DAY
    span = times(Range(end - DAY, end))
    with service(stub) as client:
        record = {**client.market("m1"), "id": "m1"}
        assert client.prices(record, *span, "1h").equals(client.prices([record], *span, "1h"))


@pytest.mark.fault("V1")
def test_verify_goes_on_without_what_a_plan_lacks() -> None:
    """On the free plan prices and metrics are compared, and the report says what the service is and does."""
    stub = VendorStub(FREE_PLAN_A)
    end = stub.now // DAY * DAY
    with service(stub) as client:
        report = client.verify("m1", *times(Range(end - DAY, end)))
    assert report["label"].evidence
    assert report["books"].found is None
    assert "books" in report.refused
    rows = report.service.rows
    assert rows["requests"] == "10 a minute"
    assert rows["history"] == "30 days"
    assert rows["resolutions"] == "1m, 10m, 1h, 6h, 1d"
    assert "Maximum: 200" in rows["page too large"]
    assert "could not be checked" in str(report)
