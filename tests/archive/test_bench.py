"""Figures of the archive; printed, never asserted."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from marketdata.archive import Archive
from marketdata.times import Range
from marketdata.wire.columns import BookColumns, Token, concat

pytestmark = pytest.mark.bench
MINUTE = 60_000_000
START = 1_750_000_020_000_000 // MINUTE * MINUTE


def history(market: int, minutes: int, depth: int) -> BookColumns:
    """Books of two tokens that look like real ones: cents, a few sizes again and again."""
    rng = np.random.default_rng(market)
    name = f"0x{market:064x}"
    tokens = tuple(Token(name, str(market * 2 + k).zfill(77), label) for k, label in enumerate(("Yes", "No")))
    snapshots = 2 * minutes
    counts = rng.integers(depth // 2, depth + 1, 2 * snapshots)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    mid = 0.5 + np.cumsum(rng.choice([-0.001, 0, 0.001], snapshots)) / 50
    away = np.where(np.resize([True, False], 2 * snapshots), -1, 1)
    price = np.round(np.repeat(np.repeat(mid, 2), counts) + np.repeat(away, counts) * 0.01 * (place + 1), 2)
    size = np.round(np.repeat(rng.lognormal(5, 1, len(place) // 8 + 1), 8)[: len(place)], 2)
    token = np.repeat(np.arange(2, dtype=np.int32), minutes)
    ts = START + np.tile(np.arange(minutes, dtype=np.int64) * MINUTE, 2)
    return BookColumns(tokens, token, ts, counts, np.stack([price, size], axis=1))


def best(work: Callable[[], Any], times: int = 3) -> float:
    """Least time of some runs [s]."""
    out = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        out.append(time.perf_counter() - begin)
    return min(out)


def test_a_market_month(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bytes per level, write and read rates of a market-month at 1m, beside level rows in plain Parquet."""
    books = history(1, 43_200, 48)
    levels = len(books.levels)
    roots = iter(range(9))
    wrote = best(lambda: Archive(tmp_path / str(next(roots))).add(books=books))
    archive = Archive(tmp_path / "0", frame="polars")
    size = sum(Path(f).stat().st_size for f in archive.files("books"))
    market = books.tokens[0].market_id
    read = best(lambda: archive.columns("books", market))
    framed = best(lambda: archive.books(market))
    frame = archive.books(market).with_columns(pl.col("market_id", "token_id", "token_label").cast(pl.String))
    plain = tmp_path / "plain.parquet"
    plain_wrote = best(lambda: frame.to_pandas().to_parquet(plain), 1)
    plain_read = best(lambda: pl.read_parquet(plain))
    with capsys.disabled():
        print(f"\n{levels / 1e6:.1f} M levels: {size / levels:.2f} B/level, plain {plain.stat().st_size / levels:.2f}")
        print(f"write {levels / wrote / 1e6:.1f} M/s (plain pandas {levels / plain_wrote / 1e6:.1f})")
        print(f"read to columns {levels / read / 1e6:.1f} M/s, to a tidy frame {levels / framed / 1e6:.1f}", end=" ")
        print(f"(plain polars {levels / plain_read / 1e6:.1f})")


def test_one_day_of_one_market_out_of_a_thousand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reading one market-day, one page, and all."""
    archive = Archive(tmp_path / "a", frame="polars")
    for first in range(0, 1000, 50):
        archive.add(books=concat([history(m, 240, 10) for m in range(first, first + 50)]).sort())
    market = f"0x{777:064x}"
    page = Range(START, START + 100 * MINUTE)
    day = best(lambda: archive.columns("books", market), 10)
    one = best(lambda: archive.columns("books", market, page), 10)
    scan = best(lambda: archive.scan("books").filter(market_id=market).collect())
    every = best(lambda: archive.scan("books").select(pl.len()).collect(), 1)
    begin = time.perf_counter()
    Archive(tmp_path / "a").columns("books", market)
    cold = time.perf_counter() - begin
    small = len(archive.files("books"))
    archive.compact()
    compacted = best(lambda: archive.columns("books", market), 10)
    with capsys.disabled():
        print(f"\none market of 1,000 in {small} files: {day * 1e3:.1f} ms, a page of it {one * 1e3:.1f} ms", end=", ")
        print(f"cold {cold * 1e3:.0f} ms, scan {scan * 1e3:.0f} ms, all {every * 1e3:.0f} ms", end=", ")
        print(f"compacted to {len(archive.files('books'))}: {compacted * 1e3:.1f} ms")
