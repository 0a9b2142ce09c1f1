"""Books in other shapes: the ladder at one moment, one wide or nested row per snapshot, and back."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl

from marketdata.adapters.engines import is_engine
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import whole
from marketdata.points.schema import ASK, BID, BOOKS, ID_COLUMNS, LISTS, require
from marketdata.tidy import frames, nested
from marketdata.tidy.backends import Result, Taken, is_lazy, run
from marketdata.tidy.table import EagerTable
from marketdata.times import to_datetime, to_micros

F = TypeVar("F")
KEYS = ("ts", *ID_COLUMNS)
_TOTAL = "__total"
_NO_LEVELS = "levels is missing; a lazy frame needs it, for example to_wide(levels=10)."
_WIDE = re.compile(r"bid_px_(\d\d+)")


def ladder(frame: F, ts: Any) -> F:
    """The book of each token as it was at one moment, bids and asks side by side.

    One row per (token, level): ``ts market_id token_id token_label level bid_total bid_size bid_price ask_price
    ask_size ask_total``: prices [probability 0 to 1], sizes and running totals from the best level [shares]. Null where
    a side has no such level; an empty book has no row. By token, then level. ``ts`` is a time as for `Client.books`;
    the last snapshot is taken whose ``ts``, the start of its bucket, is not later.

    Examples
    --------
    >>> md.ladder(md.testing.books("polars"), "2026-01-01").select("bid_total", "bid_price", "ask_price").row(1)
    (300.0, 0.38, 0.42)
    """
    return run(frame, partial(_ladder, moment=to_micros(ts, "ts")), ["books"])


def _ladder(table: EagerTable, moment: int) -> Any:
    data = table.book().frame()
    data = data.filter(pl.col("ts") <= pl.lit(to_datetime(moment)))
    data = data.filter(pl.col("ts") == pl.col("ts").max().over(*ID_COLUMNS)).filter(~pl.col("price").is_null())
    total = pl.col("size").cum_sum().over(*ID_COLUMNS, "side", order_by="level")
    data = data.with_columns(total.alias(_TOTAL))
    parts = []
    for side in (BID, ASK):
        values = {"total": pl.col(_TOTAL), "size": pl.col("size"), "price": pl.col("price")}
        held = pl.col("side").cast(pl.String) == side
        parts += [pl.when(held).then(v).alias(f"{side}_{name}") for name, v in values.items()]
    names = ("bid_total", "bid_size", "bid_price", "ask_price", "ask_size", "ask_total")
    rows = data.select(*KEYS, "level", *parts).group_by(*KEYS, "level").agg(pl.col(*names).max())
    return rows.select(*KEYS, "level", *names).sort(*ID_COLUMNS, "level", nulls_last=True)


def _wide_names(levels: int) -> list[str]:
    """The value columns of a wide frame: price and size of each level, best first."""
    parts = ("bid_px", "ask_px", "bid_sz", "ask_sz")
    return [f"{part}_{level:02d}" for level in range(levels) for part in parts]


def to_wide(frame: F, levels: int | None = None) -> F:
    """Books with one row per snapshot and the levels side by side; `from_wide` is the inverse.

    One row per (token, ts): ts, ids, ``bid_px_00 ask_px_00 bid_sz_00 ask_sz_00 bid_px_01 ...`` [probability, shares],
    00 the best; names and order as in databento's ``mbp-10``. Null where a side has no such level. Levels beyond
    ``levels`` are cut; the default is that of the deepest book, but a lazy frame needs it.

    Examples
    --------
    >>> wide = md.to_wide(books := md.testing.books("polars"))
    >>> wide.columns[4:8], md.from_wide(wide).equals(books)
    (['bid_px_00', 'ask_px_00', 'bid_sz_00', 'ask_sz_00'], True)
    """
    if levels is not None:
        whole("levels", levels)
    elif is_lazy(frame) or is_engine(frame):
        raise ConfigError(_NO_LEVELS)
    return run(frame, partial(_wide, levels=levels), ["books"], together="snapshot")


def _wide(table: EagerTable, levels: int | None) -> Any:
    book = table.book()
    starts, asks, ends = book.sides
    if levels is None:
        levels = int(book.array("level").max(initial=0)) + 1
    numbers = {"px": book.array("price"), "sz": book.array("size")}
    first, last = {BID: starts, ASK: asks}, {BID: asks, ASK: ends}
    out = [book.of_snapshots(c) for c in KEYS]
    for name in _wide_names(levels):
        side, what, level = name.split("_")
        at = first[side] + int(level)
        values = np.full(len(starts), np.nan)
        there = at < last[side]
        values[there] = numbers[what][at[there]]
        out.append(pl.Series(name, values).fill_nan(None))
    return pl.DataFrame(out)


def from_wide(frame: F) -> F:
    """Tidy books of wide ones, one row per level of a book side: the inverse of `to_wide`; see `to_wide`."""
    return run(frame, _tidy, ["series"], further=True)


def _tidy(table: EagerTable) -> Any:
    levels = _levels(table.names)
    return _tidy_runs(table, levels)


def _levels(present: Iterable[str]) -> int:
    names = set(present)
    levels = max((int(m[1]) + 1 for m in map(_WIDE.fullmatch, names) if m), default=1)
    require("A wide books frame", (*KEYS, *_wide_names(levels)), names)
    return levels


def _tidy_runs(table: EagerTable, levels: int) -> Any:
    """By way of columns, so that types and order are those of every tidy frame."""
    names = _wide_names(levels)
    table = table.in_order(names)
    pairs = np.full((len(table), 2, levels, 2), np.nan)
    for name in names:
        side, what, level = name.split("_")
        pairs[:, int(side == ASK), int(level), int(what == "sz")] = table.array(name)
    held = ~np.isnan(pairs[..., 0])
    if not np.array_equal(held, ~np.isnan(pairs[..., 1])):
        raise NotTidyError("A level has a price and no size, or a size and no price; give both, or neither.")
    if (held[..., 1:] & ~held[..., :-1]).any():
        raise NotTidyError(
            "A side has a deeper level and not the one before; level 00 is the best, and none is left out."
        )
    books = frames.books_of(table, table.array("ts"), held.sum(axis=2).ravel(), *pairs[held].T)
    return frames.to_frame(books, "polars")


def explode(frame: F) -> F:
    """Tidy books of nested ones: one row per level instead of lists; further columns are repeated. See `nest`.

    The inverse of `nest`; most verbs take nested books as they are. A null list is an empty one. Rows are in tidy
    order, of frames that are not in memory within each part. NotTidyError if the lists of a side differ in length or
    levels are not best first.
    """
    return run(frame, _exploded, ["nested"], together="row", further=True)


def _exploded(table: EagerTable) -> Any:
    names = _replaced(table.names, LISTS, BOOKS[4:])
    more = [c for c in names if c not in BOOKS]
    levels = nested.LevelTable(table)
    taken = [Taken(table.source, {c: c for c in more}, levels.snapshots.rows[levels.levels.of])] if more else []
    return Result(levels.frame(), taken, names)


def nest(frame: F) -> F:
    """Nested books of tidy ones: one row per snapshot with a list of prices and one of sizes for each side.

    One row per (token, ts): ts, ids, ``bid_price bid_size ask_price ask_size`` [probability, shares], best level first,
    an empty side as an empty list, then further columns, which must not differ within a snapshot: the form of
    ``archive.scan("books", nested=True)``. pandas gets Arrow lists where pyarrow is installed. `explode` is the
    inverse.

    Examples
    --------
    >>> books = md.nest(md.testing.books("polars", buckets=1))
    >>> books["bid_price"].to_list(), len(md.explode(books))
    ([[0.39, 0.38], [0.59, 0.58]], 8)
    """
    return run(frame, _nested, ["nested", "books"], further=True)


def _nested(table: EagerTable) -> Any:
    if table.kind == "nested":
        rows = nested.in_order(table)
        rest = {c: c for c in table.names if c not in (*KEYS, *LISTS)}
        return Result(rows.frame(), [Taken(table.source, rest, rows.rows)], table.names)
    names = _replaced(table.names, BOOKS[4:], LISTS)
    more = [c for c in names if c not in (*KEYS, *LISTS)]
    book = table.book()
    starts = book.sides.starts
    for name in more:
        book.refuse_changes(name, starts)
    return Result(nested.lists(book), [Taken(table.source, {c: c for c in more}, book.rows[starts])], names)


def _replaced(names: list[str], old: Iterable[str], new: Iterable[str]) -> list[str]:
    """The names with some of them replaced, all at the place of the first one."""
    old = set(old)
    at = next(i for i, name in enumerate(names) if name in old)
    return [*names[:at], *new, *(c for c in names[at:] if c not in old)]
