"""Processes that are killed at a step, storage that fails at a step, and several writers at once."""

from __future__ import annotations

import contextlib
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
from archive.stored import again, books, held, prices, trades
from deltalake import DeltaTable

from marketdata.archive import Archive
from marketdata.errors import ArchiveError, ArchiveFullError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
M, N = MARKETS
Orders = Callable[[list[dict[str, Any]]], list[int]]


@pytest.fixture(scope="module")
def orders() -> Iterator[Orders]:
    """A loaded process that forks a child per order; gives the exit codes."""
    tests = Path(__file__).parents[1]
    paths = [str(tests), str(tests.parent)]
    program = subprocess.Popen(
        [sys.executable, str(tests / "archive/steps.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )

    def give(children: list[dict[str, Any]]) -> list[int]:
        assert program.stdin and program.stdout  # noqa: PT018  both are pipes
        program.stdin.write(json.dumps(children) + "\n")
        program.stdin.flush()
        codes: list[int] = json.loads(program.stdout.readline())
        return codes

    yield give
    program.communicate(timeout=20)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of some commits, with leftovers to vacuum."""
    archive = Archive(tmp_path_factory.mktemp("kills") / "base", frame="polars")
    for first, size in ((0, 1.0), (10, 2.0)):
        archive.add(books=books(M, first, 12, size=size))
    archive.add(prices=prices(M, 0, 9))
    archive.add(prices=prices(N, 0, 9))
    archive.add(trades=trades(M, 0, 6))
    archive.add(trades=trades(N, 4, 5))
    for path in Path(archive.location).rglob("*.*"):
        os.utime(path, (1, 1))
    return Path(archive.location)


@pytest.fixture(scope="module")
def results(base: Path) -> dict[str, tuple[Any, int]]:
    """The content after each verb, and the number of its steps."""
    out = {}
    for verb, call in VERBS.items():
        numbers, done = list[int](), copied(base, "done")
        with steps(numbers.append):
            call(done)
        out[verb] = content(done), len(numbers)
    return out


def content(archive: Archive) -> tuple[Any, Any]:
    """All points, and the coverage as one reads it."""
    points: dict[Any, Any] = {
        (view, m): held(archive, view, m)  # type: ignore[arg-type]
        for view in ("books", "prices", "metrics") for m in MARKETS
    }  # fmt: skip
    points["trades"] = sorted(archive.trades(on_missing="partial").rows(), key=repr) if has_trades(archive) else []
    return points, archive.coverage().drop("fetched_at").rows()


def has_trades(archive: Archive) -> bool:
    return "trades" in archive.coverage()["view"]


def copied(base: Path, name: str) -> Archive:
    target = base.parent / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(base, target)
    return Archive(target, frame="polars")


@pytest.mark.fault("AR2", "AR3", "AR43", "AR46")
@pytest.mark.parametrize("every", [17, pytest.param(1, marks=pytest.mark.soak)])
def test_a_killed_write_leaves_the_archive_as_before_or_after(
    orders: Orders, base: Path, results: dict[str, tuple[Any, int]], every: int
) -> None:
    """No row is lost or doubled, coverage fits, and the same call then completes."""
    before = content(Archive(base, frame="polars"))
    for verb, (after, count) in results.items():
        for step in range(count, 0, -every):
            target = copied(base, "killed")
            assert orders([{"verb": verb, "location": target.location, "step": step}]) == [-9]
            assert content(target)[0] in (before[0], after[0]) or verb in ("replace", "create", "prints")
            assert target.verify().is_empty()
            VERBS[verb](target)
            assert content(again(target)) == after


@pytest.mark.fault("AR6", "AR7", "AR38")
@pytest.mark.parametrize("every", [23, pytest.param(1, marks=pytest.mark.soak)])
def test_storage_that_fails_at_a_step_changes_nothing(
    base: Path, results: dict[str, tuple[Any, int]], every: int
) -> None:
    """A full disk or a failing one is a typed error, every earlier commit is readable, and the call can be repeated."""
    for verb, (after, count) in results.items():
        for failed_at in range(count, 0, -every):
            target, code = copied(base, "failing"), (errno.EIO, errno.ENOSPC)[failed_at % 2]

            def fail(step: int, failed_at: int = failed_at, code: int = code) -> None:
                if step == failed_at:
                    raise OSError(code, os.strerror(code))

            # A step that follows a commit, such as a checkpoint, may fail unseen.
            with steps(fail), contextlib.suppress(ArchiveFullError if code == errno.ENOSPC else ArchiveError):
                VERBS[verb](target)
            assert target.verify().is_empty()
            VERBS[verb](target)
            assert content(again(target)) == after


@pytest.mark.fault("AR45")
@pytest.mark.parametrize("between", [False, True])
def test_a_commit_whose_answer_is_lost_is_recognised(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, *, between: bool
) -> None:
    """The log tells whether it was made, also if another writer came after it; nothing is doubled or deleted."""
    archive.add(prices=prices(M, 0, 5))
    real, other, lose = DeltaTable.create_write_transaction, again(archive), [True]

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
    location, count = str(tmp_path / "archive"), 3
    assert orders([{"writer": k, "location": location} for k in range(count)]) == [0] * count
    archive = Archive(location, frame="polars")
    for k in range(count):
        assert len(archive.prices(f"own-{k}")) == 5
        assert set(archive.prices(f"pulled-{k}")["price"]) == {k / 10}
        assert len(archive.prices(f"pulled-{k}")) == 120
    assert len(archive.prices("shared")) == 5 * count
    sizes = {size for bids, asks in held(archive).values() for _, size in (*bids, *asks)}
    assert len(held(archive)) == 16
    assert len(sizes) == 1
    assert archive.verify().is_empty()
