"""Formats of archives: today's, those without a mark, later ones; and the past that vacuum has removed."""

from __future__ import annotations

import datetime as dt
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from archive.source import MARKETS, without_notes
from archive.test_faults import books, held, prices
from archive.test_made import READS

import marketdata as md
from marketdata.archive import Archive
from marketdata.archive.coverage.table import SCHEMA

M, N = MARKETS
MARK = '{\\"marketdata.format\\":\\"3\\"'


def relabel(archive: Archive, table: str, mark: str) -> None:
    """Write another mark of the format into the log of a table."""
    path = Path(archive.location, table, "_delta_log", f"{0:020d}.json")
    text = path.read_text()
    assert MARK in text
    path.write_text(text.replace(MARK, mark))


def files(archive: Archive) -> dict[Path, int]:
    """The files of the tables, and when they were written."""
    paths = [path for path in Path(archive.location).rglob("*") if path.suffix in (".json", ".parquet")]
    return {path: path.stat().st_mtime_ns for path in paths}


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "archive", frame="polars")
    archive.add(markets=[{"market_id": M, "slug": "m", "question": "?", "token_ids": [], "token_labels": []}])
    archive.add(books=books(M, 0, 30), prices=prices(N, 0, 30))
    return archive


@pytest.fixture
def unmarked(archive: Archive) -> Archive:
    """An archive as it was before formats had a mark: coverage had hashes, and a range with points could be empty."""
    from deltalake import DeltaTable, write_deltalake

    for name in archive._store.tables:
        if name != "coverage" and Path(archive.location, name).exists():
            relabel(archive, name, "{")
    archive._store.coverage.fold(["books", "prices"])
    rows = pa.table(DeltaTable(f"{archive.location}/coverage").to_pyarrow_table())
    without_notes(archive.location)
    states = [("empty_observed" if view == "prices" else "recorded") for view in rows["view"].to_pylist()]
    rows = rows.set_column(SCHEMA.get_field_index("state"), "state", pa.array(states))
    rows = rows.append_column(pa.field("content_hash", pa.string()), pa.array(["0" * 16] * rows.num_rows, pa.string()))
    assert set(SCHEMA.names) < set(rows.schema.names)
    write_deltalake(f"{archive.location}/coverage", rows, mode="overwrite", schema_mode="overwrite")
    return Archive(archive.location, frame="polars")


def test_an_archive_from_before_formats_is_read_and_written(unmarked: Archive) -> None:
    """It opens as it is: reads, scans, verify, add, compact and vacuum do what they do in a new one."""
    before = held(unmarked)
    assert len(before) == 60
    assert unmarked.coverage()["state"].to_list() == ["recorded", "provisional"]
    (was_empty,) = unmarked._store.coverage.records("prices", N)
    assert (was_empty.rows, was_empty.tries) == (30, 1)
    assert unmarked.verify().is_empty()
    unmarked.add(books=books(M, 20, 30, size=3.0))
    unmarked.compact()
    assert held(Archive(unmarked.location)).keys() > before.keys()
    assert unmarked.coverage().filter(view="books")["rows"].to_list() == [100]
    assert unmarked.prices(N).height == 30
    assert unmarked.verify().is_empty()
    assert unmarked.vacuum(retention_hours=0)


WRITES: dict[str, Callable[[Archive], Any]] = {
    "add": lambda a: a.add(prices=prices(N, 0, 5)),
    "verify and repair": lambda a: a.verify(repair=True),
}


@pytest.mark.fault("AR51")
@pytest.mark.parametrize("mark", ['{\\"marketdata.format\\":\\"4\\"', '{\\"marketdata.format\\":\\"4 beta\\"'])
@pytest.mark.parametrize("name", {**READS, **WRITES})
def test_an_archive_of_a_later_format_says_what_to_install(archive: Archive, name: str, mark: str) -> None:
    """Every read and write is an error that names both formats, never damage, and changes nothing."""
    for table in ("coverage", "books", "prices", "markets"):
        relabel(archive, table, mark)
    before = files(archive)
    call = {**READS, **WRITES}[name]
    with pytest.raises(md.ArchiveError, match=r"format .*later version.*reads formats 1 to 3.*pip install") as info:
        call(Archive(archive.location, frame="polars"))
    assert not isinstance(info.value, md.ArchiveCorruptError)
    assert files(archive) == before


def test_one_table_of_a_later_format_is_not_read(archive: Archive) -> None:
    """The others can be."""
    relabel(archive, "prices", '{\\"marketdata.format\\":\\"4\\"')
    later = Archive(archive.location, frame="polars")
    assert held(later)
    with pytest.raises(md.ArchiveError, match="prices has format 4"):
        later.prices(N)


def test_the_mark_stays_beside_the_base_and_with_new_columns(tmp_path: Path) -> None:
    """An archive of seconds has both; a further metric keeps them."""
    archive = Archive(tmp_path / "seconds", base="1s")
    archive.add(metrics=md.testing.metrics().assign(trades=1.0))
    for name in ("metrics", "coverage"):
        metadata = Archive(archive.location)._store.tables[name].version().schema.field(0).metadata
        assert metadata == {b"marketdata.format": b"3", b"marketdata.base": b"1s"}


def test_a_past_whose_files_were_removed_names_the_earliest_that_is_there(archive: Archive) -> None:
    """After vacuum the error is no damage: it says which time can be read, and that time is."""
    time.sleep(0.02)  # the clock of a file system is not quite that of a process
    then = dt.datetime.now(dt.UTC)
    for size in (2.0, 3.0):
        time.sleep(0.02)
        archive.add(books=books(M, 0, 30, size=size))
    archive.vacuum(retention_hours=0)
    newest = held(archive)
    for read in (lambda a: a.books(M), lambda a: a.books(M, resolution="1h"), lambda a: a.columns("books", M)):
        with pytest.raises(
            md.ConfigError, match=r"vacuum has removed files.*The earliest time that can be read"
        ) as info:
            read(Archive(archive.location, frame="polars", as_of=then))
    (earliest,) = re.findall(r"be read is (\S+);", str(info.value))
    assert held(Archive(archive.location, as_of=earliest)) == newest
    assert Archive(archive.location, frame="polars", as_of=then).prices(N).height == 30
    assert pl.DataFrame(archive.verify(frame="polars")).is_empty()
