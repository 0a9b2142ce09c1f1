"""The aggregation rules and the top of the book on frames in memory."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl

import marketdata as md
import marketdata.pandas
import marketdata.polars
from bench.made import books, prices
from bench.measure import Table, compare, interleaved, peak_bytes, ratio
from marketdata.adapters.dispatch import opened
from marketdata.adapters.frame import Passed
from marketdata.points.schema import ID_COLUMNS
from marketdata.tidy.frames import to_frame


def grouper(frame: pd.DataFrame) -> pd.DataFrame:
    """The pandas idiom."""
    last = frame.groupby(["token_id", pd.Grouper(key="ts", freq="1h")], observed=True)["ts"].transform("max")
    return frame[frame["ts"] == last]


def floor_transform(frame: pd.DataFrame) -> pd.DataFrame:
    """The faster pandas idiom."""
    last = frame.groupby(["token_id", frame["ts"].dt.floor("1h")], observed=True)["ts"].transform("max")
    return frame[frame["ts"] == last]


def polars_over(frame: pl.DataFrame) -> pl.DataFrame:
    """Plain polars with a window."""
    bucket = pl.col("ts").dt.truncate("1h")
    last = pl.col("ts").max().over("token_id", bucket)
    return frame.lazy().filter(pl.col("ts") == last).with_columns(ts=bucket).collect()


def polars_semi(frame: pl.DataFrame) -> pl.DataFrame:
    """Plain polars with a semi join."""
    lazy = frame.lazy()
    last = lazy.group_by("token_id", pl.col("ts").dt.truncate("1h").alias("b")).agg(pl.col("ts").max())
    return lazy.join(last, on=["token_id", "ts"], how="semi").with_columns(pl.col("ts").dt.truncate("1h")).collect()


def polars_shift(frame: pl.DataFrame) -> pl.DataFrame:
    """Plain polars on the sorted frame: keep the rows whose bucket's last time is theirs, run by run."""
    bucket = pl.col("ts").dt.truncate("1h")
    step = (pl.col("ts") != pl.col("ts").shift(-1)) | (pl.col("token_id") != pl.col("token_id").shift(-1))
    ends = frame.lazy().filter(step.fill_null(value=True)).select("token_id", "ts", b=bucket)
    last = ends.filter(
        ((pl.col("b") != pl.col("b").shift(-1)) | (pl.col("token_id") != pl.col("token_id").shift(-1))).fill_null(
            value=True
        )
    )
    return frame.lazy().join(last.select("token_id", "ts"), on=["token_id", "ts"], how="semi").collect()


def duck(frame: pl.DataFrame) -> Any:
    """DuckDB on the same Arrow data."""
    query = "select * from frame qualify ts = max(ts) over (partition by token_id, time_bucket(interval '1 hour', ts))"
    return duckdb.sql(query).to_arrow_table()


def floor_mean(frame: pd.DataFrame) -> pd.Series:
    """The faster pandas idiom for means."""
    return frame.groupby(["token_id", frame["ts"].dt.floor("1h")], observed=True)["price"].mean()


def expressions(frame: Any) -> Any:
    """The last book as narwhals expressions."""
    data = nw.from_native(frame, eager_only=True).with_columns(bucket=nw.col("ts").dt.truncate("1h"))
    return data.filter(nw.col("ts") == nw.col("ts").max().over(*ID_COLUMNS, "bucket")).to_native()


def mean_expressions(frame: Any) -> Any:
    """The mean as narwhals expressions."""
    data = nw.from_native(frame, eager_only=True).with_columns(bucket=nw.col("ts").dt.truncate("1h"))
    out = data.group_by(*ID_COLUMNS, "bucket").agg(nw.col("price").sum(), nw.col("price").count().alias("count"))
    return out.with_columns(nw.col("price") / nw.col("count")).to_native()


def two_groupbys(frame: pd.DataFrame) -> pd.DataFrame:
    """Top of the book the pandas way."""
    bids, asks = frame[frame["side"] == "bid"], frame[frame["side"] == "ask"]
    best_bid = bids.groupby(["token_id", "ts"], observed=True)["price"].max().rename("best_bid")
    best_ask = asks.groupby(["token_id", "ts"], observed=True)["price"].min().rename("best_ask")
    out = pd.concat([best_bid, best_ask], axis=1)
    out["mid"] = (out["best_bid"] + out["best_ask"]) / 2
    return out


