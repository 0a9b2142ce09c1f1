"""Several processes on one archive, and processes that are killed."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from archive.source import MARKETS, MINUTE, START, points_of
from archive.test_faults import books, held
from coded import coded_series
from still import SOON

from marketdata.archive import Archive

ROOT = Path(__file__).resolve().parents[2]
M, N = MARKETS


def start(code: str, *arguments: Any) -> subprocess.Popen[str]:
    """Run Python with the archive ``a`` and the helpers of the tests at hand."""
    head = (
        "import sys\nfrom marketdata.archive import Archive\nfrom archive.source import *\n"
        "from archive.test_faults import books, prices\na = Archive(sys.argv[1], frame='polars')\n"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.Popen(
        [sys.executable, "-c", head + code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def finished(*processes: subprocess.Popen[str]) -> list[str]:
    out = [p.communicate(timeout=SOON)[0] for p in processes]
    assert [p.returncode for p in processes] == [0] * len(processes)
    return out


@pytest.mark.fault("AR10")
def test_writers_of_disjoint_ranges_all_land(archive: Archive) -> None:
    """Four processes that add six ranges each of one market lose none, and tear no record."""
    code = (
        "k = int(sys.argv[2])\n"
        "for n in range(6):\n    a.add(books=books(MARKETS[0], (n * 4 + k) * 10, 10))\n"
        "    a.add(markets=[{'market_id': f'{k}-{n}', 'slug': f's-{k}-{n}'}])\n"
    )
    finished(*(start(code, archive.location, k) for k in range(4)))
    assert len(held(archive)) == 2 * 240
    assert {r["id"] for r in archive.records("markets")} == {M, *(f"{k}-{n}" for k in range(4) for n in range(6))}
    assert archive.coverage().select("rows", "state").rows() == [(480, "recorded")]
    assert archive.verify().is_empty()


@pytest.mark.fault("AR9")
def test_writers_of_one_range_leave_the_points_of_one_of_them(archive: Archive) -> None:
    """Three processes that replace the same range again and again leave no point twice, and one writer's whole."""
    code = "for n in range(8):\n    a.add(books=books(MARKETS[0], 0, 30, size=float(sys.argv[2])))\n"
    finished(*(start(code, archive.location, k + 1) for k in range(3)))
    found = held(archive)
    assert len(found) == 60
    assert len({bids[0][1] for bids, _ in found.values()}) == 1
    assert archive.verify().is_empty()


@pytest.mark.fault("AR9")
def test_two_pulls_of_one_range_fetch_it_once(archive: Archive) -> None:
    """Of two processes that pull the same, one fetches, and the other waits and finds nothing to do."""
    code = (
        "import time\nfrom archive.source import Source\ns = Source()\n"
        "real = s.columns\n"
        "def slow(*args):\n    time.sleep(0.01)\n    return real(*args)\n"
        "s.columns = slow\n"
        "for n in range(300):\n    s.points['prices', MARKETS[0], 0, n] = 0.5\n"
        "start = START / 1e6\n"
        "a.pull(s, MARKETS[0], views=['prices'], start=start, end=start + 300 * 60)\n"
        "print(len(s.asked))\n"
    )
    counts = [int(out) for out in finished(start(code, archive.location), start(code, archive.location))]
    assert sorted(counts) == [0, 43]
    assert len(held(archive, "prices")) == 300


