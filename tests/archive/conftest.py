"""What the archive tests share: the recorded data, and small archives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

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
    return Archive(tmp_path / "archive", frame="polars")


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[str, dict[str, str]]]:
    """Address and options of an empty bucket."""
    pytest.importorskip("moto.server", reason="moto[server] gives the S3 server of this test")
    import boto3

    # In a process of its own: the file handler of deltalake keeps the interpreter's lock while it waits.
    code = (
        "import sys\nfrom moto.server import ThreadedMotoServer\n"
        "s = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)\ns.start()\n"
        "print(s.get_host_and_port()[1], flush=True)\nsys.stdin.read()\n"
    )
    server = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    assert server.stdin is not None
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.stdout.readline().strip()}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "conditional_put": "etag",
    }
    client = boto3.client(
        "s3", endpoint_url=options["AWS_ENDPOINT_URL"], region_name="us-east-1",
        aws_access_key_id="test", aws_secret_access_key="test",
    )  # fmt: skip
    client.create_bucket(Bucket="history")
    yield "s3://history/archive", options
    server.stdin.close()
    server.wait()
    server.stdout.close()
