"""What other processes do to an archive, in clean processes that are killed."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
from collections.abc import Iterator

# Loaded before the fork, so that a kill hits work and not the start of Python.
import deltalake.transaction  # noqa: F401
import numpy as np
import pandas  # noqa: F401, ICN001
from archive.source import MARKETS, MINUTE, START
from archive.test_faults import books
from coded import coded_books, coded_series

import marketdata.accessor
import marketdata.archive.recordings
import marketdata.points.resample  # noqa: F401
from marketdata.archive import Archive
from marketdata.errors import ArchiveFullError
from marketdata.points.columns import Books, Series, Token

M = MARKETS[0]


def one_batch(k: int, n: int) -> Books:
    """Ten books of a market, each with its own number in it."""
    ts = START + (10 * n + np.arange(10)) * MINUTE
    levels = np.stack([np.full(10, 0.5), np.arange(10.0 * n, 10.0 * n + 10)], axis=1)
    return coded_books((Token(f"m-{k}", str(k), "Yes"),), np.zeros(10, np.int32), ts, np.tile([1, 0], 10), levels)


def write_for_ever(location: str, k: int, acknowledged: str) -> None:
    """Add batch after batch, and tell of each once it is committed."""
    archive = Archive(location, frame="polars")
    n = len(archive.columns("books", f"m-{k}")) // 10
    handle = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(handle, b"%d\n" % n)
    while True:
        archive.add(books=one_batch(k, n))
        n += 1
        os.write(handle, b"%d\n" % n)
        if n % 7 == 0:
            archive.compact()


def write_rounds(location: str, k: int, rounds: int) -> None:
    """Replace the same range again and again."""
    archive = Archive(location, frame="polars")
    for n in range(rounds):
        archive.add(books=books(M, 0, 30, size=float(1000 * k + n + 1)))
        archive.add(books=one_batch(k, n))


def part_of(what: str, k: int, n: int) -> Series:
    """Thirty prices of one market: of a token of the writer's own, or of a day of its own."""
    token = Token("one", str(k if what == "tokens" else 0), "Yes")
    day = 0 if what == "tokens" else k
    ts = START + (1440 * day + 20 * n + np.arange(30)) * MINUTE
    return coded_series((token,), np.zeros(30, np.int32), ts, {"price": np.full(30, (100 * k + n) / 1000)})


def rows_of(columns: Series) -> Iterator[tuple[Token, int, float]]:
    """Token, time and price of each point."""
    for code, ts, price in zip(columns.token.tolist(), columns.ts.tolist(), columns.price.tolist(), strict=True):
        yield columns.tokens[code], ts, price


def write_part(location: str, what: str, k: int, rounds: int) -> None:
    """Add parts that overlap the writer's last one."""
    archive = Archive(location, frame="polars")
    for n in range(rounds):
        archive.add(prices=part_of(what, k, n))


def import_folder(location: str, folder: str) -> None:
    """Import recordings."""
    Archive(location).add_files(folder, progress=False)


def keep_up(location: str) -> None:
    """Compact and vacuum without end."""
    archive = Archive(location, frame="polars")
    while True:
        archive.compact()
        archive.vacuum(1)


def limited(location: str, limit: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    with contextlib.suppress(ArchiveFullError):
        Archive(location).add(books=books(M, 0, 600))
        os._exit(7)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    Archive(location).add(books=books(M, 0, 600, size=2.0))
