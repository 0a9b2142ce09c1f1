"""Small histories, and what an archive stores of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from archive.source import MARKETS, MINUTE, START, TOKENS, columns_of, points_of

from marketdata.archive import Archive
from marketdata.archive.reading import Reader
from marketdata.points.columns import Trades
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


def trades(market: str, first: int, count: int, **more: float) -> Trades:
    """Two prints of each of some minutes, one with an id, and an equal one of one time that has none."""
    at = np.repeat(np.arange(first, first + count), 2)
    ids = [f"{market}-{n}" if k % 2 else None for k, n in enumerate(at.tolist())]
    values = {"side": np.full(len(at), "buy", object), "price": np.full(len(at), 0.5), "size": np.ones(len(at))}
    values |= {"trade_id": np.array(ids, object), **{name: np.full(len(at), v) for name, v in more.items()}}
    return Trades.of(TOKENS[market][:1], np.zeros(len(at), np.int64), START + at * MINUTE + 7, values)


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
