"""What functions give for tidy rows, each as a query of polars."""

from __future__ import annotations

from typing import Any

import polars as pl

IDS = ("market_id", "token_id", "token_label")
SIDES = ("bid", "ask")
_ORDER: Any = "left_right"


def tidy(rows: list[dict[str, Any]], names: tuple[str, ...]) -> pl.DataFrame:
    """Rows with times in Unix seconds as a tidy frame with these columns."""
    types = {"ts": pl.Int64, "level": pl.Int32} | dict.fromkeys((*IDS, "side"), pl.String)
    frame = pl.DataFrame(rows, schema={name: types.get(name, pl.Float64()) for name in names})
    return frame.with_columns((pl.col("ts") * 1_000_000).cast(pl.Datetime("us", "UTC")))


def ids(frame: pl.DataFrame) -> list[str]:
    return [name for name in IDS if name in frame.columns]


def last_books(frame: pl.DataFrame, width: str) -> pl.DataFrame:
    """The rows of the last snapshot of each token and bucket."""
    bucket = pl.col("ts").dt.truncate(width)
    return frame.filter(pl.col("ts") == pl.col("ts").max().over(*IDS[:2], bucket)).with_columns(bucket)


def means(frame: pl.DataFrame, width: str) -> pl.DataFrame:
    """Mean and count of each value of a token (market) and bucket."""
    values = pl.col(pl.Float64)
    buckets = frame.group_by(pl.col("ts").dt.truncate(width), *ids(frame), maintain_order=True)
    return buckets.agg(values.mean(), values.count().name.suffix("_count"))


def on_grid(frame: pl.DataFrame, width: str, *, forward: bool) -> pl.DataFrame:
    """Each token has each bucket from the first to the last of all; those without rows repeat the last or are null."""
    who = ids(frame)
    known = frame.select(*who, "ts", last="ts").unique(maintain_order=True)
    times = known.select(ts=pl.datetime_ranges(pl.col("ts").min(), pl.col("ts").max(), width).explode()).drop_nulls()
    grid = known.select(who).unique(maintain_order=True).join(times, how="cross", maintain_order=_ORDER).sort("ts")
    shown = grid.join_asof(known.sort("ts"), on="ts", by=who[:2], tolerance=None if forward else "0s", suffix="_")
    is_there = pl.col("last").eq_missing(pl.col("ts"))
    shown = shown.sort("market_id", *who[1:2], "ts").with_columns(observed=is_there)
    on = [*who[:2], "last"]
    out = shown.join(frame.rename({"ts": "last"}), on=on, how="left", maintain_order=_ORDER)
    out = out.with_columns(pl.when("observed").then(pl.col("^.*_count$")).otherwise(0).name.keep())
    if "side" in out.columns:
        sides = pl.when(pl.col("side").is_null()).then(pl.lit(list(SIDES))).otherwise(pl.concat_list("side"))
        out = out.with_columns(side=sides).explode("side")
    return out.select(*frame.columns, "observed")


def with_sentinels(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of levels with a row for each empty side."""
    heads = frame.select("ts", *IDS).unique(maintain_order=True)
    sides = heads.join(pl.DataFrame({"side": SIDES}), how="cross", maintain_order=_ORDER)
    levels = frame.drop_nulls("price")
    return sides.join(levels, on=sides.columns, how="left", nulls_equal=True, maintain_order=_ORDER)


def nested(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows of levels as one row per snapshot with four lists."""
    lists = {
        f"{side}_{name}": pl.col(name).filter(pl.col("side") == side).drop_nulls()
        for side in SIDES
        for name in ("price", "size")
    }
    return frame.group_by("ts", *IDS, maintain_order=True).agg(**lists)


def wide(frame: pl.DataFrame, levels: int) -> pl.DataFrame:
    """Rows of levels as one row per snapshot with the levels side by side."""
    columns = {
        f"{side}_{short}_{k:02d}": pl.col(f"{side}_{name}").list.get(k, null_on_oob=True)
        for k in range(levels)
        for side in SIDES
        for name, short in (("price", "px"), ("size", "sz"))
    }
    return nested(frame).select("ts", *IDS, **columns)


def bbo(frame: pl.DataFrame) -> pl.DataFrame:
    """Best prices and sizes of each snapshot, mid and spread."""
    names = {f"{side}_{n}_00": f"best_{side}{end}" for side in SIDES for n, end in (("px", ""), ("sz", "_size"))}
    bid, ask = pl.col("best_bid"), pl.col("best_ask")
    return wide(frame, 1).rename(names).with_columns(mid=(bid + ask) / 2, spread=ask - bid)


def gaps(frame: pl.DataFrame, width: str) -> pl.DataFrame:
    """Ranges of missing buckets."""
    bucket = pl.col("ts").dt.truncate(width)
    following = bucket.dt.offset_by(width)
    buckets = frame.select(*ids(frame), ts=bucket).unique(maintain_order=True)
    ends = buckets.with_columns(start=following, end=pl.col("ts").shift(-1).over(ids(frame)[:2]))
    missing = ((pl.col("end") - pl.col("start")) / (following - pl.col("ts"))).round().cast(pl.Int64)
    return ends.with_columns(missing=missing).filter(pl.col("missing") > 0).drop("ts")


def joined(left: pl.DataFrame, right: pl.DataFrame, width: str, *, exact: bool, tolerance: str | None) -> pl.DataFrame:
    """Each row with the last price of its token that was known before, and when it was."""
    known = right.select(*IDS[:2], joined="price", known=pl.col("ts").dt.offset_by(width)).sort("known")
    on: dict[str, Any] = {"left_on": "ts", "right_on": "known", "by": IDS[:2], "coalesce": False}
    out = left.sort("ts").join_asof(known, **on, tolerance=tolerance, allow_exact_matches=exact)
    return out.sort(*IDS[:2], "ts")


def ohlc(frame: pl.DataFrame, width: str, value: str) -> pl.DataFrame:
    """Open, high, low, close and number of points."""
    price = pl.col(value)
    buckets = frame.drop_nulls(value).group_by(pl.col("ts").dt.truncate(width), *ids(frame), maintain_order=True)
    return buckets.agg(open=price.first(), high=price.max(), low=price.min(), close=price.last(), points=pl.len())


def returns(frame: pl.DataFrame, value: str, how: str, width: str | None = None) -> pl.DataFrame:
    """The move of each row from the one before of its token; with a width, only if they are so far apart."""
    price, odds = pl.col(value), pl.col(value) / (1 - pl.col(value))
    price = pl.when((price > 0) & (price < 1)).then(odds.log()) if how == "log_odds" else price
    ts = pl.col("ts")
    is_next = True if width is None else ts.shift(1).dt.offset_by(width) == ts
    before = pl.when(is_next).then(price.shift(1))
    move = {"simple": price / before - 1, "log": (price / before).log()}.get(how, price - before)
    if how in ("simple", "log"):
        move = pl.when((before != 0) & ((price > 0) | (how == "simple"))).then(move)
    return frame.select("ts", *ids(frame), returns=move.over(ids(frame)[:2]))
