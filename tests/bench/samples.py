"""Pages and frames for the benchmarks, drawn from a fixed seed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import polars as pl

START = np.datetime64("2026-01-01", "us")
MARKET = "0x" + "ab" * 32


def minute(number: int) -> str:
    """Return the time of a minute after the start, as the service writes it."""
    return f"{START + np.timedelta64(number, 'm')}"[:19] + "Z"


def book_pages(count: int, *, tokens: int, snapshots: int, levels: tuple[int, int]) -> list[bytes]:
    """Return pages of books, in order of time, with a random number of levels on each side."""
    rng = np.random.default_rng(7)

    def side(best: int, step: int) -> list[list[float]]:
        number = int(rng.integers(levels[0], levels[1] + 1))
        sizes = np.round(rng.exponential(900.0, number) + 0.01, 2).tolist()
        return [[(best + step * level) / 1000, size] for level, size in enumerate(sizes)]

    def points(page: int) -> list[dict[str, Any]]:
        mids = rng.integers(330, 660, snapshots).tolist()
        return [
            {"t": minute(page * snapshots + i), "bids": side(mid - 1, -1), "asks": side(mid + 1, 1)}
            for i, mid in enumerate(mids)
        ]

    labels = {f"L{i}": str(10**76 + i) for i in range(tokens)}
    return [
        json.dumps(
            {
                "market_id": MARKET,
                "resolution": "1m",
                "tokens": labels,
                "data": {label: points(page) for label in labels},
                "metadata": {"count": tokens * snapshots, "limit": 200, "next_cursor": f"cursor-{page}"},
            },
            separators=(",", ":"),
        ).encode()
        for page in range(count)
    ]


def price_frame(markets: Sequence[str], minutes: int) -> pl.DataFrame:
    """Return tidy prices of two tokens for each market, one row per token and minute."""
    tokens = [(market, f"{market}-{label}", label) for market in markets for label in ("No", "Yes")]
    price = np.random.default_rng(7).random(len(tokens) * minutes)
    return _tidy(tokens, minutes, 1, price=price)


def book_frame(markets: Sequence[str], minutes: int, levels: int) -> pl.DataFrame:
    """Return tidy books of two tokens for each market, one row per level of each minute."""
    tokens = [(market, f"{market}-{label}", label) for market in markets for label in ("No", "Yes")]
    steps = np.arange(levels) * 0.001
    books = len(tokens) * minutes
    return _tidy(
        tokens,
        minutes,
        2 * levels,
        side=np.tile(np.repeat(["bid", "ask"], levels), books),
        level=np.tile(np.arange(levels, dtype=np.int32), 2 * books),
        price=np.tile(np.concatenate([0.5 - steps, 0.501 + steps]), books),
        size=np.resize(np.round(np.random.default_rng(7).exponential(900.0, 1_000_003) + 0.01, 2), 2 * levels * books),
    )


def _tidy(tokens: Sequence[tuple[str, str, str]], minutes: int, rows: int, **values: Any) -> pl.DataFrame:
    """Return a frame with ``rows`` rows for each token and minute."""
    code = np.repeat(np.arange(len(tokens)), minutes * rows)
    times = np.tile(np.repeat(START + np.arange(minutes).astype("timedelta64[m]"), rows), len(tokens))
    ids = pl.DataFrame(tokens, schema=["market_id", "token_id", "token_label"], orient="row")
    ids = ids.with_columns(pl.all().cast(pl.Categorical))[code]
    columns = [pl.Series("ts", times).dt.replace_time_zone("UTC"), *ids.get_columns()]
    frame = pl.DataFrame([*columns, *(pl.Series(name, column) for name, column in values.items())])
    return frame.with_columns(pl.col("side").cast(pl.Enum(["bid", "ask"]))) if "side" in values else frame


def to_pandas(frame: pl.DataFrame) -> pd.DataFrame:
    """Return the frame as pandas with the types of tidy frames."""
    panda: pd.DataFrame = frame.to_pandas()
    return panda.astype({"level": "Int32"}) if "level" in panda else panda
