"""Archives that somebody else hands over, folders that change under an open archive, and processes that are forked."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import shutil
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import marketdata as md
from marketdata.archive import Archive
from marketdata.errors import ArchiveCorruptError, ArchiveError, NotArchivedError

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with two commits of prices."""
    folder = tmp_path_factory.mktemp("untrusted") / "archive"
    archive = Archive(folder, frame="polars")
    archive.add(prices=md.testing.prices("polars", buckets=2), markets=md.testing.markets("polars"))
    archive.add(prices=md.testing.prices("polars", buckets=3))
    return folder


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "given"))


def in_log(change: Callable[[dict[str, Any], Path], object]) -> Change:
    """Change each action of a table's log that adds a file."""

    def edit(table: Path) -> None:
        for commit in sorted((table / "_delta_log").glob("*.json")):
            actions = [json.loads(line) for line in commit.read_text().splitlines()]
            for action in actions:
                if "add" in action:
                    change(action["add"], table)
            commit.write_text("\n".join(json.dumps(action) for action in actions))

    return edit


def linked(table: Path) -> None:
    for file in table.glob("*.parquet"):
        shutil.move(file, table.parent / file.name)
        file.symlink_to(table.parent / file.name)


def behind_a_link(action: dict[str, Any], table: Path) -> None:
    outside = table.parent / "outside"
    outside.mkdir(exist_ok=True)
    shutil.move(table / action["path"], outside / action["path"])
    if not (table / "inside").exists():
        (table / "inside").symlink_to(outside)
    action["path"] = "inside/" + action["path"]


def moved_table(table: Path) -> None:
    shutil.move(table, table.parent / "elsewhere")
    table.symlink_to(table.parent / "elsewhere")


def moved_log(table: Path) -> None:
    shutil.move(table / "_delta_log", table.parent / "log")
    (table / "_delta_log").symlink_to(table.parent / "log")


def climbing(action: dict[str, Any], table: Path) -> None:
    shutil.copy(table / action["path"], table.parent / action["path"])
    action["path"] = "../" + action["path"]