@pytest.mark.fault("AR12")
def test_a_file_system_without_locks_is_an_error(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system has no locks a pull says so, and does not go on unlocked."""
    import errno

    from archive.source import Source

    from marketdata.errors import ArchiveError

    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with pytest.raises(ArchiveError, match="no locks"):
        archive.pull(Source(), M, start=START / 1e6, end=START / 1e6 + 60)


def batches_of(archive: Archive) -> tuple[set[int], set[int]]:
    """Check an archive after a kill; its batches of ten minutes, and those of them that its coverage speaks of."""
    fresh = Archive(archive.location, frame="polars")
    found = held(fresh)
    there = {minute // 10 for *_, minute in found}
    assert there == set(range(len(there)))
    assert len(found) == 20 * len(there)
    covered = fresh.coverage().filter(pl.col("state") == "recorded")
    recorded: set[int] = set()
    for start, end, rows in covered.select(pl.col("start", "end").dt.timestamp("us"), "rows").iter_rows():
        some = range((start - START) // (10 * MINUTE), (end - START) // (10 * MINUTE))
        assert rows == 20 * len(some)
        recorded |= set(some)
    assert fresh.verify().is_empty()
    return there, recorded


@pytest.mark.fault("AR1", "AR2", "AR3")
def test_a_killed_writer_leaves_whole_commits(archive: Archive) -> None:
    """After SIGKILL at any moment every commit is there whole, with its coverage, and writing goes on."""
    code = (
        "first = int(sys.argv[2])\nprint('go', flush=True)\n"
        "for n in range(first, 10_000):\n    a.add(books=books(MARKETS[0], n * 10, 10))\n    print(n, flush=True)\n"
    )
    rng = random.Random(3)
    archive.add(books=books(M, 0, 10))
    there = {0}
    for _ in range(4):
        writer = start(code, archive.location, len(there))
        assert writer.stdout is not None
        assert writer.stdout.readline() == "go\n"
        time.sleep(rng.uniform(0.0, 0.25))
        writer.send_signal(signal.SIGKILL)
        done = writer.communicate()[0].split()
        least = int(done[-1]) + 1 if done else len(there)
        there, recorded = batches_of(archive)
        assert len(there) in (least, least + 1)
        assert recorded == there
    assert held(archive) == {k: v for n in there for k, v in points_of("books", books(M, n * 10, 10)).items()}


EVENTS = (
    "import os\nfrom marketdata.archive.storage.parquet import Store\n"
    "from marketdata.archive.storage.tables import Table\n"
    "left = [0]\n"
    "def point():\n    left[0] -= 1\n    left[0] or os.kill(os.getpid(), 9)\n"
    "def watched(owner, name):\n    real = getattr(owner, name)\n"
    "    def call(*args, **kwargs):\n        point()\n        out = real(*args, **kwargs)\n        point()\n"
    "        return out\n    setattr(owner, name, call)\n"
    "watched(Store, 'write')\n"
    "for name in ('commit', 'put', 'create'):\n    watched(Table, name)\n"
    # Each a fork of a process that has imported all and begun nothing.
    "for line in sys.stdin:\n"
    "    step, root = line.rstrip().split(' ', 1)\n    pid = os.fork()\n    if not pid:\n"
    "        left[0], a, code = int(step), Archive(root, frame='polars'), 1\n"
    "        try:\n            WORK\n            code = 0\n        finally:\n            os._exit(code)\n"
    "    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\n"
)


@pytest.mark.fault("AR3", "AR4")
@pytest.mark.parametrize("what", ["replace", "compact"])
def test_a_kill_at_every_step_leaves_the_old_or_the_new(archive: Archive, what: str) -> None:
    """Killed before or after each write, flush and commit, an archive holds the old points or the new, and is sound."""
    work = "a.add(books=books(MARKETS[0], 10, 30, size=5.0))" if what == "replace" else "a.compact()"
    archive.add(books=books(M, 0, 20))
    archive.add(books=books(M, 20, 10))
    base = Path(archive.location)
    old = held(archive)
    new = {**old, **points_of("books", books(M, 10, 30, size=5.0))}
    seen: list[int] = []
    step = 0
    with start(EVENTS.replace("WORK", work), base) as workers:
        assert workers.stdin is not None
        assert workers.stdout is not None
        while not seen or seen[-1] != 0:
            step += 3 if what == "replace" else 4
            root = base.with_name(f"copy-{step}")
            shutil.copytree(base, root)
            print(step, root, file=workers.stdin, flush=True)
            seen.append(int(workers.stdout.readline()))
            assert seen[-1] in (0, -9)
            copy = Archive(root, frame="polars")
            found = held(copy)
            assert found in ((old, new) if what == "replace" else (old,))
            assert copy.verify().is_empty(), f"step {step}"
            copy.add(books=books(M, 10, 30, size=5.0))
            assert held(copy) == new
            assert copy.verify().is_empty()
    assert set(seen) == {0, -9}


@pytest.mark.fault("AR32")
def test_readers_see_whole_commits_while_others_write(archive: Archive) -> None:
    """Every read during rewrites of a range shows the points of exactly one writer."""
    archive.add(books=books(M, 0, 50, size=1.0))
    code = (
        "import itertools, select\n"
        "for n in itertools.count(2):\n    a.add(books=books(MARKETS[0], 0, 50, size=float(n)))\n"
        "    n % 10 or a.compact()\n"
        "    print(flush=True)\n"
        "    if n > 20 and select.select([sys.stdin], [], [], 0)[0]:\n        break\n"
    )
    writer = start(code, archive.location)
    assert writer.stdout is not None
    writer.stdout.readline()
    for _ in range(12):
        found = held(archive)
        assert len(found) == 100
        assert len({bids[0][1] for bids, _ in found.values()}) == 1
    finished(writer)  # it ends once its input has


@pytest.mark.fault("AR34")
def test_many_files_open_quickly_and_need_few_descriptors(archive: Archive) -> None:
    """An archive of hundreds of files reads one market without opening the others, and compacts to a few."""
    for n in range(60):
        archive.add(prices=_one_price(n))
    archive.add(prices=_one_price(0))
    fresh = Archive(archive.location, frame="polars")
    before = set(Path("/proc/self/fd").iterdir())
    assert len(fresh.columns("prices", "m-30")) == 1
    assert len(fresh._store.points["prices"]._footers) == 1
    assert len(set(Path("/proc/self/fd").iterdir()) - before) < 3
    assert len(fresh.files("prices")) == 60
    fresh.compact()
    assert len(fresh.files("prices")) == 1
    assert fresh.scan("prices").collect().height == 60
    assert len(fresh._store.coverage.table.version().files) == 1
    assert fresh.coverage().height == 60
    assert fresh.verify().is_empty()


def _one_price(n: int) -> Any:
    import numpy as np

    from marketdata.points.columns import Token

    token = (Token(f"m-{n:02d}", str(n), "Yes"),)
    return coded_series(token, np.zeros(1, np.int32), np.array([START + n * MINUTE]), {"price": np.array([0.5])})
