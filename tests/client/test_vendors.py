from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference.faults import FaultServer
from reference.vendor_stub import FREE_PLAN_A, STARTER_B, Habits, VendorStub

import marketdata as md
from marketdata.errors import ConfigError, ContractError, PlanError, PlanWarning
from marketdata.times import DAY, MINUTE, SECOND, Range, to_text

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
    end = stub.now // DAY * DAY
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
