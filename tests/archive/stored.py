"""Small histories, and what an archive stores of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from archive.source import MARKETS, MINUTE, START, columns_of, points_of

from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.points.views import View

M, N = MARKETS


def books(market: str, first: int, count: int, size: float = 1.0) -> Any:
    """Books of both tokens of a market at minutes from the first."""
    keys = [(t, n) for t in range(2) for n in range(first, first + count)]
    rng = np.random.default_rng(first)
    values = [
        ([(round(float(p), 2), size) for p in sorted(rng.random(3), reverse=True)], [(0.9, size)] if n % 2 else [])
        for _, n in keys
    ]
    return columns_of("books", market, keys, values)


def prices(market: str, first: int, count: int, value: float = 0.5) -> Any:
    """Prices of the first token of a market at minutes from the first."""
    keys = [(0, n) for n in range(first, first + count)]
    return columns_of("prices", market, keys, [value] * count)


def held(archive: Archive, view: View = "books", market: str = MARKETS[0]) -> dict[Any, Any]:
    """The stored points of a market."""
    return points_of(view, Reader(archive).columns(view, market))


def again(archive: Archive) -> Archive:
    """The same archive as another process sees it."""
    return Archive(archive.location, frame="polars", storage_options=archive._store.options)


def data_files(archive: Archive, view: View = "books") -> list[Path]:
    """Paths of the data files of the newest version."""
    return [Path(archive.location, view, file.path) for file in archive._store.points[view].version().files]


def minute(n: int) -> float:
    """The Unix time [s] of the n-th minute."""
    return (START + n * MINUTE) / 1e6


def states(archive: Archive, view: View = "books", market: str = MARKETS[0]) -> list[tuple[int, int, str]]:
    """First minute, end and state of each stored range of a market."""
    rows = archive.coverage().filter(view=view, market_id=market)
    starts, ends = (((rows[name].dt.epoch("us") - START) // MINUTE).to_list() for name in ("start", "end"))
    return list(zip(starts, ends, rows["state"], strict=True))
