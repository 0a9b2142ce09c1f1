"""The same archive in an object store: an S3 server on loopback."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from archive.source import MARKETS, START, Source, points_of
from archive.stutter import READS, WRITES, again, disturb, fill
from archive.test_faults import books, held, prices
from archive.test_machine import ArchiveMachine
from archive.test_recordings import EVENTS, by_token, covered, later, lines
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test
from object_store import FAILURES, LOST, Bucket

from marketdata.archive import Archive
from marketdata.errors import ArchiveCorruptError, ArchiveError, ArchiveFullError
from marketdata.wire.arrow import to_table

pytest.importorskip("moto.server", reason="moto[server] gives the S3 server of this test")
M, N = MARKETS


@pytest.fixture
def store(bucket: tuple[str, dict[str, str]], request: pytest.FixtureRequest) -> Archive:
    """An empty archive in the bucket."""
    return Archive(f"{bucket[0]}-{request.node.name}", frame="polars", storage_options=bucket[1])


def test_an_archive_lives_in_an_object_store(store: Archive) -> None:
    """Add, replace, read, scan, pull, compact and verify work at an S3 address as in a folder."""
    store.add(markets=[{"market_id": M, "slug": "s"}], books=books(M, 0, 20), prices=prices(N, 0, 20))
    store.add(books=books(M, 10, 20, size=3.0))
    want = {**points_of("books", books(M, 0, 20)), **points_of("books", books(M, 10, 20, size=3.0))}
    assert held(store) == held(again(store)) == want
    source = Source()
    for n in range(60):
        source.points["prices", M, 0, n] = 0.5
    store.pull(source, M, views=["prices"], start=START / 1e6, end=START / 1e6 + 3600)
    assert len(held(store, "prices")) == 60
    assert store.compact() > 0
    assert held(again(store)) == want
    assert store.verify().is_empty()
    assert store.scan("books").filter(market_id=M).collect().height > 60
    assert all(file.startswith("s3://history/") for file in store.files("books"))


@pytest.mark.fault("AR38")
def test_recordings_are_imported_into_an_object_store(object_store: Bucket, tmp_path: Path) -> None:
    """Stopped by an error of the storage at any request and continued: the books of an import into a folder."""
    parts = [EVENTS, later(EVENTS[2:5], 240), later(EVENTS, 500)]
    files = [lines(tmp_path / f"part-{i}.jsonl", part) for i, part in enumerate(parts)]
    whole = Archive(tmp_path / "whole", frame="polars")
    whole.add_files(files)
    stopped = 0
    for nth in range(5, 160, 30):
        store = Archive(f"s3://history/import-{nth}", frame="polars", storage_options=object_store.options)
        object_store.tell(nth, FAILURES[2])
        try:
            store.add_files(files)
        except ArchiveError:
            stopped += 1
        object_store.tell()
        continued = again(store)
        continued.add_files(files)
        assert by_token(continued) == by_token(whole)
        assert covered(continued) == covered(whole)
        assert continued.verify().is_empty()
        assert again(store).add_files(files)["note"].to_list() == ["imported before"] * 3
    assert stopped


def test_writers_in_an_object_store_all_land(store: Archive) -> None:
    """Commits are conditional puts, so writers at once lose nothing, and one range has one writer's points."""
    store.add(prices=prices(M, 0, 5))
    failures: list[Any] = []

    def write(k: int) -> None:
        try:
            mine = again(store)
            for n in range(3):
                mine.add(prices=prices(N, (3 * k + n) * 10, 10), books=books(M, 0, 10, size=float(k + 1)))
        except Exception as problem:
            failures.append(problem)

    threads = [threading.Thread(target=write, args=(k,)) for k in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(held(again(store), "prices", N)) == 90
    found = held(again(store))
    assert len(found) == 20
    assert len({bids[0][1] for bids, _ in found.values()}) == 1
    assert store.verify().is_empty()


@pytest.mark.fault("AR38")
def test_a_missing_bucket_is_no_damage(bucket: tuple[str, dict[str, str]]) -> None:
    """A bucket that does not exist, a wrong key of it and a server that is gone say nothing about the data."""
    gone = {**bucket[1], "AWS_ENDPOINT_URL": "http://127.0.0.1:9", "max_retries": "0", "retry_timeout": "1s"}
    for location, options in (("s3://no-such-bucket/archive", bucket[1]), (bucket[0], gone)):
        archive = Archive(location, frame="polars", storage_options=options)
        verbs: list[Any] = [
            lambda a: a.add(prices=prices(M, 0, 5)), lambda a: a.prices(M), lambda a: a.verify(repair=True)
        ]  # fmt: skip
        for verb in verbs:
            found = None
            try:
                verb(archive)
            except ArchiveError as problem:
                found = type(problem)
            assert found is not ArchiveCorruptError
    with pytest.raises(ArchiveError, match="bucket"):
        Archive("s3://no-such-bucket/archive", storage_options=bucket[1]).add(prices=prices(M, 0, 5))


@pytest.mark.fault("AR38")
def test_an_object_that_is_gone_is_damage(store: Archive, object_store: Bucket) -> None:
    """A data file that the store says does not exist is an ArchiveCorruptError; repair gives up its range."""
    store.add(prices=prices(M, 0, 5), complete=False)
    _, _, key = store.files("prices")[0].removeprefix("s3://").partition("/")
    object_store.client.delete_object(Bucket="history", Key=key)
    fresh = again(store)
    with pytest.raises(ArchiveCorruptError, match="missing"):
        fresh.prices(M)
    assert fresh.verify(repair=True).height > 0
    assert again(store).coverage()["state"].to_list() == ["missing"]
    assert again(store).verify().is_empty()


COPIES = count()
# An archive in an object store is not rebuilt.
VERBS = [verb for verb in (*WRITES, *READS) if verb != "rebuild"]


def stuttering(
    store: Bucket, verbs: Iterable[str], calls: Iterable[int], failures: Sequence[Any] = FAILURES, retries: int = 0
) -> Counter[str]:
    """Let each of these requests of the verbs fail once, each with another error of S3."""
    options = {**store.options, "max_retries": str(retries)}
    if not store.client.list_objects_v2(Bucket="history", Prefix="base/")["KeyCount"]:
        fill(Archive("s3://history/base", frame="polars", storage_options=options))

    def made() -> Archive:
        number = next(COPIES)
        store.copy("base", f"copy-{number}", gone=f"copy-{number - 1}")
        return Archive(f"s3://history/copy-{number}", frame="polars", storage_options=options)

    def armed(_: Archive, n: int) -> None:
        store.tell(n, failures[n % len(failures)])

    def disarmed() -> bool:
        return store.tell()[0]

    return sum((disturb(verb, made, armed, disarmed, calls) for verb in verbs), Counter[str]())


@pytest.mark.fault("AR38")
@pytest.mark.parametrize(
    ("verb", "step"), [("add", 83), ("verify(repair=True)", 83), ("books", 23), ("scan", 23), ("sql", 23)]
)
def test_a_request_that_fails_is_no_damage(object_store: Bucket, verb: str, step: int) -> None:
    """500, 503, 403 and an expired token of every n-th request: a typed error, old points or new, none given up."""
    assert stuttering(object_store, [verb], range(1, 1000, step))


@pytest.mark.fault("AR38")
def test_a_store_that_refuses_to_write_says_so(object_store: Bucket) -> None:
    """Of a request to write that the store refuses (403) the error is that of a missing right, of others it is not."""
    options = {**object_store.options, "max_retries": "0"}
    archive = Archive("s3://history/refused", frame="polars", storage_options=options)
    archive.add(prices=prices(M, 0, 5))
    table, rows = archive._store.points["prices"], to_table(prices(M, 5, 5))
    version = table.version()
    writes: list[Callable[[], Any]] = [
        lambda: table.put(rows), lambda: table.commit(version, [], [])
    ]  # fmt: skip
    for failure, error in ((FAILURES[0], ArchiveError), (FAILURES[2], ArchiveFullError)):
        for write in writes:
            object_store.tell(1, failure)
            with pytest.raises(ArchiveError) as info:
                write()
            object_store.tell()
            assert type(info.value) is error


@pytest.mark.fault("AR45")
@pytest.mark.parametrize("retries", [0, 2])
@pytest.mark.parametrize("verb", ["add", "add(replace=True)", "pull", "compact"])
def test_a_commit_whose_answer_is_lost_is_recognised(object_store: Bucket, verb: str, retries: int) -> None:
    """Whichever commit is made without an answer, of points, coverage or records: its files stay, the verb is done."""
    assert set(stuttering(object_store, [verb], range(1, 100), [LOST], retries)) == {f"{verb}: done"}


@pytest.fixture
def uploaded(archive: Archive, object_store: Bucket, request: pytest.FixtureRequest) -> Archive:
    """An archive of a dozen commits, compacted in a folder, and then in the bucket."""
    archive.add(markets=[{"market_id": M, "slug": "s"}], prices=prices(M, 0, 20))
    for n in range(10):
        archive.add(books=books(M, 10 * n, 10))
    archive.compact()
    prefix = request.node.name
    for path in (p for p in Path(archive.location).rglob("*") if p.is_file() and not p.name.startswith(".")):
        key = f"{prefix}/{path.relative_to(archive.location)}"
        object_store.client.put_object(Bucket="history", Key=key, Body=path.read_bytes())
    return Archive(f"s3://history/{prefix}", frame="polars", storage_options=object_store.options)


def requests(object_store: Bucket, verb: Callable[[], Any]) -> int:
    """How many requests a verb makes."""
    object_store.tell()
    verb()
    return sum(object_store.tell()[1].values())


def test_requests_do_not_grow_with_the_number_of_commits(store: Archive, object_store: Bucket) -> None:
    """After 120 commits an add makes as many requests as after 40, and a first read no more than a few logs take."""
    adds = [requests(object_store, lambda n=n: store.add(prices=prices(M, 5 * n, 5))) for n in range(60)]
    assert store.version("prices") == 60
    assert min(adds[20:]) <= 13
    assert sum(adds[20:40]) <= 20 * 20
    assert sum(adds[40:]) <= sum(adds[20:40]) * 1.05
    reads = []
    for n in range(60, 80):
        reads.append(requests(object_store, lambda: again(store).prices(M)))
        store.add(prices=prices(M, 5 * n, 5))
    assert sum(reads) <= 60 * 20
    assert max(reads) <= 74
    assert (reader := again(store)).prices(M).height == 400
    assert requests(object_store, lambda: reader.prices(M)) <= 14
    assert len(held(again(store), "prices")) == 400
    assert store.verify().is_empty()


def test_a_read_asks_for_the_tables_that_it_needs(uploaded: Archive, object_store: Bucket) -> None:
    """The logs of others are not looked at: they may be anything; and where nothing was written they are not read."""
    assert uploaded.coverage().filter(view="books").height == 1
    for table in ("prices", "metrics", "events", "series"):
        key = f"{uploaded.location.removeprefix('s3://history/')}/{table}/_delta_log/00000000000000000000.json"
        object_store.client.put_object(Bucket="history", Key=key, Body=b"no log")
    assert uploaded.books("s")["ts"].n_unique() == 100
    assert uploaded.markets().height == 1
    with pytest.raises(ArchiveError):
        again(uploaded).scan("prices")
    # In use: two for the newest commit of each of three tables, and two for the file.
    assert requests(object_store, lambda: uploaded.books("s")) <= 8


def test_a_compacted_archive_opens_by_checkpoints(uploaded: Archive, object_store: Bucket) -> None:
    """However many commits there were: without checkpoints each of them would be read twice."""
    commits = max(uploaded._store.tables[name].version().number for name in ("books", "coverage"))
    opened = requests(object_store, lambda: again(uploaded).coverage())
    assert commits >= 11
    # The logs of books and coverage, their checkpoints, last commits and what is newer, a file; two of no table.
    assert opened <= 2 * (2 + 11 + 2 + 1) + 2 + 2 * 2


@pytest.mark.soak
@pytest.mark.fault("AR38")
def test_a_store_that_stutters_at_every_request_of_every_verb(
    object_store: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever request fails in whichever verb: a typed error or success, old points or new, none given up."""
    seen = stuttering(object_store, VERBS, range(1, 1000, int(os.environ.get("STUTTER_STEP", "1"))))
    with capsys.disabled():
        print(f"\n{sum(seen.values())} requests failed: {dict(sorted(seen.items()))}")


@pytest.mark.soak
def test_an_archive_in_an_object_store_goes_through_everything(bucket: tuple[str, dict[str, str]]) -> None:
    """The machine of pulls, cuts, revisions, clock jumps, compactions and openings holds in a bucket as in a folder."""
    numbers = count()

    class Bucket(ArchiveMachine):
        def __init__(self) -> None:
            self.number = next(numbers)
            super().__init__()

        def opened(self) -> Archive:
            return Archive(f"{bucket[0]}-machine-{self.number}", frame="polars", storage_options=bucket[1])

    run_state_machine_as_test(Bucket, settings=settings(max_examples=20, stateful_step_count=12, deadline=None))
