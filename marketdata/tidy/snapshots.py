"""A books frame seen snapshot by snapshot: what every measure of a book is made of.

A measure is written once, as expressions on level rows. Who adds them up differs: `Runs` on a sorted frame in
memory, with numpy between the starts of its sides; `Groups` on every other frame, with group_by and windows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from marketdata.errors import NotTidyError
from marketdata.tidy.kinds import (
    begins_side,
    check_sides,
    floats,
    identity,
    is_ask,
    micros,
    new_series,
    tidy_groups,
    wrapped,
)
from marketdata.tidy.runs import group_starts
from marketdata.tidy.schema import ASK, WHO, kind_of
from marketdata.wire.columns import Floats, Ints

KEYS = ("ts", *WHO)
# Columns that a view adds to the level rows.
IS_ASK, HELD, BEST_BID, BEST_ASK = "__ask", "__held", "__best_bid", "__best_ask"

is_bid_row = ~nw.col(IS_ASK) & nw.col(HELD)
is_ask_row = nw.col(IS_ASK) & nw.col(HELD)


def only(rows: nw.Expr, value: nw.Expr | float) -> nw.Expr:
    """The value in these rows and 0 in all others, as `Snapshots.sums` needs it."""
    return nw.when(rows).then(value).otherwise(0.0)


class Starts(NamedTuple):
    """Where snapshots (which begin with their bids) and their asks begin in a frame in tidy order."""

    bids: Ints
    asks: Ints

    @classmethod
    def of(cls, data: nw.DataFrame[Any]) -> Starts | None:
        """None where the frame is not in tidy order: bids first, each side begun by level 0 or its marker row."""
        tops = np.flatnonzero(begins_side(data["level"]))
        bids, asks = tops[0::2], tops[1::2]
        ts = micros(data["ts"])
        snapshots = group_starts(*(identity(data[c]) for c in WHO), ts)
        if len(bids) != len(asks) or not np.array_equal(bids, snapshots):
            return None
        ask = is_ask(data["side"][tops])
        if ask[0::2].any() or not ask[1::2].all():
            return None
        return cls(bids, asks) if tidy_groups(data.select(*WHO)[bids], list(WHO), ts[bids]) is not None else None


class Snapshots(ABC):
    """Level rows with ``__ask`` and ``__held`` (not a marker row), and sums over them per snapshot."""

    data: Any

    @abstractmethod
    def with_best(self) -> Snapshots:
        """Add ``__best_bid`` and ``__best_ask`` of the snapshot to each row."""

    @abstractmethod
    def with_before(self, **values: nw.Expr) -> Snapshots:
        """Add to each row the sum of each value over the better levels of its side."""

    @abstractmethod
    def sums(self, **values: nw.Expr) -> Any:
        """One row per snapshot in tidy order: its keys, and the sum of each value; no value may be null."""


class Runs(Snapshots):
    """The view of a frame in memory that is in tidy order."""

    def __init__(self, data: nw.DataFrame[Any], starts: Starts) -> None:
        self.data, self.starts = data, starts

    @classmethod
    def of(cls, data: nw.DataFrame[Any]) -> Runs | None:
        """None where the frame is not in tidy order, or a side is not its levels 0, 1, 2 and so on."""
        starts = Starts.of(data)
        if starts is None:
            return None
        price, level = floats(data["price"]), floats(data["level"])
        out = cls(data, starts)
        step = np.arange(len(data)) - np.repeat(out._sides, out._lengths)
        if np.any(np.nan_to_num(level, nan=0.0) != step):
            return None
        # A bid behind the asks has the next level too: each row must be of the side that began.
        side = identity(data["side"])
        if np.any(side != np.repeat(side[out._sides], out._lengths)):
            return None
        ask = np.repeat(np.arange(len(out._sides)) % 2 == 1, out._lengths)
        return out._with(**{IS_ASK: ask, HELD: ~np.isnan(price)})

    @property
    def _sides(self) -> Ints:
        return np.column_stack(self.starts).ravel()

    @property
    def _lengths(self) -> Ints:
        return np.diff(np.append(self._sides, len(self.data)))

    def _with(self, **values: np.ndarray[Any, Any]) -> Runs:
        return Runs(self.data.with_columns(*(new_series(self.data, c, v) for c, v in values.items())), self.starts)

    def _numbers(self, values: dict[str, nw.Expr]) -> dict[str, Floats]:
        rows = self.data.select(**values)
        return {name: floats(rows[name]) for name in values}

    def with_best(self) -> Runs:
        """See the base."""
        price = floats(self.data["price"])
        rows = np.diff(np.append(self.starts.bids, len(self.data)))
        best = {BEST_BID: self.starts.bids, BEST_ASK: self.starts.asks}
        return self._with(**{name: np.repeat(price[at], rows) for name, at in best.items()})

    def with_before(self, **values: nw.Expr) -> Runs:
        """See the base. Level by level, so that no sum leaves its side and loses digits to other ones."""
        sides, lengths = self._sides, self._lengths
        sums = {}
        for name, value in self._numbers(values).items():
            total = np.zeros(len(value))
            for level in range(1, int(lengths.max(initial=0))):
                at = sides[lengths > level] + level
                total[at] = total[at - 1] + value[at - 1]
            sums[name] = total
        return self._with(**sums)

    def sums(self, **values: nw.Expr) -> nw.DataFrame[Any]:
        """See the base."""
        at = self.starts.bids
        heads = self.data.select(*KEYS)[at]
        numbers = self._numbers(values).items()
        out: nw.DataFrame[Any] = heads.with_columns(
            *(new_series(heads, c, np.add.reduceat(v, at) if len(at) else v) for c, v in numbers)
        )
        return out


class Groups(Snapshots):
    """The view of a frame of any kind, in any order."""

    def __init__(self, data: Any) -> None:
        self.data = data

    @classmethod
    def of(cls, data: Any) -> Groups:
        """Level rows of any order; a NaN price counts as none."""
        price = nw.col("price").cast(nw.Float64).fill_nan(None)
        ask = nw.col("side").cast(nw.String) == ASK
        return cls(data.with_columns(ask.alias(IS_ASK), (~price.is_null()).alias(HELD)))

    def with_best(self) -> Groups:
        """See the base."""
        top = (nw.col("level") == 0).fill_null(value=False)
        sides = {BEST_BID: is_bid_row, BEST_ASK: is_ask_row}
        data = self.data.with_columns(
            **{name: nw.when(top & rows).then(nw.col("price")) for name, rows in sides.items()}
        )
        return Groups(data.with_columns(nw.col(*sides).max().over(*KEYS)))

    def with_before(self, **values: nw.Expr) -> Groups:
        """See the base."""
        side = (*KEYS, IS_ASK)
        data = self.data.with_columns(**values)
        data = data.with_columns(nw.col(*values).cum_sum().over(*side, order_by="level"))
        # Shifted rather than less its own value, which would cost digits beside a large level.
        return Groups(data.with_columns(nw.col(*values).shift(1).over(*side, order_by="level").fill_null(0.0)))

    def sums(self, **values: nw.Expr) -> Any:
        """See the base."""
        data = self.data.select(*KEYS, **values).group_by(*KEYS).agg(nw.col(*values).sum())
        return data.select(*KEYS, *values).sort(*WHO, "ts", nulls_last=True)


def opened(frame: Any) -> Any:
    """The frame behind one interface; Arrow travels as polars, which has every window function."""
    data = wrapped(frame)
    if data.implementation.is_pyarrow():
        import polars as pl

        return nw.from_native(pl.from_arrow(data.to_native()))
    return data


def closed(out: Any, frame: Any) -> Any:
    """What was made of ``opened(frame)``, as the kind that ``frame`` is."""
    native = nw.maybe_reset_index(out).to_native()
    return native.to_arrow() if wrapped(frame).implementation.is_pyarrow() else native


def snapshots(frame: Any) -> Snapshots:
    """The better view of a books frame of any kind.

    Raises
    ------
    NotTidyError
        If the frame holds no tidy books, or texts where numbers belong.
    """
    data = opened(frame)
    held = data.collect_schema()
    kind_of(held.names(), ("books",))
    texts = [c for c in ("level", "price", "size") if held[c] in (nw.String, nw.Categorical)]
    if texts:
        raise NotTidyError(f"{', '.join(texts)} hold texts, not numbers; make them floats.")
    data = data.select(*KEYS, "side", "level", "price", "size")
    if isinstance(data, nw.DataFrame):
        fast = Runs.of(data)
        if fast is not None:
            return fast
        check_sides(data)
    return Groups.of(data)
