"""Aggregation and measures of frames in memory, beside lines of pandas and polars."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl

import marketdata as md
from bench.measure import measure, print_ratios, print_table, ratio
from bench.samples import book_frame, price_frame, to_pandas

MARKETS = ["m0", "m1"]
OURS = "marketdata on pandas"
TOKEN = ["market_id", "token_id", "token_label"]
HOUR = pl.col("ts").dt.truncate("1h")


def run(*, quick: bool) -> None:
    """Print a table for books, prices and the top of the book, and one for the other functions."""
    rows, rounds = (200_000, 1) if quick else (10_000_000, 5)
    books, prices = book_frame(MARKETS, rows // 280, 35), price_frame(MARKETS, rows // 4)
    pandas_books, pandas_prices = to_pandas(books), to_pandas(prices)
    last_books = {
        OURS: lambda: md.resample(pandas_books, "1h"),
        "marketdata on polars": lambda: md.resample(books, "1h"),
        "pandas: Grouper and transform": lambda: last_by_grouper(pandas_books),
        "pandas: floor and transform": lambda: last_by_floor(pandas_books),
        "polars: semi join with the last times": lambda: last_by_semi_join(books),
        "polars: shift on the sorted frame": lambda: last_by_shift(books),
    }
    print_ratios(f"Last book of each hour, {len(books):,} level rows", measure(last_books, rounds), OURS)
    means = {
        OURS: lambda: md.resample(pandas_prices, "1h"),
        "marketdata on polars": lambda: md.resample(prices, "1h"),
        "pandas: floor and groupby": lambda: mean_by_floor(pandas_prices),
        "polars: group_by": lambda: prices.lazy().group_by("token_id", HOUR).agg(pl.col("price").mean()).collect(),
    }
    print_ratios(f"Mean price of each hour, {len(prices):,} rows", measure(means, rounds), OURS)
    tops = {
        OURS: lambda: md.bbo(pandas_books),
        "marketdata on polars": lambda: md.bbo(books),
        "pandas: two groupbys": lambda: top_by_groupby(pandas_books),
        "polars: bids joined with asks": lambda: top_by_join(books),
    }
    print_ratios(f"Top of the book, {len(books):,} level rows", measure(tops, rounds), OURS)
    _print_functions(book_frame(MARKETS, rows // 2800, 35), price_frame(MARKETS, rows // 40), rounds)


def _print_functions(books: pl.DataFrame, prices: pl.DataFrame, rounds: int) -> None:
    """Compare single functions on polars frames with the lines that an expert would write."""
    book = [*TOKEN, "ts"]
    best = pl.col("price").first()
    move = pl.col("price").diff().over(TOKEN)
    bid, ask = (pl.col("size").filter(pl.col("side") == side).sum() for side in ("bid", "ask"))
    bars = [best.alias("open"), pl.col("price").max().alias("high"), pl.col("price").min().alias("low")]
    later = prices.select(*TOKEN, ts=pl.col("ts").dt.offset_by("1m"), known="price")
    signal = md.imbalance(books)
    pairs: dict[str, tuple[Any, Any]] = {
        "imbalance": (
            lambda: md.imbalance(books),
            lambda: books.lazy().group_by(book, maintain_order=True).agg((bid - ask) / (bid + ask)).collect(),
        ),
        "ohlc": (
            lambda: md.ohlc(prices, "1h"),
            lambda: prices.lazy().group_by(*TOKEN, HOUR, maintain_order=True).agg(*bars).collect(),
        ),
        "returns": (lambda: md.returns(prices), lambda: prices.lazy().with_columns(returns=move).collect()),
        "asof_join": (
            lambda: md.asof_join(prices, prices, width="1m"),
            lambda: prices.join_asof(later, on="ts", by=TOKEN, check_sortedness=False),
        ),
        "forward_returns": (
            lambda: md.forward_returns(books, "5m", fees=0, width="1m"),
            lambda: returns_by_join_asof(books),
        ),
        "study": (
            lambda: md.study(books, signal, "5m", fees=0, width="1m", interval=None),
            lambda: means_by_quantile(books, signal),
        ),
    }
    rows = []
    for name, (ours, expert) in pairs.items():
        seconds = measure({"ours": ours, "expert": expert}, rounds)
        rows.append((name, f"{ratio(seconds, 'ours', 'expert'):.2g}"))
    print_table("Functions on polars frames, over an expert's polars", ("function", "x polars"), rows)


def last_by_grouper(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the last book of each hour as the pandas documentation does."""
    last = frame.groupby(["token_id", pd.Grouper(key="ts", freq="1h")], observed=True)["ts"].transform("max")
    return frame[frame["ts"] == last]


