"""Files in, files out, other engines, and the past."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archive.source import MARKETS
from archive.stored import books, data_files, held, prices

from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.archive.storage.tables import Table
from marketdata.cli import output
from marketdata.errors import ArchiveError, ConfigError
from marketdata.points.columns import Data, Token, joined
from marketdata.tidy.records import to_frame as records_frame

M, N = MARKETS
TOKEN = "9" * 77
T0 = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
MARKET = [{"market_id": "m", "slug": "s", "question": "q", "token_ids": [TOKEN, "8"], "token_labels": ["Yes", "No"]}]


@pytest.mark.parametrize("end", [".parquet", ".csv", ".jsonl"])
def test_what_is_exported_can_be_added_again(archive: Archive, tmp_path: Path, end: str) -> None:
    """Export and add_files are inverse for every kind of file: same points, same coverage; ids and sides are texts."""
    archive.add(books=books(M, 0, 20), prices=prices(M, 0, 20))
    paths = [tmp_path / f"{view}{end}" for view in ("books", "prices")]
    for path in paths:
        archive.export(path.stem, path)
        if end == ".parquet":  # pyarrow before version 23 cannot give categories with unsigned numbers to pandas
            assert not any(pa.types.is_dictionary(field.type) for field in pq.read_schema(path))
    other = Archive(tmp_path / "other", frame="polars")
    assert other.add_files(paths)["kind"].sort().to_list() == ["books", "prices"]
    for view in ("books", "prices"):
        assert held(other, view) == held(archive, view)
    rows = [a.coverage().drop("fetched_at").rows() for a in (archive, other)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("end", [".csv", ".jsonl"])
@pytest.mark.fault("AR52")
def test_texts_that_look_like_numbers_stay_texts(tmp_path: Path, end: str) -> None:
    """Labels, questions and further texts of records come back from CSV and JSON lines as they were exported."""
    mine, other = Archive(tmp_path / "a", frame="polars"), Archive(tmp_path / "b", frame="polars")
    labels = ["007", "1.50", "1e3", "true", "no\u2028yes"]
    further = {"code": "007", "version": "1.50", "volume": 1.5, "trades": 3, "is_open": True}
    market = {"market_id": "m", "slug": "s", "question": "1e3", "token_ids": [*"12345"], "token_labels": labels}
    mine.add(markets=[{**market, **further}])
    rows = {"ts": [T0] * 5, "market_id": ["m"] * 5, "token_id": [*"12345"], "price": [0.5] * 5}
    mine.add(prices=pl.DataFrame(rows))
    mine.export("prices", tmp_path / f"prices{end}")
    output.write(records_frame("markets", mine.records("markets"), "polars"), tmp_path / f"markets{end}")
    other.add_files([tmp_path / f"{name}{end}" for name in ("prices", "markets")])
    assert other.records("markets") == mine.records("markets")
    assert other.prices("m").to_dicts() == mine.prices("m").to_dicts()
    assert other.prices("m")["token_label"].to_list() == labels


def test_a_row_that_can_be_read_in_two_ways_is_refused(archive: Archive, tmp_path: Path) -> None:
    """A date that is not ISO 8601, or a comma as decimal point between commas."""
    archive.add(markets=[{"market_id": "m", "token_ids": ["1"], "token_labels": ["Yes"]}])
    path = tmp_path / "prices.csv"
    for rows, match in {
        "06/01/2025,1,0.5\n": "ts has not times since 2015: 06/01/2025",
        '2025-01-06,1,"0,5"\n': "fits no known format",
    }.items():
        path.write_text(f"ts,token_id,price\n{rows}")
        with pytest.raises(ConfigError, match=match) as refused:
            archive.add_files(path)
        assert path.name in str(refused.value)
    assert Reader(archive).version("prices") == -1


@pytest.mark.fault("AR52")
def test_times_of_csv_files_are_iso_texts_or_unix_times(archive: Archive, tmp_path: Path) -> None:
    """A Unix time in s, ms, us or ns, or an ISO 8601 time, in UTC where it has no zone; empty lines are no rows."""
    texts = ["1735689600", "1735689600.0", "1735689600000", "1.7356896e9", "2025-01-01 00:00:00+00:00", "2025-01-01"]
    for i, text in enumerate(texts):
        path = tmp_path / f"{i}.csv"
        path.write_text(f"ts,market_id,token_id,price,note,trades\n\n{text},m{i},{i}, 0.5,x,2.50\n\n")
    archive.add_files(tmp_path)
    rows = archive.prices([f"m{i}" for i in range(len(texts))]).select("ts", "price", "trades").rows()
    assert rows == [(dt.datetime(2025, 1, 1, tzinfo=dt.UTC), 0.5, 2.5)] * len(texts)


def test_one_market_can_be_exported_at_any_resolution(archive: Archive, tmp_path: Path) -> None:
    """An export of a market is the frame that a read answers."""
    archive.add(books=books(M, 0, 120), markets=[{"market_id": M, "slug": "s"}])
    archive.export("books", tmp_path / "b.parquet", "s", resolution="1h")
    wrote = pl.read_parquet(tmp_path / "b.parquet")
    assert wrote.height == archive.books("s", resolution="1h").height
    archive.export("books", tmp_path / "all.parquet", resolution="1h")
    assert pl.read_parquet(tmp_path / "all.parquet").height == wrote.height
    with pytest.raises(ConfigError, match="parquet"):
        archive.export("books", tmp_path / "b.xlsx")


@pytest.mark.parametrize("name", ["p.csv", "p.parquet"])
def test_an_export_that_fails_leaves_no_part_of_it(archive: Archive, tmp_path: Path, name: str) -> None:
    """A failed export is an ArchiveError that names the file; the file of before stays."""
    (tmp_path / name).write_text("of before")
    archive.add(prices=prices(M, 0, 3))

    def full(rows: pl.DataFrame) -> pl.DataFrame:
        if rows.height and rows["row"][-1] >= 150_000:
            raise OSError("no space left")
        return rows

    rows = pl.LazyFrame({"row": range(200_000)})
    with (
        mock.patch("marketdata.archive.scan.computed", return_value=rows.map_batches(full, streamable=True)),
        pytest.raises(ArchiveError, match=f"Writing '{name}' failed"),
    ):
        archive.export("prices", tmp_path / name)
    assert [(path.name, path.read_text()) for path in tmp_path.glob("*p*.*")] == [(name, "of before")]
    archive.export("prices", tmp_path / name)
    assert [path.name for path in tmp_path.glob("*p*.*")] == [name]


def test_a_folder_is_added_in_the_right_order(archive: Archive, tmp_path: Path) -> None:
    """Markets are added before the prices that need them, whatever the names of the files."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text(f"ts,token_id,price\n2026-01-01T00:00:00Z,{TOKEN},0.25\n")
    (tmp_path / "in" / "z.json").write_text(json.dumps(MARKET))
    added = archive.add_files(tmp_path / "in")
    assert added.select("kind", "rows").rows() == [("markets", 1), ("prices", 1)]
    assert archive.prices("s")["token_id"].to_list() == [TOKEN]


