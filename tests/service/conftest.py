from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi")

from reference.memory import MINUTE, MemoryArchive
from reference.web import LONG_ID, START, Web, in_process

from marketdata.archive import Archive
from marketdata.points.columns import joined


def small_archive() -> MemoryArchive:
    """A market of two tokens over three hours with gaps, one of three, one of 210, and records around them."""
    archive = MemoryArchive()
    archive.add_record("series", id="s1", slug="weather", title="Weather", tags=["nature"])
    archive.add_record("events", id="e1", slug="rain", title="Rain", series_slug="weather", tags=["nature", "daily"])
    archive.add_record("events", id="e2", slug="snow", title="Snow", series_id="s1", start_date="2026-01-05T00:00:00Z")
    archive.add_market("m1", {"Yes": LONG_ID, "No": "2"}, slug="will-it-rain", event_id="e1", event_slug="rain")
    archive.add_market("m3", {"A": "31", "B": "32", "C": "33"}, event_slug="snow", status="closed")
    archive.add_market("wide", {f"L{i}": f"w{i}" for i in range(210)}, event_slug="snow")
    for minute in range(180):
        if minute % 7 == 3:
            continue
        ts = START + minute * MINUTE
        price = 0.4 + minute / 1000
        bids = [(round(price - 0.01 * k, 4), 10.0 * k + minute) for k in range(1, 4)]
        asks = [(round(price + 0.01 * k, 4), 20.0 * k + minute) for k in range(1, 3)]
        archive.put("books", "m1", LONG_ID, ts, ([], []) if minute % 11 == 0 else (bids, asks))
        if minute % 5:
            archive.put("books", "m1", "2", ts, (bids, []))
        archive.put("prices", "m1", LONG_ID, ts, None if minute % 10 == 9 else price)
        archive.put("prices", "m1", "2", ts, 1 - price)
        archive.put("metrics", "m1", None, ts, {"volume": float(minute), "liquidity": None, "spread": 0.02})
        for token in ("31", "32", "33"):
            archive.put("prices", "m3", token, ts, 1 / 3)
    for i in range(210):
        archive.put("prices", "wide", f"w{i}", START, 1 / 210)
    return archive


@pytest.fixture(scope="session")
def archive() -> MemoryArchive:
    return small_archive()


def delta_archive(memory: MemoryArchive, path: Path) -> Archive:
    """The same records and points in Delta tables."""
    out = Archive(path)
    markets = [{"market_id": r["id"], **r} for r in memory.records("markets")]
    points = {
        view: joined([memory.columns(view, market_id) for named, market_id in memory.points if named == view])
        for view in dict.fromkeys(view for view, _ in memory.points)
    }
    out.add(markets=markets, events=memory.records("events"), series=memory.records("series"), **points)
    return out


@pytest.fixture(scope="session")
def stored(archive: MemoryArchive, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """The twin of the archive in Delta tables."""
    return delta_archive(archive, tmp_path_factory.mktemp("archive"))


@pytest.fixture(scope="session", params=["memory", "delta"])
def web(archive: MemoryArchive, request: pytest.FixtureRequest) -> Web:
    """A service in process of the archive in memory, and of its twin in Delta tables."""
    return in_process(archive if request.param == "memory" else request.getfixturevalue("stored"))


@pytest.fixture(scope="session")
def local(archive: MemoryArchive) -> Web:
    """The archive in memory alone, for what does not depend on how points are stored."""
    return in_process(archive)
