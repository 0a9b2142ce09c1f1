"""Scans: the same rows as reads at every resolution, and never more in memory than some days of a market."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from archive.source import MARKETS, MINUTE, START, columns_of
from archive.stored import books, data_files

import marketdata as md
from marketdata.archive import Archive
from marketdata.archive.reader import Reader
from marketdata.errors import ArchiveError, ConfigError, NotArchivedError
from marketdata.points.schema import BOOKS
from marketdata.points.views import VIEWS, View

M, N = MARKETS
DAY = 1440


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seventy days of two markets with gaps inside of buckets, empty sides and nulls."""
    archive = Archive(tmp_path_factory.mktemp("scanned"), frame="polars")
    rng = np.random.default_rng(5)
    for market in MARKETS:
        for first in (0, 95, 20 * DAY + 7, 69 * DAY):
            archive.add(books=books(market, first, 80))
            keys = [(t, n) for t in range(2) for n in range(first, first + 80, 3)]
            values = rng.random(len(keys)).tolist()
            archive.add(prices=columns_of("prices", market, keys, [float("nan"), *values[1:]]))
            numbers = [(0, n) for n in range(first, first + 80)]
            archive.add(metrics=columns_of("metrics", market, numbers, rng.random((80, 2)).tolist()))
    return Path(archive.location)


@pytest.fixture
def filled(folder: Path, tmp_path: Path) -> Archive:
    """An archive of one's own of them."""
    return Archive(shutil.copytree(folder, tmp_path / "filled"), frame="polars")


def same(scan: pl.LazyFrame, frame: pl.DataFrame) -> None:
    """The same rows in some order of files."""
    from polars.testing import assert_frame_equal

    mine = scan.collect()
    theirs = frame.with_columns(pl.col(c).cast(pl.String) for c in frame.columns if c.endswith(("_id", "_label")))
    assert mine.schema == theirs.schema
    keys = [c for c in ("market_id", "token_id", "ts", "side", "level") if c in mine.columns]
    assert_frame_equal(mine.sort(keys), theirs.sort(keys))


@pytest.mark.parametrize("view", VIEWS)
def test_a_scan_has_the_rows_of_a_read(folder: Path, view: View) -> None:
    """Whole, and cut to one market and a range that begins and ends inside of buckets."""
    filled = Archive(folder, frame="polars")
    span = (START + 31 * MINUTE) / 1e6, (START + (69 * DAY + 45) * MINUTE) / 1e6
    read = getattr(filled, view)
    for resolution in ("1m", "1h", "1d"):
        whole = read(list(MARKETS), None, None, resolution, on_missing="partial")
        same(filled.scan(view, resolution=resolution), whole)
        one = read(N, *span, resolution, on_missing="partial")
        same(filled.scan(view, N, *span, resolution), one)
        same(filled.scan(view, [N], *span, resolution).filter(market_id=N), one)


def test_what_is_not_there_scans_as_nothing_or_is_an_error(archive: Archive) -> None:
    """An empty archive has no rows but all columns; unknown markets, views and widths are named."""
    for resolution in ("1m", "1h"):
        assert archive.scan("books", resolution=resolution).collect().columns == list(BOOKS)
    wrong: Any
    for wrong in ({"view": "trades"}, {"view": "books", "resolution": "7m"}):
        with pytest.raises(ConfigError):
            archive.scan(**wrong)
    with pytest.raises(NotArchivedError):
        archive.scan("books", "nobody")


@pytest.mark.fault("AR30")
def test_only_base_points_are_stored(archive: Archive) -> None:
    """A range that was asked at two resolutions is held once, at 1m; a coarse scan or read stores nothing."""
    archive.add(books=books(M, 0, 120))
    before = archive.coverage(), data_files(archive, "books")
    for resolution in ("10m", "1h", "1d"):
        archive.books(M, resolution=resolution)
        archive.scan("books", resolution=resolution).collect()
    assert archive.coverage().equals(before[0])
    assert data_files(archive, "books") == before[1]
    assert np.all(np.diff(np.unique(Reader(archive).columns("books", M).ts)) == MINUTE)


@pytest.mark.fault("AR30")
def test_aggregated_rows_never_replace_base_points(filled: Archive) -> None:
    """Hourly books or means are refused where 1m points are held; elsewhere they are no proof of the minutes."""
    before = filled.coverage()
    with pytest.raises(ArchiveError, match="1h"):
        filled.add(books=filled.books(M, resolution="1h", on_missing="partial"))
    means = md.resample(filled.prices(M, on_missing="partial"), "10m")
    with pytest.raises(ArchiveError, match="10m"):
        filled.add(prices=means)
    assert filled.coverage().equals(before)
    elsewhere = means.with_columns(pl.col("ts") - pl.duration(days=300))
    with pytest.warns(md.errors.PartialCoverageWarning, match="grid of 10m"):
        filled.add(prices=elsewhere)
    assert filled.verify().is_empty()
    before = filled.coverage().filter(pl.col("start") < elsewhere["ts"].max())
    assert before["state"].unique().to_list() == ["unverified"]
