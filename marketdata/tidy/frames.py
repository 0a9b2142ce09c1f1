"""Columns to tidy frames and back, ids and sides dictionary encoded, without a copy where the library allows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from marketdata.adapters import frames
from marketdata.adapters.dispatch import in_memory, missing_in_index_named
from marketdata.adapters.frame import Frame, Native, Texts
from marketdata.adapters.widths import with_width
from marketdata.errors import NotTidyError
from marketdata.points.arguments import choice
from marketdata.points.columns import Books, Columns, Data, Floats, Series
from marketdata.points.schema import ID_COLUMNS, LISTS, TOLERANCE, require
from marketdata.points.views import VIEWS, View, view_of
from marketdata.resolution import BucketWidth

_COUNTS = "_marketdata_counts"
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
        series_values = spec.with_derived(columns.values)
        return with_width(frames.to_frame(like, columns, series_values, ["ts", *spec.ids, *series_values]), width)
    rows = frames.expanded(columns)
    lengths = np.diff(rows.edges[::2])
    values = frames.level_values(rows.levels)
    for name, of_snapshots in columns.values.items():
        repeated = np.repeat(of_snapshots, lengths)
        values[name] = Texts.of(repeated.tolist()) if repeated.dtype.hasobject else repeated
    return with_width(frames.to_frame(like, rows.entries, values, ["ts", *spec.ids, *values]), width)


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
    numbers = [c for c in table.names if c in spec.names or (c not in ("ts", *ID_COLUMNS) and table.is_number(c))]
    _, series = frames.sorted_series(table, numbers)
    none = np.full(len(series), np.nan)
    whole = {c: series.values.get(c, none) for c in (*spec.names, *numbers)}
    derived = spec.with_derived({c: whole[c] for c in spec.names})
    for name in (c for c in spec.derived if c in whole):
        _refuse_other(name, series, whole[name], derived[name])
    whole = {c: values for c, values in whole.items() if c not in spec.derived}
    return Series(series.tokens, series.bounds, series.ts, whole).sort()


def _refuse_other(name: str, series: Series, given: Floats, derived: Floats) -> None:
    """NotTidyError if a column that follows from the best prices has another value."""
    wrong = np.flatnonzero(~((np.abs(given - derived) <= TOLERANCE) | np.isnan(given)))
    if len(wrong):
        at = int(wrong[0])
        raise NotTidyError(
            f"{name} is {given[at]:g} where best_bid and best_ask give {derived[at]:g} ({series.shown(at)}). It is "
            f"computed from them and not stored: drop the column, or rename it if it means something else."
        )
