"""Sums over the levels of each side of a book, and formulas on them: many measures of one frame in one pass.

A `Measure` states them once, as expressions of polars; numpy adds up between the starts of the sides.
Figures are in docs/decisions/measures.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
import polars as pl

from marketdata.tidy.backends import run
from marketdata.tidy.quotes import KINDS, reduced, top
from marketdata.tidy.schema import ASK, BID, ID_COLUMNS
from marketdata.tidy.table import EagerTable
from marketdata.wire.columns import Floats, Ints

F = TypeVar("F")
Columns = Mapping[str, pl.Expr]
KEYS = ("ts", *ID_COLUMNS)
# What a sum may use beside ``level``, ``price`` and ``size`` of a row.
BEFORE, PAID_BEFORE, DISTANCE = "__before", "__paid_before", "__distance"
# Beside the sums a formula may use the columns of bbo, and the number of levels of each side.
LEVELS = "__levels"
_TOP = {
    "mid": (pl.col("best_bid") + pl.col("best_ask")) / 2,
    "spread": pl.col("best_ask") - pl.col("best_bid"),
}


@dataclass(frozen=True)
class Measure:
    """One measure of a book: ``columns`` are expressions on ``bid_<sum>``, ``ask_<sum>`` and the columns of `bbo`.

    ``sums`` are added up over the levels of each side: expressions on a level row, null where it does not count.
    ``needs`` names further columns of level rows: sums of shares (`BEFORE`) or money (`PAID_BEFORE`) over the better
    levels of the side, or the `DISTANCE` of the price from the mid.
    """

    columns: Mapping[str, pl.Expr]
    sums: Mapping[str, pl.Expr] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()


def tag(value: float | None) -> str:
    """A number as part of the name of a column, without the dot that Spark takes for a struct."""
    return str(value).replace(".", "_")


def measured(frame: F, *measures: Measure) -> F:
    """One row per (token, ts) in tidy order: ids and the columns of all measures; the best ones of bbo frames too."""
    columns = {name: value for m in measures for name, value in m.columns.items()}
    sums = {name: value for m in measures for name, value in m.sums.items()}
    needs = frozenset().union(*(m.needs for m in measures))
    if not sums:
        return run(frame, partial(_of_top, columns=columns), KINDS, together="snapshot", reduce=reduced)
    # The number of levels distinguishes a side of size 0 from a missing one.
    sums[LEVELS] = pl.when(~pl.col("price").is_null()).then(1.0)
    return run(frame, partial(_of_levels, sums=sums, needs=needs, columns=columns), ("books",), together="snapshot")


def _of_top(table: EagerTable, columns: Columns) -> pl.DataFrame:
    return top(table).select(*KEYS, **columns)


def _of_levels(table: EagerTable, sums: Columns, needs: frozenset[str], columns: Columns) -> pl.DataFrame:
    book = table.book()
    values = _by_sides(book, sums, needs).with_columns(**_TOP).select(**columns)
    return pl.DataFrame([book.of_snapshots(c) for c in KEYS]).hstack(values)


def _by_sides(book: EagerTable, sums: Columns, needs: frozenset[str]) -> pl.DataFrame:
    price, size = book.array("price"), book.array("size")
    starts, asks, ends = book.sides
    begins = np.column_stack((starts, asks)).ravel()
    lengths = np.column_stack((asks - starts, ends - asks)).ravel()
    held = lengths > 0
    found: dict[str, Floats] = {}
    for i, side in enumerate((BID, ASK)):
        for name, values in ((f"best_{side}", price), (f"best_{side}_size", size)):
            found[name] = np.full(len(starts), np.nan)
            found[name][held[i::2]] = values[begins[i::2][held[i::2]]]
    rows = {"level": book.array("level"), "price": price, "size": size}
    if BEFORE in needs:
        rows[BEFORE] = _over_better_levels(size, begins, lengths)
    if PAID_BEFORE in needs:
        rows[PAID_BEFORE] = _over_better_levels(price * size, begins, lengths)
    if DISTANCE in needs:
        mid = (found["best_bid"] + found["best_ask"]) / 2
        rows[DISTANCE] = np.abs(price - np.repeat(mid, ends - starts))
    counted = _table(rows).select(**sums)
    for name in sums:
        total = np.zeros(len(begins))
        if held.any():
            added = counted[name].fill_null(0.0).to_numpy()
            total[held] = np.add.reduceat(added, begins[held])
        found |= {f"bid_{name}": total[0::2], f"ask_{name}": total[1::2]}
    return _table(found)


def _table(columns: Mapping[str, Any]) -> pl.DataFrame:
    """Arrays as a polars frame, whose expressions use all cores."""
    return pl.DataFrame(dict(columns), nan_to_null=True)


def _over_better_levels(values: Floats, begins: Ints, lengths: Ints) -> Floats:
    """Sums over the better levels of the same side, level by level, so that no sum loses digits to other sides."""
    out = np.zeros(len(values))
    for level in range(1, int(lengths.max(initial=0))):
        at = begins[lengths > level] + level
        out[at] = out[at - 1] + values[at - 1]
    return out
