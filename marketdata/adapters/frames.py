"""Frames to columns and back; a function on frames is a rule on columns in between.

`sorted_series` and `sorted_books` give the frame in tidy order, with its rows as `points` has them: normalised and
checked. Every row has a time and ids. A token is its market_id and token_id, with the label of its newest row that has
one. Equal rows of one key are deduplicated, different ones refused. Levels of a side are 0, 1, 2, ... with the best
price first, each with a price and a size. An empty side may be its sentinel row or no row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import pairwise

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marketdata.adapters import normalization
from marketdata.adapters.expansion import Rows, expanded
from marketdata.adapters.frame import Column, Frame, Native, Passed, Texts
from marketdata.adapters.pandas import PandasFrame
from marketdata.adapters.polars import ARROW, ArrowFrame, PolarsFrame, made_lists
from marketdata.errors import NotTidyError
from marketdata.points import order
from marketdata.points.columns import Books, Columns, Ints, Series, Side, Token
from marketdata.points.order import LevelRows
from marketdata.points.resample import group_starts, run_ends
from marketdata.points.schema import ASK, BID, COLUMNS, ID_COLUMNS, LISTS, QUOTES
from marketdata.points.views import SNAPSHOT_FIELDS

# A new library needs its class, see `Frame`, and an entry here.
LIBRARIES: dict[str, type[Frame]] = {
    "pandas.DataFrame": PandasFrame,
    "polars.DataFrame": PolarsFrame,
    **dict.fromkeys(map("pyarrow.{}".format, ARROW), ArrowFrame),
}


def is_a(native: object, *names: str) -> bool:
    """Whether an object has one of these types, such as "pandas.DataFrame"; no library is imported for it."""
    return any(f"{kind.__module__.partition('.')[0]}.{kind.__name__}" in names for kind in type(native).__mro__)


def library_of(native: object) -> type[Frame] | None:
    """The class for a native frame in memory; None for a frame of an engine and for other objects."""
    return next((library for name, library in LIBRARIES.items() if is_a(native, name)), None)


def new(library: str) -> Frame:
    """The adapter of an empty frame of pandas or polars, to make new ones."""
    return LIBRARIES[f"{library}.DataFrame"].of(import_module(library).DataFrame())


# Frames to columns


def sorted_rows(frame: Frame, keys: Sequence[str] = (), same: Sequence[str] = ()) -> tuple[Frame, Columns]:
    """The frame in order by token and time, and an entry for each of its rows.

    One of several rows with equal ``keys`` stays; NotTidyError if they differ in one of the columns ``same``.
    """
    entries = frame.entries
    if entries is not None and not keys:
        return frame, entries
    ts, starts = (frame.read("ts")[0], _starts(frame)) if entries is None else (entries.ts, entries.starts)
    if order.rises(ts, starts, strictly=bool(keys)):
        ordered = _identified(frame, starts) if entries is None else (frame, entries)
        if ordered is not None:
            return ordered
    return _sorted(frame, keys, same)


def _starts(frame: Frame) -> Ints:
    """The first row of each token."""
    return group_starts(*frame.read(*frame.keys))


def sorted_series(
    frame: Frame, values: Sequence[str] = (), *, same: Sequence[str] | None = None
) -> tuple[Frame, Series]:
    """The frame in order, and an entry with these numbers for each token (market) and time.

    Rows of one token and time must agree in the columns ``same``, by default in ``values``.
    """
    frame, entries = sorted_rows(frame, ("ts",), values if same is None else same)
    numbers = dict(zip(values, frame.read(*values), strict=True))
    return frame, Series(entries.tokens, entries.bounds, entries.ts, numbers)


def sorted_books(frame: Frame, *, all_levels: bool = True) -> tuple[Frame, Books]:
    """The frame in order, and an entry for each snapshot of its level rows, nested books or quotes.

    All levels are checked, or the best two.
    """
    entries: Columns
    if frame.kind == "books":
        frame, entries, bids, asks = sorted_snapshots(frame, all_levels=all_levels)
    elif frame.kind == "nested":
        frame, entries = sorted_series(frame, same=LISTS)
        bids, asks = _sides_of_lists(frame, entries, all_levels=all_levels)
    else:
        frame, best = sorted_series(frame, QUOTES[4:])
        entries, at, one = best, np.arange(len(best)), np.ones(len(best), np.int64)
        bids, asks = (Side(at, one, *(best.values[c] for c in names)) for names in (QUOTES[4:6], QUOTES[6:8]))
    # Each level row repeats the values of its snapshot, so the first row of a snapshot has them.
    first = bids.begins if frame.kind == "books" else np.arange(len(frame))
    values = {
        name: np.array(frame.texts(name, first), object) if kind == "text" else frame.numbers(name)[first]
        for name, kind in SNAPSHOT_FIELDS.items()
        if name in frame.names
    }
    # The sentinel row of an empty side is no level.
    bids, asks = (replace(s, counts=np.where(np.isnan(s.top[0]), 0, s.counts)) for s in (bids, asks))
    return frame, Books(entries.tokens, entries.bounds, entries.ts, bids, asks, values)


def sorted_snapshots(frame: Frame, *, all_levels: bool) -> tuple[Frame, Columns, Side, Side]:
    """A frame of level rows in tidy order, its snapshots and their sides, where a sentinel row is a level."""
    levels, entries = LevelRows(*frame.read(*LevelRows._fields)), frame.entries
    starts = _starts(frame) if entries is None else entries.starts
    sides = order.snapshots(levels, starts, all_levels=all_levels)
    if sides is not None and entries is None and (ordered := _identified(frame, starts)) is not None:
        frame, entries = ordered
    if sides is None or entries is None:
        frame, entries = _sorted(frame, ("ts", "side", "level"), ("price", "size"))
        levels = LevelRows(*frame.read(*LevelRows._fields))
        sides = order.snapshots(levels, entries.starts, all_levels=all_levels)
    if sides is None:
        new = ~order.same_as_before(*frame.read(*frame.keys, "ts", "side"))
        raise order.wrong_numbers(levels, new, frame.missing_levels(), frame.shown)
    if len(sides.wrong):
        raise order.wrong_level(levels, int(sides.wrong[0]), frame.shown)
    bounds = np.searchsorted(sides.bids.begins, entries.bounds)
    return frame, Columns(entries.tokens, bounds, sides.ts), sides.bids, sides.asks


def observed(frame: Frame, books: Books) -> NDArray[np.bool_]:
    """False for books that were filled in, of a frame that `sorted_books` gave."""
    return frame.observed()[books.bids.begins if frame.kind == "books" else np.arange(len(books))]


def sorted_level_rows(frame: Frame) -> tuple[Frame, Rows]:
    """The frame in order, and its rows by token, time, side and level; nested books as rows of levels."""
    frame, snapshot_books = sorted_books(frame)
    if frame.kind == "nested":
        return frame, expanded(snapshot_books)
    frame, entries = sorted_rows(frame)
    levels = LevelRows(*frame.read(*LevelRows._fields))
    edges = np.stack((snapshot_books.bids.begins, snapshot_books.asks.begins), axis=1).ravel()
    return frame, Rows(entries, levels, np.append(edges, len(levels.ts)))


def _identified(frame: Frame, starts: Ints) -> tuple[Frame, Columns] | None:
    """The rows as they are, with tokens that begin at these positions, and their entries; None if the ids do not rise.

    NotTidyError if an id is missing, unless labels identify tokens: then ids are looked up later.
    """
    (ts,) = frame.read("ts")
    texts = {c: frame.texts(c, starts) for c in frame.keys}
    for name in texts if "token_label" not in texts else ():
        if None in texts[name]:
            frame.codes(name)
    keys = [[(text is None, text or "") for text in values] for values in texts.values()]
    if any(a >= b for a, b in pairwise(zip(*keys, strict=True))):
        return None
    is_mixed = False
    if "token_label" in frame.names and "token_label" not in texts:
        (labels,), labelled = frame.read("token_label"), starts
        others = group_starts(labels)
        is_mixed = bool((starts[np.searchsorted(starts, others, side="right") - 1] != others).any())
        if is_mixed:
            labelled = order.newest(labels, starts)
        texts["token_label"] = frame.texts("token_label", labelled)
    none: list[str | None] = [None] * len(starts)
    ids = zip(*(texts.get(c, none) for c in ID_COLUMNS), strict=True)
    tokens = tuple(Token(market or "", token, label) for market, token, label in ids)
    entries = Columns(tokens, np.append(starts, len(ts)), ts)
    return replace(frame, entries=entries, has_mixed_labels=is_mixed), entries


def _sorted(frame: Frame, keys: Sequence[str], same: Sequence[str]) -> tuple[Frame, Columns]:
    """The rows in tidy order; with ``keys``, one row per equal keys."""
    by = [*(ranks(frame, c) for c in frame.keys), frame.times("ts")]
    if "level" in keys:
        side, level = frame.read("side", "level")
        by += [side, np.where(frame.missing_levels(), level.max(initial=0) + np.int64(1), level)]  # nulls last
    rows = replace(frame, entries=None).take(order.sorted_by(*by))
    ordered = _identified(rows, _starts(rows))
    assert ordered is not None
    frame, entries = ordered
    kept = _kept(frame, keys, same) if keys else np.arange(len(frame))
    return (frame, entries) if len(kept) == len(frame) else (frame.take(kept), entries.take(kept))


def distinct_ids(frame: Frame, names: Sequence[str]) -> tuple[list[tuple[str | None, ...]], Ints]:
    """The distinct combinations of ids, as texts, and for each row the number of its combination."""
    if not names:
        return [()] * min(len(frame), 1), np.zeros(len(frame), np.int64)
    codes = [frame.codes(name, nullable=name not in ID_COLUMNS) for name in names]
    starts = group_starts(*codes)
    first, which = order.distinct(codes[0][starts])
    for other_codes in codes[1:]:
        _, which_of_column = order.distinct(other_codes[starts])
        first, which = order.distinct(which * (int(which_of_column.max(initial=0)) + 1) + which_of_column)
    texts = zip(*(frame.texts(name, starts[first]) for name in names), strict=True)
    return [*texts], np.repeat(which, run_ends(starts, len(frame)) - starts)


def ranks(frame: Frame, name: str) -> NDArray[np.integer]:
    """Integers that sort as the texts of an id do, a missing text last."""
    first, which = order.distinct(frame.codes(name, nullable=True))
    texts = frame.texts(name, first)
    rank = np.empty(len(texts), np.min_scalar_type(len(texts)))
    rank[sorted(range(len(texts)), key=lambda i: (texts[i] is None, texts[i] or ""))] = np.arange(len(texts))
    return rank[which]


def _kept(ordered: Frame, keys: Sequence[str], values: Iterable[str]) -> Ints:
    """The first of equal sorted rows; NotTidyError if values differ, or times in digits that are cut."""
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
                "md.to_wide(books) where a function takes one row per token and time."
            )
    return np.flatnonzero(~same)


def _sides_of_lists(frame: Frame, snapshots: Columns, *, all_levels: bool) -> tuple[Side, Side]:
    sides = []
    for names in (LISTS[:2], LISTS[2:]):
        columns = [frame.lists(name) for name in names]
        counts, others = (column.list.len().cast(pl.Int64).to_numpy() for column in columns)
        differs = np.flatnonzero(counts != others)
        if len(differs):
            at = int(differs[0])
            raise NotTidyError(
                f"{names[0]} has {counts[at]} entries and {names[1]} has {others[at]}, first {frame.shown(at)}; the "
                "two lists of a side have one entry per level."
            )
        price, size = (column.explode(empty_as_null=False).to_numpy() for column in columns)
        sides.append(Side(np.cumsum(counts) - counts, counts, price, size))
    bids, asks = sides
    if not (_is_sound(bids, -1, all_levels=all_levels) and _is_sound(asks, 1, all_levels=all_levels)):
        # Level rows know which rule is broken; a list of one null may still be sound, as an empty side.
        rows = expanded(Books(snapshots.tokens, snapshots.bounds, snapshots.ts, bids, asks))
        sides_in_order = order.snapshots(rows.levels, rows.entries.starts, all_levels=all_levels)
        if sides_in_order is not None and len(sides_in_order.wrong):
            raise order.wrong_level(rows.levels, int(sides_in_order.wrong[0]), rows.entries.shown)
    return bids, asks


def _is_sound(side: Side, sign: int, *, all_levels: bool) -> bool:
    """Whether levels are numbers, and prices get no better: ``sign`` is 1 where they should rise, else -1."""
    tops, deeper = side.begins[side.counts > 0], side.begins[side.counts > 1] + 1
    if all_levels:
        is_deeper = np.ones(len(side.price), bool)
        is_deeper[tops] = False
        tops, deeper = np.arange(len(side.price)), np.flatnonzero(is_deeper)
    with np.errstate(invalid="ignore"):
        worse = (side.price[deeper] - side.price[deeper - 1]) * sign >= 0
    return bool(worse.all()) and not (np.isnan(side.price[tops]).any() or np.isnan(side.size[tops]).any())


# Columns to frames


def to_frame(
    frame: Frame, columns: Columns, values: Mapping[str, Column], names: Sequence[str] | None = None
) -> Native:
    """Build a native frame with one row per entry; ``values`` add or replace columns.

    ``names`` gives the columns in their order, by default time, ids and values. Further columns of the frame are passed
    on, if each of its rows is an entry.
    """
    passed, entries = list[str](), frame.entries
    if entries is not None and frame.rows is None:
        # Ids and times that did not change are passed on without a copy.
        same = [*(frame.ids if columns.bounds is entries.bounds else ()), *(["ts"] if columns.ts is entries.ts else ())]
        passed = [name for name in same if frame.can_pass_on(name)]
    names = list(dict.fromkeys(("ts", *frame.ids, *values)) if names is None else names)
    new = entry_columns(columns, [c for c in names if c not in passed and c not in values])
    out: dict[str, Column] = {}
    for name in names:
        if name in values:
            out[name] = values[name]
        elif name in new:
            out[name] = new[name]
        elif name in COLUMNS.get(frame.kind, QUOTES) and not frame.can_pass_on(name):
            if name == "level":
                out[name] = normalization.levels(frame.raw(name))
            elif name == "side" and frame.kind != "trades":
                out[name] = Texts(frame.read(name)[0], [BID, ASK])
            elif name == "side":
                out[name] = Passed(frame, name, frame.rows)
            else:
                out[name] = frame.lists(name) if name in LISTS else frame.read(name)[0]
        else:
            out[name] = Passed(frame, name, frame.rows)
    return frame.build(out, len(columns.ts))


def entry_columns(columns: Columns, names: Sequence[str]) -> dict[str, Column]:
    """The columns of times and ids among ``names``, one row per entry."""
    lengths, codes = np.diff(columns.bounds), np.arange(len(columns.tokens))
    out: dict[str, Column] = {"ts": columns.ts.view("M8[us]")} if "ts" in names else {}
    ids = ((i, c) for i, c in enumerate(ID_COLUMNS) if c in names)
    return out | {c: Texts(codes, [token[i] for token in columns.tokens], lengths) for i, c in ids}


def rows_to_frame(
    frame: Frame, rows: Ints | None, values: Mapping[str, Column] | None = None, names: Sequence[str] | None = None
) -> Native:
    """Some rows of a native frame, unchanged but for ``values``, which add or replace columns."""
    values = values or {}
    height = len(frame) if rows is None else len(rows)
    if frame.rows is not None:
        rows = frame.rows if rows is None else np.where(rows < 0, rows, frame.rows[rows])
    names = [*frame.names, *(c for c in values if c not in frame.names)] if names is None else names
    columns: dict[str, Column] = {c: values[c] if c in values else Passed(frame, c, rows) for c in names}
    return frame.build(columns, height)


def with_columns(frame: Frame, values: Mapping[str, Column]) -> Native:
    """The native frame with added or replaced columns; its rows, and in pandas its index, stay."""
    out = rows_to_frame(frame, None, values)
    if isinstance(frame, PandasFrame):
        out.index = frame.native.index  # by which pandas assigns columns
    return out


def times(ts: Ints) -> NDArray[np.datetime64]:
    """Microseconds as a column of times."""
    return np.asarray(ts, np.int64).view("M8[us]")


def lists(books: Books) -> dict[str, Column]:
    """Prices and sizes as the columns of lists that nested books have."""
    out: dict[str, Column] = {}
    for name, side in ((BID, books.bids), (ASK, books.asks)):
        for what, values in (("price", side.price), ("size", side.size)):
            out[f"{name}_{what}"] = made_lists(side.counts, values[side.levels])
    return out


def level_values(levels: LevelRows) -> dict[str, Column]:
    """The columns of level rows; the level of a sentinel row is null."""
    level = pl.Series(levels.level, dtype=pl.Int32).set(pl.Series(np.isnan(levels.price)), None)
    return {"side": Texts(levels.side, [BID, ASK]), "level": level, "price": levels.price, "size": levels.size}
