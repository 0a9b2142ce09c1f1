"""What the archive tests share: the recorded data, and small archives."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from object_store import Bucket, served

from marketdata.archive import Archive

RECORDED = (Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "recorded").resolve()


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


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """An empty archive."""
    (tmp_path / "archive").mkdir()
    return Archive(tmp_path / "archive", frame="polars")


@pytest.fixture(scope="module")
def object_store() -> Iterator[Bucket]:
    """An S3 server with an empty bucket."""
    pytest.importorskip("moto.server", reason="moto[server] gives the S3 server of this test")
    with served() as one:
        yield one


@pytest.fixture
def bucket(object_store: Bucket) -> tuple[str, dict[str, str]]:
    """Address of an archive in an object store, and options of its storage."""
    return "s3://history/archive", object_store.options
