"""Scans and reads of an archive, beside plain polars on the same files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

import marketdata as md
from bench.measure import measure, print_table, ratio
from bench.samples import book_frame, price_frame

IDS = ["market_id", "token_id", "token_label"]
HOUR = pl.col("ts").dt.truncate("1h")


def run(*, quick: bool) -> None:
    """Print one table of ratios for archives of three shapes."""
    shapes = ((40, 1), (4, 24)) if quick else ((4000, 1), (1000, 24), (200, 168))
    rows = []
    for markets, hours in shapes:
        with tempfile.TemporaryDirectory() as folder:
            archive = fill(folder, markets, hours, with_books=hours == 1)
            pairs = works(archive, markets, with_books=hours == 1)
            ways = {f"{who} {name}": way for name, pair in pairs.items() for who, way in zip("ab", pair, strict=True)}
            seconds = measure(ways, 1 if quick else 5)
            shape = f"{markets:,} markets x {hours} h"
            rows += [(f"{shape}: {name}", f"{ratio(seconds, f'a {name}', f'b {name}'):.2g}") for name in pairs]
    print_table("An archive, over plain polars on the same files", ("work", "x polars"), rows)


def fill(folder: str, markets: int, hours: int, *, with_books: bool) -> md.Archive:
    """Return an archive of prices, and books of eight levels a side where they are asked for."""
    archive = md.Archive(folder, frame="polars")
    for first in range(0, markets, 50):
        names = [f"0x{number:064x}" for number in range(first, min(first + 50, markets))]
        archive.add(prices=price_frame(names, 60 * hours))
        if with_books:
            archive.add(books=book_frame(names, 60 * hours, 8))
    return archive


def works(
    archive: md.Archive, markets: int, *, with_books: bool
) -> dict[str, tuple[Callable[[], Any], Callable[[], Any]]]:
    """Return our way and the way of polars for each work."""
    prices = sorted(map(str, Path(archive.location, "prices").glob("*.parquet")))
    names = [f"0x{number:064x}" for number in range(0, markets, max(1, markets // 300))][:300]
    hourly = pl.scan_parquet(prices).group_by(*IDS, HOUR).agg(pl.col("price").mean())
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "scan prices at 1h": (archive.scan("prices", resolution="1h").collect, hourly.collect),
        f"prices of {len(names)} markets": (
            lambda: archive.prices(names),
            pl.scan_parquet(prices).filter(pl.col("market_id").is_in(names)).collect,
        ),
        "prices of one market": (
            lambda: archive.prices(names[0]),
            pl.scan_parquet(prices).filter(pl.col("market_id") == names[0]).collect,
        ),
    }
    if with_books:
        books = pl.scan_parquet(sorted(map(str, Path(archive.location, "books").glob("*.parquet"))))
        last = books.group_by(*IDS, HOUR).agg(pl.exclude("ts").sort_by("ts").last())
        everything = [pl.scan_parquet(prices), books]
        pairs["scan books at 1h"] = (archive.scan("books", resolution="1h").collect, last.collect)
        pairs["verify"] = (archive.verify, lambda: [frame.collect() for frame in everything])
    return pairs
