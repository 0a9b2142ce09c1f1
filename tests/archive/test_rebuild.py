"""A commit log that is damaged: the last good version with a warning, and all of it again after a rebuild."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests
from archive.source import MARKETS, MINUTE, START, Source, columns_of, points_of, without_notes
from archive.test_faults import books, held, prices
from still import SOON

import marketdata as md
from marketdata.archive import Archive
from marketdata.errors import ArchiveCorruptError, PartialCoverageWarning
from marketdata.points.views import VIEWS
from marketdata.times import to_text

M, N = MARKETS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Added, replaced and compacted points of every kind, so that dropped files lie beside those that count."""
    archive = Archive(tmp_path_factory.mktemp("rebuilt"), frame="polars")
    source = Source()
    source.points = {("metrics", m, 0, n): (float(n), 1.0) for m in MARKETS for n in range(60)}
    archive.pull(source, list(MARKETS), views=["metrics"], start=START / 1e6, end=START / 1e6 + 3600)
    for market in MARKETS:
        archive.add(books=books(market, 0, 60), prices=prices(market, 0, 30))
        archive.add(books=books(market, 60, 60))
        archive.add(books=books(market, 40, 40, size=3.0))
    archive.compact()
    archive.add(books=books(M, 100, 40, size=4.0), prices=prices(N, 20, 30, value=0.25))
    return Path(archive.location)


@pytest.fixture
def filled(folder: Path, tmp_path: Path) -> Archive:
    """An archive of one's own of them."""
    return Archive(shutil.copytree(folder, tmp_path / "filled"), frame="polars")


def everything(archive: Archive) -> dict[Any, Any]:
    return {k: v for view in VIEWS for m in MARKETS for k, v in points_of(view, archive.columns(view, m)).items()}


def commit(archive: Archive, table: str, back: int) -> Path:
    """A commit of a table, counted from the newest."""
    return sorted((Path(archive.location) / table / "_delta_log").glob("*.json"))[-1 - back]


def hole(path: Path) -> None:
    path.unlink(missing_ok=True)
    for checkpoint in path.parent.glob("*checkpoint*"):
        checkpoint.unlink(missing_ok=True)


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def torn(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(400))


def gone(path: Path) -> None:
    shutil.rmtree(path.parent)


@pytest.mark.fault("AR17")
@pytest.mark.parametrize("harm", [hole, emptied, torn, noise, gone])
@pytest.mark.parametrize("table", ["books", "coverage", "markets"])
def test_a_damaged_log_is_read_as_far_as_it_goes_and_made_anew(
    filled: Archive, harm: Callable[[Path], None], table: str
) -> None:
    """The last good version is shown with a warning and never written to; a rebuild and a refill bring all back."""
    seen: Callable[[Archive], Any] = {
        "books": everything,
        "coverage": lambda a: a.coverage().rows(),
        "markets": lambda a: a.records("markets"),
    }[table]
    before, held_before = seen(filled), everything(filled)
    harm(commit(filled, table, 1 if harm is hole else 0))
    fresh = Archive(filled.location, frame="polars")
    with pytest.warns(PartialCoverageWarning, match="rebuild"):
        # The notes of points have what the table of coverage has lost.
        assert (seen(fresh) == before) == (table == "coverage")
    with pytest.raises(ArchiveCorruptError, match="rebuild"):
        fresh.add(books=books(M, 200, 5), markets=[{"market_id": "new", "slug": "new"}])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialCoverageWarning)
        missing = Archive(filled.location, frame="polars").rebuild()
    again = Archive(filled.location, frame="polars")
    assert again.verify().is_empty()
    # What the lost commit had replaced may be back beside its replacement; then its range is missing, and filled again.
    assert set(missing["view"]) <= {table}
    for market in MARKETS:
        wanted = {k: v for k, v in held_before.items() if k[:2] == ("books", market)}
        if held(again, market=market) != wanted:
            assert market in set(missing["market_id"])
            again.add(books=filled_books(wanted, market))
    assert everything(again) == held_before
    if table == "markets":
        assert seen(again) == before
    again.add(books=books(M, 0, 10, size=7.0))
    assert held(Archive(filled.location, frame="polars"))["books", M, 0, 0][0][0][1] == 7.0
    assert again.verify().is_empty()


