"""The archive beside plain Parquet of level rows: bytes, rates, one market-day out of many, and pulling again."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from coded import coded_books

import marketdata as md
from bench.measure import Table, compare, interleaved, ratio
from marketdata.archive import Archive
from marketdata.points.columns import Books, Token, joined

MINUTE = 60_000_000
START = 1_767_225_600_000_000  # 2026-01-01
MARKETS = 1_000


def history(market: int, minutes: int, depth: int) -> Books:
    """Books of two tokens that look like real ones: cents, a price that wanders, sizes that come again and again."""
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
    return coded_books(tokens, token, ts, counts, np.stack([price, size], axis=1))


def run(*, quick: bool = False) -> list[Table]:
    """A market-month, a market-day out of 1,000 markets, and a second pull."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        return [
            *_month(root, 4_320 if quick else 43_200, 2 if quick else 3),
            _day(root, 50 if quick else MARKETS, 2 if quick else 5),
            _again(root),
        ]


def _size(files: list[str]) -> int:
    return sum(Path(file).stat().st_size for file in files)


def _month(root: Path, minutes: int, rounds: int) -> list[Table]:
    books = history(1, minutes, 48)
    rows, market = int(books.counts.sum()), books.tokens[0].market_id
    names = count()
    archive = Archive(root / "month", frame="polars")
    archive.add(books=books)
    fresh = _size(archive.files("books"))
    panda, polar = archive.books(market, frame="pandas"), archive.books(market)
    plain, packed = root / "plain.parquet", root / "packed.parquet"
    write: dict[str, Callable[[], Any]] = {
        "pandas to_parquet, level rows": lambda: panda.to_parquet(plain),
        "polars write_parquet, level rows, zstd": lambda: polar.write_parquet(packed),
        "marketdata: archive.add of columns": lambda: Archive(root / f"w{next(names)}").add(books=books),
        "marketdata: archive.add of a polars frame": lambda: Archive(root / f"w{next(names)}").add(books=polar),
    }
    wrote = interleaved(write, rounds)
    read: dict[str, Callable[[], Any]] = {
        "pandas read_parquet, level rows": lambda: pd.read_parquet(plain),
        "polars read_parquet, level rows": lambda: pl.read_parquet(packed),
        "marketdata: archive.books to polars": lambda: archive.books(market),
        "marketdata: archive.books to pandas": lambda: archive.books(market, frame="pandas"),
        "marketdata: archive.columns": lambda: archive.columns("books", market),
        "marketdata: archive.books at 1h": lambda: archive.books(market, resolution="1h"),
        "marketdata: archive.scan to polars": lambda: archive.scan("books").collect(),
    }
    got = interleaved(read, rounds)
    tables = [
        compare(f"Write a market-month, {rows / 1e6:.3g} M level rows", wrote, list(write)[2], rows=rows),
        compare("Read it, every row as a level", got, list(read)[2], rows=rows),
    ]
    parts = archive.files("books")
    again = Archive(root / "parts")
    for first in range(0, minutes, minutes // 8):
        again.add(books=books.between(START + first * MINUTE, START + (first + minutes // 8) * MINUTE))
    again.compact()
    sizes = {
        "pandas, snappy": plain.stat().st_size,
        "polars, zstd": packed.stat().st_size,
        "archive": fresh,
        "archive, compacted": _size(again.files("books")),
    }
    tables[0].notes.append(
        "Bytes per level row: " + ", ".join(f"{name} {size / rows:.2f}" for name, size in sizes.items()) + f"; "
        f"{len(parts)} file. Every row group, footer and range of the archive is proven by a checksum, and flushed to "
        "disk before it counts; the plain files are neither."
    )
    return tables


def _day(root: Path, markets: int, rounds: int) -> Table:
    archive = Archive(root / "many", frame="polars")
    for first in range(0, markets, 50):
        archive.add(books=joined([history(m, 1_440, 3) for m in range(first, first + 50)]).sort())
    market = f"0x{markets * 3 // 4:064x}"
    plain = root / "many.parquet"
    archive.scan("books").sink_parquet(plain)
    rows = pl.scan_parquet(plain).select(pl.len()).collect().item()
    chosen = pl.col("market_id") == market
    hours = (START + 6 * 60 * MINUTE) / 1e6, (START + 7 * 60 * MINUTE) / 1e6
    ways: dict[str, Callable[[], Any]] = {
        "archive.books of the market-day": lambda: archive.books(market),
        "archive.books of an hour of it": lambda: archive.books(market, *hours),
        "archive.scan, filtered": lambda: archive.scan("books").filter(chosen).collect(),
        "the same from a new process's archive": lambda: Archive(archive.location, frame="polars").books(market),
        "archive.scan of all, then filtered": lambda: archive.scan("books").collect().filter(chosen),
        "pandas read_parquet with filters, level rows": lambda: pd.read_parquet(
            plain, filters=[("market_id", "==", market)]
        ),
        "polars scan_parquet, filtered, level rows": lambda: pl.scan_parquet(plain).filter(chosen).collect(),
    }
    times = interleaved(ways, rounds)
    first, *_, every = [name for name in ways if name.startswith("archive.")]
    table = compare(f"One market-day out of {markets:,} markets, {rows / 1e6:.3g} M level rows", times, first)
    middle = statistics.median(times[first]) * 1e3
    table.notes.append(
        f"{len(archive.files('books'))} files. The market-day takes {middle:.3g} ms; reading all and filtering takes "
        f"{ratio(times, every, first):.0f} times as long."
    )
    return table


def _again(root: Path) -> Table:
    origin = md.simulate(root / "origin", events=1, days=1)
    coverage = origin.coverage(frame="polars")
    start, end = coverage["start"].min(), coverage["end"].max()
    table = Table("Requests of a pull of a day of simulated markets", ["pull", "ranges requested", "requests"])
    with md.serve(origin, requests_per_minute=1_000_000) as service:
        client = md.Client(service.base_url, service.api_key, frame="polars")
        archive = Archive(root / "pulled", frame="polars")
        event = origin.records("events")[0]["slug"]
        for name in ("first", "second"):
            before = client.usage()["limits"]["requests_remaining"]
            asked = archive.pull(client, event=event, start=start, end=end, progress=False)
            spent = before - client.usage()["limits"]["requests_remaining"] - 1  # one is the question itself
            table.rows.append([name, str(len(asked)), str(max(0, spent))])
    return table
