"""Verbs of a study beside the lines of plain polars that an expert would write for the same frame."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import polars as pl

import marketdata as md
from bench.made import books, prices
from bench.measure import Table, interleaved, ratio
from marketdata.tidy.frames import to_frame

_MINUTE = timedelta(minutes=1)
_TOKEN = ["market_id", "token_id"]
_KEYS = ["ts", "market_id", "token_id", "token_label"]
_SHARES = 5_000.0
_DEAREST = (
    "depth",
    "imbalance",
    "microprice",
    ("fill_price", {"size": _SHARES}),
    ("sweep", {"side": "buy", "size": _SHARES}),
    "bbo",
)


def joined(frame: pl.DataFrame, facts: pl.DataFrame) -> pl.DataFrame:
    """What was known before each row."""
    known = facts.select(*_TOKEN, "fact", ts_right="ts", available_at=pl.col("ts") + _MINUTE)
    return frame.join_asof(
        known, left_on="ts", right_on="available_at", by=_TOKEN, allow_exact_matches=False, check_sortedness=False
    )


def aligned(frame: pl.DataFrame) -> pl.DataFrame:
    """One grid for all tokens."""
    grid = frame.select(pl.datetime_range(pl.col("ts").min(), pl.col("ts").max(), "1m").alias("ts"))
    every = frame.select("market_id", "token_id", "token_label").unique(maintain_order=True).join(grid, how="cross")
    held = frame.select("ts", "token_id", "price", observed=True)
    out = every.join(held, on=["token_id", "ts"], how="left", maintain_order="left")
    return out.with_columns(pl.col("observed").fill_null(value=False))


def checked(frame: pl.DataFrame) -> pl.DataFrame:
    """The same checks, each as a number."""
    price, ts, fresh = pl.col("price"), pl.col("ts"), pl.col("token_id") != pl.col("token_id").shift(1)
    step = pl.when(~fresh).then(ts - ts.shift(1))
    sums = frame.group_by("market_id", "ts").agg(price.sum(), pl.len())
    return pl.concat(
        [
            frame.lazy()
            .select(
                gaps=(step > _MINUTE).sum(),
                off_grid=(ts.dt.truncate("1m") != ts).sum(),
                mixed=(step < _MINUTE).sum(),
                duplicates=(step == timedelta()).sum(),
                outside=((price < 0) | (price > 1)).sum(),
                null=price.null_count(),
                stale=(pl.struct("token_id", "price").rle().struct.field("len") >= 60).sum(),
            )
            .collect(),
            sums.select(sums_far_from_1=((price - 1).abs() > 0.05).sum()),
        ],
        how="horizontal",
    )


def moved(frame: pl.DataFrame) -> pl.DataFrame:
    """Simple returns."""
    return frame.select(*_KEYS, returns=pl.col("price").pct_change().over("token_id"))


def bars(frame: pl.DataFrame) -> pl.DataFrame:
    """Bars of an hour."""
    price = pl.col("price")
    return (
        frame.group_by(*_KEYS[1:], pl.col("ts").dt.truncate("1h"), maintain_order=True)
        .agg(open=price.first(), high=price.max(), low=price.min(), close=price.last(), points=price.count())
        .sort(*_KEYS[1:3], "ts")
    )


def scaled(frame: pl.DataFrame) -> pl.DataFrame:
    """Prices of a market that sum to 1."""
    return frame.select(*_KEYS, probability=pl.col("price") / pl.col("price").sum().over("market_id", "ts"))


def scored(frame: pl.DataFrame, outcomes: pl.DataFrame) -> pl.DataFrame:
    """Mean squared error by token."""
    held = frame.join(outcomes.select("token_id", "payoff"), on="token_id")
    error = (pl.col("price") - pl.col("payoff")) ** 2
    return held.group_by(_KEYS[1:]).agg(pl.col("payoff").first(), pl.len(), error.mean()).sort(*_TOKEN)


def tilted(frame: pl.DataFrame) -> pl.DataFrame:
    """Depth of the bids less that of the asks, over their sum."""
    bid, ask = (pl.col("size").filter(pl.col("side") == side).sum() for side in ("bid", "ask"))
    out = frame.group_by(_KEYS).agg(bid=bid, ask=ask).sort(*_TOKEN, "ts")
    return out.select(*_KEYS, imbalance=(pl.col("bid") - pl.col("ask")) / (pl.col("bid") + pl.col("ask")))


def filled(frame: pl.DataFrame) -> pl.DataFrame:
    """What so many shares cost on each side."""
    before = pl.col("size").cum_sum().over(*_KEYS, "side") - pl.col("size")
    taken = (_SHARES - before).clip(0, pl.col("size"))
    sides = {f"{s}_fill_price": pl.col("side") == s for s in ("bid", "ask")}
    paid = {c: (pl.col("price") * pl.col("taken")).filter(rows).sum() / _SHARES for c, rows in sides.items()}
    enough = {c: pl.col("size").filter(rows).sum() >= _SHARES for c, rows in sides.items()}
    out = frame.with_columns(taken=taken).group_by(_KEYS).agg(pl.when(enough[c]).then(paid[c]).alias(c) for c in sides)
    return out.sort(*_TOKEN, "ts")


def swept(frame: pl.DataFrame) -> pl.DataFrame:
    """What so many shares of the asks cost, and what is missing."""
    asks = frame.filter(pl.col("side") == "ask")
    before = pl.col("size").cum_sum().over(_KEYS) - pl.col("size")
    taken = (_SHARES - before).clip(0, pl.col("size"))
    paid = (pl.col("price") * pl.col("taken")).sum()
    out = (
        asks.with_columns(taken=taken)
        .group_by(_KEYS)
        .agg(
            filled=pl.col("taken").sum(),
            shortfall=_SHARES - pl.col("taken").sum(),
            average_price=paid / pl.col("taken").sum(),
            slippage=paid / pl.col("taken").sum() - pl.col("price").first(),
            notional=paid,
        )
    )
    return out.sort(*_TOKEN, "ts")


def run(*, quick: bool = False) -> list[Table]:
    """Verbs of prices, verbs of books, and many measures in one pass."""
    rows, levels, rounds = (10_000, 200_000, 3) if quick else (100_000, 2_000_000, 15)
    columns = prices(rows)
    series = {"polars": to_frame(columns, "polars"), "pandas": to_frame(columns, "pandas")}
    facts = {name: frame[[*_KEYS[:3], "price"]] for name, frame in series.items()}
    facts = {
        "polars": facts["polars"].rename({"price": "fact"}),
        "pandas": facts["pandas"].rename(columns={"price": "fact"}),
    }
    tokens = series["polars"].select(*_KEYS[1:]).unique().sort("token_id")
    payoff = pl.Series("payoff", [1.0] + [0.0] * (len(tokens) - 1))
    outcomes = {"polars": tokens.with_columns(payoff, resolved_at=pl.lit(None, pl.Datetime("us", "UTC")))}
    outcomes["pandas"] = outcomes["polars"].to_pandas()
    of_prices: dict[str, tuple[Callable[[str], Any], Callable[[], Any]]] = {
        "asof_join": (
            lambda kind: md.asof_join(series[kind], facts[kind], width="1m"),
            lambda: joined(series["polars"], facts["polars"]),
        ),
        "align": (lambda kind: md.align(series[kind], "1m"), lambda: aligned(series["polars"])),
        "check": (lambda kind: md.check(series[kind], "1m"), lambda: checked(series["polars"])),
        "returns": (lambda kind: md.returns(series[kind]), lambda: moved(series["polars"])),
        "ohlc": (lambda kind: md.ohlc(series[kind], "1h"), lambda: bars(series["polars"])),
        "probabilities": (lambda kind: md.probabilities(series[kind]), lambda: scaled(series["polars"])),
        "brier": (
            lambda kind: md.brier(series[kind], outcomes[kind]),
            lambda: scored(series["polars"], outcomes["polars"]),
        ),
    }
    columns = books(levels)
    book = {"polars": to_frame(columns, "polars"), "pandas": to_frame(columns, "pandas")}
    of_books: dict[str, tuple[Callable[[str], Any], Callable[[], Any]]] = {
        "imbalance": (lambda kind: md.imbalance(book[kind]), lambda: tilted(book["polars"])),
        "fill_price": (lambda kind: md.fill_price(book[kind], _SHARES), lambda: filled(book["polars"])),
        "sweep": (lambda kind: md.sweep(book[kind], "buy", size=_SHARES), lambda: swept(book["polars"])),
    }
    return [
        _beside(f"Verbs of a study, {rows:,} prices", of_prices, rounds),
        _beside(f"Measures of books, {len(book['polars']):,} level rows", of_books, min(rounds, 7)),
        _together(book, min(rounds, 7)),
    ]


def _beside(title: str, verbs: dict[str, tuple[Callable[[str], Any], Callable[[], Any]]], rounds: int) -> Table:
    head = ["verb", "plain polars ms", "marketdata on polars ms", "on pandas ms", "polars / plain", "pandas / plain"]
    table = Table(title, head)
    for name, (ours, plain) in verbs.items():
        ways = {"plain": plain, "polars": lambda f=ours: f("polars"), "pandas": lambda f=ours: f("pandas")}
        times = interleaved(ways, rounds, clock=time.process_time)
        middle = [f"{statistics.median(times[way]) * 1e3:.3g}" for way in ways]
        table.rows.append([name, *middle, *(f"{ratio(times, way, 'plain'):.2g}" for way in ("polars", "pandas"))])
    table.notes.append(
        "Processor time of all threads. Plain polars trusts the frame; the verbs find out that it is tidy."
    )
    return table


def _together(book: dict[str, Any], rounds: int) -> Table:
    table = Table(
        "Six measures in one pass", ["frame", "six ms", "the most expensive alone ms", "six / most expensive"]
    )
    for kind, frame in book.items():
        ways: dict[str, Callable[[], Any]] = {"six": lambda f=frame: md.features(f, _DEAREST)}
        ways |= {str(measure): lambda f=frame, m=measure: md.features(f, [m]) for measure in _DEAREST}
        times = interleaved(ways, rounds, clock=time.process_time)
        middle = {way: statistics.median(taken) for way, taken in times.items()}
        dearest = max((way for way in ways if way != "six"), key=lambda way: middle[way])
        shown = [f"{middle[way] * 1e3:.3g}" for way in ("six", dearest)]
        table.rows.append([kind, *shown, f"{ratio(times, 'six', dearest):.2g}"])
    table.notes.append("depth, imbalance, microprice, fill_price, sweep and bbo; processor time of all threads.")
    return table
