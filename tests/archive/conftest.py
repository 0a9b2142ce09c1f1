"""The object store of the archive tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from reference.object_store import Bucket, served


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
