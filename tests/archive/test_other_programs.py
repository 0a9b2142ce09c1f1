"""Other programs on the tables of an archive, damage, and what vacuum may delete."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from archive.source import MARKETS, points_of
from archive.stored import again, books, data_files, held, prices
from deltalake import DeltaTable, write_deltalake

from marketdata.archive import Archive

M, N = MARKETS
HOURS = 3600


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Books and prices in several files, some replaced."""
    archive = Archive(tmp_path_factory.mktemp("programs"), frame="polars")
    for first in (0, 10, 20):
        archive.add(books=books(M, first, 15), prices=prices(N, first, 15, value=first / 100))
    return Path(archive.location)


@pytest.fixture
def filled(folder: Path, tmp_path: Path) -> Archive:
    """An archive of one's own of them."""
    return Archive(shutil.copytree(folder, tmp_path / "filled"), frame="polars")


def age(archive: Archive, hours: float, folder: str = "*") -> None:
    """Let the files of an archive, but its logs, be older."""
    for path in Path(archive.location).glob(f"{folder}/**/*"):
        if path.is_file() and "_delta_log" not in path.parts:
            os.utime(path, (time.time() - hours * HOURS,) * 2)


def test_many_small_writes_leave_few_files(archive: Archive) -> None:
    """Small files are joined along the way, and the points stay as they were written."""
    for first in range(36):
        archive.add(prices=prices(M, first, 1, value=first / 100))
    assert len(DeltaTable(f"{archive.location}/prices").file_uris()) < 12
    assert held(archive, "prices") == {
        key: value
        for first in range(36)
        for key, value in points_of("prices", prices(M, first, 1, value=first / 100)).items()
    }


def test_maintenance_by_another_program_keeps_points_and_coverage(filled: Archive) -> None:
    """Reads are the same, later writes are right, and verify finds no range with other rows."""
    before = held(filled), held(filled, "prices", N), filled.coverage().rows()
    changes: list[Callable[[DeltaTable], Any]] = [
        lambda table: table.optimize.compact(),
        lambda table: table.optimize.z_order(["ts"]),
        lambda table: table.create_checkpoint(),
        lambda table: table.vacuum(0, dry_run=False, enforce_retention_duration=False),
    ]
    for change in changes:
        for view in ("books", "prices"):
            change(DeltaTable(f"{filled.location}/{view}"))
        assert (held(filled), held(filled, "prices", N), filled.coverage().rows()) == before
    assert again(filled).verify()["market_id"].to_list() in ([], [""], ["", ""])
    filled.add(prices=prices(N, 30, 10, value=0.75))
    after = {**before[1], **{("prices", N, 0, n): 0.75 for n in range(30, 40)}}
    assert held(filled, "prices", N) == after
    assert again(filled).compact() >= 0
    assert held(again(filled), "prices", N) == after


def append(table: DeltaTable) -> None:
    rows = pa.table(pl.scan_delta(table.table_uri).head(3).collect().with_columns(pl.col("ts").dt.offset_by("1y")))
    write_deltalake(table, rows.cast(pa.schema(table.schema().to_arrow())), mode="append")


@pytest.mark.parametrize(
    "change",
    [lambda table: table.delete("price = 0.1"), append, lambda table: table.restore(2)],
    ids=["delete", "append", "restore"],
)
def test_rows_that_another_program_changed_are_named(filled: Archive, change: Callable[[DeltaTable], Any]) -> None:
    """Verify names the market; repair makes it unverified, so that a pull fetches it, and loses no other row."""
    change(DeltaTable(f"{filled.location}/prices"))
    archive = again(filled)
    assert N in archive.verify().filter(view="prices")["market_id"].to_list()
    archive.verify(repair=True)
    assert again(archive).verify().filter(pl.col("market_id") != "").is_empty()
    assert "unverified" in again(archive).coverage().filter(view="prices")["state"].to_list()
    assert held(again(archive)) == held(filled)


@pytest.mark.fault("AR13")
@pytest.mark.parametrize("how", ["torn", "gone", "coverage"])
def test_a_damaged_file_is_named_and_its_range_is_given_to_a_pull(filled: Archive, how: str) -> None:
    """What is lost is unverified or not covered, what can be read stays, and the archive can be written again."""
    victim = data_files(filled, "prices")[0]
    if how == "coverage":
        victim = max(Path(filled.location, "prices/_coverage").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    if how == "gone":
        victim.unlink()
    else:
        victim.write_bytes(victim.read_bytes()[:20])
    archive = again(filled)
    assert not archive.verify().is_empty()
    archive.verify(repair=True)
    assert again(archive).verify().is_empty()
    assert not {"final", "recorded"} & set(again(archive).coverage().filter(view="prices")["state"])
    archive.add(prices=prices(N, 0, 35, value=0.5))
    assert len(held(again(archive), "prices", N)) == 35
    assert again(archive).verify().is_empty()


@pytest.mark.fault("AR1", "AR4", "AR16", "AR42")
def test_vacuum_deletes_old_files_of_the_archive_only(filled: Archive) -> None:
    """Files younger than a day, of other programs, or needed by a kept version stay, whatever the retention."""
    filled.add(prices=prices(N, 0, 35, value=0.5), replace=True)
    table = Path(filled.location, "prices")
    strange = [table / "README", table / "part-0.parquet", table / "_coverage/notes.txt"]
    for path in strange:
        path.write_text("mine")
    before = {path for path in table.rglob("*") if path.is_file()}
    assert filled.vacuum(0) == []
    age(filled, 30)
    assert filled.vacuum(24) == []
    removed = filled.vacuum(0)
    assert removed
    assert {path for path in before if not path.exists()} == {
        table / name for name in removed if (table / name) in before
    }
    assert all(path.exists() for path in strange)
    assert len(held(again(filled), "prices", N)) == 35
    assert again(filled).verify().is_empty()
