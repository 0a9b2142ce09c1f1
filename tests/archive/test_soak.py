"""Long runs: kills, damage, writers at once, full disks. They print what they counted."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archive.source import MARKETS, MINUTE, START, points_of
from archive.test_faults import books, data_files, held
from archive.test_processes import start
from archive.test_stutter import stuttered
from archive.writers import keep_up, limited, part_of, rows_of, write_for_ever, write_part, write_rounds
from coded import levels_of

from marketdata.archive import Archive
from marketdata.errors import ArchiveFullError
from marketdata.points.columns import Books

pytestmark = pytest.mark.soak
M, N = MARKETS
ROOT = Path(__file__).resolve().parents[2]
# How long the tests of many kills and much damage go on at most; they print how far they came.
SECONDS = float(os.environ.get("SOAK_SECONDS", "inf"))


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Clean processes that have the modules loaded: a kill then costs no start of Python."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["archive.writers"])
    return context


def sizes(paths: list[Path]) -> list[int]:
    return [path.stat().st_size if path.exists() else 0 for path in paths]


def wait_for_more(paths: list[Path], said: list[int]) -> None:
    """Until all writers have said that they are at work."""
    until = time.monotonic() + 60
    while not all(a > b for a, b in zip(sizes(paths), said, strict=True)):
        assert time.monotonic() < until
        time.sleep(0.002)


def check(archive: Archive, k: int, least: int) -> int:
    """Every acknowledged batch is there, whole and once; how many points there are."""
    found = archive.columns("books", f"m-{k}")
    assert isinstance(found, Books)
    assert len(found) % 10 == 0
    assert len(found) >= 10 * least
    assert np.array_equal(found.ts, START + np.arange(len(found)) * MINUTE)
    assert np.array_equal(levels_of(found)[:, 1], np.arange(float(len(found))))
    return len(found)


@pytest.mark.fault("AR1", "AR2", "AR3")
@pytest.mark.parametrize("processes", [1, 4])
def test_two_thousand_kills(tmp_path: Path, forks: Any, processes: int, capsys: pytest.CaptureFixture[str]) -> None:
    """After each of 2,000 kills at random no acknowledged batch is lost, doubled, changed or unreadable."""
    rng, kills, points, open_times = random.Random(processes), 0, 0, []
    until = time.monotonic() + SECONDS
    while kills < 2000 and time.monotonic() < until:
        root = tmp_path / str(kills)
        told = [tmp_path / f"{kills}-{k}" for k in range(processes)]
        for _ in range(40 // processes):
            workers = [forks.Process(target=write_for_ever, args=(root, k, told[k])) for k in range(processes)]
            said = sizes(told)
            for worker in workers:
                worker.start()
            if rng.random() < 0.9:  # else they may be killed while they open
                wait_for_more(told, said)
            time.sleep(rng.uniform(0.0, 0.1 * processes))
            for worker in workers:
                worker.kill()
            for worker in workers:
                worker.join()
            kills += processes
            began = time.perf_counter()
            fresh = Archive(root, frame="polars")
            fresh.version("books")
            open_times.append(time.perf_counter() - began)
            for k, path in enumerate(told):
                lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
                points += check(fresh, k, int(lines[-1]) if lines else 0)
            assert fresh.verify().is_empty()
        shutil.rmtree(root, ignore_errors=True)
    assert points > kills
    with capsys.disabled():
        print(
            f"\n{kills} kills of {processes} at once, {points} points checked, 0 lost, doubled or unreadable;", end=" "
        )
        print(f"an archive opens in {1e3 * max(open_times):.0f} ms at most")


EVENTS = (
    "import os\nfrom deltalake import DeltaTable\n"
    "from marketdata.archive.storage.parquet import Store\nfrom marketdata.archive.storage.tables import Table\n"
    "left = [int(sys.argv[2])]\n"
    "def point(name):\n    left[0] -= 1\n    if not left[0]:\n        print(name, flush=True)\n"
    "        os.kill(os.getpid(), 9)\n"
    "def watched(owner, name):\n    real = getattr(owner, name)\n    said = f'{owner.__name__}.{name}'\n"
    "    def call(*args, **kwargs):\n        point(f'before {said}')\n        out = real(*args, **kwargs)\n"
    "        point(f'after {said}')\n        return out\n    setattr(owner, name, call)\n"
    "for name in ('write', 'delete'):\n    watched(Store, name)\n"
    "for name in ('create', 'put', 'commit', 'add_columns'):\n    watched(Table, name)\n"
    "watched(os, 'fsync')\nwatched(DeltaTable, 'vacuum')\n"
)
WORK = {
    "add": "a.add(books=books(MARKETS[0], 10, 30, size=5.0), markets=[{'market_id': MARKETS[0], 'slug': 'new'}])",
    "pull": (
        "s = Source()\ns.points = {('books', MARKETS[0], t, n): ([(0.5, float(n))], []) for t in (0, 1) "
        "for n in range(10, 40)}\n"
        "a.pull(s, MARKETS[0], views=['books'], start=START / 1e6 + 600, end=START / 1e6 + 2400, refresh=True)"
    ),
    "compact": "a.compact()",
    "vacuum": "a.vacuum(retention_hours=0)",
    "first add": "Archive(sys.argv[1] + '-first').add(books=books(MARKETS[0], 10, 30))",
}


@pytest.mark.parametrize("what", list(WORK))
def test_a_kill_at_every_named_point_leaves_the_old_or_the_new(
    archive: Archive, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed before or after every write, flush, commit and removal, an archive is sound, old or new, and goes on."""
    archive.add(books=books(M, 0, 20))
    archive.add(books=books(M, 20, 10))
    archive.add(books=books(M, 5, 10, size=2.0))
    base, old = Path(archive.location), held(archive)
    new = {**old, **points_of("books", books(M, 10, 30, size=5.0))}
    names: Counter[str] = Counter()
    step, ended = 0, False
    seen: list[Any] = []
    while not ended:
        step += 1
        root = base.with_name(f"copy-{step}")
        shutil.copytree(base, root)
        worker = start(EVENTS + WORK[what] + "\n", root, step)
        said = worker.communicate()[0].strip()
        ended = worker.returncode == 0
        assert ended or worker.returncode == -9
        names[said] += 1
        copy = Archive(str(root) + ("-first" if what == "first add" else ""), frame="polars")
        found = held(copy)
        if what in ("compact", "vacuum"):
            assert found == old
        elif what == "pull":
            assert len(found) in (len(old), 80)
        else:
            assert found in ({}, points_of("books", books(M, 10, 30))) if what == "first add" else found in (old, new)
        seen.append(found)
        assert copy.verify().is_empty(), (step, said)
        copy.add(books=books(M, 10, 30, size=5.0))
        assert copy.verify().is_empty(), (step, said)
        copy.compact()
        assert held(copy).items() >= points_of("books", books(M, 10, 30, size=5.0)).items()
        shutil.rmtree(copy.location)
        shutil.rmtree(root, ignore_errors=True)
    assert step > 1
    with capsys.disabled():
        print(f"\n{what}: killed at {step - 1} points of {len(names) - 1} names, 0 archives damaged")