def last_by_floor(frame: pd.DataFrame) -> pd.DataFrame:
    """Keep the last book of each hour with the faster idiom of pandas."""
    last = frame.groupby(["token_id", frame["ts"].dt.floor("1h")], observed=True)["ts"].transform("max")
    return frame[frame["ts"] == last]


def mean_by_floor(frame: pd.DataFrame) -> pd.Series:
    """Return the mean price of each hour with the faster idiom of pandas."""
    return frame.groupby(["token_id", frame["ts"].dt.floor("1h")], observed=True)["price"].mean()


def last_by_semi_join(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep the last book of each hour with a semi join."""
    last = frame.lazy().group_by("token_id", HOUR.alias("hour")).agg(pl.col("ts").max())
    return frame.lazy().join(last, on=["token_id", "ts"], how="semi").with_columns(HOUR).collect()


def last_by_shift(frame: pl.DataFrame) -> pl.DataFrame:
    """Keep the last book of each hour, trusting that the frame is sorted."""
    changed = (HOUR.shift(-1) != HOUR) | (pl.col("token_id") != pl.col("token_id").shift(-1))
    last = frame.lazy().filter(changed.fill_null(value=True)).select("token_id", "ts")
    return frame.lazy().join(last, on=["token_id", "ts"], how="semi").collect()


def top_by_groupby(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the best prices with two groupbys."""
    bids, asks = frame[frame["side"] == "bid"], frame[frame["side"] == "ask"]
    best_bid = bids.groupby(["token_id", "ts"], observed=True)["price"].max().rename("best_bid")
    best_ask = asks.groupby(["token_id", "ts"], observed=True)["price"].min().rename("best_ask")
    return pd.concat([best_bid, best_ask], axis=1)


def quotes_by_join(frame: pl.DataFrame) -> pl.LazyFrame:
    """Return the best prices and the mid by a join of both sides."""
    best = frame.lazy().filter(pl.col("level") == 0)
    bids, asks = (best.filter(pl.col("side") == side) for side in ("bid", "ask"))
    on = ["token_id", "ts"]
    both = bids.select("ts", *TOKEN, best_bid="price").join(
        asks.select(*on, best_ask="price"), on=on, how="full", coalesce=True
    )
    return both.with_columns(mid=(pl.col("best_bid") + pl.col("best_ask")) / 2)


def top_by_join(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the best prices in tidy order."""
    return quotes_by_join(frame).sort(*TOKEN, "ts").collect()


def returns_by_join_asof(frame: pl.DataFrame) -> pl.DataFrame:
    """Return what a share earns that is bought a minute later and sold five minutes after that."""
    quotes = quotes_by_join(frame).sort("token_id", "ts").collect()
    entries = quotes.select(*TOKEN, at="ts", entry="best_ask", mid_in="mid")
    exits = quotes.select(*TOKEN, at="ts", exit="best_bid", mid_out="mid")
    options: dict[str, Any] = {"on": "at", "by": TOKEN, "tolerance": "0s", "check_sortedness": False}
    rows = quotes.select("ts", *TOKEN, at=pl.col("ts").dt.offset_by("1m")).join_asof(entries, **options)
    rows = rows.with_columns(pl.col("at").dt.offset_by("5m")).join_asof(exits, strategy="forward", **options)
    status = (
        pl.when(pl.col("entry").is_null()).then(pl.lit("no_entry")).when(pl.col("exit").is_null())
        .then(pl.lit("no_exit")).otherwise(pl.lit("exit"))
    )  # fmt: skip
    return rows.with_columns(
        move=pl.col("mid_out") - pl.col("mid_in"), net=pl.col("exit") - pl.col("entry"), status=status
    )


def means_by_quantile(frame: pl.DataFrame, signal: pl.DataFrame) -> pl.DataFrame:
    """Return the mean returns of the first token of each market by quantiles of a signal."""
    first = pl.col("token_id") == pl.col("token_id").cast(pl.String).min().over("market_id")
    rows = returns_by_join_asof(frame).join(signal.select("ts", "token_id", "imbalance"), on=["ts", "token_id"])
    quantile = pl.col("imbalance").qcut(5).alias("quantile")
    means = (pl.col("move", "net").mean(), pl.col("market_id").n_unique(), pl.col("exit").null_count(), pl.len())
    return rows.filter(first).group_by(quantile).agg(*means).sort("quantile")
