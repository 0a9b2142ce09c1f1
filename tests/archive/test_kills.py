"""Processes that are killed at a step, storage that fails at a step, and several writers at once."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from archive.source import MARKETS
from archive.steps import VERBS, steps
from archive.stored import again, books, held, prices
from deltalake import DeltaTable

from marketdata.archive import Archive
from marketdata.errors import ArchiveError, ArchiveFullError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
M, N = MARKETS
Orders = Callable[[list[dict[str, Any]]], tuple[list[int], int]]


@pytest.fixture(scope="module")
def orders() -> Iterator[Orders]:
    """A loaded process that forks a child per order; gives the exit codes, and the steps of a child that ended."""
    tests = Path(__file__).parents[1]
    paths = [str(tests), str(tests.parent)]
    program = subprocess.Popen(
        [sys.executable, str(tests / "archive/steps.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )

    def give(some: list[dict[str, Any]]) -> tuple[list[int], int]:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(json.dumps(some) + "\n")
        program.stdin.flush()
        seen = 0
        while "codes" not in (answer := json.loads(program.stdout.readline())):
            seen = max(seen, answer["steps"])
        return answer["codes"], seen

    yield give
    program.communicate(timeout=20)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of some commits, with leftovers to vacuum."""
    archive = Archive(tmp_path_factory.mktemp("kills") / "base", frame="polars")
    for first, size in ((0, 1.0), (10, 2.0), (20, 3.0)):
        archive.add(books=books(M, first, 12, size=size))
    archive.add(prices=prices(M, 0, 9))
    archive.add(prices=prices(N, 0, 9))
    for path in Path(archive.location).rglob("*.*"):
        os.utime(path, (1, 1))
    return Path(archive.location)


def content(archive: Archive) -> dict[str, Any]:
    """All points, and the coverage as one reads it."""
    points = {(view, m): held(archive, view, m) for view in ("books", "prices", "metrics") for m in MARKETS}  # type: ignore[arg-type]
    rows = archive.coverage().drop("fetched_at").rows() if Path(archive.location).exists() else []
    return {"points": points, "coverage": rows}


def copied(base: Path, name: str) -> Archive:
    target = base.parent / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(base, target)
    return Archive(target, frame="polars")


def check_kills(orders: Orders, base: Path, verb: str, steps: range) -> None:
    """Kill the verb at these steps; the archive is as before or as after, and the same call then completes."""
    before, done = content(copied(base, "before")), copied(base, "done")
    VERBS[verb](done)
    after = content(done)
    for step in steps:
        target = copied(base, "killed")
        codes, seen = orders([{"verb": verb, "location": target.location, "step": step}])
        assert codes == [-9] or (codes == [0] and seen < step)
        stored = content(again(target))
        assert stored["points"] in (before["points"], after["points"]) or verb in ("replace", "create")
        assert again(target).verify().is_empty()
        VERBS[verb](again(target))
        assert content(again(target)) == after
        assert again(target).verify().is_empty()
        if codes == [0]:
            return
    pytest.fail("the verb has more steps than were tried")


@pytest.mark.fault("AR2", "AR3", "AR43", "AR46")
@pytest.mark.parametrize("verb", VERBS)
def test_a_killed_write_leaves_the_archive_as_before_or_after(orders: Orders, base: Path, verb: str) -> None:
    """At every fourth step of each verb: no row is lost or doubled, coverage fits, and the call can be repeated."""
    check_kills(orders, base, verb, range(2, 200, 4))


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS)
def test_a_kill_at_every_step(orders: Orders, base: Path, verb: str) -> None:
    """The same at every step."""
    check_kills(orders, base, verb, range(1, 200))


@pytest.mark.fault("AR6", "AR7", "AR38")
@pytest.mark.parametrize("verb", VERBS)
def test_storage_that_fails_at_a_step_changes_nothing(base: Path, verb: str) -> None:
    """A full disk or a failing one is a typed error, every earlier commit is readable, and the call can be repeated."""
    done = copied(base, "done")
    VERBS[verb](done)
    after, failed_at = content(done), 1
    while failed_at:
        target, code = copied(base, "failing"), (errno.EIO, errno.ENOSPC)[failed_at % 2]

        def fail(n: int, failed_at: int = failed_at, code: int = code) -> None:
            if n == failed_at:
                raise OSError(code, os.strerror(code))

        problem: ArchiveError | None = None
        with steps(fail):
            try:
                VERBS[verb](target)
            except ArchiveError as raised:
                problem = raised
        failed_at = 0 if problem is None else failed_at + 3
        assert type(problem) in (type(None), ArchiveFullError if code == errno.ENOSPC else ArchiveError)
        assert again(target).verify().is_empty()
        VERBS[verb](target)
        assert content(again(target)) == after


@pytest.mark.fault("AR45")
@pytest.mark.parametrize("between", [False, True])
def test_a_commit_whose_answer_is_lost_is_recognised(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, *, between: bool
) -> None:
    """The log tells whether it was made, also if another writer came after it; nothing is doubled or deleted."""
    archive.add(prices=prices(M, 0, 5))
    real, other = DeltaTable.create_write_transaction, again(archive)
    lose = [True]

    def lost(self: DeltaTable, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        if lose:
            lose.pop()
            if between:
                other.add(prices=prices(N, 0, 3))
            raise OSError(errno.ECONNRESET, "the answer was lost")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lost)
    archive.add(prices=prices(M, 3, 5, value=0.75))
    assert lose == []
    expected = {("prices", M, 0, n): 0.75 if n >= 3 else 0.5 for n in range(8)}
    assert held(archive, "prices") == held(again(archive), "prices") == expected
    assert len(held(again(archive), "prices", N)) == (3 if between else 0)
    assert archive.verify().is_empty()


@pytest.mark.fault("AR9", "AR10", "AR36", "AR37")
def test_processes_that_write_at_once_lose_nothing(orders: Orders, tmp_path: Path) -> None:
    """Points of markets of their own and of a shared one are all there; one writer's version of a shared range is."""
    location, count = str(tmp_path / "archive"), 6
    codes, _ = orders([{"writer": k, "location": location} for k in range(count)])
    assert codes == [0] * count
    archive = Archive(location, frame="polars")
    for k in range(count):
        assert len(archive.prices(f"own-{k}")) == 20
        assert set(archive.prices(f"pulled-{k}")["price"]) == {k / 10}
        assert len(archive.prices(f"pulled-{k}")) == 120
    assert len(archive.prices("shared")) == 20 * count
    sizes = {size for bids, asks in held(archive).values() for _, size in (*bids, *asks)}
    assert len(held(archive)) == 16
    assert len(sizes) == 1
    assert archive.verify().is_empty()
