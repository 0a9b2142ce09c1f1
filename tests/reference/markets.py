"""Books and prices of several tokens of a market, drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from hypothesis import strategies as st
from reference.columns import coded_books, coded_series
from reference.kinds import rows

import marketdata as md
from marketdata.points.columns import Books, Series, Token
from marketdata.testing.strategies import START, nullable, sides, times
from marketdata.tidy.frames import to_frame


@st.composite
def pairs(draw: st.DrawFn, tokens: int = 2, *, most: int = 5) -> Books:
    """Books of two markets with so many tokens each, at partly common times."""
    who = [Token(f"m{m}", f"{m}{t}", f"label {t}") for m in range(2) for t in range(tokens)]
    code, ts, counts, levels = [], [], [], []
    for i in range(len(who)):
        for moment in draw(times(most=most)) or [START]:
            bids, asks = draw(sides("bid", 3)), draw(sides("ask", 3))
            code.append(i)
            ts.append(START + (moment - START) % 240_000_000)
            counts += [len(bids), len(asks)]
            levels += [*bids, *asks]
    books = coded_books(
        tuple(who), np.array(code, np.int32), np.array(ts), np.array(counts), np.array(levels, float).reshape(-1, 2)
    )
    keep = {(c, t): i for i, (c, t) in enumerate(zip(code, ts, strict=True))}
    return books.sort() if len(keep) == len(ts) else books.take(np.array(sorted(keep.values()))).sort()


def tops(books: Books) -> dict[tuple[Any, int], tuple[Any, ...]]:
    got = rows(md.bbo(to_frame(books, "polars")))
    return {(Token(*row[1:4]), row[0]): row[4:] for row in got}


@st.composite
def forecasts(draw: st.DrawFn) -> Series:
    """Prices of two tokens of each of three markets."""
    who = [Token(f"m{m}", f"{m}{t}", "YN"[t]) for m in range(3) for t in range(2)]
    picks = [(i, k) for i in range(6) for k in range(4) if draw(st.booleans())]
    return coded_series(
        tuple(who),
        np.array([i for i, _ in picks], np.int32),
        np.array([START + k * 60_000_000 for _, k in picks], np.int64),
        {"price": np.array([draw(nullable) for _ in picks], float)},
    )


def in_kind(frame: pl.DataFrame, kind: str) -> Any:
    return {"polars": lambda: frame, "pandas": frame.to_pandas, "arrow": frame.to_arrow, "lazy": frame.lazy}[kind]()


def books_of(mid: Any, signal: Any) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Books of one level per side around the mids of markets (rows) at minutes (columns), and a frame of a signal."""
    markets, minutes = mid.shape
    ids = np.repeat([f"m{i:03}" for i in range(markets)], minutes)
    ts = pl.datetime(2026, 1, 1, time_unit="us", time_zone="UTC") + pl.duration(minutes="minute")
    table = pl.DataFrame({
        "minute": np.tile(np.arange(minutes), markets), "mid": mid.ravel(), "signal": signal.ravel(),
    }).with_columns(ts=ts, market_id=ids, token_id=ids, token_label=pl.lit("Yes"))  # fmt: skip
    head = ["ts", "market_id", "token_id", "token_label"]
    levels = [
        table.select(*head, side=pl.lit(side), level=pl.lit(0), price=pl.col("mid") + sign * 0.005, size=100.0)
        for side, sign in (("bid", -1), ("ask", 1))
    ]
    return pl.concat(levels), table.select(*head[:3], "signal")
