"""Folders that are no archive, and archives of an earlier layout."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from archive.source import MARKETS, columns_of
from test_cli import marketdata

import marketdata as md
from marketdata.archive import Archive

READS: dict[str, Callable[[Archive], Any]] = {
    "coverage": lambda a: a.coverage(),
    "markets": lambda a: a.markets(),
    "records": lambda a: a.records("markets"),
    "prices": lambda a: a.prices("m"),
    "scan": lambda a: a.scan("prices"),
    "files": lambda a: a.files("prices"),
    "sql": lambda a: a.sql("select * from prices"),
    "verify": lambda a: a.verify(),
    "compact": lambda a: a.compact(),
    "vacuum": lambda a: a.vacuum(),
    "rebuild": lambda a: a.rebuild(),
    "serve": md.serve,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_folder_of_other_files_is_not_an_empty_archive(read: Callable[[Archive], Any], tmp_path: Path) -> None:
    """What reads a folder that holds something else says so with its path."""
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "one.txt").write_text("dear")
    with pytest.raises(md.NotArchivedError, match="holds other files") as info:
        read(Archive(tmp_path / "letters"))
    assert str(tmp_path / "letters") in str(info.value)


def test_a_folder_that_is_not_there_is_an_archive_without_data(tmp_path: Path) -> None:
    """It has no coverage and no records, makes nothing, and a market that is asked of it tells of the folder."""
    archive = Archive(tmp_path / "nowhere")
    assert len(archive.coverage()) == len(archive.markets()) == len(archive.records("events")) == 0
    with pytest.raises(md.NotArchivedError, match=r"There is no folder .*nowhere"):
        archive.prices("m")
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("look", range(1, 9))
def test_a_table_that_is_made_while_a_read_looks_at_the_folder_is_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    """Behind whichever look at the folder the first write comes, who reads sees an archive."""
    archive, looks = Archive(tmp_path / "new"), itertools.count(1)
    (tmp_path / "new").mkdir()

    def watched(name: str) -> None:
        real = getattr(Path, name)

        def call(path: Path) -> Any:
            found = real(path)
            if next(looks) == look:
                Archive(tmp_path / "new").add(prices=columns_of("prices", MARKETS[0], [(0, 1)], [0.5]))
            return found

        monkeypatch.setattr(Path, name, call)

    watched("is_dir")
    watched("iterdir")
    assert len(archive.coverage()) in (0, 1)
    monkeypatch.undo()
    assert len(archive.coverage()) == (1 if next(looks) > look else 0)


def test_an_add_makes_the_archive(tmp_path: Path) -> None:
    """Where nothing is, `add` makes the folder; an empty folder is an archive that holds nothing yet."""
    (tmp_path / "empty").mkdir()
    assert len(Archive(tmp_path / "empty").coverage()) == 0
    for name in ("empty", "new"):
        archive = Archive(tmp_path / name)
        archive.add(prices=columns_of("prices", MARKETS[0], [(0, 1)], [0.5]))
        assert len(Archive(tmp_path / name).coverage()) == 1


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """An archive whose coverage is in the layout that had no column for commits."""
    from deltalake import write_deltalake

    from marketdata.archive.coverage.table import SCHEMA

    archive = Archive(tmp_path / "earlier")
    archive.add(prices=columns_of("prices", MARKETS[0], [(0, 1)], [0.5]))
    old = pa.schema([field for field in SCHEMA if field.name != "commit"])
    write_deltalake(tmp_path / "earlier" / "coverage", old.empty_table(), mode="overwrite", schema_mode="overwrite")
    return tmp_path / "earlier"


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_an_archive_of_an_earlier_layout_says_so(read: Callable[[Archive], Any], earlier: Path) -> None:
    """What reads it is a typed error that names the layout, and never says that data is damaged."""
    with pytest.raises(md.ArchiveError, match="earlier layout, without the columns commit") as info:
        read(Archive(earlier))
    assert not isinstance(info.value, md.ArchiveCorruptError)


def test_an_archive_of_an_earlier_layout_is_not_written_to(earlier: Path) -> None:
    """Adding to it is the same error, and changes nothing."""
    before = {path: path.stat().st_mtime_ns for path in earlier.rglob("*") if path.is_file()}
    with pytest.raises(md.ArchiveError, match="earlier layout"):
        Archive(earlier).add(prices=columns_of("prices", MARKETS[0], [(0, 2)], [0.5]))
    assert {path: path.stat().st_mtime_ns for path in earlier.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("words", [("coverage",), ("verify",), ("serve",), ("export", "prices"), ("compact",)])
def test_the_command_line_names_the_layout(words: tuple[str, ...], earlier: Path, tmp_path: Path) -> None:
    """Each command that opens it ends with one line and exit code 1."""
    done = marketdata(words[0], earlier, *words[1:], cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "earlier layout" in done.stderr