def polars_mean(frame: pl.DataFrame) -> pl.DataFrame:
    """Plain polars for means."""
    bucket = pl.col("ts").dt.truncate("1h")
    return frame.lazy().group_by("token_id", bucket).agg(pl.col("price").mean()).collect()


def polars_top(frame: pl.DataFrame) -> pl.DataFrame:
    """Top of the book in plain polars: the best bids joined with the best asks."""
    best = frame.lazy().filter(pl.col("level") == 0)
    bids, asks = (best.filter(pl.col("side") == side) for side in ("bid", "ask"))
    both = bids.select("ts", *ID_COLUMNS, best_bid="price", best_bid_size="size").join(
        asks.select("ts", "token_id", best_ask="price", best_ask_size="size"),
        on=["token_id", "ts"],
        how="full",
        coalesce=True,
    )
    bid, ask = pl.col("best_bid"), pl.col("best_ask")
    return both.with_columns(mid=(bid + ask) / 2, spread=ask - bid).sort(*ID_COLUMNS, "ts").collect()


def through_polars(frame: pd.DataFrame, line: Callable[[pl.DataFrame], pl.DataFrame]) -> pd.DataFrame:
    """A line of polars on a pandas frame, with the columns converted as verbs do."""
    own = opened(frame)
    table = line(pl.DataFrame([own.raw(c).alias(c) for c in own.names]))
    out: pd.DataFrame = own.build({c: Passed(opened(table), c, None) for c in table.columns}, table.height)
    return out


def by_hand(frame: pd.DataFrame) -> pd.DataFrame:
    """Top of the book by hand in numpy, trusting that the frame is sorted and every book has both sides."""
    top = np.flatnonzero(frame["level"].to_numpy(dtype="int32", na_value=0) == 0)
    bid, ask = top[0::2], top[1::2]
    price, size = frame["price"].to_numpy(), frame["size"].to_numpy()
    out = frame[["ts", *ID_COLUMNS]].take(bid).reset_index(drop=True)
    out["best_bid"], out["best_bid_size"], out["best_ask"], out["best_ask_size"] = (
        price[bid],
        size[bid],
        price[ask],
        size[ask],
    )
    out["mid"], out["spread"] = (price[bid] + price[ask]) / 2, price[ask] - price[bid]
    return out


def run(*, quick: bool = False) -> list[Table]:
    """Books, prices and top of the book at 10 M rows, then growth from 1 M to 100 M."""
    rows = 1_000_000 if quick else 10_000_000
    rounds = 3 if quick else 5
    columns = books(rows)
    panda, polar = to_frame(columns, "pandas"), to_frame(columns, "polars")
    del columns
    count = len(polar)
    return [
        _books(panda, polar, rounds),
        _prices(rows, rounds),
        compare(
            f"Top of the book, {count / 1e6:.3g} M level rows",
            interleaved(
                {
                    "pandas: two groupbys, concat": lambda: two_groupbys(panda),
                    "polars: bids joined with asks": lambda: polars_top(polar),
                    "the same line on pandas": lambda: through_polars(panda, polars_top),
                    "numpy by hand, nothing checked": lambda: by_hand(panda),
                    "marketdata on pandas": lambda: md.bbo(panda),
                    "marketdata on polars": lambda: md.bbo(polar),
                },
                rounds,
            ),
            "marketdata on pandas",
            rows=count,
        ),
        _nested(polar, rounds),
        _growth(quick=quick),
    ]


