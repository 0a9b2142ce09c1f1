"""The same archive in an object store: an S3 server on loopback."""

from __future__ import annotations

import contextlib
import uuid
from typing import Any

import pytest
from archive.source import MARKETS, points_of
from archive.steps import VERBS
from archive.stored import again, books, held, prices
from reference.object_store import FAILURES, LOST, Bucket

from marketdata.archive import Archive
from marketdata.errors import ArchiveError

pytest.importorskip("moto.server", reason="moto[server] gives the S3 server of this test")
M, N = MARKETS


@pytest.fixture(scope="module")
def base(object_store: Bucket) -> Archive:
    """An archive of some commits."""
    archive = Archive("s3://history/base", frame="polars", storage_options=object_store.options)
    for first, size in ((0, 1.0), (10, 2.0), (20, 3.0)):
        archive.add(books=books(M, first, 12, size=size))
    archive.add(prices=prices(M, 0, 9))
    archive.add(prices=prices(N, 0, 9))
    return archive


def copied(object_store: Bucket, base: Archive) -> Archive:
    """A copy of the archive at a new address."""
    name = uuid.uuid4().hex
    object_store.copy("base", name, "none")
    return Archive(f"s3://history/{name}", frame="polars", storage_options=base._store.options)


def content(archive: Archive) -> dict[str, Any]:
    """All points and their coverage."""
    points = {(view, market): held(archive, view, market) for view in ("books", "prices") for market in MARKETS}  # type: ignore[arg-type]
    return {"points": points, "coverage": archive.coverage().drop("fetched_at").rows()}


@pytest.mark.fault("AR45")
@pytest.mark.parametrize(
    "verb", ["replace", "compact", *(pytest.param(verb, marks=pytest.mark.soak) for verb in ("add", "pull"))]
)
def test_an_object_store_may_lose_the_answer_of_any_commit(object_store: Bucket, base: Archive, verb: str) -> None:
    """A commit that was made is recognised by its mark: the points are as after the write, none twice."""
    done = copied(object_store, base)
    VERBS[verb](done)
    expected, nth, lost = content(again(done)), 1, True
    while lost:
        archive = copied(object_store, base)
        object_store.tell(nth, LOST)
        VERBS[verb](archive)
        lost, _ = object_store.tell()
        assert content(again(archive)) == expected
        assert again(archive).verify().is_empty()
        nth += 1
    assert nth > 2


@pytest.mark.fault("AR38")
@pytest.mark.parametrize(
    ("verb", "step"), [("add", 24), *(pytest.param(v, 3, marks=pytest.mark.soak) for v in ("add", "replace", "pull"))]
)
def test_an_object_store_may_fail_at_some_requests(object_store: Bucket, base: Archive, verb: str, step: int) -> None:
    """At each of some requests: a typed error or none, and the same call then completes."""
    done = copied(object_store, base)
    VERBS[verb](done)
    expected, nth, failed = content(again(done)), 2, True
    while failed:
        archive = copied(object_store, base)
        object_store.tell(nth, FAILURES[nth % len(FAILURES)])
        with contextlib.suppress(ArchiveError):
            VERBS[verb](archive)
        failed, _ = object_store.tell()
        VERBS[verb](again(archive))
        assert content(again(archive)) == expected
        assert again(archive).verify().is_empty()
        nth += step


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
    rows = archive.scan("books").filter(market_id=M).collect()
    assert rows.height == archive.scan("books", engine="arrow").read_all().num_rows > 60
    assert rows.height == archive.scan("books", engine="duckdb").pl().height
    assert archive.verify().is_empty()
    assert archive.vacuum(0) == []
