"""The steps by which an archive changes its storage, and a process that is killed at one of them.

Run as a program it is a process with everything imported. For each line of its input it forks a child, which runs a
verb and is killed at a step.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib.abc
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import deltalake.fs
import deltalake.transaction  # noqa: F401  loaded before a fork
import numpy.ma  # noqa: F401
import polars as pl
from archive.source import MARKETS, START, TOKENS, Source
from archive.stored import books, prices, trades
from deltalake import DeltaTable

import marketdata.accessor
import marketdata.archive.imports
import marketdata.points.resample  # noqa: F401
from marketdata.archive import Archive
from marketdata.archive.storage.files import Store

M, N = MARKETS


def add(archive: Archive) -> None:
    """Points that replace some, add some, and keep some."""
    archive.add(books=books(M, 5, 20, size=2.0))


def replace(archive: Archive) -> None:
    """Fewer points instead of many, of two markets."""
    archive.add(prices=prices(M, 0, 1, value=0.25), replace=True)
    archive.add(prices=prices(N, 3, 9, value=0.75), replace=True)


def pull(archive: Archive) -> None:
    """Other points than are stored, and a range without any."""
    source = Source()
    source.points = {("books", M, token, n): ([(0.5, 9.0)], []) for token in (0, 1) for n in range(10, 15)}
    start = START / 1e6
    archive.pull(source, M, views=["books"], start=start + 600, end=start + 1200, refresh=True, progress=False)


def add_prints(archive: Archive) -> None:
    """Prints that tell more of stored ones, others that are stored, and new ones; then all of them in large files."""
    archive.add(trades=trades(M, 3, 9, fee=0.25))
    archive.add(trades=trades(N, 0, 6))
    archive.compact()


def create(archive: Archive) -> None:
    """Tables that are not there yet, with a further column."""
    tokens = [{"id": token.token_id, "label": token.token_label} for token in TOKENS[M]]
    archive.add(markets=[{"market_id": M, "slug": "s", "tokens": tokens}])
    ts = dt.datetime.fromtimestamp(START / 1e6, dt.UTC)
    metrics = [{"ts": ts, "market_id": M, "volume": 1.0, "liquidity": 2.0, "spread": 0.1, "trades": 3.0}]
    archive.add(metrics=pl.DataFrame(metrics))


VERBS: dict[str, Callable[[Archive], Any]] = {
    "add": add, "replace": replace, "pull": pull, "create": create, "prints": add_prints,
    "compact": Archive.compact, "vacuum": lambda archive: archive.vacuum(0),
}  # fmt: skip


def write(archive: Archive, k: int) -> None:
    """What one of several writers does: pull and add points of its own market, and add points of one that all write."""
    source, pulled = Source(), f"pulled-{k}"
    source.listed = [pulled]
    source.points = {("prices", pulled, token, n): k / 10 for token in (0, 1) for n in range(60)}
    start = START / 1e6
    archive.pull(source, pulled, views=["prices"], start=start, end=start + 3600, progress=False)
    archive.add(prices=prices(f"own-{k}", 0, 5, value=k / 10))
    archive.add(prices=prices("shared", 5 * k, 5, value=k / 10))
    archive.add(books=books(M, 0, 8, size=float(k + 1)))


@contextlib.contextmanager
def steps(act: Callable[[int], None]) -> Iterator[None]:
    """Call ``act`` with the number of each step that changes the storage: before, within and after it."""
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        act(count)

    def around(real: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> Any:
            step()
            out = real(*args, **kwargs)
            step()
            return out

        return called

    real_write = Store.write

    def write_file(self: Store, name: str, body: Any) -> None:
        step()
        torn = Path(self.uri, name)
        torn.parent.mkdir(parents=True, exist_ok=True)
        torn.write_bytes(bytes(body)[: len(body) // 2])
        step()
        torn.unlink()
        real_write(self, name, body)
        step()

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Store, "write", write_file))
        stack.enter_context(mock.patch.object(Store, "delete", around(Store.delete)))
        for name in ("create_write_transaction", "create_checkpoint"):
            stack.enter_context(mock.patch.object(DeltaTable, name, around(getattr(DeltaTable, name))))
        stack.enter_context(mock.patch.object(DeltaTable, "create", around(DeltaTable.create)))
        yield


def run(order: dict[str, Any]) -> None:
    """Run a verb, and die at a step."""

    def act(step: int) -> None:
        if step == order["step"]:
            os.kill(os.getpid(), signal.SIGKILL)

    archive = Archive(order["location"], frame="polars")
    if "writer" in order:
        write(archive, order["writer"])
    else:
        with steps(act):
            VERBS[order["verb"]](archive)


class WithoutPandas(importlib.abc.MetaPathFinder):
    """Tells pyarrow that there is no pandas, which it would load in each child."""

    def find_spec(self, name: str, *_: Any) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def main() -> None:
    sys.meta_path.insert(0, WithoutPandas())
    os.fsync = lambda _: None  # as in the tests that start this
    for line in sys.stdin:
        children = []
        for order in json.loads(line):
            if (child := os.fork()) == 0:
                run(order)
                os._exit(0)
            children.append(child)
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]), flush=True)


if __name__ == "__main__":
    main()