def _nested(polar: pl.DataFrame, rounds: int) -> Table:
    """Verbs on one row per snapshot beside the same verbs on one row per level."""
    nested = md.nest(polar)
    verbs: dict[str, Callable[[Any], Any]] = {
        "bbo": md.bbo,
        "mid": md.mid,
        "resample": lambda frame: md.resample(frame, "1h"),
        "depth": md.depth,
        "explode, nest": lambda frame: md.explode(frame) if "bid_price" in frame.columns else md.nest(frame),
    }
    title = f"Nested books, {len(nested) / 1e6:.3g} M snapshots of {len(polar) / 1e6:.3g} M level rows, polars"
    table = Table(title, ["verb", "on level rows ms", "on nested rows ms", "level / nested"])
    for name, verb in verbs.items():
        times = interleaved({"levels": lambda v=verb: v(polar), "nested": lambda v=verb: v(nested)}, rounds)
        middle = {way: f"{statistics.median(taken) * 1e3:.3g}" for way, taken in times.items()}
        table.rows.append([name, middle["levels"], middle["nested"], f"{ratio(times, 'levels', 'nested'):.3g}"])
    size = {name: frame.estimated_size() / len(polar) for name, frame in {"level": polar, "nested": nested}.items()}
    table.notes.append(f"Memory per level: {size['level']:.3g} bytes as rows, {size['nested']:.3g} bytes nested.")
    return table


def _books(panda: pd.DataFrame, polar: pl.DataFrame, rounds: int) -> Table:
    ways: dict[str, Callable[[], Any]] = {
        "pandas: Grouper and transform": lambda: grouper(panda),
        "pandas: floor and transform": lambda: floor_transform(panda),
        "narwhals expressions on pandas": lambda: expressions(panda),
        "polars: max over a window": lambda: polars_over(polar),
        "polars: group_by and semi join": lambda: polars_semi(polar),
        "polars: shift on the sorted frame": lambda: polars_shift(polar),
        "the same line on pandas": lambda: through_polars(panda, polars_shift),
        "DuckDB: qualify": lambda: duck(polar),
        "marketdata on pandas": lambda: panda.md.resample("1h"),
        "marketdata on polars": lambda: polar.md.resample("1h"),
    }
    title = f"Last book of each hour, {len(polar) / 1e6:.3g} M level rows"
    table = compare(title, interleaved(ways, rounds), "marketdata on pandas", rows=len(polar))
    added = peak_bytes(lambda: panda.md.resample("1h"))
    table.notes.append(f"Memory added while it runs: {added / len(polar):.1f} bytes per row.")
    return table


def _prices(rows: int, rounds: int) -> Table:
    columns = prices(rows)
    panda, polar = to_frame(columns, "pandas"), to_frame(columns, "polars")
    ways: dict[str, Callable[[], Any]] = {
        "pandas: groupby.resample": lambda: (
            panda.set_index("ts").groupby("token_id", observed=True)["price"].resample("1h").mean()
        ),
        "pandas: floor and groupby": lambda: floor_mean(panda),
        "polars: lazy group_by": lambda: polars_mean(polar),
        "the same line on pandas": lambda: through_polars(panda, polars_mean),
        "narwhals expressions on pandas": lambda: mean_expressions(panda),
        "marketdata on pandas": lambda: panda.md.resample("1h"),
        "marketdata on polars": lambda: polar.md.resample("1h"),
    }
    return compare(
        f"Mean price of each hour, {rows / 1e6:.3g} M rows",
        interleaved(ways, rounds),
        "marketdata on pandas",
        rows=rows,
    )


def _growth(*, quick: bool) -> Table:
    sizes = [100_000, 1_000_000] if quick else [1_000_000, 10_000_000, 100_000_000]
    table = Table("Growth", ["level rows", "resample ms", "ns per row", "bbo ms", "ns per row", "added bytes per row"])
    for size in sizes:
        frame = to_frame(books(size), "pandas")
        times = interleaved({"resample": lambda f=frame: f.md.resample("1h"), "bbo": lambda f=frame: f.md.bbo()}, 3)
        middle = {name: statistics.median(t) for name, t in times.items()}
        added = peak_bytes(lambda f=frame: f.md.resample("1h"))
        row = [f"{len(frame) / 1e6:.3g} M"]
        for name in ("resample", "bbo"):
            row += [f"{middle[name] * 1e3:.3g}", f"{middle[name] / len(frame) * 1e9:.3g}"]
        table.rows.append([*row, f"{added / len(frame):.1f}"])
        del frame
    return table
