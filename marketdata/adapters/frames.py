"""Frames to columns and back: what a verb is between, ``to_frame(rule(columns(frame)), like=frame)``.

`series` and `books` give the rows of a frame as `points` has them, normalised, checked and in tidy order: every row
has a time and ids; a token is its market_id and token_id, with the label of its newest row that has one; equal rows of
one key are deduplicated, different ones refused; levels of a side are 0, 1, 2, ... with the best price first, each with
a price and a size. An empty side may be its marker row or no row. Rows that are in no tidy order, which one pass over
the columns finds out, are sorted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters.frame import Column, Frame, Levels, Lists, Native, Passed, Texts
from marketdata.adapters.pandas import PandasFrame
from marketdata.adapters.polars import ArrowFrame, PolarsFrame, from_arrow, made
from marketdata.errors import NotTidyError
from marketdata.points import order
from marketdata.points.columns import Books, Columns, Floats, Ints, Series, Side, Token
from marketdata.points.order import LevelRows
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import ASK, BBO, BID, COLUMNS, ID_COLUMNS, LISTS, check_names

if TYPE_CHECKING:
    import pyarrow as pa

_PAIRS = (LISTS[:2], LISTS[2:])
S = TypeVar("S", bound=np.generic)


class Rows(NamedTuple):
    """Level rows in tidy order: an entry a row, their levels, and times and both sides of the snapshots.

    In the sides the marker row of an empty one is a level.
    """

    entries: Columns
    levels: LevelRows
    ts: Ints
    bids: Side
    asks: Side


def of_native(native: object) -> Frame | None:
    """The adapter of a native frame in memory; None for a frame of an engine, and for what is no frame."""
    if isinstance(native, pl.DataFrame):
        return PolarsFrame(native, native.columns)
    # Who passes a frame of pandas has imported it.
    pandas: Any = sys.modules.get("pandas")
    if pandas is not None and isinstance(native, pandas.DataFrame):
        return PandasFrame(native, [str(c) for c in native.columns])
    if not is_arrow(native):
        return None
    table = table_of(native)
    check_names(table.column_names)
    return ArrowFrame(from_arrow(table), table.column_names)


def new(library: str) -> Frame:
    """The adapter of an empty frame of pandas or polars, to make new ones."""
    if library == "polars":
        return PolarsFrame(pl.DataFrame(), [])
    import pandas as pd

    return PandasFrame(pd.DataFrame(), [])


def is_arrow(value: object) -> bool:
    """Whether a value is a table of Arrow, a batch, or a reader of batches."""
    known = type(value).__name__ in ("Table", "RecordBatch") or hasattr(value, "read_all")
    return known and type(value).__module__.partition(".")[0] == "pyarrow"


def table_of(arrow: Native) -> pa.Table:
    """A table of Arrow, a batch, or all batches of a reader, as a table."""
    import pyarrow as pa

    if isinstance(arrow, pa.RecordBatch):
        return pa.Table.from_batches([arrow])
    return arrow if isinstance(arrow, pa.Table) else arrow.read_all()


# Frames to columns


def rows(frame: Frame) -> Columns:
    """An entry for each row, by token and time; rows of one token and time may be several."""
    return _entries(frame, strictly=False) or _sorted(frame)[1]


def series(frame: Frame, values: Sequence[str] = (), *, same: Sequence[str] | None = None) -> Series:
    """An entry for each token (market) and time with these numbers; ``same``: columns in which equal rows are equal."""
    found = _entries(frame, strictly=True)
    if found is None:
        found = _sorted(frame, ("ts",), values if same is None else same)[1]
    return with_values(frame, found, values)


def with_values(frame: Frame, entries: Columns, values: Sequence[str]) -> Series:
    """Entries with columns of numbers of their rows."""
    numbers = {name: _at(frame.numbers(name), entries.place) for name in values}
    return Series(entries.tokens, entries.bounds, entries.ts, numbers, place=entries.place)


def books(frame: Frame, *, whole: bool = True) -> Books:
    """An entry for each snapshot of level rows, nested books or bbo; all levels checked, or the best two."""
    if frame.kind == "books":
        entries, _, ts, bids, asks = level_rows(frame, whole=whole)
        starts = bids.begins
        bounds = np.searchsorted(starts, entries.bounds)
        return Books(
            entries.tokens,
            bounds,
            ts,
            *map(_without_markers, (bids, asks)),
            place=starts if entries.place is None else entries.place[starts],
        )
    if frame.kind == "nested":
        snapshots = series(frame, same=LISTS)
        sides = _sides_of_lists(frame, snapshots, whole=whole)
    else:
        snapshots = series(frame, BBO[4:])
        at, one = np.arange(len(snapshots)), np.ones(len(snapshots), np.int64)
        price, size, other, shares = (snapshots.values[c] for c in BBO[4:8])  # noqa: PD011 no frame
        sides = Side(at, one, price, size), Side(at, one, other, shares)
    bids, asks = map(_without_markers, sides)
    return Books(snapshots.tokens, snapshots.bounds, snapshots.ts, bids, asks, place=snapshots.place)


def level_rows(frame: Frame, *, whole: bool = True, entries: Columns | None = None) -> Rows:
    """The rows of a frame of levels by token, time, side and level, of nested books those that they would have.

    All levels are checked, or the best two. ``entries``: those of the rows, where they are in order by token and time.
    """
    if frame.kind == "nested":
        return expanded(books(frame, whole=whole))
    ordered, levels = frame, _levels(frame)
    groups = _groups(frame) if entries is None else entries.starts
    sides = order.snapshots(levels, groups)
    if sides is not None and entries is None:
        entries = _tokens(frame, groups)
    if sides is None or entries is None:
        ordered, entries = _sorted(frame, ("ts", "side", "level"), ("price", "size"))
        levels = _levels(ordered)
        sides = order.snapshots(levels, entries.starts)
    if sides is None:
        new = ~order.same_as_before(*(ordered.comparable(c) for c in (*frame.keys, "ts", "side")))
        raise order.wrong_numbers(levels, new, ordered.missing_levels(), ordered.shown)
    half, worse = order.wrong_rows(levels) if whole else order.wrong_tops(*sides[1:])
    if len(half) or len(worse):
        raise order.wrong_levels(levels, half, worse, ordered.shown)
    return Rows(entries, levels, *sides)


def is_in_order(frame: Frame) -> bool:
    """Whether rows are by token and time already, each with ids and a time."""
    if "ts" not in frame.names or not frame.keys:
        return False
    groups = _groups(frame)
    missing = any(None in frame.texts(c, groups) for c in frame.keys)
    return (
        not (missing or order.NO_TIME in frame.integers("ts")[groups]) and _entries(frame, strictly=False) is not None
    )


def _groups(frame: Frame) -> Ints:
    """Where tokens begin, if they are beside each other."""
    codes = [frame.integers(c) for c in frame.keys]
    return group_starts(*codes) if codes else np.zeros(min(len(frame), 1), np.int64)


def _entries(frame: Frame, *, strictly: bool) -> Columns | None:
    """The rows as they are, if they are in tidy order."""
    groups = _groups(frame)
    return _tokens(frame, groups) if order.rises(frame.integers("ts"), groups, strictly=strictly) else None


def _tokens(frame: Frame, groups: Ints) -> Columns | None:
    """Rows whose tokens begin at these positions, if the ids rise; NotTidyError if one is missing.

    Times rise within tokens and ids are equal there, so one that is missing is the first. Where labels differ within
    a token, ``place`` is written out: a row is no longer one of its token in all columns.
    """
    ts, place = frame.integers("ts"), None
    texts = {c: frame.texts(c, groups) for c in frame.keys}
    lacks_id = "token_label" not in texts and any(None in some for some in texts.values())
    if lacks_id or (len(groups) and ts[groups].min() == order.NO_TIME):
        _check(frame)
    keys = [[(t is None, t or "") for t in some] for some in texts.values()]
    if not all(a < b for a, b in pairwise(zip(*keys, strict=True))):
        return None
    if "token_label" in frame.names and "token_label" not in texts:
        labels, newest = frame.integers("token_label"), groups
        if not order.within(group_starts(labels), groups):
            newest, place = order.newest(labels, groups), np.arange(len(ts))
        texts["token_label"] = frame.texts("token_label", newest)
    none: list[str | None] = [None] * len(groups)
    ids = zip(*(texts.get(c, none) for c in ID_COLUMNS), strict=True)
    tokens = tuple(Token(market or "", token, label) for market, token, label in ids)
    return Columns(tokens, np.append(groups, len(ts)), ts, place=place)


def _check(frame: Frame) -> None:
    frame.times("ts")
    # Where labels tell tokens apart, ids may be missing: they are looked up.
    for name in () if "token_label" in frame.keys else frame.keys:
        frame.codes(name)


def _sorted(frame: Frame, keys: Sequence[str] = (), values: Iterable[str] = ()) -> tuple[Frame, Columns]:
    """The rows in tidy order and their entries; of equal ``keys`` one, if there are any."""
    _check(frame)
    ids = [ranks(frame, c) for c in frame.keys]
    more = [frame.integers("side"), _nulls_last(frame)] if "level" in keys else []
    place = order.sorted_by(*ids, frame.times("ts"), *more)
    ordered = frame.take(place)
    entries = _tokens(ordered, _groups(ordered))
    assert entries is not None
    kept = _kept(ordered, keys, values) if keys else np.arange(len(place))
    if len(kept) < len(place):
        ordered, entries, place = ordered.take(kept), entries.take(kept), place[kept]
    return ordered, replace(entries, place=place)


def _nulls_last(frame: Frame) -> Ints:
    level = frame.integers("level").astype(np.int64)
    level[frame.missing_levels()] = int(level.max(initial=0)) + 1
    return level


def distinct_ids(frame: Frame, names: Sequence[str]) -> tuple[Ints, Ints]:
    """A row of each combination of some ids, and which of them is that of each row; without names all are one."""
    if not names:
        return np.zeros(min(len(frame), 1), np.int64), np.zeros(len(frame), np.int64)
    codes = [frame.codes(name) if name in ID_COLUMNS else frame.integers(name) for name in names]
    starts = group_starts(*codes)
    first, which = order.distinct(codes[0][starts])
    for more in codes[1:]:
        _, own = order.distinct(more[starts])
        first, which = order.distinct(which * (int(own.max(initial=0)) + 1) + own)
    return starts[first], np.repeat(which, run_ends(starts, len(frame)) - starts)


def ranks(frame: Frame, name: str) -> NDArray[np.integer]:
    """Integers in the order of the texts of an id, a missing one last."""
    first, which = order.distinct(frame.integers(name))
    texts = frame.texts(name, first)
    rank = np.empty(len(texts), np.min_scalar_type(len(texts)))
    rank[sorted(range(len(texts)), key=lambda i: (texts[i] is None, texts[i] or ""))] = np.arange(len(texts))
    return rank[which]


def _kept(ordered: Frame, keys: Sequence[str], values: Iterable[str]) -> Ints:
    """The first of the rows that are equal, of sorted ones; NotTidyError if values differ, or times beyond a digit."""
    keys, values = [*ordered.keys, *keys], list(values)
    same = order.same_as_before(*(ordered.comparable(c) for c in keys))
    exact = ordered.nanoseconds()
    if exact is not None:
        close = same[1:] & (exact[1:] != exact[:-1])
        if close.any():
            raise NotTidyError(
                f"Two times of a token are less than a microsecond apart, first "
                f"{ordered.shown(int(np.argmax(close)))}; tidy frames have microseconds: keep one row per microsecond."
            )
    if same.any() and values:
        differs = same & ~order.same_as_before(*(ordered.comparable(c) for c in values))
        if differs.any():
            raise NotTidyError(
                f"Two rows have the same {', '.join(keys)} and different {', '.join(values)}, first "
                f"{ordered.shown(int(np.argmax(differs)))}; keep one of them. Of books give md.bbo(books) or "
                "md.to_wide(books) where a verb takes one row per token and time."
            )
    return np.flatnonzero(~same)


def _levels(frame: Frame) -> LevelRows:
    numbers = frame.numbers("price"), frame.numbers("size")
    return LevelRows(frame.integers("ts"), frame.integers("side"), frame.integers("level"), *numbers)


def _without_markers(side: Side) -> Side:
    missing = np.isnan(side.best) & (side.counts > 0)
    return replace(side, counts=np.where(missing, 0, side.counts)) if missing.any() else side


def _sides_of_lists(frame: Frame, snapshots: Columns, *, whole: bool) -> tuple[Side, Side]:
    own = frame if snapshots.place is None else frame.take(snapshots.place)
    sides = []
    for names in _PAIRS:
        price, size = (own.lists(name) for name in names)
        differs = np.flatnonzero(price.counts != size.counts)
        if len(differs):
            at = int(differs[0])
            raise NotTidyError(
                f"{names[0]} has {price.counts[at]} entries and {names[1]} has {size.counts[at]}, first "
                f"{own.shown(at)}; the two lists of a side have one entry per level."
            )
        sides.append(Side(np.cumsum(price.counts) - price.counts, price.counts, price.values, size.values))
    bids, asks = sides
    if not (_is_sound(bids, -1, whole=whole) and _is_sound(asks, 1, whole=whole)):
        # The error of the rule that is broken; a list of one null is an empty side.
        rows = expanded(Books(snapshots.tokens, snapshots.bounds, snapshots.ts, bids, asks))
        half, worse = order.wrong_rows(rows.levels) if whole else order.wrong_tops(rows.bids, rows.asks)
        if len(half) or len(worse):
            raise order.wrong_levels(rows.levels, half, worse, lambda at: own.shown(int(rows.entries.rows[at])))
    return bids, asks


def _is_sound(side: Side, sign: int, *, whole: bool) -> bool:
    """Whether levels are numbers, and prices get no better; ``sign``: 1 where they rise."""
    tops, deeper = side.begins[side.counts > 0], side.begins[side.counts > 1] + 1
    if whole:
        is_deeper = np.ones(len(side.price), bool)
        is_deeper[tops] = False
        tops, deeper = np.arange(len(side.price)), np.flatnonzero(is_deeper)
    with np.errstate(invalid="ignore"):
        worse = (side.price[deeper] - side.price[deeper - 1]) * sign >= 0
    return bool(worse.all()) and not (np.isnan(side.price[tops]).any() or np.isnan(side.size[tops]).any())


def expanded(books: Books) -> Rows:
    """Level rows of books, a marker row for each empty side; ``place`` is that of the snapshot."""
    levels, bids, asks = levels_of(books)
    edges = np.append(bids.begins, len(levels.ts))
    place = np.repeat(books.rows, np.diff(edges))
    return Rows(Columns(books.tokens, edges[books.bounds], levels.ts, place=place), levels, books.ts, bids, asks)


def levels_of(books: Books) -> tuple[LevelRows, Side, Side]:
    """The level rows alone, and both sides of each snapshot among them."""
    counts = books.counts
    lengths = np.maximum(counts, 1)
    ends = np.cumsum(lengths)
    begins = ends - lengths
    ts = np.repeat(books.ts, lengths.reshape(-1, 2).sum(axis=1))
    level = np.arange(len(ts), dtype=np.int32)
    level -= np.repeat(begins.astype(np.int32), lengths)
    side = np.repeat((np.arange(len(lengths)) & 1).astype(np.int8), lengths)
    price, size = books.levels()
    empty = counts == 0
    if empty.any():
        is_level = np.ones(len(ts), bool)
        is_level[begins[empty]] = False
        price, size = (_filled(values, is_level) for values in (price, size))
    bids, asks = (Side(begins[i::2], lengths[i::2], price, size) for i in (0, 1))
    return LevelRows(ts, side, level, price, size), bids, asks


def _filled(values: Floats, is_level: NDArray[np.bool_]) -> Floats:
    out = np.empty(len(is_level))
    out[is_level], out[~is_level] = values, np.nan
    return out


# Columns to frames


def to_frame(
    frame: Frame, columns: Columns, values: Mapping[str, Column], names: Sequence[str] | None = None
) -> Native:
    """A native frame like another one: its rows behind these entries, in tidy types, with values beside or in place.

    ``names``: columns in their order, by default time, ids and values; further columns of the frame are as they are.
    """
    names = ["ts", *frame.ids, *(c for c in values if c not in ("ts", *frame.ids))] if names is None else names
    own: dict[str, Column] = {c: values[c] if c in values else column(frame, columns, c) for c in names}
    return frame.build(own, len(columns))


def rows_to_frame(
    frame: Frame, rows: Ints | None, values: Mapping[str, Column] | None = None, names: Sequence[str] | None = None
) -> Native:
    """A native frame of some rows of another one as they are, with values beside or in place."""
    values = values or {}
    names = [*frame.names, *(c for c in values if c not in frame.names)] if names is None else names
    own: dict[str, Column] = {c: values[c] if c in values else Passed(frame, c, rows) for c in names}
    return frame.build(own, len(frame) if rows is None else len(rows))


def column(frame: Frame, columns: Columns, name: str) -> Column:
    """A column of a frame at the rows of entries: ids are those of their tokens, others are passed on where tidy."""
    place, is_tidy = columns.place, frame.is_tidy(name)
    if name in ID_COLUMNS and not (is_tidy and place is None):
        at = ID_COLUMNS.index(name)
        return Texts(columns.token, [token[at] for token in columns.tokens])
    if is_tidy or name not in COLUMNS.get(frame.kind, BBO):
        return Passed(frame, name, place)
    if name == "ts":
        return times(columns.ts)
    if name == "side":
        return Texts(_at(frame.integers("side"), place), [BID, ASK])
    if name == "level":
        return Levels(_at(frame.integers("level"), place), _at(frame.missing_levels(), place))
    if name in LISTS:
        return (frame if place is None else frame.take(place)).lists(name)
    return _at(frame.numbers(name), place)


def _at(values: NDArray[S], place: Ints | None) -> NDArray[S]:
    return values if place is None else values[place]


def times(ts: Ints) -> NDArray[np.datetime64]:
    """Microseconds as a column of times."""
    return np.asarray(ts, np.int64).view("M8[us]")


def of_another(frame: Frame, name: str, rows: Ints) -> Passed:
    """Rows of a column of a frame that may be of another library, in the type that polars has for it."""
    return Passed(PolarsFrame(pl.DataFrame({name: made(name, Passed(frame, name, rows))}), [name]), name, None)


def lists_are_tidy(frame: Frame, books: Books) -> bool:
    """Whether the lists of a frame are those of its books."""
    same = len(books.bids.price) + len(books.asks.price) == books.counts.sum()
    return bool(same) and all(map(frame.is_tidy, LISTS))


def lists(books: Books) -> dict[str, Column]:
    """The columns of lists of nested books."""
    both = {BID: books.bids, ASK: books.asks}
    return {
        f"{name}_{what}": Lists(side.counts, getattr(side, what)[side.levels])
        for name, side in both.items()
        for what in ("price", "size")
    }


def level_values(levels: LevelRows) -> dict[str, Column]:
    """The columns of level rows; the level of a marker row is null."""
    level = Levels(levels.level, np.isnan(levels.price))
    sides = Texts(levels.side, [BID, ASK])
    return {"ts": times(levels.ts), "side": sides, "level": level, "price": levels.price, "size": levels.size}
