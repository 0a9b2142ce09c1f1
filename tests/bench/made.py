"""What the benchmarks work on: pages and frames made from a seed."""

from __future__ import annotations

import json

import numpy as np
from coded import coded_books, coded_series

from marketdata.points.columns import Books, Series, Token
from marketdata.times import to_text

MINUTE = 60_000_000
START = 1_767_225_600_000_000  # 2026-01-01


def pages(count: int, *, tokens: int, snapshots: int, levels: tuple[int, int]) -> tuple[list[bytes], int]:
    """Book pages in time order, and how many level rows they hold."""
    rng = np.random.default_rng(7)
    labels = {f"L{i}": str(10**76 + i) for i in range(tokens)}
    out, rows = [], 0
    for page in range(count):
        data: dict[str, list[object]] = {}
        for label in labels:
            points = []
            for k in range(snapshots):
                bids, asks = rng.integers(levels[0], levels[1] + 1, 2)
                mid = int(rng.integers(330, 660))
                points.append(
                    {
                        "t": to_text(START + (page * snapshots + k) * MINUTE),
                        "bids": _side(rng, mid - 1, -1, int(bids)),
                        "asks": _side(rng, mid + 1, 1, int(asks)),
                    }
                )
                rows += int(bids + asks)
            data[label] = points
        body = {
            "market_id": "0x" + "ab" * 32,
            "resolution": "1m",
            "tokens": labels,
            "data": data,
            "metadata": {"count": tokens * snapshots, "limit": 200, "next_cursor": f"cursor-{page}"},
        }
        out.append(json.dumps(body, separators=(",", ":")).encode())
    return out, rows


def _side(rng: np.random.Generator, best: int, step: int, levels: int) -> list[list[float]]:
    sizes = np.round(rng.exponential(900.0, levels) + 0.01, 2).tolist()
    return [[(best + step * k) / 1000, size] for k, size in enumerate(sizes)]


def books(rows: int, *, tokens: int = 4, levels: int = 35) -> Books:
    """About so many level rows of 1m books, sorted."""
    count = max(tokens, rows // (2 * levels))
    token = np.sort(np.arange(count) % tokens).astype(np.int32)
    first = np.searchsorted(token, np.arange(tokens))
    ts = START + (np.arange(count) - first[token]) * MINUTE
    steps = np.arange(levels) * 0.001
    price = np.tile(np.concatenate([0.5 - steps, 0.501 + steps]), count)
    size = np.resize(np.round(np.random.default_rng(7).exponential(900.0, 1_000_003) + 0.01, 2), len(price))
    return coded_books(_tokens(tokens), token, ts, np.full(2 * count, levels), np.column_stack((price, size)))


def prices(rows: int, *, tokens: int = 4) -> Series:
    """So many 1m prices, sorted."""
    token = np.sort(np.arange(rows) % tokens).astype(np.int32)
    first = np.searchsorted(token, np.arange(tokens))
    ts = START + (np.arange(rows) - first[token]) * MINUTE
    return coded_series(_tokens(tokens), token, ts, {"price": np.random.default_rng(7).random(rows)})


def _tokens(count: int) -> tuple[Token, ...]:
    return tuple(Token("0x" + "ab" * 32, str(10**76 + i), f"L{i}") for i in range(count))
