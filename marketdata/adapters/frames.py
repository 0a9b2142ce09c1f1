"""Frames to columns and back: what a verb is between, ``to_frame(rule(columns(frame)), like=frame)``.

`series` and `books` give the rows of a frame as `points` has them, normalised, checked and in tidy order: every row
has a time and ids; a token is its market_id and token_id, with the label of its newest row that has one; equal rows of
one key are deduplicated, different ones refused; levels of a side are 0, 1, 2, ... with the best price first, each with
a price and a size. An empty side may be its marker row or no row. Rows that are in no tidy order, which one pass over
the columns finds out, are sorted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from narwhals.stable.v2.dependencies import is_pandas_dataframe, is_pyarrow_table
from numpy.typing import NDArray

from marketdata.adapters.frame import Column, Frame, Levels, Lists, Passed, Texts
from marketdata.adapters.pandas import PandasFrame
from marketdata.adapters.polars import ArrowFrame, PolarsFrame, made
from marketdata.errors import NotTidyError
from marketdata.points import order
from marketdata.points.columns import Books, Columns, Floats, Ints, Series, Side, Token
from marketdata.points.order import Both, LevelRows, Sides
from marketdata.points.resample import group_starts
from marketdata.points.schema import ASK, BBO, BID, COLUMNS, ID_COLUMNS, LISTS

IDENTITY = ID_COLUMNS[:2]
_PAIRS = (LISTS[:2], LISTS[2:])


class Rows(NamedTuple):
    """Level rows in tidy order: an entry a row, where snapshots are, their levels, and both sides of each snapshot."""

    entries: Columns
    sides: Sides
    levels: LevelRows
    both: Both


def of_native(native: Any) -> Frame | None:
    """The adapter of a native frame in memory; None for a frame of an engine, and for what is no frame."""
    if is_pandas_dataframe(native):
        return PandasFrame(native)
    if isinstance(native, pl.DataFrame):
        return PolarsFrame(native)
    return ArrowFrame(native) if is_pyarrow_table(native) else None


def is_native(value: Any) -> bool:
    """Whether a value is a frame in memory."""
    return is_pandas_dataframe(value) or isinstance(value, pl.DataFrame) or is_pyarrow_table(value)


def new(library: str) -> Frame:
    """The adapter of an empty frame of pandas or polars, to make new ones."""
    if library == "polars":
        return PolarsFrame(pl.DataFrame())
    import pandas as pd

    return PandasFrame(pd.DataFrame())


# Frames to columns


def rows(frame: Frame, *, identity: Sequence[str] = IDENTITY) -> Columns:
    """An entry for each row, by token and time; rows of one token and time may be several."""
    return _entries(frame, identity, strictly=False) or _sorted(frame, identity)[1]


def series(
    frame: Frame, values: Sequence[str] = (), *, same: Sequence[str] | None = None, identity: Sequence[str] = IDENTITY
) -> Series:
    """An entry for each token (market) and time with these numbers; ``same``: columns in which equal rows are equal."""
    found = _entries(frame, identity, strictly=True)
    if found is None:
        found = _sorted(frame, identity, ("ts",), values if same is None else same)[1]
    return with_values(frame, found, values)


def with_values(frame: Frame, entries: Columns, values: Sequence[str]) -> Series:
    """Entries with columns of numbers of their rows."""
    own = frame if entries.place is None else frame.take(entries.place)
    numbers = {name: own.numbers(name) for name in values}
    return Series(entries.tokens, entries.bounds, entries.ts, numbers, place=entries.place)


def books(frame: Frame, *, whole: bool = True, identity: Sequence[str] = IDENTITY) -> Books:
    """An entry for each snapshot of level rows, nested books or bbo; all levels checked, or the best two."""
    if frame.kind == "books":
        entries, sides, _, both = level_rows(frame, whole=whole, identity=identity)
        snapshots = entries.take(sides.starts)
    elif frame.kind == "nested":
        snapshots = series(frame, same=LISTS, identity=identity)
        both = _sides_of_lists(frame, snapshots, whole=whole)
    else:
        quotes = series(frame, BBO[4:], identity=identity)
        at, snapshots = np.arange(len(quotes)), quotes
        best = [quotes.values[c] for c in BBO[4:8]]  # noqa: PD011 no frame
        both = tuple(Side(at, np.ones(len(at), np.int64), p, s) for p, s in (best[:2], best[2:]))  # type: ignore[assignment]
    bids, asks = map(_without_markers, both)
    return Books(snapshots.tokens, snapshots.bounds, snapshots.ts, bids, asks, place=snapshots.place)


def level_rows(frame: Frame, *, whole: bool = True, identity: Sequence[str] = IDENTITY) -> Rows:
    """The rows of a frame of levels by token, time, side and level, of nested books those that they would have.

    All levels are checked, or the best two.
    """
    if frame.kind == "nested":
        return expanded(books(frame, whole=whole, identity=identity))
    groups, ordered, place = _groups(frame, identity), frame, None
    levels = _levels(frame)
    sides = order.snapshots(levels, groups)
    entries = None if sides is None else _tokens(frame, groups, identity)
    if entries is None:
        ordered, entries = _sorted(frame, identity, ("ts", "side", "level"), ("price", "size"))
        levels, place = _levels(ordered), entries.place
        sides = order.snapshots(levels, entries.starts)
    if sides is None:
        new = ~order.same_as_before(*(ordered.comparable(c) for c in (*_id_columns(frame, identity), "ts", "side")))
        raise order.wrong_numbers(levels, new, ordered.missing_levels(), ordered.shown)
    both = order.both(levels, sides)
    order.check_levels(levels, both, ordered.shown, whole=whole)
    return Rows(replace(entries, place=place), sides, levels, both)


def is_in_order(frame: Frame) -> bool:
    """Whether rows are by token and time already, each with ids and a time."""
    names = _id_columns(frame, IDENTITY)
    if "ts" not in frame.names or not names:
        return False
    groups = _groups(frame, IDENTITY)
    missing = any(None in frame.texts(c, groups) for c in names) or order.NO_TIME in frame.integers("ts")[groups]
    return not missing and _entries(frame, IDENTITY, strictly=False) is not None


def _id_columns(frame: Frame, identity: Sequence[str]) -> list[str]:
    """The columns that identify tokens (markets)."""
    return [c for c in frame.ids if c in identity]


def _groups(frame: Frame, identity: Sequence[str]) -> Ints:
    codes = [frame.integers(c) for c in _id_columns(frame, identity)]
    return group_starts(*codes) if codes else np.zeros(min(len(frame), 1), np.int64)


def _entries(frame: Frame, identity: Sequence[str], *, strictly: bool) -> Columns | None:
    """The rows as they are, if they are in tidy order."""
    groups = _groups(frame, identity)
    rises = order.rises(frame.integers("ts"), groups, strictly=strictly)
    return _tokens(frame, groups, identity) if rises else None


def _tokens(frame: Frame, groups: Ints, identity: Sequence[str]) -> Columns | None:
    """Rows whose tokens begin at these positions, if the ids rise; NotTidyError if one is missing.

    Times rise within tokens and ids are equal there, so one that is missing is the first.
    """
    names, ts = _id_columns(frame, identity), frame.integers("ts")
    texts = {c: frame.texts(c, groups) for c in names}
    if (len(groups) and ts[groups].min() == order.NO_TIME) or any(
        None in texts[c] for c in names if c != "token_label" and len(identity) == len(IDENTITY)
    ):
        _check(frame, identity)
    keys = [[(t is None, t or "") for t in texts[c]] for c in names]
    if not all(a < b for a, b in pairwise(zip(*keys, strict=True))):
        return None
    if "token_label" in frame.names and "token_label" not in names:
        newest, differs = order.newest(frame.integers("token_label"), groups)
        frame.relabelled |= differs
        texts["token_label"] = frame.texts("token_label", newest)
    none: list[str | None] = [None] * len(groups)
    ids = zip(*(texts.get(c, none) for c in ID_COLUMNS), strict=True)
    tokens = tuple(Token(market or "", token, label) for market, token, label in ids)
    return Columns(tokens, np.append(groups, len(ts)), ts)


def _check(frame: Frame, identity: Sequence[str]) -> None:
    frame.times("ts")
    for name in _id_columns(frame, identity) if len(identity) == len(IDENTITY) else ():
        frame.codes(name)


def _sorted(
    frame: Frame, identity: Sequence[str], keys: Sequence[str] = (), values: Iterable[str] = ()
) -> tuple[Frame, Columns]:
    """The rows in tidy order and their entries; of equal ``keys`` one, if there are any."""
    _check(frame, identity)
    ids = [ranks(frame, c) for c in _id_columns(frame, identity)]
    more = [frame.integers("side"), _nulls_last(frame)] if "level" in keys else []
    place = order.sorted_by(*ids, frame.times("ts"), *more)
    ordered = frame.take(place)
    entries = _entries(ordered, identity, strictly=False)
    assert entries is not None
    frame.relabelled = True
    kept = _kept(ordered, identity, keys, values) if keys else None
    if kept is None or len(kept) == len(place):
        return ordered, replace(entries, place=place)
    return ordered.take(kept), replace(entries.take(kept), place=place[kept])


def _nulls_last(frame: Frame) -> Ints:
    level = frame.integers("level").astype(np.int64)
    level[frame.missing_levels()] = int(level.max(initial=0)) + 1
    return level


def distinct_ids(frame: Frame, names: Sequence[str]) -> tuple[Ints, Ints]:
    """A row of each combination of some ids, and which of them is that of each row; without names all are one."""
    first = which = np.zeros(len(frame), np.int64)
    for name in names:
        _, own = order.distinct(frame.codes(name) if name in ID_COLUMNS else frame.other_codes(name))
        first, which = order.distinct(which * (int(own.max(initial=0)) + 1) + own)
    return first if names else first[:1], which


def ranks(frame: Frame, name: str) -> Ints:
    """Integers in the order of the texts of an id, a missing one last."""
    first, which = order.distinct(frame.other_codes(name))
    texts = frame.texts(name, first)
    rank = np.empty(len(texts), np.int64)
    rank[sorted(range(len(texts)), key=lambda i: (texts[i] is None, texts[i] or ""))] = np.arange(len(texts))
    return rank[which]


def _kept(ordered: Frame, identity: Sequence[str], keys: Sequence[str], values: Iterable[str]) -> Ints:
    """The first of the rows that are equal, of sorted ones; NotTidyError if values differ, or times beyond a digit."""
    keys, values = [*_id_columns(ordered, identity), *keys], list(values)
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
        order.check_levels(rows.levels, rows.both, lambda at: own.shown(int(rows.entries.rows[at])), whole=whole)
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
    levels, sides = levels_of(books)
    edges = np.append(sides.starts, len(levels.ts))
    place = np.repeat(books.rows, np.diff(edges))
    entries = Columns(books.tokens, edges[books.bounds], levels.ts, place=place)
    return Rows(entries, sides, levels, order.both(levels, sides))


def levels_of(books: Books) -> tuple[LevelRows, Sides]:
    """The level rows alone, and where the sides of each snapshot are."""
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
    return LevelRows(ts, side, level, price, size), Sides(begins[::2], begins[1::2], ends[1::2])


def _filled(values: Floats, is_level: NDArray[np.bool_]) -> Floats:
    out = np.empty(len(is_level))
    out[is_level], out[~is_level] = values, np.nan
    return out


# Columns to frames


def to_frame(frame: Frame, columns: Columns, values: Mapping[str, Column], names: Sequence[str] | None = None) -> Any:
    """A native frame like another one: its rows behind these entries, in tidy types, with values beside or in place.

    ``names``: columns in their order, by default time, ids and values; further columns of the frame are as they are.
    """
    names = ["ts", *frame.ids, *(c for c in values if c not in ("ts", *frame.ids))] if names is None else names
    own: dict[str, Column] = {c: values[c] if c in values else column(frame, columns, c) for c in names}
    return frame.build(own, len(columns))


def rows_to_frame(
    frame: Frame, rows: Ints | None, values: Mapping[str, Column] | None = None, names: Sequence[str] | None = None
) -> Any:
    """A native frame of some rows of another one as they are, with values beside or in place."""
    values = values or {}
    names = [*frame.names, *(c for c in values if c not in frame.names)] if names is None else names
    own: dict[str, Column] = {c: values[c] if c in values else Passed(frame, c, rows) for c in names}
    return frame.build(own, len(frame) if rows is None else len(rows))


def column(frame: Frame, columns: Columns, name: str) -> Column:
    """A column of a frame at the rows of entries, passed on where it has its tidy type."""
    if name in ID_COLUMNS and (not frame.is_tidy(name) or (frame.relabelled and name == "token_label")):
        at = ID_COLUMNS.index(name)
        return Texts(columns.token, [token[at] for token in columns.tokens])
    if frame.is_tidy(name) or name not in COLUMNS.get(frame.kind, BBO):
        return Passed(frame, name, columns.place)
    if name == "ts":
        return times(columns.ts)
    own = frame if columns.place is None else frame.take(columns.place)
    if name == "side":
        return Texts(own.integers("side"), [BID, ASK])
    if name == "level":
        return Levels(own.integers("level"), own.missing_levels())
    return own.lists(name) if name in LISTS else own.numbers(name)


def times(ts: Ints) -> NDArray[np.datetime64]:
    """Microseconds as a column of times."""
    return np.asarray(ts, np.int64).view("M8[us]")


def of_another(frame: Frame, name: str, rows: Ints) -> Column:
    """Rows of a column of a frame that may be of another library."""
    return made(name, Passed(frame, name, rows))


def labels(frame: Frame, columns: Columns) -> dict[str, Column]:
    """The column of labels, where those of tokens are others than those of the rows."""
    return (
        {"token_label": column(frame, columns, "token_label")}
        if frame.relabelled and "token_label" in frame.names
        else {}
    )


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
