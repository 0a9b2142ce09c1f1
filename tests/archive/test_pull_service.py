"""Pulling from the real service through the real client."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import requests
from reference.clocks import SOON

import marketdata as md
from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.points.views import INTERFACE_VIEWS
from marketdata.times import to_datetime, to_micros


@pytest.fixture(scope="module")
def origin() -> Archive:
    """An hour of simulated markets, one of 3 and one of 210 tokens among them."""
    return md.simulate(events=2, days=0.04, markets=1, levels=2, frame="polars")


@pytest.fixture(scope="module")
def client(origin: Archive) -> Iterator[Any]:
    with md.serve(origin, requests_per_minute=100_000) as service:
        yield md.Client(service.base_url, service.api_key, frame="polars")


def span(origin: Archive) -> tuple[Any, Any]:
    coverage = origin.coverage()
    return coverage["start"].min(), coverage["end"].max()


def test_a_pulled_archive_holds_what_the_service_has(origin: Archive, client: Any, tmp_path: Path) -> None:
    """Every point of every view of an event's markets arrives; a second pull requests nothing."""
    archive = Archive(tmp_path / "pulled", frame="polars")
    start, end = span(origin)
    event, series = origin.records("events")[0]["slug"], origin.records("series")[0]["slug"]
    archive.pull(client, event_slug=event, start=start, end=end, progress=False)
    markets = [market["id"] for market in origin.records("markets") if market["event_slug"] == event]
    assert [market["id"] for market in archive.records("markets")] == markets
    assert archive.simulated
    for view in INTERFACE_VIEWS:
        pulled, served = (a.scan(view).filter(pl.col("market_id").is_in(markets)).collect() for a in (archive, origin))
        keys = [c for c in ("market_id", "token_id", "ts", "side", "level") if c in pulled.columns]
        assert pulled.sort(keys).equals(served.select(pulled.columns).sort(keys)), view
    assert archive.verify().is_empty()
    before = client.usage()["limits"]["requests_remaining"]
    assert archive.pull(client, event_slug=event, start=start, end=end).is_empty()
    assert client.usage()["limits"]["requests_remaining"] >= before - 5
    assert set(archive.coverage()["state"]) == {"final"}
    assert archive.coverage()["start"].min() == start
    assert to_micros(archive.coverage()["end"].max(), "end") == to_micros(end, "end")
    archive.pull(client, series_slug=series, views="metrics", start=start, end=end)
    assert len(archive.records("markets")) == len(origin.records("markets")) > len(markets)


