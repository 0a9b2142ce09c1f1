"""Columns to tidy frames and back, ids and sides dictionary encoded, without a copy where the library allows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory, missing_in_index_named
from marketdata.adapters.expansion import expanded
from marketdata.adapters.frame import Column, Frame, Native, Texts
from marketdata.adapters.polars import nullable
from marketdata.adapters.widths import with_width
from marketdata.errors import ConfigError, NotTidyError
from marketdata.points.arguments import choice
from marketdata.points.columns import Books, Columns, Data, Floats, Series, Trades, missing
from marketdata.points.schema import ID_COLUMNS, LISTS, TOLERANCE, require
from marketdata.points.views import VIEWS, View, view_of
from marketdata.resolution import BucketWidth

_COUNTS = "_marketdata_counts"
_FEW_TEXTS = ("side", "role")  # columns of few texts, dictionary encoded as the ids are
FrameKind = Literal["pandas", "polars"]


def frame_kind(value: object) -> FrameKind:
    """The ``frame`` argument, if it is "pandas" or "polars"; else a ConfigError."""
    return choice("frame", value, get_args(FrameKind), "'pandas' and 'polars'")


def to_frame(columns: Data, frame: FrameKind | Frame = "pandas", *, width: BucketWidth | None = None) -> Native:
    """A tidy frame of columns, in tidy order; an empty side of a book is one sentinel row (null level, price, size).

    It carries the ``width`` of its buckets, if that is known.
    """
    like = frame if isinstance(frame, Frame) else frames.new(frame_kind(frame))
    columns = columns.sort()
    spec = VIEWS[view_of(columns)]
    if isinstance(columns, Series):
        series_values = spec.with_derived(columns.values) if spec.columns is Series else columns.values
        return with_width(frames.to_frame(like, columns, series_values, ["ts", *spec.ids, *series_values]), width)
    if isinstance(columns, Trades):
        prints = _print_columns(columns)
        return frames.to_frame(like, columns, prints, ["ts", *spec.ids, *prints])
    rows = expanded(columns)
    lengths = np.diff(rows.edges[::2])
    values = frames.level_values(rows.levels)
    for name, of_snapshots in columns.values.items():
        repeated = np.repeat(of_snapshots, lengths)
        values[name] = Texts.of(repeated.tolist()) if repeated.dtype.hasobject else repeated
    return with_width(frames.to_frame(like, rows.entries, values, ["ts", *spec.ids, *values]), width)


def _print_columns(trades: Trades) -> dict[str, Column]:
    """The columns of prints after the ids: those that all frames have, then those of which a value is known."""
    spec, out = VIEWS["trades"], dict[str, Column]()
    for name in dict.fromkeys((*spec.names, *spec.known, *trades.values)):
        values = trades.values.get(name, np.full(len(trades), None, object))
        is_missing = missing(values)
        if name not in spec.names and is_missing.all():
            continue
        if spec.type_of(name) == "flag":
            out[name] = nullable(values == 1, ~is_missing)
        elif name in _FEW_TEXTS:
            out[name] = Texts.of(values.tolist())
        else:
            out[name] = values.tolist() if values.dtype.hasobject else values
    return out


def carry_counts(frame: Native, counts: Series | None) -> Native:
    """The frame, which now carries these counts as weights of its means; copies of it carry none."""
    # pandas takes other attributes for columns.
    object.__setattr__(frame, _COUNTS, counts)
    return frame


def carried_counts(frame: Native, rows: Columns) -> Mapping[str, Floats]:
    """The counts that a frame carries for its rows; none if its rows have changed since they were made."""
    counts: Series | None = getattr(frame, _COUNTS, None)
    is_same = counts is not None and counts.tokens == rows.tokens and np.array_equal(counts.ts, rows.ts)
    return counts.values if counts is not None and is_same and np.array_equal(counts.bounds, rows.bounds) else {}


def to_columns(view: View, frame: Native, *, lookup: bool = False) -> Data:
    """Columns of a frame of any kind, in tidy order, with further numeric columns; sentinel rows become empty sides.

    Missing id columns stay None, and with ``lookup`` so do missing ids, which are looked up later. NotTidyError if a
    column is missing or of the wrong type, or rows contradict each other.
    """
    table, spec = in_memory(frame), VIEWS[view]
    nest = view == "books" and set(LISTS) <= set(table.names) and "level" not in table.names
    with missing_in_index_named(table):
        require(f"A {view} frame", ("ts", *(("token_id", *LISTS) if nest else spec.required)), table.names)
    for name in (c for c in ID_COLUMNS if c not in spec.ids):
        table = table.without(name)
    # Until missing ids are looked up, labels tell tokens apart.
    lacks_ids = "token_id" not in table.keys or any(ids.min(initial=0) < 0 for ids in table.read(*table.keys))
    table = replace(table, kind="nested" if nest else view, is_keyed_by_label=lookup and lacks_ids)
    if spec.columns is Books:
        return frames.sorted_books(table)[1].sort()
    if spec.columns is Trades:
        return prints_of(table).sort()
    numbers = [c for c in table.names if c in spec.names or (c not in ("ts", *ID_COLUMNS) and table.is_number(c))]
    _, series = frames.sorted_series(table, numbers)
    none = np.full(len(series), np.nan)
    whole = {c: series.values.get(c, none) for c in (*spec.names, *numbers)}
    derived = spec.with_derived({c: whole[c] for c in spec.names})
    for name in (c for c in spec.derived if c in whole):
        _refuse_other(name, series, whole[name], derived[name])
    whole = {c: values for c, values in whole.items() if c not in spec.derived}
    return Series(series.tokens, series.bounds, series.ts, whole).sort()


def refuse_width_of_prints(width: object) -> None:
    """ConfigError for a width of trades."""
    if width is not None:
        raise ConfigError("is refused: trades have their own times, in no buckets.", argument="width", value=width)


def prints_of(table: Frame) -> Trades:
    """The prints of a frame: its known columns by their types, and further columns of numbers.

    NotTidyError for a side of another kind.
    """
    spec = VIEWS["trades"]
    table, rows = frames.sorted_rows(table)
    values: dict[str, NDArray[Any]] = {}
    for name in dict.fromkeys((*spec.names, *(c for c in spec.known if c in table.names))):
        kind = spec.type_of(name)
        if name not in table.names:
            values[name] = np.full(len(rows), None, object)
        elif kind == "text":  # an empty text is no id
            values[name] = np.array([text or None for text in table.texts(name)], object)
        else:
            values[name] = table.flags(name) if kind == "flag" else table.numbers(name)
    taken = {"ts", *ID_COLUMNS, *values}
    values |= {name: table.numbers(name) for name in table.names if name not in taken and table.is_number(name)}
    check_sides(values["side"])
    return Trades(rows.tokens, rows.bounds, rows.ts, values)


def check_sides(sides: NDArray[Any]) -> None:
    """NotTidyError for a side of a trade that is not buy, sell or missing."""
    if unknown := {*sides.tolist()} - {"buy", "sell", None}:
        raise NotTidyError(
            f"side of a trade is buy or sell, what the taker did, or null; the frame also has "
            f"{sorted(map(str, unknown))[:5]}. Sides bid and ask are those of a book or of its changes."
        )


def _refuse_other(name: str, series: Series, given: Floats, derived: Floats) -> None:
    """NotTidyError if a column that follows from the best prices has another value."""
    wrong = np.flatnonzero(~((np.abs(given - derived) <= TOLERANCE) | np.isnan(given)))
    if len(wrong):
        at = int(wrong[0])
        raise NotTidyError(
            f"{name} is {given[at]:g} where best_bid and best_ask give {derived[at]:g} ({series.shown(at)}). It is "
            f"computed from them and not stored: drop the column, or rename it if it means something else."
        )