def damaged(files: list[Path], harm: Any) -> Iterator[Path]:
    """Each harm done and undone."""
    for one in harm:
        path, body = one(files)
        good = path.read_bytes()
        if body == good:
            continue
        path.write_bytes(body)
        yield path
        path.write_bytes(good)


@pytest.mark.parametrize(("kind", "count"), [("flip", 10_000), ("truncation", 1_000), ("swap", 200)])
def test_every_damage_is_found(archive: Archive, kind: str, count: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 10,000 flipped bits, 1,000 truncations and 200 swapped files verify finds all that change what is read."""
    for market in MARKETS:
        for first in (0, 40, 80):
            archive.add(books=books(market, first, 40))
    rng = random.Random(11)

    def harm(files: list[Path]) -> tuple[Path, bytes]:
        path = rng.choice(files)
        body = bytearray(path.read_bytes())
        if kind == "flip":
            bit = rng.randrange(len(body) * 8)
            body[bit // 8] ^= 1 << bit % 8
        elif kind == "truncation":
            del body[rng.randrange(len(body)) :]
        else:
            body = bytearray(rng.choice([p for p in files if p != path]).read_bytes())
        return path, bytes(body)

    found = harmless = 0
    before = {market: held(archive, market=market) for market in MARKETS}
    until = time.monotonic() + SECONDS
    for _ in damaged(data_files(archive), (harm for _ in range(count) if time.monotonic() < until)):
        if len(Archive(archive.location, frame="polars").verify()):
            found += 1
            continue
        # The first four bytes say nothing, and nobody reads the statistics in headers of pages: a tenth of small files.
        fresh = Archive(archive.location, frame="polars")
        assert {market: held(fresh, market=market) for market in MARKETS} == before
        harmless += 1
    assert archive.verify().is_empty()
    assert harmless < (found + harmless) / 5
    with capsys.disabled():
        print(f"\n{kind}: {found + harmless} done, {found} found, {harmless} without effect on any row, 0 unseen")


def test_eight_writers_of_fifty_rounds_all_land(
    archive: Archive, forks: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 processes x 50 rounds on one range and on their own: all 800 commits are there, and one writer's points."""
    archive.add(books=books(M, 0, 30, size=0.5))  # as no writer writes it: what is there already is no commit
    before = archive.version("books")
    workers = [forks.Process(target=write_rounds, args=(archive.location, k, 50)) for k in range(8)]
    for worker in workers:
        worker.start()
    reads = 0
    while any(worker.is_alive() for worker in workers):
        found = held(archive)
        assert len(found) == 60
        assert len({bids[0][1] for bids, _ in found.values()}) == 1
        reads += 1
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    fresh = Archive(archive.location, frame="polars")
    assert fresh.version("books") - before == 800
    assert [check(fresh, k, 50) for k in range(8)] == [500] * 8
    assert fresh.verify().is_empty()
    with capsys.disabled():
        print(f"\n8 writers x 50 rounds: 800 of 800 commits, {reads} reads meanwhile, each of one version")


@pytest.mark.fault("AR37")
@pytest.mark.parametrize("what", ["tokens", "days"])
def test_eight_writers_of_one_market_beside_compaction(
    archive: Archive, forks: Any, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """8 processes add 15 times a token, or a day, of one market while another compacts and vacuums: all points stay."""
    workers = [forks.Process(target=write_part, args=(archive.location, what, k, 15)) for k in range(8)]
    keeper = forks.Process(target=keep_up, args=(archive.location,))
    for worker in [*workers, keeper]:
        worker.start()
    for worker in workers:
        worker.join()
    keeper.terminate()
    keeper.join()
    assert [worker.exitcode for worker in workers] == [0] * 8
    fresh = Archive(archive.location, frame="polars")
    found = fresh.columns("prices", "one")
    want = {
        (token.token_id, int(ts)): price
        for k in range(8)
        for n in range(15)
        for token, ts, price in rows_of(part_of(what, k, n))
    }
    assert len(found) == len(want)
    assert {(t.token_id, int(ts)): p for t, ts, p in rows_of(found)} == want
    assert fresh.verify(repair=True).is_empty()
    with capsys.disabled():
        print(f"\n8 writers x 15 adds of {what} of one market: {len(found)} of {len(want)} points, 0 doubled")


@pytest.mark.fault("AR38")
@pytest.mark.parametrize("wrong", ["ESTALE", "EIO", "EMFILE", "ENOMEM", "EACCES", "ENOSPC"])
def test_a_storage_that_stutters_at_every_call_of_every_verb(
    tmp_path: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whichever system call fails in whichever verb: a typed error or success, old points or new, none given up."""
    said = stuttered(tmp_path, [wrong], 560.0, int(os.environ.get("STUTTER_STEP", "1")))
    with capsys.disabled():
        print(f"\n{wrong}: {said}")


def fill(archive: Archive) -> int:
    """Add until it fails; how many adds there were."""
    n = 0
    with contextlib.suppress(ArchiveFullError):
        while True:
            archive.add(books=books(M, 60 * n, 60))
            n += 1
    return n


def is_sound(archive: Archive, n: int) -> None:
    """The first n adds are there; of the one that failed all is there or nothing."""
    want = {k: v for i in range(n) for k, v in points_of("books", books(M, 60 * i, 60)).items()}
    fresh = Archive(archive.location, frame="polars")
    found = held(fresh)
    assert found.items() >= want.items()
    assert len(found) - len(want) in (0, 120)
    assert fresh.verify().is_empty()


def test_a_disk_that_is_full_and_is_given_room_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a real disk that is full: ArchiveFullError, every earlier commit readable, and it goes on with more room."""
    place = tmp_path / "small"
    place.mkdir()
    done = []
    for size in range(200, 700, 20):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "none", place], check=False).returncode:
            pytest.skip("mounting a small disk needs more rights")
        try:
            archive = Archive(place / "a", frame="polars")
            n = fill(archive)
            is_sound(archive, n)
            subprocess.run(["mount", "-o", "remount,size=20m", place], check=True)
            archive.add(books=books(M, 60 * n, 60))
            is_sound(archive, n + 1)
            done.append(n)
        finally:
            subprocess.run(["umount", "-l", place], check=True)
    with capsys.disabled():
        print(f"\n{len(done)} small disks, full after {min(done)} to {max(done)} adds: all sound, all went on")


def test_files_that_may_not_grow(archive: Archive, forks: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """With a limit of file size that the n-th write meets: ArchiveFullError, the old points, and then it goes on."""
    archive.add(books=books(M, 0, 20))
    before, codes = held(archive), []
    for limit in (0, 100, 700, 1500, 2500, 4000, 6000):
        root = Path(archive.location).with_name(f"limit-{limit}")
        shutil.copytree(archive.location, root)
        worker = forks.Process(target=limited, args=(root, limit))
        worker.start()
        worker.join()
        codes.append(worker.exitcode)
        fresh = Archive(root, frame="polars")
        assert fresh.verify().is_empty()
        assert len(held(fresh)) == 1200
    assert held(archive) == before
    assert set(codes) == {0}
    with capsys.disabled():
        print(f"\n{len(codes)} limits of file size: ArchiveFullError each time, sound, and it went on")


def bounded(root: Path, code: str, most: int) -> tuple[float, float]:
    """Run code on the archive ``a`` in a process with a limit of address space; seconds and peak memory [GB]."""
    head = (
        f"import resource\nresource.setrlimit(resource.RLIMIT_AS, ({most}, {most}))\n"
        "import sys, time, polars as pl, marketdata as md\na = md.Archive(sys.argv[1], frame='polars')\n"
        "out = sys.argv[1] + '-out.parquet'\nbegan = time.perf_counter()\n"
    )
    # Not ru_maxrss, which a new program inherits from what started it.
    tail = (
        "\nstatus = dict(line.split(':', 1) for line in open('/proc/self/status'))"
        "\nprint(time.perf_counter() - began, int(status['VmHWM'].split()[0]) / 2**20)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "POLARS_MAX_THREADS": "2", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(
        [sys.executable, "-c", head + code + tail, root], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seconds, peak = map(float, done.stdout.split())
    return seconds, peak


def test_a_large_frame_is_added_in_little_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Prices of 8,000 markets (6 M rows, 240 MB) take less than 350 MB above their frame."""
    frame = (
        "import numpy as np\n"
        "ids = pl.Series([f'0x{k:064x}' for k in range(8_000)]).cast(pl.Categorical)\n"
        "row = pl.Series(np.arange(6_000_000))\n"
        "frame = pl.select(\n"
        "    ts=(1767225600_000_000 + row % 750 * 60_000_000).cast(pl.Datetime('us', 'UTC')),\n"
        "    market_id=ids.gather(row // 750), token_id=ids.gather(row // 750),\n"
        "    token_label=pl.lit('Yes').cast(pl.Categorical), price=(row % 1000) / 1000)\n"
    )
    verb = "a.add(prices=frame)\n"
    small = "a.add(prices=frame.head(750))\n"
    (_, before), (_, after) = (
        bounded(tmp_path / name, frame + small + more, 16_000_000_000) for name, more in (("a", ""), ("b", verb))
    )
    assert after - before < 0.35
    with capsys.disabled():
        print(f"\n6 M prices: {1024 * (after - before):.0f} MB above their frame")


def test_an_archive_larger_than_memory_is_scanned_and_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """200 M level rows (8 GB and more in memory) are resampled, filtered and written under a limit of 4 GB."""
    import polars as pl
    from bench.samples import book_frame

    root, rows, market = tmp_path / "large", 0, 0
    archive = Archive(root, frame="polars")
    while rows < 200_000_000:
        books = book_frame([f"0x{market:064x}"], 43_200, 24)
        archive.add(books=books)
        rows += len(books)
        market += 1
    name = f"0x{1:064x}"
    hourly = archive.books(name, resolution="1h").height
    work = {
        "all rows at 1h to one file": "a.scan('books', resolution='1h').sink_parquet(out)",
        "top of book of all rows at 1m to one file": (
            "a.scan('books').filter(pl.col('level') == 0).select('ts', 'token_id', 'side', 'price').sink_parquet(out)"
        ),
        "all rows at 1m to one file": "a.scan('books').sink_parquet(out)",
    }
    said = []
    for what, code in work.items():
        seconds, peak = bounded(root, code, 4 * 2**30)
        written = pl.scan_parquet(f"{root}-out.parquet")
        count = written.select(pl.len()).collect().item()
        if what.startswith("all rows at 1h"):
            assert written.filter(market_id=name).select(pl.len()).collect().item() == hourly
        elif what.startswith("all"):
            assert count == rows
        else:
            assert count == 2 * 2 * 43_200 * market
        Path(f"{root}-out.parquet").unlink()
        said.append(f"{what}: {seconds:.0f} s, {rows / seconds / 1e6:.1f} M rows/s, peak {peak:.2f} GB, {count} rows")
    with capsys.disabled():
        print(f"\n{rows / 1e6:.0f} M level rows of {market} markets under 4 GB of address space:")
        print(*said, sep="\n")