def filled_books(wanted: dict[Any, Any], market: str) -> Any:
    keys = sorted(wanted)
    return columns_of("books", market, [k[2:] for k in keys], [wanted[k] for k in keys])


@pytest.mark.fault("AR17")
def test_a_log_that_is_whole_stays(filled: Archive) -> None:
    """Rebuild of a sound archive changes nothing."""
    before, log = everything(filled), commit(filled, "books", 0).name
    assert filled.rebuild().is_empty()
    assert everything(filled) == before
    assert commit(filled, "books", 0).name == log


@pytest.mark.fault("AR17")
def test_without_any_log_the_newest_points_come_back(archive: Archive) -> None:
    """All logs gone: points, records and coverage come from the files alone, and a pull makes it whole."""
    source = Source()
    source.points = {("prices", M, 0, n): n / 60 for n in range(60)}
    ask: dict[str, Any] = {"views": ["prices"], "start": START / 1e6, "end": START / 1e6 + 3600}
    archive.pull(source, M, **ask)
    source.points["prices", M, 0, 30] = 0.9
    archive.pull(source, M, **ask, refresh=True)
    archive._store.coverage.fold(VIEWS)
    for log in Path(archive.location).glob("*/_delta_log"):
        shutil.rmtree(log)
    fresh = Archive(archive.location, frame="polars")
    with pytest.warns(PartialCoverageWarning, match="it is gone"):
        fresh.rebuild()
    assert points_of("prices", fresh.columns("prices", M)) == source.points
    assert fresh.find_market(f"slug-{M}") is not None
    source.requests.clear()
    fresh.pull(source, M, **ask)
    assert len(source.asked) == 0
    assert fresh.verify().is_empty()
    assert fresh.columns("prices", M).ts.max() + MINUTE == START + 60 * MINUTE


@pytest.mark.fault("AR17")
@pytest.mark.parametrize("harm", [torn, noise, hole])
def test_a_checkpoint_that_is_damaged_loses_nothing(archive: Archive, harm: Callable[[Path], None]) -> None:
    """What is behind it is found by its commits or by a rebuild, and both leave every point as it was."""
    for n in range(12):
        archive.add(books=books(M, 5 * n, 10, size=float(n + 1)))
    archive.compact()
    archive.add(books=books(M, 3, 10, size=40.0))
    before = held(archive)
    for table in ("books", "coverage"):
        for checkpoint in (Path(archive.location) / table / "_delta_log").glob("*.checkpoint.parquet"):
            harm(checkpoint)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartialCoverageWarning)
        assert Archive(archive.location, frame="polars").rebuild().is_empty()
    again = Archive(archive.location, frame="polars")
    assert held(again) == before
    assert again.verify().is_empty()
    again.add(books=books(M, 0, 5, size=50.0))
    assert len(held(Archive(archive.location, frame="polars"))) == len(before)


@pytest.mark.parametrize("table", ["coverage", "markets", "events"])
@pytest.mark.fault("AR47")
def test_a_torn_file_of_coverage_or_records_is_made_again_from_the_points(filled: Archive, table: str) -> None:
    """It is an error that names the repair, and then no point is lost, and what was known of the market's tokens is."""
    before = everything(filled)
    filled._store.coverage.fold(VIEWS)
    without_notes(filled.location)
    for path in Path(filled.location, table).glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-100])
    read: dict[str, Callable[[Archive], Any]] = {
        "coverage": lambda a: a.books(M),
        "markets": lambda a: a.find_market(M),
        "events": lambda a: a.events(),
    }
    torn_archive = Archive(filled.location, frame="polars")
    with pytest.raises(ArchiveCorruptError, match=r"verify\(repair=True\)"):
        read[table](torn_archive)
    found = torn_archive.verify()
    assert set(found["view"]) == {table}
    assert found["start"].null_count() == found.height > 0
    assert torn_archive.verify(repair=True).equals(found)
    again = Archive(filled.location, frame="polars")
    assert again.verify().is_empty()
    assert everything(again) == before
    assert again.find_market(M) is not None
    assert set(again.coverage()["state"]) == ({"recorded"} if table == "coverage" else {"recorded", "final"})
    assert len(again.books(M, on_missing="partial")) > 0
    again.add(books=books(M, 200, 5))
    assert again.verify().is_empty()