NESTED = '{"numRecords":1,"minValues":' + "[" * 100_000 + "]" * 100_000 + "}"
HOSTILE: dict[str, Change] = {
    "a path that climbs": in_log(climbing),
    "a path that climbs inside": in_log(lambda action, _: action.update(path=f"a/../../{action['path']}")),
    "an absolute path": in_log(lambda action, table: action.update(path=str(table / action["path"]))),
    "another storage": in_log(lambda action, _: action.update(path="s3://bucket/" + action["path"])),
    "an address of a file": in_log(lambda action, table: action.update(path=(table / action["path"]).as_uri())),
    "a link": linked,
    "a file behind a link": in_log(behind_a_link),
    "a table that is a link": moved_table,
    "a log that is a link": moved_log,
    "nested statistics": in_log(lambda action, _: action.update(stats=NESTED)),
}
READS: dict[str, Callable[[Archive], object]] = {
    "prices": lambda archive: archive.prices(archive.markets()["slug"].to_list()),
    "scan": lambda archive: archive.scan("prices").collect(),
    "arrow": lambda archive: archive.scan("prices", engine="arrow").read_all(),
    "coverage": lambda archive: archive.coverage(),
    "verify": lambda archive: archive.verify(),
    "vacuum": lambda archive: archive.vacuum(retention_hours=0),
    "sql": lambda archive: archive.sql("select count(*) from prices"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_log_that_names_what_is_outside_of_its_folder_is_refused(copied: Path, change: Change) -> None:
    """No function reads or removes a file by such a log, none ends the process, and the error says what is wrong."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    before = {path.name for path in copied.parent.rglob("*.parquet")}
    change(copied / "prices")
    for read in READS.values():
        with pytest.raises(ArchiveError, match=r"is not read: .* (outside|link|nested)(?s:.*)new archive"):
            read(Archive(copied, frame="polars"))
    assert {path.name for path in copied.parent.rglob("*.parquet")} == before


def test_nested_statistics_of_a_checkpoint_are_refused(copied: Path) -> None:
    """A checkpoint has the statistics of all commits before it."""
    archive = Archive(copied, frame="polars")
    archive.compact()
    log = copied / "prices" / "_delta_log"
    assert list(log.glob("*.checkpoint.parquet"))
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = next(log.glob("*.checkpoint.parquet"))
    rows = pq.read_table(file)
    adds = [None if add is None else {**add, "stats": NESTED} for add in rows["add"].to_pylist()]
    place = rows.schema.get_field_index("add")
    pq.write_table(rows.set_column(place, "add", pa.array(adds, rows.schema.field("add").type)), file)
    with pytest.raises(ArchiveError, match="nested more than"):
        Archive(copied, frame="polars").prices(["m"])


def test_a_coverage_file_does_not_fill_the_memory(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file that unpacks to gigabytes is damage, and is not unpacked."""
    for file in (copied / "prices" / "_coverage").iterdir():
        body = zlib.compress(b" " * 80_000_000 + b"{}", 9)
        file.write_bytes(zlib.crc32(body).to_bytes(4, "big") + body)
    with pytest.raises(ArchiveCorruptError, match=r"more than 64,000,000 bytes.*verify\(repair=True\)"):
        Archive(copied, frame="polars").coverage()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "is missing": Path.unlink,
    "were committed": lambda file: file.write_bytes(file.read_bytes()[:-100]),
    "is no file": lambda file: (file.unlink(), file.mkdir()),
}


@pytest.mark.parametrize(("words", "damage"), DAMAGE.items())
def test_scans_and_sql_name_a_damaged_file_as_reads_do(copied: Path, words: str, damage: Change) -> None:
    """A file that is gone, cut, or replaced by a folder is named by each way to read; it never gives no rows."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install prediction-marketdata[duckdb]")
    for file in (copied / "prices").glob("*.parquet"):
        damage(file)
    for name in ("scan", "arrow", "sql"):
        with pytest.raises(ArchiveCorruptError, match=rf"The data file .*{words}(?s:.*)archive.verify"):
            READS[name](Archive(copied, frame="polars"))
    with pytest.raises(ArchiveError):
        READS["prices"](Archive(copied, frame="polars"))


def test_a_folder_that_is_removed_is_not_an_empty_archive(copied: Path) -> None:
    """An open archive says that its folder is gone; a new one may be made there, as the error says."""
    archive = Archive(copied, frame="polars")
    rows = archive.prices(archive.markets()["slug"].to_list())
    shutil.rmtree(copied)
    for read in READS.values():
        with pytest.raises(ArchiveError, match=r"is gone since this archive was opened.*md.Archive\(path\)"):
            read(archive)
    with pytest.raises(NotArchivedError):
        Archive(copied).verify()
    again = Archive(copied, frame="polars")
    again.add(prices=rows, markets=md.testing.markets("polars"))
    assert again.prices(again.markets()["slug"].to_list()).equals(rows)


def test_vacuums_at_once_do_not_meet(copied: Path) -> None:
    """Each asks the storage for its time by a file of its own."""
    problems: list[BaseException] = []

    def vacuum() -> None:
        try:
            for _ in range(3):
                Archive(copied).vacuum(retention_hours=0)
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=vacuum) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert not list(itertools.chain(copied.rglob("_clock*")))


def _in_child(location: str, answer: Any) -> None:
    try:
        answer.put(len(Archive(location).markets()))
    except BaseException as problem:
        answer.put(f"{type(problem).__name__}: {problem}")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks by default")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_a_forked_process_is_told_how_to_start_another(written: Path) -> None:
    """The storage library does not survive a fork: an error names spawn and forkserver, in place of an endless wait."""
    assert len(Archive(written).markets()) == 1
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            Archive(written).markets()
            text = "no error"
        except BaseException as problem:
            text = f"{type(problem).__name__}: {problem}"
        os.write(writing, text.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    assert text.startswith("ArchiveError: This process was forked")
    assert 'get_context("spawn")' in text
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_in_child, args=(str(written), queue))
    process.start()
    assert queue.get(timeout=60) == 1
    process.join()
