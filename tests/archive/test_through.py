"""Reading through an archive: the client's answers, and no request for what is held."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archive.source import MARKETS, MINUTE, START, TOKENS, Source

import marketdata as md
from marketdata.archive import Archive
from marketdata.errors import ConfigError, NotFoundError
from marketdata.points.views import INTERFACE_VIEWS

WIDTHS = ("1m", "10m", "1h", "6h", "1d")


@pytest.fixture(scope="module")
def origin() -> Archive:
    """Ten hours of simulated markets of two tokens."""
    return md.simulate(events=1, days=10 / 24, levels=2, frame="polars")


@pytest.fixture(scope="module")
def service(origin: Archive) -> Iterator[Any]:
    with md.serve(origin, requests_per_minute=100_000) as running:
        yield running


def close(mine: pl.DataFrame, theirs: pl.DataFrame) -> None:
    """Equal rows; means may differ in the last bits."""
    from polars.testing import assert_frame_equal

    text = pl.col("market_id", "token_id", "token_label") if "token_id" in mine.columns else pl.col("market_id")
    assert_frame_equal(
        mine.with_columns(text.cast(pl.String)), theirs.with_columns(text.cast(pl.String)), rel_tol=1e-12
    )


@pytest.mark.filterwarnings("ignore::marketdata.errors.EmptyRangeWarning")
@pytest.mark.parametrize("view", INTERFACE_VIEWS)
def test_a_client_with_an_archive_answers_as_one_without(
    origin: Archive, service: Any, tmp_path: Path, view: str
) -> None:
    """At every resolution, of whole ranges and of cuts inside of buckets, the frames are equal."""
    plain = md.Client(service.base_url, service.api_key, frame="polars")
    kept = md.Client(service.base_url, service.api_key, frame="polars", archive=Archive(tmp_path / "a"))
    markets = [m["slug"] for m in origin.records("markets")][:2]
    start, end = origin.coverage()["start"].min(), origin.coverage()["end"].max()
    cut = (start + dt.timedelta(minutes=77), start + dt.timedelta(minutes=461, seconds=30))
    for span, widths in ((cut, WIDTHS), ((start, end), ("10m", "1d"))):
        for width in widths:
            close(getattr(kept, view)(markets, *span, width), getattr(plain, view)(markets, *span, width))


def test_what_is_held_is_not_asked_again(origin: Archive, service: Any, tmp_path: Path) -> None:
    """A second call makes 0 requests, at a coarser resolution and for a part of the range too."""
    archive = Archive(tmp_path / "a")
    client = md.Client(service.base_url, service.api_key, frame="polars", archive=archive)
    market = origin.records("markets")[0]["slug"]
    start, end = origin.coverage()["start"].min(), origin.coverage()["end"].max()
    first = client.books(market, start, end, "1m")
    assert first.md.report.points == first.select("ts", "token_id").n_unique()
    assert first.md.report.requests > 0
    unreachable = md.Client("http://127.0.0.1:9", "a-key-that-nobody-has", frame="polars", archive=archive)
    again = unreachable.books(market, start, end, "1m")
    assert again.equals(first)
    assert again.md.report.requests == 0
    part = unreachable.books(market, start, start + dt.timedelta(hours=5), "1h", levels=1)
    assert part["level"].max() == 0
    assert part["ts"].n_unique() == 5


def test_a_gap_is_fetched_and_nothing_else(archive: Archive) -> None:
    """on_missing="fetch" asks the attached client for the gap only, and keeps it."""
    source = Source()
    for n in range(120):
        source.points["prices", MARKETS[0], 0, n] = n / 120
    read = archive.attach(source).prices
    assert len(read(MARKETS[0], START / 1e6, START / 1e6 + 1800, on_missing="fetch")) == 30
    source.requests.clear()
    frame = read(f"slug-{MARKETS[0]}", START / 1e6, START / 1e6 + 7200, on_missing="fetch")
    assert frame["price"].to_list() == [n / 120 for n in range(120)]
    assert min(r.start for *_, r in source.asked) == START + 30 * MINUTE
    source.requests.clear()
    assert len(read(MARKETS[0], START / 1e6, START / 1e6 + 7200, on_missing="fetch")) == 120
    assert source.requests == []
    assert set(frame["token_id"].cast(pl.String)) == {TOKENS[MARKETS[0]][0].token_id}


def test_ahead_of_now_there_is_nothing_and_it_is_asked_again_later(archive: Archive) -> None:
    """A range beyond the server's clock answers with no rows, as the service does, and is not covered."""
    source = Source()
    later = (START + 20_000 * MINUTE) / 1e6
    frame = archive.attach(source).books(MARKETS[0], later, later + 600, "1h", on_missing="fetch")
    assert frame.is_empty()
    assert len(frame.columns) == 8
    assert archive.coverage().is_empty()


def test_without_a_client_or_a_range_there_is_nothing_to_fetch(archive: Archive) -> None:
    """The error says how to attach a client, and that a range is needed."""
    archive.add(markets=[{"market_id": "m", "slug": "s"}])
    with pytest.raises(ConfigError, match="attach"):
        archive.books("m", 0, 60, on_missing="fetch")
    with pytest.raises(ConfigError, match="start= and end="):
        archive.attach(Source()).books("m", on_missing="fetch")


def test_a_market_that_the_service_does_not_know_is_an_error(service: Any, tmp_path: Path) -> None:
    """An unknown market is NotFoundError with an archive as without, and nothing is made on disk for it."""
    client = md.Client(service.base_url, service.api_key, archive=Archive(tmp_path / "a"))
    with pytest.raises(NotFoundError):
        client.books("no-such-market", "2025-12-31", "2026-01-01", "1m")
    assert not (tmp_path / "a" / "books").exists()


def test_a_client_with_an_archive_can_be_sent_to_a_worker(
    origin: Archive, service: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pickled and back it reads the same archive; its key stays behind and comes from the environment."""
    monkeypatch.setenv("MARKETDATA_API_KEY", service.api_key)
    client = md.Client(service.base_url, service.api_key, frame="polars", archive=Archive(tmp_path / "a"))
    market = origin.records("markets")[0]["id"]
    frame = client.prices(market, "2025-12-31", "2026-01-01", "1h")
    twin = pickle.loads(pickle.dumps(client)).prices(market, "2025-12-31", "2026-01-01", "1h")
    assert twin.equals(frame)
    assert twin.md.report.requests == 0


def test_an_archive_that_is_none_is_refused_before_a_read(tmp_path: Path) -> None:
    """A path in its place is an error of the argument, which says what to pass."""
    not_one: Any = str(tmp_path)
    with pytest.raises(md.errors.ConfigError, match=r"is no archive; pass md.Archive"):
        md.Client("http://127.0.0.1:9", "a-key-that-nobody-has", archive=not_one)
