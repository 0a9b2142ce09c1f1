"""What goes wrong under an archive: damage, full disks, other programs and their files, hostile names."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import itertools
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from archive.source import MARKETS, START, points_of
from archive.stored import again, books, data_files, held, prices
from deltalake import DeltaTable, write_deltalake
from reference.columns import coded_books, coded_series

from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.archive.storage.files import Store
from marketdata.errors import ArchiveCorruptError, ArchiveError, ArchiveFullError, ConfigError
from marketdata.points.columns import Token

M, N = MARKETS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Books of two markets in two files each, and prices of one, of which some are replaced."""
    archive = Archive(tmp_path_factory.mktemp("faults"), frame="polars")
    for market, first in itertools.product(MARKETS, (0, 60)):
        archive.add(books=books(market, first, 60))
    for first in (0, 10, 20):
        archive.add(prices=prices(N, first, 15, value=first / 100))
    return Path(archive.location)


@pytest.fixture
def filled(folder: Path, tmp_path: Path) -> Archive:
    """An archive of one's own of them."""
    return Archive(shutil.copytree(folder, tmp_path / "filled"), frame="polars")


@pytest.mark.fault("AR6", "AR7", "AR8")
def test_a_file_that_can_not_be_flushed_is_given_up(filled: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """When fsync fails the file is removed and never named by a commit; the error says whether there is no room."""
    folder = data_files(filled)[0].parent
    before, files = held(filled), set(folder.iterdir())
    for wrong in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EMFILE, errno.EDQUOT):
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", mock.Mock(side_effect=OSError(wrong, os.strerror(wrong))))
            with pytest.raises(ArchiveError) as info:
                filled.add(books=books(M, 200, 5))
        assert isinstance(info.value, ArchiveFullError) == (wrong in (errno.ENOSPC, errno.EDQUOT, errno.EROFS))
        assert set(folder.iterdir()) == files
    assert held(filled) == before


