"""Levels of snapshots, one per row. Levels with equal token and time are one snapshot."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from marketdata.errors import ConfigError
from marketdata.points.views import SNAPSHOT_FIELDS
from marketdata.recordings.book_rows import add_levels
from marketdata.recordings.format import Format
from marketdata.recordings.points import one_batch
from marketdata.recordings.roles import ASK_TEXTS, BID_TEXTS, identified, numbers, sides
from marketdata.recordings.table import Batch, Table

_OF_TRADES = {"buy", "sell", "s"}


def has_sides_of_trades(table: Table) -> str | None:
    """Without numbers of levels, sides must be bids and asks: rows that buy and sell are trades."""
    if {"level", "book_event"} & table.columns.keys() or "side" not in table.columns:
        return None
    sides = table.file.sample[table.columns["side"]].drop_nulls()
    texts = {str(side).strip().lower() for side in sides.to_list()}
    # B is a bid beside A, and a buy beside S.
    if texts - {"b"} and texts <= {*BID_TEXTS, *ASK_TEXTS} - _OF_TRADES:
        return None
    few = ", ".join(sorted(texts)[:3])
    return f"{table.columns['side']} has {few}, as trades have. Levels need bid and ask there, or a column level."


def has_changes(table: Table) -> str | None:
    """A level of size 0, a moment with one row, or a column of two values may be a change: the book is another one."""
    if not {"side", "price", "size"} <= table.columns.keys():
        return None
    sample = table.file.sample
    ids = [sample[table.columns[n]].alias(n) for n in ("market_id", "token_id", "token_label") if n in table.columns]
    one = pl.repeat(0, len(sample), eager=True)
    key = pl.DataFrame([one, *ids]).select(key=pl.struct(pl.all())).to_series()
    sizes = pl.Series(numbers(sample[table.columns["size"]]))
    if (sizes == 0).any():
        return _zeros(table)
    names = [n for n in (*table.others, table.columns.get("book_event")) if n and n not in SNAPSHOT_FIELDS]
    for name in (n for n in names if not sample[n].dtype.is_nested() and not sample[n].dtype.is_float()):
        values = sample[name].cast(pl.String, strict=False)
        is_number = values.str.contains(r"^\d").any() and not values.drop_nulls().is_in(["0", "1"]).all()
        of_token = pl.DataFrame([values.alias("value"), key.alias("key")]).drop_nulls().group_by("key").n_unique()
        if values.drop_nulls().n_unique() == _TWO and not is_number and (of_token["value"] > 1).any():
            few = " and ".join(sorted(values.drop_nulls().unique()))
            return f"{name} has {few}, so it may tell whole books from changes. {_CHANGES}"
    if "level" in table.columns or "ts" not in table.columns:
        return None
    moments = pl.DataFrame([sample[table.columns["ts"]].alias("ts"), key.alias("key")]).group_by("ts", "key").len()
    if (moments["len"] == 1).sum() * 2 > len(moments):
        return f"most moments have one row, as changes have. {_CHANGES}"
    return None


def _zeros(table: Table) -> str:
    return f"{table.columns['size']} has zeros, as changes have. {_CHANGES}"


_TWO = 2
_CHANGES = (
    "Write a column is_snapshot, true for rows of whole books and false for changes; take the column out if it is of "
    "neither."
)
_PRICES = ("price", "best_bid", "best_ask")
# Levels of one snapshot are written within a moment of each other.
_MOMENT = 10_000_000  # [microseconds]


def read(table: Table) -> Iterator[Batch]:
    """The levels. If each level has its own time, a snapshot ends when a level repeats."""
    sample = next((frame for frame, _ in table.rows(prices=_PRICES)), pl.DataFrame())
    if "level" not in table.columns or not len(sample) or not _has_times_of_levels(sample):
        for frame, batch in table.rows(prices=_PRICES):
            if "size" in frame.columns and (numbers(frame["size"]) == 0).any():
                raise ConfigError(_zeros(table))
            if len(frame):
                add_levels(frame, batch)
            yield batch
        return
    rows, batch = one_batch(table, _PRICES)
    add_levels(_with_times_of_snapshots(rows), batch)
    batch.notes.append("each level has its own time: a book is the levels until one comes again, at their last time")
    yield batch


def _steps(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows by token in their order, with the number of their run of rising levels."""
    ids = identified(rows).select(pl.col("token_id").alias("__token"))
    level = pl.Series("__level", numbers(rows["level"]))
    side = pl.Series("__side", sides(rows["side"]))
    by_token = pl.concat([rows, ids], how="horizontal").with_columns(level, side).sort("__token", maintain_order=True)
    same = [pl.col(name) == pl.col(name).shift() for name in ("__token", "__side")]
    goes_on = pl.all_horizontal(*same, pl.col("__level") > pl.col("__level").shift())
    return by_token.with_columns(goes_on.fill_null(value=False).alias("__on"), pl.col("ts").diff().alias("__step"))


def _has_times_of_levels(rows: pl.DataFrame) -> bool:
    """Whether most levels of a side differ in time from the level before, within a moment."""
    within = _steps(rows).filter("__on")["__step"]
    return len(within) > 0 and int(within.is_between(1, _MOMENT).sum()) * 2 > len(within)


def _with_times_of_snapshots(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows with the last time of their snapshot."""
    steps = _steps(rows)
    starts = np.flatnonzero(~steps["__on"].to_numpy())
    token, side = (steps[name].gather(starts).to_list() for name in ("__token", "__side"))
    number, seen, numbers_of = -1, set[int](), []
    for i in range(len(starts)):
        if not i or token[i] != token[i - 1] or side[i] in seen:
            number, seen = number + 1, set()
        seen.add(side[i])
        numbers_of.append(number)
    lengths = np.diff(np.append(starts, len(steps)))
    snapshot = pl.Series("__snapshot", np.repeat(np.array(numbers_of, np.int64), lengths))
    timed = steps.with_columns(snapshot).with_columns(pl.col("ts", "__seen").max().over("__snapshot"))
    return timed.drop("__token", "__level", "__side", "__on", "__step", "__snapshot")


FORMAT = Format(
    name="levels",
    description="a table of the levels of snapshots; without `level` the sides are bids and asks",
    needs=(
        "ts token_id side level price size", "ts token_id side price size",
        "ts market_id token_label side level price size", "ts market_id token_label side price size",
    ),
    takes="best_bid best_ask book_event event_type activity",
    # Changes of levels, which have their own format.
    never="is_snapshot",
    read=read,
    row_per_level=True,
    guards=(has_sides_of_trades, has_changes),
)  # fmt: skip
