"""Fixtures for every folder: the recorded data, which is beside the repository."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from marketdata.archive import Archive

RECORDED = (Path(__file__).resolve().parents[1] / ".." / "shared" / "data" / "recorded").resolve()


@pytest.fixture(scope="session")
def recorded() -> Path:
    """Folder of the recorded data; skips where it is absent."""
    if not (RECORDED / "books.parquet").exists():
        pytest.skip(f"the recorded data is not here: {RECORDED}")
    return RECORDED


@pytest.fixture(scope="session")
def recorded_archive(recorded: Path, tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """All recorded data in one archive; read only."""
    import polars as pl

    archive = Archive(tmp_path_factory.mktemp("recorded") / "archive", frame="polars")
    archive.add(
        markets=pl.read_parquet(recorded / "markets.parquet"),
        books=pl.read_parquet(recorded / "books.parquet"),
        prices=pl.read_parquet(recorded / "prices.parquet").lazy(),
        metrics=pl.read_parquet(recorded / "metrics.parquet").to_arrow(),
    )
    return archive


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """No test cuts the power, so files need not wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda descriptor: None)
        yield


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An empty archive."""
    (tmp_path / "archive").mkdir()
    return Archive(tmp_path / "archive", frame="polars")
