"""The same archive in an object store: an S3 server on loopback."""

from __future__ import annotations

import pytest
from archive.source import MARKETS, points_of
from archive.stored import again, books, held, prices

from marketdata.archive import Archive

pytest.importorskip("moto.server", reason="moto[server] gives the S3 server of this test")
M, N = MARKETS


@pytest.mark.fault("AR45")
def test_an_archive_lives_in_an_object_store(bucket: tuple[str, dict[str, str]]) -> None:
    """Add, replace, read, scan, compact, verify and vacuum work at an S3 address as in a folder."""
    archive = Archive(f"{bucket[0]}-lives", frame="polars", storage_options=bucket[1])
    archive.add(markets=[{"market_id": M, "slug": "s"}], books=books(M, 0, 20), prices=prices(N, 0, 20))
    archive.add(books=books(M, 10, 20, size=3.0))
    expected = {**points_of("books", books(M, 0, 20)), **points_of("books", books(M, 10, 20, size=3.0))}
    assert held(archive) == held(again(archive)) == expected
    archive.compact()
    assert held(again(archive)) == expected
    assert archive.scan("books").filter(market_id=M).collect().height > 60
    assert archive.verify().is_empty()
    assert archive.vacuum(0) == []
