"""Measures of books: sums over the levels of each side, and formulas on them, many of one frame in one pass.

A `Measure` states its sums and formulas once, as expressions. A sorted frame in memory is added up by numpy between the
starts of its sides; every other frame is grouped by its engine. docs/decisions/measures.md has the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from marketdata.errors import NotTidyError
from marketdata.tidy.kinds import check_sides, floats, identity, new_series
from marketdata.tidy.schema import ASK, BBO, BID, WHO, kind_of
from marketdata.tidy.snapshots import KEYS, Starts, closed, opened
from marketdata.wire.columns import Floats, Ints

_ASK = "__is_ask"
# What a sum may use beside ``level``, ``price`` and ``size`` of a row.
BEFORE, PAID_BEFORE, DISTANCE = "__before", "__paid_before", "__distance"
# What a formula may use beside the sums: the best prices and sizes, mid and spread, and the levels of each side.
LEVELS = "__levels"


@dataclass(frozen=True)
class Measure:
    """One measure of a book.

    Parameters
    ----------
    columns : mapping
        Name and formula of each value: an expression on ``bid_<sum>``, ``ask_<sum>`` and the columns of `bbo`.
    sums : mapping
        What is added up over the levels of each side: an expression on a level row, null where it does not count.
    needs : set of str
        Further columns of level rows: sums of shares (`BEFORE`) or money (`PAID_BEFORE`) over the better levels of the
        side, or the `DISTANCE` of the price from the mid.
    """

    columns: Mapping[str, nw.Expr]
    sums: Mapping[str, nw.Expr] = field(default_factory=dict)
    needs: frozenset[str] = frozenset()

    @property
    def of_levels(self) -> bool:
        """Whether it needs more than the best prices."""
        return bool(self.sums)


def measured(frame: Any, *measures: Measure) -> Any:
    """One row per (token, ts) in tidy order: the ids and the columns of all measures.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books, or, where the best prices do, no bbo.
    """
    data = opened(frame)
    deep = any(m.of_levels for m in measures)
    schema = data.collect_schema()
    kind = kind_of(schema.names(), ("books",) if deep else ("books", "bbo"))
    columns = {name: value for m in measures for name, value in m.columns.items()}
    if kind == "bbo":
        data = data.with_columns(nw.col(*BBO[4:]).cast(nw.Float64).fill_nan(None))
        return closed(data.select(*KEYS, **columns), frame)
    texts = [c for c in ("level", "price", "size") if schema[c] in (nw.String, nw.Categorical)]
    if texts:
        raise NotTidyError(f"{', '.join(texts)} hold texts, not numbers; make them floats.")
    data = data.select(*KEYS, "side", "level", "price", "size")
    sums = _sums(measures)
    needs = frozenset().union(*(m.needs for m in measures))
    out = _by_runs(data, sums, needs, columns) if isinstance(data, nw.DataFrame) else None
    if out is None:
        if isinstance(data, nw.DataFrame):
            check_sides(data)
        out = _by_groups(data, sums, needs, columns)
    return closed(out, frame)


def _sums(measures: Iterable[Measure]) -> dict[str, nw.Expr]:
    """The sums of all measures; the number of levels tells a side of size 0 from a missing one."""
    sums = {name: value for m in measures for name, value in m.sums.items()}
    return {**sums, LEVELS: nw.when(~nw.col("price").is_null()).then(1.0)} if sums else {}


def _formulas(data: Any, columns: dict[str, nw.Expr]) -> Any:
    bid, ask = nw.col("best_bid"), nw.col("best_ask")
    return data.with_columns(mid=(bid + ask) / 2, spread=ask - bid).with_columns(**columns)


def _by_runs(
    data: nw.DataFrame[Any], sums: dict[str, nw.Expr], needs: frozenset[str], columns: dict[str, nw.Expr]
) -> nw.DataFrame[Any] | None:
    """The measures of a frame in tidy order, or None where it is not: a side is its levels 0, 1, 2 and so on."""
    starts = Starts.of(data)
    if starts is None:
        return None
    if sums:
        sides = np.column_stack(starts).ravel()
        lengths = np.diff(np.append(sides, len(data)))
        level = np.arange(len(data)) - np.repeat(sides, lengths)
        side = identity(data["side"])
        if np.any(np.nan_to_num(floats(data["level"]), nan=0.0) != level):
            return None
        # A bid behind the asks has the next level too: each row must be of the side that began.
        if np.any(side != np.repeat(side[sides], lengths)):
            return None
    ends = np.append(starts.bids[1:], len(data))[: len(starts.bids)]
    price, size = _whole_levels(floats(data["price"]), floats(data["size"]))
    out = _by_sides(price, size, Sides(starts.bids, starts.asks, ends), sums, needs, columns)
    heads = data.select(*KEYS)[starts.bids]
    return heads.with_columns(*(new_series(heads, name, out[name].to_numpy()) for name in columns))


class Sides(NamedTuple):
    """Where snapshots begin, with their bids, where their asks begin, and where they end; a side may be empty."""

    starts: Ints
    asks: Ints
    ends: Ints

    @property
    def begins(self) -> Ints:
        """Where sides begin: bids, asks, bids, and so on."""
        return np.column_stack((self.starts, self.asks)).ravel()

    @property
    def lengths(self) -> Ints:
        """Rows of each side."""
        return np.column_stack((self.asks - self.starts, self.ends - self.asks)).ravel()


def _by_sides(
    price: Floats,
    size: Floats,
    sides: Sides,
    sums: dict[str, nw.Expr],
    needs: frozenset[str],
    columns: dict[str, nw.Expr],
) -> nw.DataFrame[Any]:
    """The columns of the measures, one row per snapshot."""
    begins, lengths = sides.begins, sides.lengths
    held = lengths > 0
    found: dict[str, Floats] = {}
    for i, side in enumerate((BID, ASK)):
        for name, values in ((f"best_{side}", price), (f"best_{side}_size", size)):
            found[name] = np.full(len(sides.starts), np.nan)
            found[name][held[i::2]] = values[begins[i::2][held[i::2]]]
    if sums:
        rows = {"level": np.arange(len(price)) - np.repeat(begins, lengths), "price": price, "size": size}
        if BEFORE in needs:
            rows[BEFORE] = _over_better_levels(size, begins, lengths)
        if PAID_BEFORE in needs:
            rows[PAID_BEFORE] = _over_better_levels(price * size, begins, lengths)
        if DISTANCE in needs:
            mid = (found["best_bid"] + found["best_ask"]) / 2
            rows[DISTANCE] = np.abs(price - np.repeat(mid, sides.ends - sides.starts))
        counted = _table(rows).select(**sums)
        for name in sums:
            total = np.zeros(len(begins))
            if held.any():
                total[held] = np.add.reduceat(np.nan_to_num(floats(counted[name]), nan=0.0), begins[held])
            found |= {f"bid_{name}": total[0::2], f"ask_{name}": total[1::2]}
    out: nw.DataFrame[Any] = _formulas(_table(found), columns)
    return out


def _whole_levels(price: Floats, size: Floats) -> tuple[Floats, Floats]:
    """A level that lacks its price or its size is none."""
    half = np.isnan(price) != np.isnan(size)
    if half.any():
        price, size = np.where(half, np.nan, price), np.where(half, np.nan, size)
    return price, size


def _table(columns: Mapping[str, Any]) -> nw.DataFrame[Any]:
    """Arrays as a polars frame, whatever the kind of the frame they came from: its expressions use all cores."""
    import polars as pl

    return nw.from_native(pl.DataFrame(dict(columns), nan_to_null=True))


def _over_better_levels(values: Floats, begins: Ints, lengths: Ints) -> Floats:
    """Sums over the better levels of the same side, level by level, so that no sum loses digits to other sides."""
    out = np.zeros(len(values))
    for level in range(1, int(lengths.max(initial=0))):
        at = begins[lengths > level] + level
        out[at] = out[at - 1] + values[at - 1]
    return out


def _by_groups(data: Any, sums: dict[str, nw.Expr], needs: frozenset[str], columns: dict[str, nw.Expr]) -> Any:
    """The measures of a frame of any kind, in any order."""
    numbers = {c: nw.col(c).cast(nw.Float64).fill_nan(None) for c in ("price", "size")}
    data = data.with_columns(**numbers, **{_ASK: nw.col("side").cast(nw.String) == ASK})
    held = ~nw.col("price").is_null() & ~nw.col("size").is_null()
    data = data.with_columns(nw.when(held).then(nw.col(c)).alias(c) for c in numbers)
    sides = {BID: ~nw.col(_ASK), ASK: nw.col(_ASK)}
    best = (nw.col("level") == 0).fill_null(value=False)
    before = {BEFORE: nw.col("size"), PAID_BEFORE: nw.col("price") * nw.col("size")}
    before = {name: value.fill_null(0.0) for name, value in before.items() if name in needs}
    if before:
        side = (*KEYS, _ASK)
        data = data.with_columns(**before)
        data = data.with_columns(nw.col(*before).cum_sum().over(*side, order_by="level"))
        # Shifted rather than less its own value, which would cost digits beside a large level.
        data = data.with_columns(nw.col(*before).shift(1).over(*side, order_by="level").fill_null(0.0))
    if DISTANCE in needs:
        tops = {f"__best_{side}": nw.when(best & rows).then(nw.col("price")) for side, rows in sides.items()}
        data = data.with_columns(**tops).with_columns(nw.col(*tops).max().over(*KEYS))
        mid = (nw.col(f"__best_{BID}") + nw.col(f"__best_{ASK}")) / 2
        data = data.with_columns((nw.col("price") - mid).abs().alias(DISTANCE))
    # Plain columns made before: pandas groups by plain sums only. What does not count adds 0.
    added = {
        f"{side}_{name}": nw.when(rows).then(value).otherwise(0.0).fill_null(0.0)
        for name, value in sums.items()
        for side, rows in sides.items()
    }
    greatest = {
        name: nw.when(best & rows).then(nw.col(c))
        for side, rows in sides.items()
        for name, c in ((f"best_{side}", "price"), (f"best_{side}_size", "size"))
    }
    found = [nw.col(*added).sum()] if added else []
    out = data.select(*KEYS, **added, **greatest).group_by(*KEYS).agg(*found, nw.col(*greatest).max())
    return _formulas(out, columns).select(*KEYS, *columns).sort(*WHO, "ts", nulls_last=True)