@pytest.mark.fault("AR14")
def test_every_flipped_bit_is_seen(filled: Archive) -> None:
    """Of single flipped bits all over a data file none is read silently, and half of them at least are reported."""
    rng = random.Random(7)
    before = {market: held(filled, market=market) for market in MARKETS}
    victim = rng.choice(data_files(filled))
    good, reported = victim.read_bytes(), 0
    for number in range(5):  # one in each fifth of the file
        body, at = bytearray(good), rng.randrange(number * len(good) // 5, (number + 1) * len(good) // 5)
        body[at] ^= 1 << rng.randrange(8)
        victim.write_bytes(body)
        fresh = Archive(filled.location, frame="polars")
        is_said = not fresh.verify().is_empty()
        reported += is_said
        assert is_said or all(held(fresh, market=m) == before[m] for m in MARKETS), at
        for market in MARKETS:
            with contextlib.suppress(ArchiveCorruptError):
                assert held(fresh, market=market) == before[market]
    assert reported >= 2
    victim.write_bytes(good)
    assert Archive(filled.location, frame="polars").verify().is_empty()


@pytest.mark.fault("AR13")
def test_a_truncated_file_is_an_error_until_it_is_repaired(filled: Archive) -> None:
    """A file that was cut off fails the read and is reported; repair marks its ranges, so a pull fetches them again."""
    for victim, size in zip(data_files(filled), (0, 100), strict=False):
        victim.write_bytes(victim.read_bytes()[:size])
        fresh = again(filled)
        with pytest.raises(ArchiveCorruptError):
            fresh.books(MARKETS, on_missing="partial")
        assert len(fresh.verify(repair=True)) > 0
        assert fresh.verify().is_empty()


@pytest.mark.fault("AR38")
@pytest.mark.parametrize("where", ["DeltaTable", "DeltaTable.update_incremental"])
def test_damage_is_not_read_out_of_words(filled: Archive, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Whatever an error of the log says, it is no damage: nothing is given up, and the next call works."""
    opened = again(filled)
    before = held(opened)
    again(filled).add(books=books(M, 120, 5))
    words = "unexpected end: invalid JSON error, parquet error, corrupt, missing field, 404 not found, NoSuchKey"
    archive = again(filled) if where == "DeltaTable" else opened
    verbs: list[Callable[[], Any]] = [
        lambda: archive.books(M), lambda: archive.verify(repair=True), lambda: archive.add(books=books(M, 0, 5)),
    ]  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setattr(f"deltalake.{where}", mock.Mock(side_effect=OSError(words)))
        for verb in verbs:
            # Where the log cannot be read on from where it was, it is read from the start.
            with pytest.raises(ArchiveError) if where == "DeltaTable" else contextlib.nullcontext() as info:
                verb()
            assert info is None or info.type is ArchiveError
    assert held(archive).keys() >= before.keys()
    assert again(filled).verify().is_empty()


@pytest.mark.fault("AR48")
def test_a_path_that_storage_cannot_take_is_refused(tmp_path: Path) -> None:
    """A NUL, a line end, a backslash, an escape, half a surrogate and 5,000 characters are a ConfigError at once."""
    for name in ("a\0b", "y" * 5000, "a%20b", "a\nb", "a\\b", "a\ud800b", os.fsdecode(b"a\xffb")):
        with pytest.raises(ConfigError, match="Use another folder"):
            Archive(f"{tmp_path}/{name}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.fault("AR49")
def test_an_archive_that_was_idle_sees_what_came_since(archive: Archive) -> None:
    """Also if the commits that came first were removed from the log, as a checkpoint does after 30 days."""
    archive.add(prices=prices(M, 0, 10, value=0.1))
    assert len(held(archive, "prices")) == 10
    other = again(archive)
    for n in range(12):
        other.add(prices=prices(M, n, 10, value=0.2))
    for path in Path(archive.location).rglob("*.json"):
        os.utime(path, (time.time() - 40 * 86_400,) * 2)
    for _ in range(2):  # the first checkpoint replaces the commits, the second removes them
        other.compact()
        other.add(prices=prices(M, 5, 10, value=0.3))
    other.compact()
    other.vacuum(retention_hours=0)
    log = Path(archive.location, "prices", "_delta_log")
    assert not (log / f"{archive._store.points['prices']._version.number + 1:020d}.json").exists()
    assert held(archive, "prices") == held(again(archive), "prices")
    archive.add(prices=prices(M, 0, 5, value=0.4))
    assert held(archive, "prices") == held(again(archive), "prices")
    assert archive.verify().is_empty()


@pytest.mark.fault("AR16")
def test_files_of_strangers_are_left_alone(filled: Archive, tmp_path: Path) -> None:
    """A README, a hidden file, foreign Parquet and a link out of the root are neither read, followed nor removed."""
    folder = data_files(filled)[0].parent
    outside = tmp_path / "outside.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(outside)
    (folder / "README.md").write_text("mine")
    (folder / ".DS_Store").write_bytes(b"\0")
    shutil.copy(outside, folder / "foreign.parquet")
    (folder / ("2" * 32 + "-00000000.parquet")).symlink_to(outside)
    before, names = held(filled), {p.name for p in folder.iterdir() if p.suffix != ".parquet" or len(p.name) < 30}
    for path in folder.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)
    filled.compact()
    filled.vacuum(retention_hours=0)
    assert outside.exists()
    assert names <= {p.name for p in folder.iterdir()}
    assert (folder / ("2" * 32 + "-00000000.parquet")).is_symlink()
    assert held(filled) == before


@pytest.mark.fault("AR18")
def test_a_newer_format_is_not_written_to(filled: Archive) -> None:
    """A table of a newer protocol is refused with a clear error, and stays as it is."""
    log = data_files(filled)[0].parent / "_delta_log"
    version = len(list(log.glob("*.json")))
    newer = {"protocol": {"minReaderVersion": 99, "minWriterVersion": 99}}
    (log / f"{version:020d}.json").write_text(json.dumps(newer) + "\n")
    fresh = Archive(filled.location, frame="polars")
    with pytest.raises(ArchiveError, match="newer version of deltalake"):
        fresh.add(books=books(M, 300, 5))
    assert len(list(log.glob("*.json"))) == version + 1


@pytest.mark.fault("AR19")
def test_columns_that_come_later_are_null_before(archive: Archive) -> None:
    """A metric that appears later is a further column, null in older rows; integers become floats."""
    when = [dt.datetime(2026, 1, 1, 0, n, tzinfo=dt.UTC) for n in range(3)]
    archive.add(metrics=pl.DataFrame({"ts": when[:1], "market_id": ["m"], "volume": [3]}))
    late = {"ts": when[1:2], "market_id": ["m"], "volume": [2.5], "open_interest": [7]}
    archive.add(metrics=pl.DataFrame(late))
    archive.add(metrics=pl.DataFrame({"ts": when[2:], "market_id": ["m"], "volume": [1.0], "liquidity": [4.0]}))
    frame = archive.metrics("m")
    assert frame.columns == ["ts", "market_id", "volume", "liquidity", "spread", "open_interest"]
    assert frame["volume"].to_list() == [3.0, 2.5, 1.0]
    assert frame["open_interest"].to_list() == [None, 7.0, None]
    assert archive.scan("metrics").collect().sort("ts")["open_interest"].to_list() == [None, 7.0, None]
    assert archive.verify().is_empty()


HOSTILE = [
    "..", "../x", "/etc/passwd", "a\0b", "CON", "x", "X", "007", "7", "é", "e\u0301", "_u", ".h", "a' OR '1'='1",
    "%2F", "ü" * 400, "\u202e", "*", "a b", "\\", '"', "\n", "9" * 77, "0x" + "f" * 64, "-", "m=1", "NaN", "null",
]  # fmt: skip


@pytest.mark.fault("AR21")
def test_hostile_ids_are_each_their_own(tmp_path: Path) -> None:
    """Ids that look alike, like paths, like queries or like nothing each have their own data, all under the root."""
    root = tmp_path / "inside" / "archive"
    archive = Archive(root, frame="polars")
    tokens = tuple(Token(name, f"t{name}", "Yes") for name in sorted(HOSTILE))
    n = len(tokens)
    archive.add(
        prices=coded_series(tokens, np.arange(n, dtype=np.int32), np.full(n, START), {"price": np.arange(n) / 100}),
        books=coded_books(
            tokens, np.arange(n, dtype=np.int32), np.full(n, START), np.zeros(2 * n, int), np.empty((0, 2))
        ),
    )
    for i, token in enumerate(tokens):
        stored = Reader(archive).columns("prices", token.market_id)
        assert stored.tokens == (token,)
        assert stored.values["price"].tolist() == [i / 100]
    for token in tokens[::4]:
        replaced = coded_series((token,), np.zeros(1, np.int32), np.array([START]), {"price": np.array([0.99])})
        archive.add(prices=replaced)
        stored = Reader(archive).columns("prices", token.market_id)
        assert stored.values["price"].tolist() == [0.99]
    assert archive.scan("prices").collect().height == n
    assert archive.verify().is_empty()
    assert [p.name for p in tmp_path.iterdir()] == ["inside"]
    assert [p.name for p in (tmp_path / "inside").iterdir()] == ["archive"]


@pytest.mark.fault("AR22")
def test_an_archive_can_be_moved_and_read_without_the_right_to_write(filled: Archive, tmp_path: Path) -> None:
    """A copy elsewhere reads the same, and reading writes nothing at all."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(filled.location, copy)
    before = sorted((p, p.stat().st_mtime_ns) for p in copy.rglob("*"))
    archive = Archive(copy, frame="polars")
    assert held(archive) == held(filled)
    assert archive.verify().is_empty()
    assert archive.scan("books").collect().height > 0
    assert sorted((p, p.stat().st_mtime_ns) for p in copy.rglob("*")) == before


@pytest.mark.fault("AR31", "AR32")
def test_a_reader_sees_one_version_while_others_replace_and_compact(filled: Archive) -> None:
    """A scan that is open shows the version it was made of, however the archive goes on."""
    for resolution, size in (("1m", 9.0), ("1h", 99.0)):
        scan = filled.scan("books", resolution=resolution)
        before = scan.collect()
        filled.add(books=books(M, 0, 60, size=size))
        filled.compact()
        assert scan.collect().equals(before)
        assert not filled.scan("books", resolution=resolution).collect().equals(before)


@pytest.mark.fault("AR35")
def test_a_crafted_file_is_an_error_of_ours(filled: Archive, tmp_path: Path) -> None:
    """Bytes that no writer of ours made, under a name that a commit has, are refused as corrupt."""
    victim = data_files(filled)[0]
    size = victim.stat().st_size
    for body in (os.urandom(size), b"PAR1" + b"\xff" * (size - 8) + b"PAR1", b"\0" * size):
        victim.write_bytes(body)
        reads: list[Callable[[Archive], Any]] = [
            lambda a: a.books(list(MARKETS)), lambda a: a.books(list(MARKETS), resolution="1h"),
            lambda a: a.export("books", tmp_path / "all.csv"),
        ]  # fmt: skip
        for read in reads:
            # polars passes on the text of an error that its source raised, and not its class
            with pytest.raises(ArchiveError, match=r"is damaged.*verify"):
                read(again(filled))


def test_unknown_tokens_say_what_to_do(archive: Archive) -> None:
    """Rows of a token that no market has are refused, naming it and how to add its market."""
    frame = pl.DataFrame({"ts": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)], "token_id": ["9" * 77], "price": [0.5]})
    with pytest.raises(ArchiveError, match=f"{'9' * 77}.*archive.add\\(markets=frame\\)"):
        archive.add(prices=frame)
    archive.add(markets=[{"market_id": "m", "slug": "s", "token_ids": ["9" * 77], "token_labels": ["Yes"]}])
    archive.add(prices=frame)
    assert archive.prices("s").row(0)[1:] == ("m", "9" * 77, "Yes", 0.5)