@pytest.mark.fault("AR23")
def test_now_is_the_date_of_an_answer_and_not_what_health_says(
    origin: Archive, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service whose health names a moment long ago is asked for all of a range, and it is final."""
    monkeypatch.setattr(client, "health", lambda: {"status": "ok", "timestamp": "2000-01-01T00:00:00Z"})
    archive = Archive(tmp_path / "pulled", frame="polars")
    market = origin.records("markets")[0]["id"]
    start, end = span(origin)
    archive.pull(client, market, views=["prices"], start=start, end=end)
    assert archive.prices(market).height == origin.prices(market, start, end, on_missing="partial").height > 0
    assert set(archive.coverage()["state"]) == {"final"}


def test_an_open_end_is_now_by_the_server(origin: Archive, client: Any, tmp_path: Path) -> None:
    """Without an end a pull asks up to the server's present, however far this machine is behind, or to the close."""
    archive = Archive(tmp_path / "pulled", frame="polars")
    market, (start, end) = origin.records("markets")[0]["id"], span(origin)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time_ns", lambda: (to_micros(start, "start") + 60_000_000) * 1000)
        with pytest.warns(md.errors.ServiceOddityWarning, match="ahead of the clock of this machine"):
            archive.pull(client, market, views=["prices"], start=start)
    assert archive.prices(market, start, end, on_missing="partial").height > 0
    closed = max(to_micros(origin.records("markets")[0][name], name) for name in ("closed_at", "resolved_at")
                 if origin.records("markets")[0].get(name))  # fmt: skip
    assert 0 <= to_micros(archive.coverage()["end"].max(), "end") - closed < 60_000_000


def test_names_that_are_not_known_are_told_and_the_rest_is_pulled(origin: Archive, client: Any, tmp_path: Path) -> None:
    """Each misspelt name of a file is named with what is near it, once the others have come."""
    archive = Archive(tmp_path / "pulled", frame="polars")
    start, end = span(origin)
    slugs = [m["slug"] for m in origin.records("markets")[:3]]
    wrong = [slugs[0][:-1] + "q", slugs[1] + "-x"]
    file = tmp_path / "names.txt"
    file.write_text("\n".join([wrong[0], *slugs, wrong[1]]))
    with pytest.raises(md.errors.NotFoundError) as info:
        archive.pull(client, file=file, views=["prices"], start=start, end=end)
    for name, near in zip(wrong, slugs, strict=False):
        assert name in str(info.value)
        assert repr(near) in str(info.value)
    assert archive.coverage()["market_id"].n_unique() == 3
    file.write_text(f"{wrong[0]}\n{slugs[0]}")
    with pytest.raises(md.errors.NotFoundError, match=r"Similar: .*client\.markets"):
        archive.pull(client, file=file, views=["prices"], start=start, end=end)


@pytest.fixture
def sparse(tmp_path: Path) -> Archive:
    """A day of prices with two holes and twelve minutes between them."""
    prices = md.testing.prices("polars", buckets=1440)
    hours = (prices["ts"] - prices["ts"].min()).dt.total_minutes() / 60
    archive = Archive(tmp_path / "sparse", frame="polars")
    sparse_prices = prices.filter((hours < 3) | ((hours >= 8) & (hours < 8.2)) | (hours >= 15))
    archive.add(markets=md.testing.markets(), prices=sparse_prices, complete=True)
    return archive


SPARSE: dict[str, Any] = {"markets": "rain", "views": ["prices"], "start": "2026-01-01", "end": "2026-01-02"}


def rows_of(archive: Archive) -> Any:
    columns = Reader(archive).columns("prices", "rain")
    return list(zip(columns.token.tolist(), columns.ts.tolist(), columns.values["price"].tolist(), strict=True))


@pytest.mark.fault("S47")
def test_an_archive_that_was_pulled_is_served_whole(sparse: Archive, tmp_path: Path) -> None:
    """Points between two holes are in no range without rows, and a pull from a pulled archive has them."""
    from_, archive = sparse, sparse
    for name in ("first", "second"):
        archive = Archive(tmp_path / name, frame="polars")
        with md.serve(from_) as service, md.Client(service.base_url, service.api_key) as client:
            archive.pull(client, **SPARSE)
        assert rows_of(archive) == rows_of(sparse)
        assert archive.coverage()["rows"].sum() == len(rows_of(sparse))
        assert archive.verify().is_empty()
        from_ = archive


@pytest.mark.fault("S48")
def test_a_service_with_a_clock_of_its_own_dates_every_answer_by_it(sparse: Archive, tmp_path: Path) -> None:
    """Date and health are one clock, refusals included, so what lies behind it is final and nothing later is."""
    now = to_micros("2026-01-01T02:00", "now")
    archive = Archive(tmp_path / "pulled", frame="polars")
    with md.serve(sparse, clock=lambda: now / 1e6) as service, md.Client(service.base_url, service.api_key) as client:
        for key in (service.api_key, "wrong"):
            answer = requests.get(f"{service.base_url}/v1/health", headers={"X-API-Key": str(key)}, timeout=SOON)
            assert answer.headers["Date"] == "Thu, 01 Jan 2026 02:00:00 GMT"
        done = next(archive.follow(client, "rain", views=["prices"], start="2026-01-01"))
    assert done.at.replace(microsecond=0) == to_datetime(now)
    ends = dict(archive.coverage().group_by("state").agg(pl.col("end").max()).iter_rows())
    assert ends["final"] == to_datetime(now - 600_000_000)
    assert max(ends.values()) <= to_datetime(now + 60_000_000)