@pytest.mark.fault("AR47")
def test_with_damaged_coverage_a_service_refuses_what_frames_refuse(filled: Archive) -> None:
    """Nobody knows then what is missing: an answer without rows would say that there are none."""
    filled._store.coverage.fold(VIEWS)
    without_notes(filled.location)
    for path in Path(filled.location, "coverage").glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-100])
    hours = {"start_ts": to_text(START), "end_ts": to_text(START + 3_600_000_000), "resolution": "1m"}

    def answered() -> int:
        with md.serve(Archive(filled.location)) as service:
            url = f"{service.base_url}/v1/markets/{quote(M, safe='')}/books"
            return requests.get(url, hours, headers={"X-API-Key": service.api_key}, timeout=SOON).status_code

    assert answered() == 500
    filled.verify(repair=True)
    assert answered() == 200


@pytest.mark.fault("AR47")
def test_a_flipped_bit_in_the_coverage_of_a_commit_is_found(archive: Archive) -> None:
    """It is an error that names the repair, which records the points again, and loses none."""
    for market in (M, N):
        keys = [(token, n) for token in range(2) for n in range(30)]
        archive.add(prices=columns_of("prices", market, keys, [0.5] * 60), complete=True)
    path = commit(archive, "prices", 0)
    text = path.read_text()
    at = text.index('"marketdata.note":"') + 60
    path.write_text(text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :])
    torn_archive = Archive(archive.location, frame="polars")
    with pytest.raises(ArchiveCorruptError, match=r"coverage of commit 2.*verify\(repair=True\)"):
        torn_archive.prices(M)
    assert torn_archive.verify()["view"].to_list() == ["coverage"]
    assert torn_archive.verify(repair=True)["view"].to_list() == ["coverage"]
    for again in (torn_archive, Archive(archive.location, frame="polars")):
        assert again.verify().is_empty()
        assert dict(again.coverage()[["market_id", "state"]].iter_rows()) == {M: "final", N: "recorded"}
        assert again.coverage()["rows"].to_list() == [60, 60]


def test_coverage_that_was_lost_in_part_is_what_fits_the_points(archive: Archive) -> None:
    """Records that are left and no longer fit are made again as recorded; those that fit stay; no point is lost."""
    source = Source()
    source.points = {("prices", M, 0, n): n / 600 for n in range(300)}
    ask: dict[str, Any] = {"views": ["prices"]}
    parts = [(START / 1e6 + 6_000 * n, START / 1e6 + 6_000 * (n + 1)) for n in range(3)]
    archive.pull(source, M, start=parts[0][0], end=parts[1][1], **ask)
    archive._store.coverage.fold(VIEWS)
    known = set(Path(archive.location, "coverage").glob("*.parquet"))
    source.points["prices", M, 0, 50] = 0.9
    archive.pull(source, M, start=parts[0][0], end=parts[0][1], refresh=True, **ask)
    archive.pull(source, M, start=parts[2][0], end=parts[2][1], **ask)
    archive._store.coverage.fold(VIEWS)
    without_notes(archive.location)
    for path in set(Path(archive.location, "coverage").glob("*.parquet")) - known:
        path.write_bytes(path.read_bytes()[:-100])
    torn_archive = Archive(archive.location, frame="polars")
    assert not torn_archive.verify(repair=True).is_empty()
    again = Archive(archive.location, frame="polars")
    assert again.verify().is_empty()
    assert points_of("prices", again.columns("prices", M)) == source.points
    assert set(again.coverage()["state"]) == {"recorded", "final"}
    again.pull(source, M, start=parts[0][0], end=parts[2][1], **ask)
    assert points_of("prices", again.columns("prices", M)) == source.points
    assert set(again.coverage()["state"]) == {"final"}


@pytest.mark.fault("AR17")
def test_records_of_several_writes_come_back_without_their_log(archive: Archive) -> None:
    """Each write has its own file of records; without a log the newest text of each is found again."""
    for n in range(5):
        archive.add(markets=[{"market_id": f"m-{n}", "slug": f"s-{n}", "question": "first"}])
    archive.add(markets=[{"market_id": "m-1", "slug": "s-1", "question": "second"}])
    before = archive.records("markets")
    shutil.rmtree(Path(archive.location, "markets", "_delta_log"))
    with pytest.warns(PartialCoverageWarning, match="it is gone"):
        Archive(archive.location, frame="polars").rebuild()
    assert Archive(archive.location).records("markets") == before