def age(archive: Archive, hours: float, folder: str = "*") -> None:
    """Let the files of an archive, but its logs, be older."""
    for path in Path(archive.location).glob(f"{folder}/**/*"):
        if path.is_file() and "_delta_log" not in path.parts:
            os.utime(path, (time.time() - hours * 3600,) * 2)


def test_many_small_writes_leave_few_files(archive: Archive) -> None:
    """Small files are joined along the way, and the points stay as they were written."""
    for first in range(34):
        archive.add(prices=prices(M, first, 1, value=first / 100))
    assert len(DeltaTable(f"{archive.location}/prices").file_uris()) < 12
    assert held(archive, "prices") == {
        key: value
        for first in range(34)
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


@pytest.mark.fault("AR42")
def test_vacuum_asks_the_storage_for_the_time(filled: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose clock is days ahead deletes no file of a write in progress, and none that a reader needs."""
    filled.add(prices=prices(N, 0, 35, value=0.5), replace=True)
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3 * 86_400 * 10**9)
    assert filled.vacuum(0) == []


def test_a_folder_that_is_made_while_it_is_listed_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may create the archive at this moment: a listing that fails so is made again."""
    failures = [FileNotFoundError(errno.ENOENT, "gone")] * 2

    class Files:
        def get_file_info(self, *_: Any) -> Any:
            if failures:
                raise failures.pop()
            return []

    store = Store(str(tmp_path), None)
    monkeypatch.setattr(store, "files", Files())
    assert store.written("_delta_log") == {}
    assert not failures


@pytest.mark.fault("AR6")
def test_a_file_system_without_inodes_is_full(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first write needs a folder; where there is no room for one, the library tells the number in other words."""

    def full(*_: object, **__: object) -> None:
        raise OSError("Could not create local directory: /a Error: Os { code: 28, kind: StorageFull }")

    monkeypatch.setattr("deltalake.DeltaTable.create", full)
    with pytest.raises(ArchiveFullError, match="no space left"):
        archive.add(markets=[{"market_id": "m", "slug": "s"}])