def test_files_that_hold_nothing_of_ours_are_refused(archive: Archive, tmp_path: Path) -> None:
    """A file of no known kind is a ConfigError that names it, and nothing is added."""
    for name, content in {
        "a.csv": "x,y\n1,2\n", "a.json": "[1, 2]", "a.jsonl": "{broken", "a.parquet": "PAR1", "a.txt": "hello",
        "b.json": '[{"bids": [{"price": "x", "size": "1"}], "asks": [], "timestamp": "1", "asset_id": "1"}]',
        "c.csv": "ts,token_id,price\nsoon,1,0.5\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(content)
        with pytest.raises(ConfigError, match=name):
            archive.add_files(tmp_path / name)
    with pytest.raises(ConfigError, match="gone"):
        archive.add_files(tmp_path / "gone.csv")
    assert Reader(archive).version("books") == Reader(archive).version("prices") == -1


def test_the_past_can_be_read_and_not_written(archive: Archive) -> None:
    """With as_of= an archive shows what it held then, also after replacement and compaction."""
    archive.add(books=books(M, 0, 10))
    before = held(archive)
    time.sleep(0.01)
    then = dt.datetime.now(dt.UTC)
    time.sleep(0.01)
    archive.add(books=books(M, 0, 10, size=7.0))
    archive.add(books=books(N, 0, 10))
    archive.compact()
    past = Archive(archive.location, frame="polars", as_of=then)
    assert held(past) == before != held(archive)
    assert past.coverage()["market_id"].to_list() == [M]
    assert past.verify().is_empty()
    with pytest.raises(ConfigError, match="as_of"):
        past.add(books=books(M, 0, 10))
    assert held(Archive(archive.location, as_of=0)) == {}


def test_the_past_is_read_while_another_process_writes(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that comes while the past is looked up does not make it seem too long ago."""
    archive.add(prices=prices(M, 0, 3))
    archive.add(prices=prices(M, 0, 3, value=0.25))
    then, other, real = dt.datetime.now(dt.UTC), Archive(archive.location), Table._go_back
    archive.add(prices=prices(M, 0, 3, value=0.75))

    def go_back(self: Table, handle: Any, as_of: int) -> bool:
        other.add(prices=prices(N, 0, 3))
        return real(self, handle, as_of)

    monkeypatch.setattr(Table, "_go_back", go_back)
    assert set(Archive(archive.location, as_of=then).prices(M)["price"]) == {0.25}


@pytest.mark.fault("AR49")
def test_a_past_that_is_no_longer_kept_is_refused(archive: Archive, tmp_path: Path) -> None:
    """as_of= before what is left of the log says the earliest time that can be read, which is then read."""
    for n in range(9):  # the last commit writes a checkpoint
        archive.add(prices=prices(M, n, 10))
    long_ago = time.time() - 40 * 86_400
    for path in Path(archive.location).rglob("*.json"):
        os.utime(path, (long_ago,) * 2)
    archive.compact()
    archive.add(prices=prices(M, 0, 5, value=0.3))
    archive.compact()
    shutil.copytree(archive.location, tmp_path / "copy", copy_function=shutil.copyfile)
    month = dt.datetime.now(dt.UTC) - dt.timedelta(days=45)
    for location, then in ((archive.location, month), (archive.location, 0), (tmp_path / "copy", month)):
        past: Any = Archive(location, frame="polars", as_of=then)
        for read in (lambda a: a.prices([M]), lambda a: a.coverage(), lambda a: a.scan("prices")):
            with pytest.raises(ConfigError, match=r"is before 20.*the earliest time") as info:
                read(past)
        if location == archive.location:
            (earliest,) = re.findall(r"before (\S+),", str(info.value))
            read(Archive(location, frame="polars", as_of=earliest))


def test_a_scan_reads_only_the_files_and_columns_it_needs(archive: Archive) -> None:
    """Predicates on market and time reach the files, so a scan of one market does not open the others."""
    for n in range(4):
        archive.add(prices=prices(M if n % 2 else N, n * 20, 20))
    wanted = archive.scan("prices").filter(
        pl.col("market_id") == M, pl.col("ts") < dt.datetime(2000, 1, 1, tzinfo=dt.UTC)
    )
    assert wanted.collect().is_empty()
    assert archive.scan("prices").filter(market_id=M).select("price").collect().height == 40
    plan = archive.scan("prices").filter(market_id=M).select("price").explain()
    assert "SELECTION" in plan
    assert "PROJECT 2/" in plan


def test_row_groups_of_many_markets_are_small_and_have_their_own_names(archive: Archive) -> None:
    """A read takes groups whole, with all names of their dictionaries; numbers in lists have no statistics."""
    many = [f"market-{n:03d}" for n in range(140)]

    def made(points: Data) -> Data:
        """The same points of each market."""
        tokens = [tuple(Token(m, *token[1:]) for token in points.tokens) for m in many]
        return joined([replace(points, tokens=some) for some in tokens]).sort()

    archive.add(books=made(books(M, 0, 40)), prices=made(prices(M, 0, 60)))
    for view, short in (("prices", 64 * 60), ("books", 64 * 40)):
        (file,) = data_files(archive, view)
        found = pq.ParquetFile(file)
        groups = [found.read_row_group(i, ["market_id"]) for i in range(found.num_row_groups)]
        names = [set(group["market_id"].to_pylist()) for group in groups]
        assert all(group.num_rows <= max(8192, short) for group in groups)
        assert len(groups) > 1
        read = pq.ParquetFile(file, read_dictionary=["market_id"])
        dictionaries = [read.read_row_group(i)["market_id"].chunk(0).dictionary for i in range(len(groups))]
        assert [set(d.to_pylist()) for d in dictionaries] == names
        columns = [found.metadata.row_group(0).column(i) for i in range(found.metadata.num_columns)]
        known = {c.path_in_schema for c in columns if c.is_stats_set}
        assert {"market_id", "token_id", "ts"} <= known
        assert not any("list" in name for name in known)
    assert sorted(set(archive.scan("books").collect()["market_id"])) == many
    assert archive.verify().is_empty()
